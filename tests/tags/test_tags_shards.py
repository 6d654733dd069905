"""Shards: images in tar files, written and read again, here and from a server, one by one and in any order."""

import io
import json
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import serving
from typer.testing import CliRunner
from webdataset.tariterators import group_by_keys, tar_file_iterator

from excite.cli.tags import app
from excite.errors import DataError, ExciteError, ImageError
from excite.io import files
from excite.tags.corpus import Corpus
from excite.tags.images import open_images, shards, shards_of
from excite.tags.images.shards import ShardWriter, key_of, split_key

ODD = [*"a.jpg,a.png,a,a.b.jpg,v1.2/x.y.jpeg,Zürich foto.JPG,.jpg,__x__.jpg,p%2Eq.jpg".split(","), "l" * 200]


@pytest.fixture(scope="session")
def numbered(encoded):
    """A picture that is known by its width."""
    return lambda number, kind="JPEG": encoded((number, 90, 30), kind, (number + 1, 5))


def write_tar(path, members, kind="w"):
    with tarfile.open(path, kind) as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def two(tmp_path, numbered):
    """Two shards of three images, with other files among them."""
    (tmp_path / "tars").mkdir()
    for shard in range(2):
        members = {}
        for number in range(3 * shard, 3 * shard + 3):
            members |= {f"d.0/{number}.json": b"{}", f"d.0/{number}.jpg": numbered(number), f"d.0/{number}.txt": b"x"}
        write_tar(tmp_path / f"tars/pics-{shard:03d}.tar", members)
    return tmp_path / "tars"


