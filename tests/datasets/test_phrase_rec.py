"""Referring expressions as JSON Lines."""

import json
import os

import pytest
from annotated import SIDE, picture
from PIL import Image

from excite.datasets.base import Phrase
from excite.datasets.phrase_formats import open_phrases
from excite.datasets.refcoco import ReferringExpressions
from excite.errors import DataError

LINE = {"file": "a.jpg", "phrase": "left cup", "box": [1, 2, 10.5, 20]}


def write(folder, *lines, split="val"):
    folder.mkdir(exist_ok=True)
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / f"{split}.jsonl").write_text("\n".join(texts), encoding="utf-8")
    for name in ("a", "b"):
        picture(folder / f"images/{name}.jpg", [])
    return folder


def test_phrases_of_a_picture_together(tmp_path):
    other = {"file": "b.jpg", "phrase": " tall man ", "box": [0, 0, 5, 5]}
    dataset = ReferringExpressions(write(tmp_path, LINE, other, {**LINE, "phrase": "the cup"}))
    assert dataset.names == ("a.jpg", "b.jpg")
    assert (dataset.groups, dict(dataset.left_out)) == ((), {})
    first = dataset.sample("a.jpg")
    assert first.phrases == (Phrase("left cup", ((1, 2, 10.5, 20),)), Phrase("the cup", ((1, 2, 10.5, 20),)))
    assert (first.path, first.size) == (tmp_path / "images/a.jpg", (SIDE, SIDE))
    assert [phrase.text for phrase in dataset.sample("b.jpg").phrases] == ["tall man"]


SHIKRA = {"img_path": "a.jpg", "expression": "a cup", "dataset_name": "refcoco", "height": SIDE, "width": SIDE}
QWEN = {"image": "data/refcoco/images/train2014/a.jpg", "sent": "a cup", "height": SIDE, "width": SIDE}


@pytest.mark.parametrize(
    ("line", "box"),
    [
        ({**SHIKRA, "bbox": [1, 2, 30, 40]}, (1, 2, 30, 40)),
        ({**QWEN, "bbox": [1, 2, 30, 40]}, (1, 2, 30, 40)),
        ({"file_name": "a.jpg", "sentence": "a cup", "bbox_xywh": [1, 2, 30, 40]}, (1, 2, 31, 42)),
        ({"file_name": "a.jpg", "sentence": "a cup", "bbox_xyxy": [1, 2, 30, 40]}, (1, 2, 30, 40)),
        ({"image_path": "/home/me/a.jpg", "phrase": "a cup", "bbox_2d": [1, 2, 30, 40]}, (1, 2, 30, 40)),
        ({"filename": "C:\\pictures\\a.jpg", "phrase": "a cup", "xywh": [1, 2, 30, 40]}, (1, 2, 31, 42)),
    ],
)
def test_public_forms(tmp_path, line, box):
    (described,) = ReferringExpressions(write(tmp_path, line))
    assert described.phrases == (Phrase("a cup", (box,)),)
    assert described.path == tmp_path / "images/a.jpg"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{broken", "lines that are no JSON objects"),
        ("[1, 2]", "lines that are no JSON objects"),
        ({"phrase": "a cup", "box": [1, 2, 3, 4]}, "lines without an image"),
        ({**LINE, "phrase": " "}, "lines without a phrase"),
        ({**LINE, "phrase": 7}, "lines without a phrase"),
        ({"file": "a.jpg", "phrase": "a cup"}, "lines without a box"),
        ({**LINE, "box": None}, "lines without a box"),
        ({**LINE, "box": [1, 2, 3]}, "boxes that are not four numbers"),
        ({**LINE, "box": [1, 2, 3, "4"]}, "boxes that are not four numbers"),
        ({**LINE, "box": [1, 2, True, 4]}, "boxes that are not four numbers"),
        ({**LINE, "box": {"x": 1}}, "boxes that are not four numbers"),
        ('{"file": "a.jpg", "phrase": "a cup", "box": [1, 2, NaN, 4]}', "boxes that are not four numbers"),
        ({**LINE, "box": [1, 2, 10**400, 4]}, "boxes that are not four numbers"),
        ({**LINE, "box": [30, 2, 3, 4]}, "boxes inside out"),
        ({**LINE, "box": [3, 2, 3, 4]}, "boxes without an area"),
        ({**LINE, "box": [0.1, 0.2, 0.5, 1]}, "boxes within one pixel"),
        ({**LINE, "box": [SIDE, 2, SIDE + 9, 9]}, "boxes outside of their image"),
        ({**LINE, "box": [-9, 2, 0, 9]}, "boxes outside of their image"),
        ({**LINE, "file": "none.jpg"}, "lines whose image is missing or broken"),
        ({**LINE, "file": "a" * 300 + ".jpg"}, "lines whose image is missing or broken"),
        ({**LINE, "file": "a" * 300 + "/../none.jpg"}, "lines whose image is missing or broken"),
        ('{"file": "\\ud800.jpg", "phrase": "a", "box": [1, 2, 9, 9]}', "lines whose image is missing or broken"),
        ('{"file": "a.jpg", "phrase": "a", "box": [%s, 2, 9, 9]}' % ("9" * 5000), "lines that are no JSON objects"),
        ({**LINE, "file": "images"}, "lines whose image is missing or broken"),
        ({**LINE, "file": "../../etc/"}, "lines whose image is missing or broken"),
        ({**LINE, "width": 2 * SIDE, "height": SIDE}, "lines annotated for another size of their image"),
        ({"file": "a.jpg", "phrase": "a cup", "bbox": [1, 2, 3, 4]}, "lines whose bbox may have corners"),
    ],
)
def test_lines_that_cannot_be_used(tmp_path, line, why):
    dataset = ReferringExpressions(write(tmp_path, LINE, line, ""))
    assert sum(len(described.phrases) for described in dataset) == 1
    ((found, count),) = dataset.left_out.items()
    assert found.startswith(why)
    assert count == 1


