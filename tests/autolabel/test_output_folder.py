"""Files of our own are replaced, all others are left alone."""

import json
import os
from pathlib import Path

import pytest
from boxfiles import tree

from excite.autolabel.files import OutputFolder, open_own_results
from excite.errors import ExciteError


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"pixels")
    return path


def test_written_and_replaced_by_later_runs(out):
    for content in (b"one", b"two", b"two", b"one"):
        OutputFolder(out, "coco").write({"a/b.txt": content})
        assert (out / "a/b.txt").read_bytes() == content
    assert len((out / "written.jsonl").read_text().splitlines()) == 2
    os.utime(out / "a/b.txt", ns=(5, 5))
    files = OutputFolder(out, "coco")
    for _ in range(2):
        files.write({"a/b.txt": b"one"})
    assert (out / "a/b.txt").stat().st_mtime_ns == 5, "what is right is not written again"


@pytest.mark.parametrize("theirs", [b"theirs", b"", b"ours"])
def test_files_of_others_are_left_alone(out, theirs):
    """Even if they hold just what was to be written: they might be changed later. So are files that were corrected."""
    out.mkdir()
    (out / "b.txt").write_bytes(theirs)
    files = OutputFolder(out, "coco")
    for refuse in (files.check, files.write):
        with pytest.raises(ExciteError, match=r"b.txt' is there already and was not written by excite.*another --out"):
            refuse({"a.txt": b"ours", "b.txt": b"ours"})
    assert (out / "b.txt").read_bytes() == theirs
    assert not (out / "a.txt").exists()  # all or nothing
    files.write({"c.txt": b"first"})
    (out / "c.txt").write_bytes(theirs)
    for later in (files, OutputFolder(out, "coco")):
        with pytest.raises(ExciteError, match="or was changed since"):
            later.write({"c.txt": b"ours, too"})
    OutputFolder(out, "coco").remove_others({})
    assert (out / "c.txt").read_bytes() == theirs


def test_folders_and_links_of_others_are_left_alone(out, photo):
    (out / "a.txt").mkdir(parents=True)
    (out / "b.txt").symlink_to(photo)
    (out / "c.txt").symlink_to("nowhere")
    for name in ("a.txt", "b.txt", "c.txt"):
        for content in (b"ours", out / "other.jpg"):
            with pytest.raises(ExciteError, match="is there already"):
                OutputFolder(out, "coco").write({name: content})
    assert photo.read_bytes() == b"pixels"
    assert not (out / "nowhere").exists()


def test_a_kill_between_record_and_file(out):
    """Whichever of the two states the file is in, it is ours."""
    files = OutputFolder(out, "coco")
    files.write({"b.txt": b"one"})
    files._record("b.txt", "the state of a file that was never written")
    files._store.close()
    OutputFolder(out, "coco").write({"b.txt": b"two"})
    assert (out / "b.txt").read_bytes() == b"two"


def test_links_are_made_once(out, photo):
    numbers = set()
    for _ in range(2):
        files = OutputFolder(out, "voc")
        files.write({"JPEGImages/1.jpg": photo})
        link = out / "JPEGImages/1.jpg"
        assert (link.readlink(), files.copied) == (photo, 0)
        numbers.add(link.lstat().st_ino)
    assert len(numbers) == 1
    OutputFolder(photo.parent, "voc").write({"photo.jpg": photo})  # no link to itself
    assert photo.read_bytes() == b"pixels"
    assert not photo.is_symlink()


def test_copies_where_links_cannot_be_made(out, photo, tmp_path, monkeypatch):
    other = tmp_path / "other.jpg"
    other.write_bytes(b"not to be changed")
    OutputFolder(out, "voc").write({"1.jpg": other})
    monkeypatch.setattr(Path, "symlink_to", lambda *_: (_ for _ in ()).throw(OSError(1, "not permitted")))
    for content in (b"pixels", b"other pixels"):
        photo.write_bytes(content)
        for times in (1, 2):
            files = OutputFolder(out, "voc")
            for _ in range(times):
                files.write({"1.jpg": photo})
            assert files.copied == 1
            assert not (out / "1.jpg").is_symlink()
            assert (out / "1.jpg").read_bytes() == content
    assert other.read_bytes() == b"not to be changed", "a copy never goes through a link"
    (out / "theirs.jpg").write_bytes(b"theirs")
    files = OutputFolder(out, "coco")  # also when another format is written now
    originals = [files.original(path) for path in (out / "1.jpg", out / "theirs.jpg", photo)]
    assert originals == [out / "1.jpg", None, None]
    with pytest.raises(ExciteError, match=r"cannot copy .*gone.jpg.*No such file"):
        OutputFolder(out, "voc").write({"2.jpg": tmp_path / "gone.jpg"})


def test_what_is_no_longer_wanted_is_removed(out, photo, monkeypatch):
    """Also what is left of a file whose writer was killed, under the names that the writer really gives."""
    OutputFolder(out, "voc").write({"a.xml": b"a", "b.xml": b"b", "b.jpg": photo})
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    monkeypatch.setattr(Path, "replace", lambda *_: None)
    for _ in range(5):
        OutputFolder(out, "voc").write({"Annotations/b.xml": b"b"})
    monkeypatch.undo()
    assert len(list((out / "Annotations").iterdir())) == 5
    (out / "Annotations/.mine.tmp").touch()
    OutputFolder(out, "voc").remove_others({"a.xml": b"a"})
    assert sorted(tree(out, without=())) == ["Annotations/.mine.tmp", "a.xml", "written.jsonl"]
    assert photo.exists()


LINE = json.dumps({"key": "k", "image": "a.jpg"}) + "\n"
OURS = ["", LINE, LINE + "damaged", LINE[:-1], LINE[:3], '{"key": "cut off']
THEIRS = ['{"key": "k", "other": 1}\n', "my notes\n", "my notes", "[1]\n", "\n" + LINE]


@pytest.mark.parametrize("content", OURS + THEIRS)
def test_ledgers_of_others_are_not_read(tmp_path, content):
    """To read them would drop lines."""
    path = tmp_path / "records.jsonl"
    path.write_text(content)
    if content in OURS:
        assert set(open_own_results(path, ["image"]).read()) <= {"k"}
        return
    with pytest.raises(ExciteError, match=r"records.jsonl' is there already.* choose another --out"):
        open_own_results(path, ["image"])
    assert path.read_text() == content
