"""The XML files of ImageNet's original challenge."""

import pytest
from annotated import imagenet_xml, picture, scenes, write_imagenet_xml

from excite.datasets import open_dataset
from excite.errors import DataError
from excite.images import read_image

WNIDS = {"red": "n01440764", "green": "n01751748"}  # tench and sea snake
VAL = [(f"ILSVRC2012_val_{k:08}", squares[:1]) for k, (_, squares) in enumerate(scenes(4), 1)]
TRAIN = [(f"{WNIDS[squares[0][0]]}_{k}", squares[:1]) for k, (_, squares) in enumerate(scenes(6), 10)]


def put_pictures(folder, pictures, in_classes=False):
    for name, squares in pictures:
        picture(folder / (WNIDS[squares[0][0]] if in_classes else ".") / f"{name}.JPEG", squares)


def expected(pictures):
    return [(name, ((WNIDS[colour], box),)) for name, ((colour, box),) in pictures]


def told(dataset):
    return [
        (sample.name, tuple((target.concept, box) for target in sample.targets for box in target.boxes))
        for sample in dataset
    ]


@pytest.fixture
def folder(tmp_path):
    """The challenge's own archive."""
    write_imagenet_xml(tmp_path / "imagenet/ILSVRC/Annotations/CLS-LOC/val", VAL, WNIDS)
    put_pictures(tmp_path / "imagenet/ILSVRC/Data/CLS-LOC/val", VAL)
    return tmp_path / "imagenet"


def annotate(folder, text):
    (folder / "ILSVRC/Annotations/CLS-LOC/val/ILSVRC2012_val_00000001.xml").write_text(text)
    return open_dataset(folder).sample("ILSVRC2012_val_00000001")


class TestLayouts:
    @pytest.mark.parametrize("in_classes", [False, True])
    @pytest.mark.parametrize(
        ("xml", "pictures"),
        [
            ("ILSVRC/Annotations/CLS-LOC/val", "ILSVRC/Data/CLS-LOC/val"),
            ("Annotations/CLS-LOC/val", "Data/CLS-LOC/val"),
            ("bbox_val", "val"),
            ("bbox_val/val", "val"),
            ("ILSVRC2012_bbox_val_v3/val", "ILSVRC2012_img_val"),
            ("val", "val"),
            ("val", "."),
            ("", "."),
            ("", "val"),
        ],
    )
    def test_val(self, tmp_path, xml, pictures, in_classes):
        write_imagenet_xml(tmp_path / xml, VAL, WNIDS)
        put_pictures(tmp_path / pictures, VAL, in_classes)
        dataset = open_dataset(tmp_path)
        assert (dataset.name, dataset.split, dataset.folder) == ("imagenet", "val", tmp_path)
        assert told(dataset) == expected(VAL)
        for sample in dataset:
            sample.check_size(read_image(sample.path).size)

    def test_the_folder_above_or_within(self, folder):
        assert told(open_dataset(folder.parent)) == told(open_dataset(folder / "ILSVRC")) == expected(VAL)

    def test_annotations_sorted_into_folders_of_classes(self, tmp_path):
        for one in VAL:
            write_imagenet_xml(tmp_path / "val" / WNIDS[one[1][0][0]], [one], WNIDS)
        put_pictures(tmp_path / "val", VAL, in_classes=True)
        assert told(open_dataset(tmp_path)) == expected(VAL)

    def test_the_table_where_both_are(self, folder):
        (folder / "LOC_val_solution.csv").write_text(f"ImageId,PredictionString\n{VAL[1][0]},n01440764 0 0 9 9\n")
        (sample,) = open_dataset(folder)
        assert sample.targets[0].boxes == ((0, 0, 10, 10),)

    def test_other_files_beside(self, folder):
        (folder / "imagenet_class_index.json").write_text("{}")
        place = folder / "ILSVRC/Annotations/CLS-LOC/val"
        (place / "._ILSVRC2012_val_00000001.xml").write_text("")  # as archivers leave them
        (place / "readme.xml").write_text("")
        assert len(open_dataset(folder)) == 4

    def test_the_training_set(self, folder):
        for one in TRAIN:
            write_imagenet_xml(folder / "ILSVRC/Annotations/CLS-LOC/train" / one[0].split("_")[0], [one], WNIDS)
        put_pictures(folder / "ILSVRC/Data/CLS-LOC/train", TRAIN, in_classes=True)
        picture(folder / "ILSVRC/Data/CLS-LOC/train/n01440764/n01440764_99.JPEG", [])  # without a box
        assert open_dataset(folder).split == "val"
        dataset = open_dataset(folder, "train")
        assert told(dataset) == expected(TRAIN)  # not all of one class, then all of the other
        assert all(sample.path.is_file() for sample in dataset)

    def test_a_table_of_the_training_set(self, tmp_path):
        lines = [
            f"{name},{WNIDS[colour]} {x0} {y0} {x1 - 1} {y1 - 1} " for name, ((colour, (x0, y0, x1, y1)),) in TRAIN
        ]
        (tmp_path / "LOC_train_solution.csv").write_text("\n".join(["ImageId,PredictionString", *sorted(lines)]))
        put_pictures(tmp_path / "train", TRAIN, in_classes=True)
        dataset = open_dataset(tmp_path)
        assert (dataset.split, told(dataset)) == ("train", expected(TRAIN))
        assert all(sample.path.is_file() for sample in dataset)


