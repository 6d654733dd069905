"""Data sets with phrases: Flickr30k Entities, referring expressions and COCO's captions, in files of their formats."""

import json
import os
from collections import Counter

import pytest
from annotated import SIDE, picture
from PIL import Image

from excite.datasets.base import Phrase
from excite.datasets.flickr30k import Flickr30kEntities, mentions
from excite.datasets.phrase_formats import PHRASE_DATASETS, open_phrases
from excite.datasets.refcoco import ReferringExpressions
from excite.errors import DataError

SENTENCES = """[/EN#1/people Two young men] with [/EN#2/clothing hats] look at [/EN#0/notvisual each other] .
[/EN#1/people/other Some guys] in [/EN#3/scene the yard] have [/EN#4/bodyparts hands] .
"""
MAN = "[/EN#1/people A man] ."


def thing(*names, box=None, scene=0, nobox=0):
    """An object as the files have it: either a box, whose pixels count from 1, or two flags."""
    called = "".join(f"<name>{name}</name>" for name in names)
    if box is None:
        return f"<object>{called}<scene>{scene}</scene><nobndbox>{nobox}</nobndbox></object>"
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    return f"<object>{called}<bndbox>{''.join(f'<{side}>{value}</{side}>' for side, value in sides)}</bndbox></object>"


THINGS = (thing(1, box=(1, 1, 10, 20)), thing(1, 2, box=(11, 1, 20, 5)), thing(3, scene=1), thing(4, nobox=1))


def flickr(folder, name="36979", sentences=SENTENCES, things=THINGS):
    """Add an image to Flickr30k's layout."""
    for kind in ("Sentences", "Annotations"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    size = f"<size><width>{SIDE}</width><height>{SIDE}</height><depth>3</depth></size>"
    (folder / f"Sentences/{name}.txt").write_text(sentences, encoding="utf-8")
    content = f"<annotation><filename>{name}.jpg</filename>{size}{''.join(things)}</annotation>"
    (folder / f"Annotations/{name}.xml").write_text(content)
    picture(folder / f"flickr30k-images/{name}.jpg", [])
    with (folder / "test.txt").open("a") as file:
        file.write(f"{name}\n")
    return folder


LINE = {"file": "a.jpg", "phrase": "left cup", "box": [1, 2, 10.5, 20]}


def rec(folder, *lines, split="val"):
    """Lines about the images a and b."""
    for name in ("a", "b"):
        picture(folder / f"images/{name}.jpg", [])
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines or (LINE,))
    (folder / f"{split}.jsonl").write_text("\n".join(texts), encoding="utf-8")
    return folder


class TestOpening:
    def test_each_kind_and_the_folder_above(self, tmp_path):
        assert open_phrases(rec(tmp_path / "one/refs", "", LINE)).name == "rec"
        assert open_phrases(tmp_path / "one").folder == tmp_path / "one/refs"
        assert open_phrases(str(flickr(tmp_path / "two/flickr"))).name == "flickr30k"
        assert open_phrases(tmp_path / "two").split == "test"
        flickr(tmp_path / "one/flickr")
        with pytest.raises(DataError, match=r"holds 2 data sets with phrases: name one of .*flickr30k.*rec"):
            open_phrases(tmp_path / "one")

    @pytest.mark.parametrize("content", [None, b"", b"\xff\xff", b"{}\n", b'{"file": "a.jpg", "size": 3}\n'])
    def test_known_layouts_are_listed(self, tmp_path, content):
        if content is not None:
            (tmp_path / "log.jsonl").write_bytes(content)
        with pytest.raises(DataError, match="holds no data set with phrases that is known") as error:
            open_phrases(tmp_path)
        assert all(kind.layout in str(error.value) for kind in PHRASE_DATASETS)
        with pytest.raises(DataError, match="there is no folder"):
            open_phrases(tmp_path / "none")