class TestReading:
    @pytest.mark.parametrize("where", ["", "pics-{000..001}.tar", "pics-*.tar", "pics-{000,001}.tar"])
    def test_any_picture(self, two, where):
        pictures = open_images(two / where if where else two)
        assert pictures.groups == 2
        for number in (4, 0, 5, 1):
            for name in (f"d.0/{number}.jpg", f"d.0/{number}", f"./d.0/{number}.jpg"):
                assert pictures.read(name).width == number + 1
                assert pictures.group(name) == number // 3
        sent = pickle.dumps(pictures)
        assert len(sent) < 1000
        assert pickle.loads(sent).read("d.0/5.jpg").width == 6  # noqa: S301 - made here

    @pytest.mark.parametrize(
        "name", ["", "x" * 10**6, "\0", "../d.0/1.jpg", "d.0", "d.0/1.txt", "\ud800", "http://x/y"]
    )
    def test_what_is_in_none(self, two, name):
        for ask in (open_images(two).read, open_images(two).state):
            with pytest.raises(ImageError, match=r"there is no image .* and 1 more shards") as caught:
                ask(name)
            assert len(str(caught.value)) < 600
        with pytest.raises(ImageError, match=r"there is no image 'd\.0/1\.jpg' in .*pics-001\.tar$"):
            open_images(two / "pics-001.tar").group("d.0/1.jpg")

    def test_the_index_is_made_once_and_anew_for_another_or_damaged_one(self, two, monkeypatch, numbered):
        open_images(two).read("d.0/1.jpg")
        assert sorted(path.name for path in two.glob("*.index")) == ["pics-000.tar.index", "pics-001.tar.index"]
        with monkeypatch.context() as patch:
            patch.setattr(shards, "make_index", None)
            open_images(two).read("d.0/1.jpg")
        for content in (b"", b"x" * 100, (two / "pics-000.tar.index").read_bytes()[:-8]):
            (two / "pics-000.tar.index").write_bytes(content)
            assert open_images(two).read("d.0/1.jpg").width == 2
        write_tar(two / "pics-000.tar", {"new.jpg": numbered(7)})
        assert open_images(two).read("new.jpg").width == 8

    def test_the_index_in_the_cache_where_nobody_may_write(self, two, monkeypatch, home):
        real = files.atomic_write

        def refuse(path, write):
            if Path(path).parent == two:
                raise ExciteError("read-only")
            return real(path, write)

        monkeypatch.setattr(files, "atomic_write", refuse)
        for _ in range(2):
            assert open_images(two).read("d.0/1.jpg").width == 2
        assert list(two.glob("*.index")) == []
        assert len(list((home / "pictures/shards").glob("*.index"))) == 2

    def test_a_shard_that_changes_while_it_is_read(self, two, numbered):
        pictures = open_images(two)
        pictures.read("d.0/1.jpg")
        write_tar(two / "pics-000.tar", {"d.0/1.jpg": numbered(9)})
        with pytest.raises(ImageError, match=r"pics-000\.tar changed while it was read"):
            pictures.read("d.0/1.jpg")
        (two / "pics-000.tar").unlink()
        with pytest.raises(ImageError, match=r"pics-000\.tar is gone"):
            pictures.read("d.0/1.jpg")

    def test_the_state(self, two):
        states = {open_images(two).state(f"d.0/{number}.jpg") for number in range(6)}
        assert len(states) == 6
        os.utime(two / "pics-000.tar", ns=(5, 5))
        assert open_images(two).state("d.0/1.jpg") not in states
        assert open_images(two).state("d.0/4.jpg") in states

    def test_only_plain_files_count(self, tmp_path):
        path = tmp_path / "x.tar"
        with tarfile.open(path, "w") as tar:
            for name, kind in [("l.jpg", tarfile.SYMTYPE), ("h.jpg", tarfile.LNKTYPE), ("f.jpg", tarfile.FIFOTYPE)]:
                member = tarfile.TarInfo(name)
                member.type, member.linkname = kind, "/etc/passwd"
                tar.addfile(member)
            tar.add(Path(__file__), "code.py")
        with pytest.raises(DataError, match=r"there are no images in .*x\.tar"):
            open_images(path).read("l.jpg")

    def test_the_first_of_the_same_name(self, tmp_path, numbered):
        write_tar(tmp_path / "0.tar", {"x.jpg": numbered(1), "x.png": numbered(2, "PNG")})
        write_tar(tmp_path / "1.tar", {"x.jpg": numbered(3), "x.seg.png": numbered(4, "PNG"), "y.seg.png": numbered(4)})
        pictures = open_images(tmp_path / "{0,1}.tar")
        assert [pictures.read(name).width for name in ("x.jpg", "x.png", "x", "x.seg.png")] == [2, 3, 2, 5]
        with pytest.raises(ImageError):
            pictures.read("y")

    @pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
    def test_compressed(self, tmp_path, kind, encoded):
        path = write_tar(tmp_path / "x.tar", {"x.jpg": encoded()}, f"w:{kind}")
        with pytest.raises(DataError, match=r"x\.tar is compressed .*unpack it"):
            open_images(path).read("x.jpg")

    def test_damaged(self, two):
        whole = (two / "pics-000.tar").read_bytes()
        header = whole.index(b"d.0/1.jpg")
        for content in (whole[:1600], whole[: header + 99], whole[:header] + b"x" * 600, b"x" * 2000, b""):
            (two / "pics-000.tar").write_bytes(content)
            with pytest.raises(DataError, match=r"shard .*pics-000\.tar") as caught:
                open_images(two).read("d.0/1.jpg")
            assert "\n" not in str(caught.value)
        pictures = open_images(write_tar(two / "x.tar", {"x.jpg": b"<html>", "y.jpg": b""}))
        for name in ("x.jpg", "y.jpg"):
            with pytest.raises(ImageError, match=f"'{name}' is not an image"):
                pictures.read(name)


def test_patterns():
    web = shards_of("https://example.org/{train,val}-{8..11}.tar")
    assert len(web) == 8
    assert web[3:5] == ("https://example.org/train-11.tar", "https://example.org/val-8.tar")
    assert shards_of("http://x/{098..101}.tar")[-1] == "http://x/101.tar"
    for where in ("no-{0..3}.tar", "no.tar", "no-*.tar", "no.tgz", "no-{.tar"):
        with pytest.raises(DataError, match=r"there (is|are) no shard"):
            open_images(where)
    with pytest.raises(DataError, match="more than 100000 shards"):
        open_images("http://x/{0..999999}{0..999999999999}.tar")


