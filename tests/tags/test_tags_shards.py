"""Shards: images in tar files, written and read again, here and from a server, one by one and in any order."""

import io
import json
import os
import pickle
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from serving import serving
from typer.testing import CliRunner

from excite.cli.tags import prepare as tags_shards
from excite.errors import DataError, ExciteError, ImageError
from excite.io import files as save
from excite.tags.corpus import Corpus
from excite.tags.images import open_images, shards_of
from excite.tags.images import shard_writer as sharding
from excite.tags.images import shards as tar_index
from excite.tags.images.shard_writer import ShardWriter
from excite.tags.images.shards import key_of, split_key

ODD = [
    "a.jpg",
    "a.png",
    "a",
    "a.b.jpg",
    "v1.2/x.y.jpeg",
    "Zürich foto.JPG",
    ".jpg",
    "__x__.jpg",
    "p%2Eq.jpg",
    "l" * 200,
]


def encoded(number, kind="JPEG"):
    file = io.BytesIO()
    Image.new("RGB", (number + 1, 5), (number, 90, 30)).save(file, kind)
    return file.getvalue()


def write_tar(path, members, kind="w"):
    with tarfile.open(path, kind) as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def two(tmp_path):
    """Two shards of three images, with other files among them."""
    (tmp_path / "tars").mkdir()
    for shard in range(2):
        members = {}
        for number in range(3 * shard, 3 * shard + 3):
            members |= {f"d.0/{number}.json": b"{}", f"d.0/{number}.jpg": encoded(number), f"d.0/{number}.txt": b"x"}
        write_tar(tmp_path / f"tars/pics-{shard:03d}.tar", members)
    return tmp_path / "tars"


@pytest.fixture
def photos(tmp_path):
    """A folder of oddly named images, and a corpus of them with bad ones and repetitions."""
    root = tmp_path / "photos"
    for number, name in enumerate(ODD):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(encoded(number, "PNG" if name == "a.png" else "JPEG"))
    (root / "bad.jpg").write_text("<html>")
    return root


def write_corpus(path, names):
    tags = [[f"tag {row}", "é"] for row in range(len(names))]
    users = [None if row % 2 else f"u{row}" for row in range(len(names))]
    pq.write_table(pa.table({"image": names, "tags": tags, "user": users}), path, row_group_size=4)
    return Corpus(path)


@pytest.fixture
def corpus(tmp_path):
    names = [*ODD[:5], "bad.jpg", "missing.jpg", "../photos/../../x.jpg", "/etc/passwd", "a.b.jpg", None, *ODD[5:]]
    return write_corpus(tmp_path / "corpus.parquet", names)


def samples(folder):
    """What a reader of the WebDataset layout makes of all shards: neighbours with the same key are one sample."""
    answer = []
    for path in sorted(folder.glob("*.tar")):
        last = None
        with tarfile.open(path) as tar:
            for member in tar:
                key, rest = split_key(member.name)
                if key != last:
                    answer.append((key, {}))
                assert rest not in answer[-1][1]
                answer[-1][1][rest] = tar.extractfile(member).read()
                last = key
    return answer