UNBALANCED, NAMELESS = "sentences with unbalanced brackets", "phrases without a number or a kind"
NOT_FOUR, INSIDE_OUT = "boxes that are not four numbers", "boxes inside out"
MISSING, NO_JSON = "lines whose image is missing or broken", "lines that are no JSON objects"
UNUSABLE = [
    *(
        ("sentence", text, why)
        for text, why in (
            ("[/EN#1/people A man walks .", UNBALANCED),
            ("/EN#1/people A man] walks .", UNBALANCED),
            ("[/EN#1/people A man [/EN#2/clothing hat] .", UNBALANCED),
            ("[A man] walks .", NAMELESS),
            ("[/EN#/people A man] walks .", NAMELESS),
            ("[/EN#1 A man] walks .", NAMELESS),
            ("[] walks .", NAMELESS),
            ("[/EN#1/people] walks .", "phrases without words"),
            ("[/EN#1/people ] walks .", "phrases without words"),
            ("[/EN#1/furniture A chair] .", "phrases of an unknown kind"),
            ("[/EN#0/people A man] .", "phrases that are not visual"),
            ("[/EN#99/people A man] .", "phrases whose boxes are missing or unusable"),
        )
    ),
    *(
        ("object", thing(*names, box=box), why)
        for names, box, why in (
            ([7], (20, 1, 10, 5), INSIDE_OUT),
            ([7], (1, 9, 10, 5), INSIDE_OUT),
            ([7], ("nan", 1, 10, 5), INSIDE_OUT),
            ([7], (1, 1, "1e999", 5), INSIDE_OUT),
            ([7], ("", 1, 10, 5), NOT_FOUR),
            ([7], ("left", 1, 10, 5), NOT_FOUR),
            ([7], (SIDE + 1, 1, SIDE + 9, 5), "boxes outside of their image"),
            ([7], (-9, 1, 0, 5), "boxes outside of their image"),
            ([], (1, 1, 10, 5), "objects without a number"),
            ([7], None, "objects with neither a box nor a word why not"),
        )
    ),
    *(
        ("line", line if isinstance(line, str) else LINE | line, why)
        for line, why in (
            ("{broken", NO_JSON),
            ("[1, 2]", NO_JSON),
            ('{"file": "a.jpg", "phrase": "a", "box": [%s, 2, 9, 9]}' % ("9" * 5000), NO_JSON),
            ({"file": None}, "lines without an image"),
            ({"phrase": " "}, "lines without a phrase"),
            ({"phrase": 7}, "lines without a phrase"),
            ({"box": None}, "lines without a box"),
            ({"box": [1, 2, 3]}, NOT_FOUR),
            ({"box": [1, 2, 3, "4"]}, NOT_FOUR),
            ({"box": [1, 2, True, 4]}, NOT_FOUR),
            ({"box": {"x": 1}}, NOT_FOUR),
            ({"box": [1, 2, float("nan"), 4]}, NOT_FOUR),
            ({"box": [1, 2, 10**400, 4]}, NOT_FOUR),
            ({"box": [30, 2, 3, 4]}, INSIDE_OUT),
            ({"box": [3, 2, 3, 4]}, "boxes without an area"),
            ({"box": [0.1, 0.2, 0.5, 1]}, "boxes within one pixel"),
            ({"box": [SIDE, 2, SIDE + 9, 9]}, "boxes outside of their image"),
            ({"box": [-9, 2, 0, 9]}, "boxes outside of their image"),
            ({"box": None, "bbox": [1, 2, 3, 4]}, "lines whose bbox may have corners"),
            *(({"file": name}, MISSING) for name in ("none.jpg", "images", "../../etc/", "a" * 300 + ".jpg")),
            ({"file": "a" * 300 + "/../none.jpg"}, MISSING),
            ({"file": "\ud800.jpg"}, MISSING),
            ({"width": 2 * SIDE, "height": SIDE}, "lines annotated for another size of their image"),
        )
    ),
]


@pytest.mark.parametrize(("part", "damage", "why"), UNUSABLE)
def test_what_cannot_be_used_is_counted_and_the_rest_is_read(tmp_path, part, damage, why):
    if part == "line":
        dataset = ReferringExpressions(rec(tmp_path, LINE, damage, ""))
    else:
        sentence, things = (damage, THINGS) if part == "sentence" else ("", (*THINGS, damage))
        dataset = Flickr30kEntities(flickr(tmp_path, sentences=f"{MAN}\n{sentence}\n", things=things))
    assert [phrase.text for one in dataset for phrase in one.phrases] == ["left cup" if part == "line" else "A man"]
    ((found, count),) = dataset.left_out.items()
    assert (found[: len(why)], count) == (why, 1)