class TestFromTheNet:
    @pytest.fixture
    def server(self, two):
        with serving(b"") as state:
            state.files = {f"/{path.name}": path.read_bytes() for path in two.glob("*.tar")}
            yield state

    def where(self, server):
        return server.url.replace("net.bin", "pics-{000..001}.tar")

    def test_fetched_once(self, server, home):
        for _ in range(2):
            assert open_images(self.where(server)).read("d.0/4.jpg").width == 5
        assert len(server.asked) == 4  # two indexes that are none, two shards
        assert len(list((home / "pictures/shards").glob("*.tar"))) == 2

    def test_an_index_beside_them_saves_fetching_them_and_is_not_trusted(self, server, two):
        open_images(two).read("d.0/1.jpg")
        server.files |= {f"/{path.name}": path.read_bytes() for path in two.glob("*.index")}
        pictures = open_images(self.where(server))
        assert [pictures.group(f"d.0/{number}") for number in range(6)] == [0, 0, 0, 1, 1, 1]
        assert len(server.asked) == 2
        assert pictures.read("d.0/4.jpg").width == 5
        assert len(server.asked) == 3

    def test_an_index_that_points_beyond_its_shard(self, server, two):
        index = shards.make_index(two / "pics-000.tar")
        beyond = index.columns + np.array([[0], [10**6], [0]], np.uint64)
        shards.TarIndex(index.size, 7, beyond).save(two / "wrong")
        server.files["/pics-000.tar.index"] = (two / "wrong").read_bytes()
        with pytest.raises(ImageError, match="is cut off in the shard"):
            open_images(self.where(server)).read("d.0/1.jpg")

    def test_in_little_room(self, server, home, two):
        size = (two / "pics-000.tar").stat().st_size
        pictures = open_images(self.where(server), cache_bytes=size + 10)
        for number in (0, 5, 1, 4):
            assert pictures.read(f"d.0/{number}.jpg").width == number + 1
            assert len(list((home / "pictures/shards").glob("*.tar"))) == 1

    def test_a_server_that_refuses(self, server):
        server.status = 403
        with pytest.raises(ExciteError, match="Forbidden"):
            open_images(self.where(server)).read("d.0/1.jpg")


class TestNames:
    @given(st.text(min_size=1, max_size=30))
    def test_readers_see_the_whole_key(self, name):
        key = key_of(name)
        assert split_key(f"{key}.seg.png") == (key, "seg.png")
        assert not key.startswith(("/", "__"))
        assert key.isascii()
        assert key.isprintable()

    @given(st.lists(st.text("aA./%_2FE", min_size=1, max_size=7), unique=True, max_size=40))
    def test_no_two_pictures_share_one(self, names):
        assert len({key_of(name) for name in names}) == len(names)


@pytest.fixture
def photos(tmp_path, numbered):
    """A folder of oddly named images."""
    root = tmp_path / "photos"
    for number, name in enumerate(ODD):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(numbered(number, "PNG" if name == "a.png" else "JPEG"))
    (root / "bad.jpg").write_text("<html>")
    return root


@pytest.fixture
def write(tmp_path, photos, write_rows):
    """Writes shards of a corpus with bad images and repetitions."""
    names = [*ODD[:5], "bad.jpg", "missing.jpg", "../photos/../../x.jpg", "/etc/passwd", "a.b.jpg", None, *ODD[5:]]

    def written(out="out", names=names, **options):
        path = tmp_path / f"{len(names)}.parquet"
        if not path.exists():
            rows = [(name, [f"tag {row}", "é"], None if row % 2 else f"u{row}") for row, name in enumerate(names)]
            write_rows(path, rows, 4)
        writer = ShardWriter(Corpus(path), open_images(photos), tmp_path / out, **options)
        return writer.write(), writer.failures

    return written


