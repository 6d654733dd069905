"""Which data set with phrases a folder holds."""

import json

import pytest
from annotated import picture

from excite.datasets.phrase_formats import PHRASE_DATASETS, open_phrases
from excite.errors import DataError


def rec(folder):
    line = {"file": "a.jpg", "phrase": "a cup", "box": [0, 0, 9, 9]}
    picture(folder / "images/a.jpg", [])
    (folder / "val.jsonl").write_text(f"\n{json.dumps(line)}\n")
    return folder


def flickr(folder):
    for kind in ("Sentences", "Annotations"):
        (folder / kind).mkdir(parents=True)
    (folder / "Sentences/1.txt").write_text("[/EN#5/other A cup] .")
    box = "<xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax>"
    (folder / "Annotations/1.xml").write_text(
        f"<annotation><object><name>5</name><bndbox>{box}</bndbox></object></annotation>"
    )
    (folder / "test.txt").write_text("1\n")
    picture(folder / "images/1.jpg", [])
    return folder


def test_each_kind_and_the_folder_above(tmp_path):
    assert open_phrases(rec(tmp_path / "one/refs")).name == "rec"
    assert open_phrases(tmp_path / "one").folder == tmp_path / "one/refs"
    assert open_phrases(str(flickr(tmp_path / "two/flickr"))).name == "flickr30k"
    assert open_phrases(tmp_path / "two").split == "test"


def test_several_at_once(tmp_path):
    rec(tmp_path / "refs")
    flickr(tmp_path / "flickr")
    with pytest.raises(DataError, match=r"holds 2 data sets with phrases: name one of .*flickr30k.*rec"):
        open_phrases(tmp_path)


def test_known_layouts_are_listed(tmp_path):
    with pytest.raises(DataError, match="holds no data set with phrases that is known") as error:
        open_phrases(tmp_path)
    assert all(kind.layout in str(error.value) for kind in PHRASE_DATASETS.values())
    with pytest.raises(DataError, match="there is no folder"):
        open_phrases(tmp_path / "none")


@pytest.mark.parametrize("content", [b"", b"\xff\xff", b"{}\n", b'{"file": "a.jpg", "size": 3}\n'])
def test_other_lines_are_no_phrases(tmp_path, content):
    (tmp_path / "log.jsonl").write_bytes(content)
    with pytest.raises(DataError, match="holds no data set with phrases"):
        open_phrases(tmp_path)