class TestFlickr30k:
    def test_phrases_with_their_boxes_and_kinds(self, tmp_path):
        dataset = Flickr30kEntities(flickr(tmp_path))
        (described,) = dataset
        first, second = (0, 0, 10, 20), (10, 0, 20, 5)
        sentences = ("Two young men with hats look at each other .", "Some guys in the yard have hands .")
        assert described.phrases == (
            Phrase("Two young men", (first, second), "people", sentences[0]),
            Phrase("hats", (second,), "clothing", sentences[0]),
            Phrase("Some guys", (first, second), "people", sentences[1], ("other",)),
        )
        assert described.phrases[2].groups == ("people", "other")
        assert (described.name, described.size) == ("36979", (SIDE, SIDE))
        assert described.path == tmp_path / "flickr30k-images/36979.jpg"
        assert dataset.left_out == {
            "phrases that are not visual": 1,
            "phrases that stand for the whole scene, without a box": 1,
            "phrases marked as having no box": 1,
        }

    @pytest.mark.parametrize(
        ("box", "left_out"),
        [
            ((20, 1, 10, 5), {INSIDE_OUT: 1, "phrases whose boxes are missing or unusable": 1}),
            ((3, 3, 3, 3), {}),  # of one pixel
        ],
    )
    def test_a_phrase_whose_boxes_are_all_broken(self, tmp_path, box, left_out):
        sentences = f"{MAN}\n[/EN#7/people A boy] ."
        dataset = Flickr30kEntities(flickr(tmp_path, sentences=sentences, things=(*THINGS, thing(7, box=box))))
        assert dataset.left_out == left_out

    @pytest.mark.parametrize(
        ("file", "content", "why"),
        [
            ("Annotations/2.xml", None, "names whose file of boxes is missing"),
            ("Sentences/2.txt", None, "names whose file of sentences is missing"),
            ("flickr30k-images/2.jpg", None, "names whose image is missing"),
            ("test.txt", b"36979\n" + b"9" * 300, "names whose image is missing"),  # no file has such a name
            ("Annotations/2.xml", b"<annotation", "images whose sentences or annotations are broken"),
            ("Annotations/2.xml", b"\xff\xfe", "images whose sentences or annotations are broken"),
            ("Annotations/2.xml", b"<!DOCTYPE a><annotation/>", "images whose sentences or annotations are broken"),
        ],
    )
    def test_missing_and_broken_files(self, tmp_path, file, content, why):
        flickr(flickr(tmp_path), "2")
        (tmp_path / file).unlink()
        if content is not None:
            (tmp_path / file).write_bytes(content)
        dataset = Flickr30kEntities(tmp_path)
        assert dataset.names == ("36979",)
        assert dataset.left_out[why] == 1

    def test_nothing_that_can_be_used(self, tmp_path):
        with pytest.raises(DataError, match=r"'test' .* has no phrases \(phrases that .*: 5; images without .*: 1\)"):
            Flickr30kEntities(flickr(tmp_path, sentences="[/EN#0/notvisual it] " * 5))
        (tmp_path / "test.txt").write_text("../../secret\n")
        with pytest.raises(DataError, match="no name of an image"):
            Flickr30kEntities(tmp_path)

    def test_folders_of_images(self, tmp_path):
        place = flickr(tmp_path) / "flickr30k-images"
        for folder in ("flickr30k_images", "images"):
            place = place.rename(tmp_path / folder)
            assert Flickr30kEntities(tmp_path).sample("36979").path == place / "36979.jpg"
        place.rename(tmp_path / "elsewhere")
        with pytest.raises(DataError, match="has no images: put them"):
            Flickr30kEntities(tmp_path)

    def test_splits(self, tmp_path):
        flickr(flickr(tmp_path), "2")
        (tmp_path / "val.txt").write_text("2.jpg\n2\n\n")
        assert Flickr30kEntities(tmp_path).names == ("36979", "2")
        assert Flickr30kEntities(tmp_path, "val").names == ("2",)
        with pytest.raises(DataError, match="its splits are test, val"):
            Flickr30kEntities(tmp_path, "train")

    def test_blanks_and_punctuation_stay_as_they_are_told(self):
        left_out = Counter()
        text, (mention,) = mentions("  [/EN#283585/people A  group ]'s hat , [red]  .", left_out)
        assert (text, mention.words, mention.number) == ("A group 's hat , red .", "A group", "283585")
        assert left_out == {NAMELESS: 1}


SHIKRA = {"img_path": "a.jpg", "expression": "a cup", "dataset_name": "refcoco", "height": SIDE, "width": SIDE}
QWEN = {"image": "data/refcoco/images/train2014/a.jpg", "sent": "a cup", "height": SIDE, "width": SIDE}