class TestWriting:
    def test_one_sample_for_each_picture(self, photos, tmp_path, write):
        found, failures = write(rows=4)
        samples = []
        for path in sorted((tmp_path / "out").glob("*.tar")):
            with path.open("rb") as file:
                samples += group_by_keys({**member, "__url__": ""} for member in tar_file_iterator(file))
        notes = [json.loads(sample["json"]) for sample in samples]
        assert [note["image"] for note in notes] == [*ODD[:5], "a.b.jpg", *ODD[5:]]  # named again for another shard
        assert notes[1] == {"image": "a.png", "tags": ["tag 1", "é"], "user": None}
        for note, sample in zip(notes, samples, strict=True):
            assert (sample.get("jpg") or sample["png"]) == (photos / note["image"]).read_bytes()
        assert [shard.pictures for shard in found] == [4, 4, 3]
        assert (sum(shard.bad for shard in found), sum(shard.repeated for shard in found)) == (5, 0)
        assert len(failures) == 5
        pictures = open_images(tmp_path / "out")
        assert [pictures.encoded(name) for name in ODD] == [(photos / name).read_bytes() for name in ODD]
        assert [pictures.group(name) for name in ODD] == [0] * 4 + [1] * 3 + [2] * 3

    def test_the_same_bytes_whenever_and_a_name_twice(self, photos, tmp_path, write):
        for out in ("one", "two"):
            ((shard,), _) = write(out)
            assert (shard.pictures, shard.bad, shard.repeated) == (10, 5, 1)
            os.utime(photos / "a.jpg", ns=(1, 1))
        first, second = ((tmp_path / out / "shard-000000.tar").read_bytes() for out in ("one", "two"))
        assert first == second

    def test_by_size(self, write):
        found, _ = write(size=5000)
        assert len(found) > 2
        assert sum(shard.pictures for shard in found) == 11
        assert [shard.first for shard in found[1:]] == [shard.end for shard in found[:-1]]

    def test_goes_on_after_it_was_stopped(self, tmp_path, monkeypatch, write):
        write("whole", rows=3)

        def stopped(items, _):
            for number, item in enumerate(items):
                if number == 10:
                    raise KeyboardInterrupt
                yield item

        with pytest.raises(KeyboardInterrupt):
            write(rows=3, progress=stopped)
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.tar")}
        assert len(before) >= 1
        write(rows=3)
        assert {path: path.stat().st_mtime_ns for path in before} == before
        for path in (tmp_path / "whole").glob("*.tar"):
            assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
        monkeypatch.setattr(shards, "package", None)  # nothing is left to do
        assert len(write(rows=3)[0]) == 4

    def test_all_bad_at_the_end_and_none_at_all(self, tmp_path, write):
        for _ in range(2):
            found, _ = write(names=["a.jpg", "no.jpg", "bad.jpg"], rows=1)
            assert [(shard.pictures, shard.bad) for shard in found] == [(1, 0), (0, 2)]
        assert [path.name for path in (tmp_path / "out").glob("*.tar")] == ["shard-000000.tar"]
        assert write("empty", names=[]) == ([], [])

    def test_refuses_to_mix(self, tmp_path, write):
        write(rows=4)
        with pytest.raises(DataError, match="another corpus, or of another size"):
            write(rows=5)
        (tmp_path / "out/shard-000001.tar").unlink()
        with pytest.raises(DataError, match=r"shard-000001\.tar is gone"):
            write(rows=4)
        (tmp_path / "out/shards.json").write_text("{")
        with pytest.raises(DataError, match=r"cannot read .*shards\.json"):
            write(rows=4)

    def test_the_command(self, tmp_path, photos, write):
        write("first")

        def call(*options):
            where = ["shards", str(tmp_path / "16.parquet"), "--pictures", str(photos), "--out", str(tmp_path / "out")]
            return CliRunner().invoke(app, [*where, *options])

        answer = call("--json", "--rows", "6")
        assert answer.exit_code == 0
        paths = [str(tmp_path / f"out/shard-00000{number}.tar") for number in range(2)]
        wanted = {"read": 16, "written": 10, "bad": 5, "repeated": 1, "bytes": 0, "files": paths}
        assert json.loads(answer.stdout) | {"bytes": 0} == wanted
        assert "lies outside of" in answer.stderr
        assert "10 of 16 images in 2 shards" in call("--rows", "6").stdout
        assert isinstance(call("--size", "1.5 gb").exception, DataError)  # of another size
        for options in (("--size", "big"), ("--size", "0"), ("--size", "1MB", "--rows", "3")):
            assert call(*options).exit_code == 2
            assert "--size" in call(*options).stderr
