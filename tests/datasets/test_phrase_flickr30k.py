"""Flickr30k Entities, in small files of its exact format."""

from collections import Counter

import pytest
from annotated import SIDE, picture

from excite.datasets.base import Phrase
from excite.datasets.flickr30k import Flickr30kEntities, mentions
from excite.errors import DataError

SENTENCES = """[/EN#1/people Two young men] with [/EN#2/clothing hats] look at [/EN#0/notvisual each other] .
[/EN#1/people/other Some guys] in [/EN#3/scene the yard] have [/EN#4/bodyparts hands] .
"""


def thing(*names, box=None, scene=0, nobox=0):
    """An object as the files have it: either a box, whose pixels count from 1, or two flags."""
    called = "".join(f"<name>{name}</name>" for name in names)
    if box is None:
        return f"<object>{called}<scene>{scene}</scene><nobndbox>{nobox}</nobndbox></object>"
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    return f"<object>{called}<bndbox>{''.join(f'<{side}>{value}</{side}>' for side, value in sides)}</bndbox></object>"


THINGS = (thing(1, box=(1, 1, 10, 20)), thing(1, 2, box=(11, 1, 20, 5)), thing(3, scene=1), thing(4, nobox=1))


def add(folder, name="36979", sentences=SENTENCES, things=THINGS):
    for kind in ("Sentences", "Annotations"):
        (folder / kind).mkdir(exist_ok=True)
    size = f"<size><width>{SIDE}</width><height>{SIDE}</height><depth>3</depth></size>"
    (folder / f"Sentences/{name}.txt").write_text(sentences, encoding="utf-8")
    content = f"<annotation><filename>{name}.jpg</filename>{size}{''.join(things)}</annotation>"
    (folder / f"Annotations/{name}.xml").write_text(content)
    picture(folder / f"flickr30k-images/{name}.jpg", [])
    with (folder / "test.txt").open("a") as file:
        file.write(f"{name}\n")
    return folder


def test_phrases_with_their_boxes_and_kinds(tmp_path):
    dataset = Flickr30kEntities(add(tmp_path))
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


def test_what_has_no_box_is_counted(tmp_path):
    assert Flickr30kEntities(add(tmp_path)).left_out == {
        "phrases that are not visual": 1,
        "phrases that stand for the whole scene, without a box": 1,
        "phrases marked as having no box": 1,
    }


class TestBrokenParts:
    """Each is counted, and the rest is read."""

    GOOD = "[/EN#1/people A man] ."

    def left_out(self, tmp_path, sentence=GOOD, things=THINGS):
        dataset = Flickr30kEntities(add(tmp_path, sentences=f"{self.GOOD}\n{sentence}\n", things=things))
        assert dataset.sample("36979").phrases[0].text == "A man"
        return dict(dataset.left_out)

    @pytest.mark.parametrize(
        ("sentence", "why"),
        [
            ("[/EN#1/people A man walks .", "sentences with unbalanced brackets"),
            ("/EN#1/people A man] walks .", "sentences with unbalanced brackets"),
            ("[/EN#1/people A man [/EN#2/clothing hat] .", "sentences with unbalanced brackets"),
            ("[A man] walks .", "phrases without a number or a kind"),
            ("[/EN#/people A man] walks .", "phrases without a number or a kind"),
            ("[/EN#1 A man] walks .", "phrases without a number or a kind"),
            ("[] walks .", "phrases without a number or a kind"),
            ("[/EN#1/people] walks .", "phrases without words"),
            ("[/EN#1/people ] walks .", "phrases without words"),
            ("[/EN#1/furniture A chair] .", "phrases of an unknown kind"),
            ("[/EN#0/people A man] .", "phrases that are not visual"),
            ("[/EN#99/people A man] .", "phrases whose boxes are missing or unusable"),
        ],
    )
    def test_in_sentences(self, tmp_path, sentence, why):
        assert self.left_out(tmp_path, sentence) == {why: 1}

    @pytest.mark.parametrize(
        ("broken", "why"),
        [
            (thing(7, box=(20, 1, 10, 5)), "boxes inside out"),
            (thing(7, box=(1, 9, 10, 5)), "boxes inside out"),
            (thing(7, box=("nan", 1, 10, 5)), "boxes inside out"),
            (thing(7, box=(1, 1, "1e999", 5)), "boxes inside out"),
            (thing(7, box=("", 1, 10, 5)), "boxes that are not four numbers"),
            (thing(7, box=("left", 1, 10, 5)), "boxes that are not four numbers"),
            (thing(7, box=(SIDE + 1, 1, SIDE + 9, 5)), "boxes outside of their image"),
            (thing(7, box=(-9, 1, 0, 5)), "boxes outside of their image"),
            (thing(box=(1, 1, 10, 5)), "objects without a number"),
            (thing(7), "objects with neither a box nor a word why not"),
        ],
    )
    def test_in_annotations(self, tmp_path, broken, why):
        assert self.left_out(tmp_path, "", (*THINGS, broken)) == {why: 1}

    def test_a_phrase_whose_boxes_are_all_broken(self, tmp_path):
        found = self.left_out(tmp_path, "[/EN#7/people A boy] .", (*THINGS, thing(7, box=(20, 1, 10, 5))))
        assert found == {"boxes inside out": 1, "phrases whose boxes are missing or unusable": 1}

    def test_a_box_of_one_pixel(self, tmp_path):
        assert self.left_out(tmp_path, "[/EN#7/people A boy] .", (*THINGS, thing(7, box=(3, 3, 3, 3)))) == {}


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("Annotations/2.xml", "file of boxes"),
        ("Sentences/2.txt", "file of sentences"),
        ("flickr30k-images/2.jpg", "image"),
    ],
)
def test_missing_files(tmp_path, file, what):
    add(add(tmp_path), "2")
    (tmp_path / file).unlink()
    dataset = Flickr30kEntities(tmp_path)
    assert dataset.names == ("36979",)
    assert dataset.left_out[f"names whose {what} is missing"] == 1