class TestReading:
    @pytest.mark.parametrize("where", ["", "pics-{000..001}.tar", "pics-*.tar", "pics-{000,001}.tar"])
    def test_any_picture(self, two, where):
        pictures = open_images(two / where if where else two)
        assert pictures.groups == 2
        for number in (4, 0, 5, 1):
            for name in (f"d.0/{number}.jpg", f"d.0/{number}", f"./d.0/{number}.jpg"):
                assert pictures.read(name).width == number + 1
                assert pictures.group(name) == number // 3

    def test_one_shard(self, two):
        pictures = open_images(two / "pics-001.tar")
        assert pictures.encoded("d.0/4.jpg") == encoded(4)
        with pytest.raises(ImageError, match=r"there is no image 'd\.0/1\.jpg' in .*pics-001\.tar"):
            pictures.group("d.0/1.jpg")

    @pytest.mark.parametrize(
        "name", ["", "x" * 10**6, "\0", "../d.0/1.jpg", "d.0", "d.0/1.txt", "\ud800", "http://x/y"]
    )
    def test_what_is_in_none(self, two, name):
        for ask in (open_images(two).read, open_images(two).state):
            with pytest.raises(ImageError, match=r"there is no image .* and 1 more shards") as caught:
                ask(name)
            assert len(str(caught.value)) < 600

    def test_can_be_sent_to_workers(self, two):
        pictures = open_images(two)
        pictures.read("d.0/1.jpg")
        sent = pickle.dumps(pictures)
        assert len(sent) < 1000
        assert pickle.loads(sent).read("d.0/5.jpg").width == 6  # noqa: S301 - made here

    def test_the_index_is_made_once_and_anew_for_another_file(self, two, monkeypatch):
        open_images(two).read("d.0/1.jpg")
        assert sorted(path.name for path in two.glob("*.index")) == ["pics-000.tar.index", "pics-001.tar.index"]
        made = []
        monkeypatch.setattr(tar_index.tarfile, "open", lambda *arguments: made.append(arguments) or 1 / 0)
        open_images(two).read("d.0/1.jpg")
        assert made == []
        monkeypatch.undo()
        monkeypatch.setenv("EXCITE_HOME", str(two.parent / "home"))
        write_tar(two / "pics-000.tar", {"new.jpg": encoded(7)})
        assert open_images(two).read("new.jpg").width == 8

    def test_a_damaged_index_is_made_anew(self, two):
        open_images(two).read("d.0/1.jpg")
        for content in (b"", b"x" * 100, (two / "pics-000.tar.index").read_bytes()[:-8]):
            (two / "pics-000.tar.index").write_bytes(content)
            assert open_images(two).read("d.0/1.jpg").width == 2

    def test_the_index_in_the_cache_where_nobody_may_write(self, two, monkeypatch, home):
        real = save.atomic_write

        def refuse(path, write):
            if Path(path).parent == two:
                raise ExciteError("read-only")
            return real(path, write)

        monkeypatch.setattr(save, "atomic_write", refuse)
        for _ in range(2):
            assert open_images(two).read("d.0/1.jpg").width == 2
        assert list(two.glob("*.index")) == []
        assert len(list((home / "pictures/shards").glob("*.index"))) == 2

    def test_a_shard_that_changes_while_it_is_read(self, two):
        pictures = open_images(two)
        pictures.read("d.0/1.jpg")
        write_tar(two / "pics-000.tar", {"d.0/1.jpg": encoded(9)})
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

    def test_the_first_of_the_same_name(self, tmp_path):
        write_tar(tmp_path / "0.tar", {"x.jpg": encoded(1), "x.png": encoded(2, "PNG")})
        write_tar(tmp_path / "1.tar", {"x.jpg": encoded(3), "x.seg.png": encoded(4, "PNG"), "y.seg.png": encoded(4)})
        pictures = open_images(tmp_path / "{0,1}.tar")
        assert [pictures.read(name).width for name in ("x.jpg", "x.png", "x", "x.seg.png")] == [2, 3, 2, 5]
        with pytest.raises(ImageError):
            pictures.read("y")

    @pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
    def test_compressed(self, tmp_path, kind):
        path = write_tar(tmp_path / "x.tar", {"x.jpg": encoded(1)}, f"w:{kind}")
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

    def test_a_damaged_picture(self, tmp_path):
        pictures = open_images(write_tar(tmp_path / "x.tar", {"x.jpg": b"<html>", "y.jpg": b""}))
        for name in ("x.jpg", "y.jpg"):
            with pytest.raises(ImageError, match=f"'{name}' is not an image"):
                pictures.read(name)


class TestPatterns:
    def test_braces(self):
        web = "https://example.org/{train,val}-{8..11}.tar"
        assert len(shards_of(web)) == 8
        assert shards_of(web)[3:5] == ("https://example.org/train-11.tar", "https://example.org/val-8.tar")
        assert shards_of("http://x/{098..101}.tar")[-1] == "http://x/101.tar"

    @pytest.mark.parametrize("where", ["no-{0..3}.tar", "no.tar", "no-*.tar", "no.tgz"])
    def test_missing(self, where):
        with pytest.raises(DataError, match=r"there (is|are) no shard"):
            open_images(where)

    def test_far_too_many(self):
        with pytest.raises(DataError, match="more than 100000 shards"):
            open_images("http://x/{0..999999999999}.tar")


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

    def test_an_index_beside_them_saves_fetching_them(self, server, two):
        open_images(two).read("d.0/1.jpg")
        server.files |= {f"/{path.name}": path.read_bytes() for path in two.glob("*.index")}
        pictures = open_images(self.where(server))
        assert [pictures.group(f"d.0/{number}") for number in range(6)] == [0, 0, 0, 1, 1, 1]
        assert len(server.asked) == 2
        assert pictures.read("d.0/4.jpg").width == 5
        assert len(server.asked) == 3

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