def test_counted_from_nought_and_the_last_one_included(folder):
    """Whatever VOC's XML means by the same tags: else no box could begin at 0 or end at 499."""
    sample = annotate(folder, imagenet_xml([("n01440764", (0, 0, 500, 375))], size=(500, 375)))
    assert (sample.targets[0].boxes, sample.size) == (((0, 0, 500, 375),), (500, 375))


class TestTheList:
    @pytest.fixture(params=["ILSVRC/ImageSets/CLS-LOC", "ImageSets/CLS-LOC"])
    def listed(self, request, folder):
        path = folder / request.param / "val.txt"
        path.parent.mkdir(parents=True)
        path.write_text(f"{VAL[2][0]} 3\n{VAL[0][0]} 1\n\n")
        return path

    def test_says_which_pictures(self, folder, listed):
        assert told(open_dataset(folder)) == [expected(VAL)[0], expected(VAL)[2]]

    def test_of_the_training_set(self, folder, listed):
        write_imagenet_xml(folder / "bbox_train/n01440764", [("n01440764_7", []), ("n01440764_8", [])], WNIDS)
        listed.with_name("train_loc.txt").write_text("n01440764/n01440764_8 1\n")
        assert open_dataset(folder, "train").names == ("n01440764_8",)

    def test_a_picture_without_annotation_and_something_else(self, folder, listed):
        listed.write_text("ILSVRC2012_val_00000009 9\n")
        with pytest.raises(DataError, match=r"val\.txt: it lists 'ILSVRC2012_val_00000009', but there is no .*xml in"):
            open_dataset(folder).sample("ILSVRC2012_val_00000009")
        listed.write_text("ILSVRC2012_val_00000001 1\na b c\n")
        with pytest.raises(DataError, match=r"val\.txt, line 2: an image with its number was expected"):
            open_dataset(folder)


class TestBroken:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "broken XML"),
            (imagenet_xml([("Scottish_deerhound", (0, 0, 4, 4))]), "object 1: 'Scottish_deerhound' is no class of Im"),
            (imagenet_xml([("n00000001", (0, 0, 4, 4))]), "object 1: 'n00000001' is no class of ImageNet"),
            (imagenet_xml([("n01440764", (9, 0, 4, 4))]), "object 1: .* is no box"),
            (imagenet_xml([("n01440764", (-1, 0, 4, 4))]), "object 1: .* begins outside of the image"),
            (imagenet_xml([], size=("9" * 5000, 375)), "'99999999999999999999' x 375 is no size"),
        ],
    )
    def test_names_file_and_place(self, folder, text, words):
        with pytest.raises(DataError, match=rf"ILSVRC2012_val_00000001\.xml.*{words}") as raised:
            annotate(folder, text)
        assert "\n" not in str(raised.value)

    def test_twice(self, tmp_path):
        write_imagenet_xml(tmp_path / "val", VAL[:1], WNIDS)
        write_imagenet_xml(tmp_path / "val/n01440764", VAL[:1], WNIDS)
        with pytest.raises(DataError, match=r"has ILSVRC2012_val_00000001\.xml twice"):
            open_dataset(tmp_path)
