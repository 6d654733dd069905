"""PASCAL VOC's XML files."""

import pytest
from annotated import make_voc, scenes, voc_object

from excite.datasets import Instance, open_dataset
from excite.errors import DataError


@pytest.fixture
def folder(tmp_path):
    return make_voc(tmp_path, scenes(4))


def annotate(folder, objects, name="000000"):
    (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{objects}</annotation>")
    return open_dataset(folder).sample(name)


def test_the_pictures_in_the_order_of_the_list(folder):
    (folder / "ImageSets/Main/val.txt").write_text("000002\n000000\n\n")
    dataset = open_dataset(folder)
    assert [sample.name for sample in dataset] == ["000002", "000000"]
    assert dataset.sample("000002").path == folder / "JPEGImages/000002.jpg"


def test_boxes_count_from_nought_and_are_half_open(folder):
    sample = annotate(
        folder,
        "<object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>48</xmax><ymax>48.5</ymax></bndbox></object>",
    )
    assert sample.targets[0].boxes == ((0.0, 0.0, 48.0, 48.5),)


def test_targets_of_several_categories(folder):
    objects = [voc_object("dog", (0, 0, 4, 4)), voc_object("cat", (5, 5, 9, 9), 1), voc_object("dog", (1, 1, 2, 2), 1)]
    sample = annotate(folder, "".join(objects))
    cat, dog = sample.targets
    assert (cat.concept, cat.difficult) == ("cat", True)
    assert (dog.concept, dog.difficult) == ("dog", False)  # one of two is not difficult
    assert dog.instances == (Instance((0, 0, 4, 4)), Instance((1, 1, 2, 2), difficult=True))


def test_a_part_is_no_object(folder):
    part = "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>"
    person = voc_object("person", (0, 0, 9, 9)).replace("</object>", f"{part}</object>")
    (target,) = annotate(folder, person).targets
    assert (target.concept, target.boxes) == ("person", ((0, 0, 9, 9),))


def test_nothing_annotated(folder):
    assert annotate(folder, "").targets == ()


def test_categories_are_those_that_occur(folder):
    assert open_dataset(folder).categories == ("green", "red")


class TestBroken:
    @pytest.mark.parametrize(
        ("objects", "words"),
        [
            ("<object></object>", "object 1: <name> is missing"),
            (voc_object("cat", (0, 0, 4, 4)) + "<object><name>cat</name></object>", "object 2: <bndbox/xmin> is miss"),
            (voc_object("cat", (4, 4, 4, 4)).replace("<xmin>5", "<xmin>five"), "must be a number"),
            (voc_object("cat", (9, 0, 4, 4)), "object 1: .* is no box"),
            (voc_object("cat", (0, 0, "nan", 4)), "is no box"),
            (voc_object("cat", (0, 0, "inf", 4)), "is no box"),
            (voc_object("cat", (0, 0, 4, 4), "maybe"), "<difficult> must be 0 or 1, not 'maybe'"),
            ("<object>", "broken XML .*line 1"),
        ],
    )
    def test_names_file_and_place(self, folder, objects, words):
        with pytest.raises(DataError, match=rf"000000\.xml.*{words}"):
            annotate(folder, objects)

    def test_missing(self, folder):
        (folder / "Annotations/000001.xml").unlink()
        with pytest.raises(DataError, match=r"cannot read .*000001\.xml"):
            open_dataset(folder).sample("000001")

    def test_a_list_with_other_things(self, folder):
        (folder / "ImageSets/Main/val.txt").write_text("000001\n000002 1\n")
        with pytest.raises(DataError, match=r"val\.txt, line 2: the name of one picture"):
            open_dataset(folder)


class TestEntities:
    BOMB = (
        '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
        "<annotation><object><name>&b;</name></object></annotation>"
    )

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
    def test_refused_unread(self, folder, encoding):
        (folder / "Annotations/000000.xml").write_bytes(self.BOMB.encode(encoding))
        with pytest.raises(DataError, match=r"000000\.xml: it declares a DOCTYPE"):
            open_dataset(folder).sample("000000")

    def test_not_hidden_by_another_encoding(self, folder):
        hidden = f'<?xml version="1.0" encoding="utf-16"?>{self.BOMB}'
        (folder / "Annotations/000000.xml").write_bytes(hidden.encode("utf-16"))
        with pytest.raises(DataError, match="no UTF-8 text"):
            open_dataset(folder).sample("000000")