class TestWriting:
    def test_one_sample_for_each_picture(self, photos, corpus, tmp_path):
        work = ShardWriter(corpus, open_images(photos), tmp_path / "out", rows=4)
        shards = work.write()
        found = samples(tmp_path / "out")
        notes = [json.loads(files["json"]) for _, files in found]
        assert [note["image"] for note in notes] == [*ODD[:5], "a.b.jpg", *ODD[5:]]  # named again for another shard
        assert notes[1] == {"image": "a.png", "tags": ["tag 1", "é"], "user": None}
        assert [sorted(files) for _, files in found][:3] == [["jpg", "json"], ["json", "png"], ["jpg", "json"]]
        for note, (_, files) in zip(notes, found, strict=True):
            assert (files.get("jpg") or files["png"]) == (photos / note["image"]).read_bytes()
        assert [shard.pictures for shard in shards] == [4, 4, 3]
        assert (sum(shard.bad for shard in shards), sum(shard.repeated for shard in shards)) == (5, 0)
        assert len(work.failures) == 5
        pictures = open_images(tmp_path / "out")
        assert [pictures.encoded(name) for name in ODD] == [(photos / name).read_bytes() for name in ODD]
        assert [pictures.group(name) for name in ODD] == [0] * 4 + [1] * 3 + [2] * 3

    def test_a_name_twice_in_a_shard(self, photos, corpus, tmp_path):
        (shard,) = ShardWriter(corpus, open_images(photos), tmp_path / "out").write()
        assert (shard.pictures, shard.bad, shard.repeated) == (10, 5, 1)

    def test_the_same_bytes_whenever(self, photos, corpus, tmp_path):
        for out in ("one", "two"):
            ShardWriter(corpus, open_images(photos), tmp_path / out).write()
            os.utime(photos / "a.jpg", ns=(1, 1))
        first, second = ((tmp_path / out / "shard-000000.tar").read_bytes() for out in ("one", "two"))
        assert first == second

    def test_by_size(self, photos, corpus, tmp_path):
        shards = ShardWriter(corpus, open_images(photos), tmp_path / "out", size=5000).write()
        assert len(shards) > 2
        assert len(samples(tmp_path / "out")) == sum(shard.pictures for shard in shards) == 11
        assert [shard.first for shard in shards[1:]] == [shard.end for shard in shards[:-1]]

    def test_goes_on_after_it_was_stopped(self, photos, corpus, tmp_path, monkeypatch):
        ShardWriter(corpus, open_images(photos), tmp_path / "whole", rows=3).write()
        taken = []

        def stopped(items, _):
            for item in items:
                if len(taken) == 10:
                    raise KeyboardInterrupt
                taken.append(item)
                yield item

        with pytest.raises(KeyboardInterrupt):
            ShardWriter(corpus, open_images(photos), tmp_path / "out", rows=3, progress=stopped).write()
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.tar")}
        assert len(before) >= 1
        ShardWriter(corpus, open_images(photos), tmp_path / "out", rows=3).write()
        assert {path: path.stat().st_mtime_ns for path in before} == before
        for path in (tmp_path / "whole").glob("*.tar"):
            assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
        monkeypatch.setattr(sharding.tarfile, "open", None)  # nothing is left to do
        assert len(ShardWriter(corpus, open_images(photos), tmp_path / "out", rows=3).write()) == 4

    def test_all_bad_at_the_end(self, photos, tmp_path):
        corpus = write_corpus(tmp_path / "c.parquet", ["a.jpg", "no.jpg", "bad.jpg"])
        for _ in range(2):
            shards = ShardWriter(corpus, open_images(photos), tmp_path / "out", rows=1).write()
            assert [(shard.pictures, shard.bad) for shard in shards] == [(1, 0), (0, 2)]
        assert [path.name for path in (tmp_path / "out").glob("*.tar")] == ["shard-000000.tar"]

    def test_an_empty_corpus(self, photos, tmp_path):
        path = tmp_path / "c.parquet"
        pq.write_table(sharding_schema().empty_table(), path)
        assert ShardWriter(Corpus(path), open_images(photos), tmp_path / "out").write() == []

    def test_refuses_to_mix(self, photos, corpus, tmp_path):
        ShardWriter(corpus, open_images(photos), tmp_path / "out", rows=4).write()
        with pytest.raises(DataError, match="another corpus, or of another size"):
            ShardWriter(corpus, open_images(photos), tmp_path / "out", rows=5).write()
        (tmp_path / "out/shard-000001.tar").unlink()
        with pytest.raises(DataError, match=r"shard-000001\.tar is gone"):
            ShardWriter(corpus, open_images(photos), tmp_path / "out", rows=4).write()
        (tmp_path / "out/shards.json").write_text("{")
        with pytest.raises(DataError, match=r"cannot read .*shards\.json"):
            ShardWriter(corpus, open_images(photos), tmp_path / "out", rows=4).write()


def sharding_schema():
    from excite.tags.corpus import schema

    return schema()


class TestTheCommand:
    @pytest.fixture
    def command(self, photos, corpus, tmp_path):
        app = typer.Typer()
        app.command()(tags_shards.shards_command)

        def call(*options):
            where = [str(corpus.path), "--pictures", str(photos), "--out", str(tmp_path / "out")]
            return CliRunner().invoke(app, [*where, *options])

        return call

    def test_json(self, command, tmp_path):
        answer = command("--json", "--rows", "6")
        assert answer.exit_code == 0
        files = [str(tmp_path / f"out/shard-00000{number}.tar") for number in range(2)]
        assert json.loads(answer.stdout) | {"bytes": 0} == {
            "read": 16, "written": 10, "bad": 5, "repeated": 1, "bytes": 0, "files": files,
        }  # fmt: skip
        assert "lies outside of" in answer.stderr

    def test_in_words(self, command):
        assert "10 of 16 images in 1 shards" in command("--size", "1MB").stdout

    @pytest.mark.parametrize("options", [("--size", "big"), ("--size", "0"), ("--size", "1MB", "--rows", "3")])
    def test_sizes_that_are_none(self, command, options):
        answer = command(*options)
        assert answer.exit_code == 2
        assert "--size" in answer.stderr
