"""Which data set does a folder hold?"""

import shutil
from pathlib import Path

import pytest
from annotated import coco_content, make_imagenet, make_voc, picture, scenes, write_coco

from excite.datasets import DATASETS, open_dataset
from excite.errors import ConceptError, DataError
from excite.vocabulary import Labels, imagenet_labels


@pytest.fixture
def folder(tmp_path):
    """All three formats side by side."""
    make_voc(tmp_path / "VOCdevkit/VOC2007", scenes(3))
    make_imagenet(tmp_path / "imagenet", scenes(3), ["red", "green"])
    write_coco(tmp_path / "coco", coco_content(scenes(3), ["red", "green"]))
    return tmp_path


class TestFinding:
    @pytest.mark.parametrize(
        ("place", "name"),
        [("VOCdevkit/VOC2007", "voc"), ("VOCdevkit", "voc"), ("imagenet", "imagenet"), ("coco", "coco"), ("", "voc")],
    )
    def test_each_format(self, folder, place, name):
        if not place:  # the folder above VOCdevkit
            shutil.rmtree(folder / "imagenet")
            shutil.rmtree(folder / "coco")
        dataset = open_dataset(folder / place)
        assert isinstance(dataset, DATASETS[name])
        assert dataset.name == name
        assert len(dataset) == len(list(dataset)) == 3

    def test_several_or_none(self, folder, tmp_path):
        with pytest.raises(DataError, match=r"holds 3 data sets: name one of .*coco.*imagenet.*VOC2007"):
            open_dataset(folder)
        (tmp_path / "file").mkdir()
        with pytest.raises(DataError, match=r"holds no data set that is known: imagenet .*voc .*coco"):
            open_dataset(tmp_path / "file")
        for name in ("nowhere", "coco/annotations/instances_val2017.json"):
            with pytest.raises(DataError, match=f"no folder '.*{name}'"):
                open_dataset(tmp_path / name)

    @pytest.mark.parametrize("name", ["boxes.json", "boxes.csv"])
    def test_boxes_without_pictures(self, tmp_path, name):
        """As they are in the folder that `excite boxes` writes to."""
        (tmp_path / name).write_text("")
        with pytest.raises(DataError, match=rf"{name}' has boxes, but no images are with it: put the file, or a link"):
            open_dataset(tmp_path)

    def test_annotations_before_a_table_of_boxes(self, folder, tmp_path):
        """A folder that opened before there were such tables opens as it did."""
        picture(tmp_path / "coco/000000.jpg", [])
        for place in ("coco", "imagenet", "VOCdevkit/VOC2007"):
            before = open_dataset(folder / place)
            (folder / place / "boxes.csv").write_text("image,concept,x0,y0,x1,y1\n")
            assert open_dataset(folder / place).name == before.name


@pytest.mark.parametrize(
    ("lists", "wanted", "found"),
    [
        (["val", "train"], None, "val"),
        (["val", "train"], "train", "train"),
        (["test"], None, "test"),  # the only one
        (["val2017", "train2017"], "val", "val2017"),  # a beginning
        (["test", "train"], None, "no split 'val': its splits are test, train"),
        (["val2014", "val2017"], "val", "no split 'val' .*val2014, val2017"),
        (["val", "cat_val"], "cat_val", "no split 'cat_val'.*its splits are val$"),  # a list of one class
        (["val"], "vla", r"has no split 'vla' \(did you mean 'val'\?\)"),
        (["val"], "", "has no split ''"),
    ],
)
def test_splits(tmp_path, lists, wanted, found):
    make_voc(tmp_path, scenes(2))
    (tmp_path / "ImageSets/Main/val.txt").unlink()
    for name in lists:
        (tmp_path / f"ImageSets/Main/{name}.txt").write_text("000001\n")
    if " " in found:
        with pytest.raises(DataError, match=found):
            open_dataset(tmp_path, wanted)
    else:
        assert open_dataset(tmp_path, wanted).split == found


def test_an_empty_split_and_names_that_lead_out_of_the_folder(tmp_path):
    with pytest.raises(DataError, match=r"the split 'val' of .* lists no images"):
        open_dataset(make_voc(tmp_path / "voc", []))
    (tmp_path / "voc/ImageSets/Main/val.txt").write_text("../../secret\n")
    with pytest.raises(DataError, match=r"'\.\./\.\./secret\.xml' is no name of an image"):
        list(open_dataset(tmp_path / "voc"))


@pytest.mark.parametrize(
    ("category", "labels", "units"),
    [
        ("red", Labels(["green", ["crimson", "red"]]), (1,)),
        ("remote", imagenet_labels(), (761,)),  # one of the words of "remote control"
        ("horse", imagenet_labels(), (339,)),  # an everyday word
        ("diningtable", imagenet_labels(), (532,)),  # VOC writes it together
        ("diningtable", Labels(["diningtable", "dining table"]), (0,)),
        ("fork", imagenet_labels(), None),  # never completed: a score for forks must not be made of forklifts
        ("person", imagenet_labels(), None),
        ("tvmonitor", imagenet_labels(), None),
    ],
)
def test_what_a_classifier_calls_a_category(tmp_path, category, labels, units):
    dataset = open_dataset(make_voc(tmp_path, scenes(2)))
    if units is None:
        with pytest.raises(ConceptError):
            dataset.concept(category, labels)
    else:
        assert dataset.concept(category, labels).units == units


def test_real_data(shared_data):
    """Counts that were made with other programs (grep, wc), not with this one."""
    counts = {"imagenet": (1000, 1605), "VOCdevkit": (1000, None), "coco": (142, None)}
    for place, (pictures, boxes) in counts.items():
        dataset = open_dataset(Path(shared_data) / place)
        samples = list(dataset)
        assert len(samples) == pictures
        assert all(sample.path.is_file() for sample in samples)
        assert boxes in {None, sum(len(target.boxes) for sample in samples for target in sample.targets)}
        assert {target.concept for sample in samples for target in sample.targets} <= set(dataset.categories)
