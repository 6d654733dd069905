"""Archives: whole, nothing outside of the folder, and resumed."""

import io
import stat
import tarfile
import zipfile

import pytest

from excite.errors import DataError
from excite.io.archives import members, unpack

FILES = {"val/a.jpg": b"a" * 1000, "val/deep/b.jpg": b"b" * 10, "c.json": b""}


def zipped(path, files=FILES):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("val/", b"")  # a folder
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tarred(path, files=FILES):
    with tarfile.open(path, "w") as archive:
        folder = tarfile.TarInfo("val")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o4777
            archive.addfile(entry, io.BytesIO(content))
    return path


@pytest.fixture(params=[zipped, tarred], ids=["zip", "tar"])
def make(request, tmp_path):
    return lambda files=FILES: request.param(tmp_path / "archive", files)


def unpacked(archive, folder):
    with members(archive) as found:
        return list(unpack(found, folder))


def there(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_of_it(make, tmp_path):
    assert unpacked(make(), tmp_path / "out") == list(FILES)
    assert there(tmp_path / "out") == FILES
    assert not (tmp_path / "out/c.json").stat().st_mode & (stat.S_ISUID | stat.S_IWOTH)  # content only, no rights
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match=r"cannot write .*start again to resume"):
        unpacked(make(), tmp_path / "file")


def test_resumed(make, tmp_path):
    out = tmp_path / "out"
    with members(make()) as found:
        names = unpack(found, out)
        next(names)
        names.close()
    assert there(out) == {"val/a.jpg": FILES["val/a.jpg"]}
    (out / "val/a.jpg").write_bytes(b"A" * 1000)  # of full length: taken for whole
    (out / "val/deep").mkdir()
    (out / "val/deep/b.jpg").write_bytes(b"bb")  # cut off
    unpacked(make(), out)
    assert there(out) == {**FILES, "val/a.jpg": b"A" * 1000}


@pytest.mark.parametrize("name", ["../out.txt", "val/../../out.txt", "/out.txt", "..\\out.txt", "C:out.txt", "."])
def test_nothing_outside(make, tmp_path, name):
    with pytest.raises(DataError, match="outside of the folder; nothing is unpacked"):
        unpacked(make({"good.txt": b"good", name: b"bad"}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_links(tmp_path):
    with tarfile.open(tmp_path / "links.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            entry = tarfile.TarInfo(f"entry{kind!r}")
            entry.type, entry.linkname = kind, "../secret"
            archive.addfile(entry)
    with zipfile.ZipFile(tmp_path / "links.zip", "w") as archive:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "../secret")
    for name in ("links.tar", "links.zip"):
        with pytest.raises(DataError, match=rf"{name}: .* is a link or a device"):
            unpacked(tmp_path / name, tmp_path / "out")


def test_a_damaged_archive_is_not_taken_for_whole(tmp_path):
    page, whole, cut = tmp_path / "page.html", tmp_path / "plain.zip", tmp_path / "cut.tar"
    page.write_bytes(b"<html>Please log in</html>" * 100)
    with zipfile.ZipFile(whole, "w") as plain:
        plain.writestr("a.jpg", b"a" * 1000)
    whole.write_bytes(whole.read_bytes().replace(b"aaaa", b"aaba", 1))
    tarred(cut, {"a.jpg": b"a" * 100_000}).write_bytes(cut.read_bytes()[:50_000])
    for archive, said in ((page, r"page\.html is no archive that can be unpacked"), (whole, "damaged"), (cut, "cut")):
        with pytest.raises(DataError, match=said):
            unpacked(archive, tmp_path / "out")
        assert not (tmp_path / "out/a.jpg").exists()
