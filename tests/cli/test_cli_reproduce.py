"""``excite reproduce``: from a folder of data and a network to a table beside the paper's."""

import json

import learning
import pytest
from annotated import make_voc, scenes

from excite.experiments.pointing import run as pointing
from excite.training import finetune as finetuning


@pytest.fixture
def data(here, monkeypatch):
    """Images to learn from, and others to play the Pointing Game on."""
    learning.know_tiny(monkeypatch)
    monkeypatch.setattr(finetuning, "plateaued", lambda losses: len(losses) >= 2)
    folder = here / "data/VOCdevkit/VOC2007"
    make_voc(folder, scenes(5))
    other = make_voc(here / "other", [(f"1{name}", squares) for name, squares in scenes(6)], split="train")
    for file in other.rglob("*.*"):
        file.rename(folder / file.relative_to(other))
    return "data"


def test_what_there_is(excite):
    ended = excite("reproduce")
    assert ended.code == 0
    assert "table1     Table 1: the Pointing Game\n" in ended.out


def test_a_table_and_the_same_again(excite, data, here, monkeypatch):
    ended = excite("reproduce", "table2", "--data", data, "--model", "tiny", "--out", "out")
    assert (ended.code, ended.err) == (0, "")
    assert "$ excite finetune --data data/VOCdevkit/VOC2007 --split train --model tiny" in ended.out
    assert "c-mwp-post-norm  58.1" in ended.out
    assert "c-MWP > c-mwp-no-norm" in ended.out
    assert "written: out/table2.md, out/table2.json" in ended.out
    written = {name: (here / "out" / name).read_bytes() for name in ("table2.md", "table2.json")}

    def never(*_arguments):
        raise AssertionError("no map is computed twice")

    monkeypatch.setattr(pointing, "all_maps", never)
    again = excite("reproduce", "table2", "--data", data, "--model", "tiny", "--out", "out", "--json")
    (answer,) = again.answers  # what the steps print goes to standard error
    assert "categories learnt" in again.err
    assert answer == json.loads(written["table2.json"])
    assert {name: (here / "out" / name).read_bytes() for name in written} == written


def test_an_image_that_cannot_be_read_is_told_and_the_table_made(excite, data, here):
    (here / "data/VOCdevkit/VOC2007/JPEGImages/000001.jpg").write_bytes(b"no image")
    ended = excite("reproduce", "table2", "--data", data, "--model", "tiny", "--out", "out")
    assert ended.code == 1
    assert "1 of 5 images could not be read" in ended.err
    assert (here / "out/table2.md").is_file()


def test_refusals(excite, here):
    assert "there is no recipe 'table9'" in excite("reproduce", "table9").complaint
    assert "there is no data/imagenet: see docs/reproduction.md" in excite("reproduce", "table3").complaint
    (here / "data/imagenet").mkdir(parents=True)
    refused = excite("reproduce", "table3")  # by the step itself
    assert refused.code == 1
    assert "'data/imagenet' holds no data set that is known" in refused.err