class TestReferringExpressions:
    def test_phrases_of_an_image_together(self, tmp_path):
        other = {"file": "b.jpg", "phrase": " tall man ", "box": [-3, 0, SIDE + 4, 9]}  # reaches beyond its image
        dataset = open_phrases(rec(tmp_path, "{broken", LINE, other, {**LINE, "phrase": "the cup"}))
        assert (dataset.name, dataset.names, dataset.groups) == ("rec", ("a.jpg", "b.jpg"), ())
        assert dict(dataset.left_out) == {NO_JSON: 1}  # a broken first line hides nothing
        first, second = dataset
        assert first.phrases == (Phrase("left cup", ((1, 2, 10.5, 20),)), Phrase("the cup", ((1, 2, 10.5, 20),)))
        assert (first.path, first.size) == (tmp_path / "images/a.jpg", (SIDE, SIDE))
        assert second.phrases == (Phrase("tall man", ((-3, 0, SIDE + 4, 9),)),)

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
    def test_public_forms(self, tmp_path, line, box):
        (described,) = ReferringExpressions(rec(tmp_path, line))
        assert described.phrases == (Phrase("a cup", (box,)),)
        assert described.path == tmp_path / "images/a.jpg"

    def test_a_pipe_is_not_waited_for_nor_too_many_pixels_read(self, tmp_path, monkeypatch):
        rec(tmp_path, LINE, {**LINE, "file": "b.jpg"})
        Image.new("RGB", (SIDE, SIDE + 1)).save(tmp_path / "images/b.jpg", format="PNG")
        with monkeypatch.context() as limited:
            limited.setattr(Image, "MAX_IMAGE_PIXELS", SIDE * SIDE)
            assert ReferringExpressions(tmp_path).left_out == {MISSING: 1}
        assert not ReferringExpressions(tmp_path).left_out
        (tmp_path / "images/b.jpg").unlink()
        os.mkfifo(tmp_path / "images/b.jpg")
        assert ReferringExpressions(tmp_path).left_out == {MISSING: 1}

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_lines_end_as_on_any_system_and_nowhere_else(self, tmp_path, end):
        lines = (json.dumps({**LINE, "phrase": f"a{rare}cup"}, ensure_ascii=False) for rare in "\u2028\x85")
        (rec(tmp_path) / "val.jsonl").write_bytes(end.join(lines).encode())
        texts = [phrase.text for phrase in ReferringExpressions(tmp_path).sample("a.jpg").phrases]
        assert texts == ["a\u2028cup", "a\x85cup"]

    def test_an_image_that_lies_on_its_side_is_seen_upright(self, tmp_path):
        rec(tmp_path, {**LINE, "box": [1, 1, 10, 30]})
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (40, 20)).save(tmp_path / "images/a.jpg", format="PNG", exif=exif)
        assert ReferringExpressions(tmp_path).sample("a.jpg").size == (20, 40)

    def test_images_beside_the_lines_or_deeper(self, tmp_path):
        (rec(tmp_path) / "images/a.jpg").rename(tmp_path / "a.jpg")
        assert ReferringExpressions(tmp_path).sample("a.jpg").path == tmp_path / "a.jpg"
        picture(tmp_path / "coco/train2014/c.jpg", [])
        rec(tmp_path, {**LINE, "file": "c.jpg"})
        assert ReferringExpressions(tmp_path).sample("c.jpg").path == tmp_path / "coco/train2014/c.jpg"
        picture(tmp_path / "coco/val2014/c.jpg", [])
        with pytest.raises(DataError, match=r"both may be the image 'c\.jpg'"):
            ReferringExpressions(tmp_path)

    def test_every_file_of_lines_is_a_split(self, tmp_path):
        assert ReferringExpressions(rec(tmp_path, split="refcoco_testA")).split == "refcoco_testA"
        rec(tmp_path, LINE, LINE, split="refcoco_val")
        with pytest.raises(DataError, match="its splits are refcoco_testA, refcoco_val"):
            ReferringExpressions(tmp_path)
        assert len(ReferringExpressions(tmp_path, "refcoco_val").sample("a.jpg").phrases) == 2

    def test_real_ones(self, shared_data):
        dataset = ReferringExpressions(shared_data / "refcoco")
        assert (len(dataset), sum(len(described.phrases) for described in dataset)) == (300, 2130)
        assert not dataset.left_out
        assert all(described.path.is_file() for described in dataset)
