"""``excite fetch``."""

import hashlib
import io
import zipfile

import pytest
from serving import serving

from excite.datasets import published
from excite.datasets.published import PUBLISHED, PublishedDataset
from excite.io.fetch import Remote


@pytest.fixture
def server(monkeypatch):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("annotations/instances_val2017.json", "{}")
        archive.writestr("val2017/1.jpg", "")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(content.getvalue()) as state:
        remote = Remote("val2017.zip", state.url, hashlib.sha256(state.content).hexdigest())
        one = PublishedDataset("coco2017", "", ".", {"val": (remote,)}, ("val",))
        monkeypatch.setattr(published, "PUBLISHED", {"coco2017": one})
        yield state


def test_fetches_and_says_what_is_next(excite, here, server):
    ended = excite("fetch", "coco2017", "--to", "data")
    assert (ended.code, ended.err) == (0, "")
    assert (here / "data/val2017/1.jpg").is_file()
    assert "val2017.zip: unpacking 2 files" in ended.out
    assert ended.out.endswith("next: excite bench pointing --data data --split val\n")
    assert "was unpacked before" in excite("fetch", "coco2017", "--to", "data", "--split", "val").out


def test_without_network(excite, here, monkeypatch):
    def nobody(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("excite.io.fetch.urlopen", nobody)
    ended = excite("fetch", "coco2017", "--to", "data")
    assert ended.code == 1
    assert ended.err.startswith("excite: Cannot fetch https://")
    assert ended.err.count("\n") == 1


def test_the_help_names_all(excite):
    said = excite("fetch", "--help").out
    assert all(name in said for name in PUBLISHED)
