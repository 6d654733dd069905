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


def size(width, height):
    return f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"


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


def test_categories_in_spite_of_a_broken_annotation(folder):
    """Else one broken file would end the run, instead of leaving out its image."""
    (folder / "Annotations/000001.xml").write_text("<annotation>")
    dataset = open_dataset(folder)
    assert dataset.categories == ("green", "red")
    with pytest.raises(DataError, match=r"000001\.xml: broken XML"):
        dataset.sample("000001")


def test_pictures_that_are_no_jpegs(folder):
    (folder / "JPEGImages/000001.jpg").rename(folder / "JPEGImages/000001.png")
    (folder / "JPEGImages/000002.jpg").unlink()
    dataset = open_dataset(folder)
    assert dataset.sample("000001").path == folder / "JPEGImages/000001.png"
    assert dataset.sample("000002").path == folder / "JPEGImages/000002.jpg"  # reading it says that it is missing


class TestSizes:
    def test_as_annotated(self, folder):
        assert annotate(folder, size(500, 375)).size == (500, 375)

    @pytest.mark.parametrize("text", ["", "<size></size>", size(0, 0), size("", "")])
    def test_unknown(self, folder, text):
        assert annotate(folder, text).size is None

    @pytest.mark.parametrize("text", [size(500, 0), size("wide", 375), size(-5, 375), size(10**6, 10**6)])
    def test_broken(self, folder, text):
        with pytest.raises(DataError, match=r"000000\.xml: .*(width|size)"):
            annotate(folder, text)

    def test_of_another_picture(self, folder):
        """Pictures are turned upright when they are read; boxes that were drawn before that lie elsewhere."""
        sample = annotate(folder, size(500, 375))
        sample.check_size((500, 375))
        with pytest.raises(DataError, match=r"000000\.jpg' is 375 x 500 pixels, but annotated for 500 x 375"):
            sample.check_size((375, 500))
        annotate(folder, "").check_size((375, 500))


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
            ("</annotation><svg/><annotation>", "broken XML"),
        ],
    )
    def test_names_file_and_place(self, folder, objects, words):
        with pytest.raises(DataError, match=rf"000000\.xml.*{words}"):
            annotate(folder, objects)

    def test_another_kind_of_xml(self, folder):
        (folder / "Annotations/000000.xml").write_text("<svg/>")
        with pytest.raises(DataError, match=r"000000\.xml: it begins with <svg>"):
            open_dataset(folder).sample("000000")

    def test_missing(self, folder):
        (folder / "Annotations/000001.xml").unlink()
        with pytest.raises(DataError, match=r"cannot read .*000001\.xml"):
            open_dataset(folder).sample("000001")

    def test_a_list_with_other_things(self, folder):
        (folder / "ImageSets/Main/val.txt").write_text("000001\n000002 1\n")
        with pytest.raises(DataError, match=r"val\.txt, line 2: the name of one image"):
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