def test_a_broken_first_line_hides_nothing(tmp_path):
    dataset = open_phrases(write(tmp_path, "{broken", LINE))
    assert dataset.name == "rec"
    assert dict(dataset.left_out) == {"lines that are no JSON objects": 1}


def test_a_box_may_reach_beyond_its_picture(tmp_path):
    (described,) = ReferringExpressions(write(tmp_path, {**LINE, "box": [-3, 0, SIDE + 4, 9]}))
    assert described.phrases[0].boxes == ((-3, 0, SIDE + 4, 9),)


def test_a_pipe_is_not_waited_for(tmp_path):
    write(tmp_path, LINE, {**LINE, "file": "b.jpg"})
    (tmp_path / "images/b.jpg").unlink()
    os.mkfifo(tmp_path / "images/b.jpg")
    assert ReferringExpressions(tmp_path).left_out == {"lines whose image is missing or broken": 1}


def test_more_pixels_than_can_be_read(tmp_path, monkeypatch):
    write(tmp_path, LINE, {**LINE, "file": "b.jpg"})
    Image.new("RGB", (SIDE, SIDE + 1)).save(tmp_path / "images/b.jpg", format="PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", SIDE * SIDE)
    assert ReferringExpressions(tmp_path).left_out == {"lines whose image is missing or broken": 1}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_on_any_system_and_nowhere_else(tmp_path, end):
    write(tmp_path, LINE)
    lines = (json.dumps({**LINE, "phrase": f"a{rare}cup"}, ensure_ascii=False) for rare in "\u2028\x85")
    (tmp_path / "val.jsonl").write_bytes(end.join(lines).encode())
    texts = [phrase.text for phrase in ReferringExpressions(tmp_path).sample("a.jpg").phrases]
    assert texts == ["a\u2028cup", "a\x85cup"]


def test_a_picture_that_lies_on_its_side_is_seen_upright(tmp_path):
    write(tmp_path, {**LINE, "box": [1, 1, 10, 30]})
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "images/a.jpg", format="PNG", exif=exif)
    assert ReferringExpressions(tmp_path).sample("a.jpg").size == (20, 40)


def test_pictures_beside_the_lines_or_deeper(tmp_path):
    write(tmp_path, LINE)
    (tmp_path / "images/a.jpg").rename(tmp_path / "a.jpg")
    assert ReferringExpressions(tmp_path).sample("a.jpg").path == tmp_path / "a.jpg"
    picture(tmp_path / "coco/train2014/c.jpg", [])
    write(tmp_path, {**LINE, "file": "c.jpg"})
    assert ReferringExpressions(tmp_path).sample("c.jpg").path == tmp_path / "coco/train2014/c.jpg"
    picture(tmp_path / "coco/val2014/c.jpg", [])
    with pytest.raises(DataError, match=r"both may be the image 'c\.jpg'"):
        ReferringExpressions(tmp_path)


def test_every_file_of_lines_is_a_split(tmp_path):
    write(tmp_path, LINE, split="refcoco_testA")
    assert ReferringExpressions(tmp_path).split == "refcoco_testA"
    write(tmp_path, LINE, LINE, split="refcoco_val")
    with pytest.raises(DataError, match="its splits are refcoco_testA, refcoco_val"):
        ReferringExpressions(tmp_path)
    assert len(ReferringExpressions(tmp_path, "refcoco_val").sample("a.jpg").phrases) == 2


def test_real_referring_expressions(shared_data):
    dataset = ReferringExpressions(shared_data / "refcoco")
    assert (len(dataset), sum(len(described.phrases) for described in dataset)) == (300, 2130)
    assert not dataset.left_out
    assert all(described.path.is_file() for described in dataset)
