"""Data sets from a server in this process, in the layouts of their publishers."""

import hashlib
import io
import re
import shutil
import tarfile
import zipfile
from types import SimpleNamespace

import pytest
from annotated import coco_content, make_voc, picture, scenes, write_coco
from serving import serving

from excite.datasets import open_dataset, published
from excite.datasets.published import PUBLISHED, PublishedDataset, fetch_dataset
from excite.errors import FetchError
from excite.io.fetch import Remote


def tar_of(folder):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(folder, "VOCdevkit/VOC2007")
    return content.getvalue()


def zip_of(folder, *names):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(path for name in names for path in (folder / name).rglob("*") if path.is_file()):
            archive.write(path, path.relative_to(folder))
    return content.getvalue()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Small data sets under the names and layouts of the real ones."""
    made = tmp_path / "made"
    make_voc(made / "trainval", scenes(3), "trainval")
    make_voc(made / "test", [(f"t{name}", squares) for name, squares in scenes(2)], "test")
    write_coco(made / "coco", coco_content(scenes(3), ["red", "green"]), "val2014")
    for name, squares in scenes(3):
        picture(made / "coco/val2014" / f"{name}.jpg", squares)
    files = {
        "/trainval.tar": tar_of(made / "trainval"),
        "/test.tar": tar_of(made / "test"),
        "/words.zip": zip_of(made / "coco", "annotations"),
        "/val.zip": zip_of(made / "coco", "val2014"),
    }
    shutil.rmtree(made)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(b"") as state:
        state.files = files
        base = state.url.rpartition("/")[0]
        monkeypatch.setattr(published, "PUBLISHED", {each.name: each for each in small(base, files)})
        yield state


def small(base, files):
    def remote(name):
        content = files[f"/{name}"]
        return Remote(name, f"{base}/{name}", hashlib.sha256(content).hexdigest(), size=len(content))

    trainval, test, words, val = (remote(name.lstrip("/")) for name in files)
    voc = {"trainval": (trainval,), "val": (trainval,), "test": (test,)}
    yield PublishedDataset("voc2007", "", "VOCdevkit/VOC2007", voc, ("trainval", "test"))
    yield PublishedDataset("coco2014", "", ".", {"val": (words, val)}, ("val",))


@pytest.fixture
def said():
    return []


class TestFetching:
    def test_each_archive_once(self, server, tmp_path, said):
        fetch_dataset("voc2007", tmp_path / "data", ["test"], say=said.append)
        assert len(server.asked) == 1
        folder = fetch_dataset("voc2007", tmp_path / "data", ["test", "val", "trainval"], say=said.append)
        assert len(server.asked) == 2  # one archive has both of the others
        assert folder == tmp_path / "data/VOCdevkit/VOC2007"
        assert open_dataset(folder, "trainval").names == ("000000", "000001", "000002")
        assert open_dataset(folder, "test").names == ("t000000", "t000001")
        assert all(sample.path.is_file() for sample in open_dataset(tmp_path / "data", "test"))
        words = ["fetching", "unpacking", "done;"]
        assert [line.split(": ")[1].split()[0] for line in said] == [*words, "was", *words]
        (tmp_path / "data/test.tar").unlink()  # as the last line offers
        said.clear()
        assert fetch_dataset("voc2007", tmp_path / "data", say=said.append) == folder
        assert len(server.asked) == 2
        assert all("was unpacked before; remove" in line for line in said)

    def test_resumed_after_a_broken_connection(self, server, tmp_path, said):
        server.cut_after = 300
        with pytest.raises(FetchError, match="broke after 300"):
            fetch_dataset("coco2014", tmp_path, say=said.append)
        server.cut_after = None
        assert len(open_dataset(fetch_dataset("coco2014", tmp_path, say=said.append))) == 3
        assert server.asked == [None, "bytes=300-", None]

    def test_resumed_after_a_kill_while_unpacking(self, server, tmp_path, said):
        def killed(names, _count):
            yield next(names)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fetch_dataset("coco2014", tmp_path, say=said.append, shown=killed)
        assert len(open_dataset(fetch_dataset("coco2014", tmp_path, say=said.append))) == 3
        assert len(server.asked) == 2  # the archive was there

    def test_an_archive_put_there_by_hand_is_checked(self, server, tmp_path, said):
        (tmp_path / "test.tar").write_bytes(b"something else")
        with pytest.raises(FetchError, match=r"test\.tar is not the file that was published"):
            fetch_dataset("voc2007", tmp_path, ["test"], say=said.append)
        (tmp_path / "test.tar").write_bytes(server.files["/test.tar"])
        assert open_dataset(fetch_dataset("voc2007", tmp_path, ["test"], say=said.append)).split == "test"
        assert server.asked == []


def test_the_table():
    """What can be checked of it without a network."""
    archives = {one for each in PUBLISHED.values() for found in each.splits.values() for one in found}
    assert len({remote.digest for remote in archives}) == len({remote.name for remote in archives}) == 8
    for remote in archives:
        assert re.fullmatch(r"[0-9a-f]{64}", remote.digest)
        assert all(url.endswith(f"/{remote.name}") for url in (remote.url, *remote.mirrors))
        assert remote.size > 10**8
    assert all(set(each.usual) <= each.splits.keys() for each in PUBLISHED.values())


class TestRefusals:
    def test_unknown(self, tmp_path):
        with pytest.raises(FetchError, match="no data set is called 'voc2012': there are voc2007, coco2014, coco2017"):
            fetch_dataset("voc2012", tmp_path)
        with pytest.raises(FetchError, match="coco2017 has no split 'test': its splits are train, val"):
            fetch_dataset("coco2017", tmp_path, ["val", "test"])

    @pytest.mark.parametrize("name", ["imagenet", "ImageNet-1k", "ILSVRC2012"])
    def test_only_with_an_account(self, tmp_path, name):
        with pytest.raises(
            FetchError, match=rf"^{name} cannot be fetched: .*image-net\.org.*kaggle\.com.*DIR/val.*--data"
        ):
            fetch_dataset(name, tmp_path)

    def test_no_room(self, tmp_path, monkeypatch):
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
        with pytest.raises(FetchError, match=r"about 13\.8 GB are needed in .*new, of which 1\.0 GB are free"):
            fetch_dataset("coco2014", tmp_path / "new")
        assert list(tmp_path.iterdir()) == []