def test_a_name_that_no_file_can_have(tmp_path):
    with (add(tmp_path) / "test.txt").open("a") as file:
        file.write("9" * 300)
    dataset = Flickr30kEntities(tmp_path)
    assert dataset.names == ("36979",)
    assert dataset.left_out["names whose image is missing"] == 1


@pytest.mark.parametrize("content", [b"<annotation", b"\xff\xfe", b"<!DOCTYPE a><annotation/>"])
def test_broken_files(tmp_path, content):
    add(add(tmp_path), "2")
    (tmp_path / "Annotations/2.xml").write_bytes(content)
    assert Flickr30kEntities(tmp_path).left_out["images whose sentences or annotations are broken"] == 1


def test_nothing_that_can_be_used(tmp_path):
    with pytest.raises(DataError, match=r"'test' .* has no phrases \(phrases that .*: 5; images without .*: 1\)"):
        Flickr30kEntities(add(tmp_path, sentences="[/EN#0/notvisual it] " * 5))


def test_without_pictures(tmp_path):
    add(tmp_path)
    (tmp_path / "flickr30k-images").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="has no images: put them"):
        Flickr30kEntities(tmp_path)


@pytest.mark.parametrize("folder", ["flickr30k_images", "images"])
def test_other_folders_of_pictures(tmp_path, folder):
    add(tmp_path)
    (tmp_path / "flickr30k-images").rename(tmp_path / folder)
    assert Flickr30kEntities(tmp_path).sample("36979").path == tmp_path / folder / "36979.jpg"


def test_splits(tmp_path):
    add(add(tmp_path), "2")
    (tmp_path / "val.txt").write_text("2.jpg\n2\n\n")
    assert Flickr30kEntities(tmp_path).names == ("36979", "2")
    assert Flickr30kEntities(tmp_path, "val").names == ("2",)
    with pytest.raises(DataError, match="its splits are test, val"):
        Flickr30kEntities(tmp_path, "train")


def test_names_that_lead_out_of_the_folder(tmp_path):
    add(tmp_path)
    (tmp_path / "test.txt").write_text("../../secret\n")
    with pytest.raises(DataError, match="no name of an image"):
        Flickr30kEntities(tmp_path)


def test_blanks_and_punctuation_stay_as_they_are_told():
    left_out = Counter()
    text, (mention,) = mentions("  [/EN#283585/people A  group ]'s hat , [red]  .", left_out)
    assert (text, mention.words, mention.number) == ("A group 's hat , red .", "A group", "283585")
    assert left_out == {"phrases without a number or a kind": 1}
