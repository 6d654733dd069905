"""ImageNet's boxes: tables and XML files of the challenge, and MaxBoxAcc's lists as they are published."""

import pytest
from annotated import (
    WSOL_ONE,
    WSOL_SECOND,
    WSOL_TWO,
    imagenet_xml,
    make_imagenet,
    picture,
    scenes,
    write_imagenet_xml,
    write_wsol,
)

from excite.datasets import open_dataset
from excite.errors import ConceptError, DataError
from excite.images import read_image
from excite.vocabulary import Labels, imagenet_labels

WNIDS = {"red": "n01440764", "green": "n01751748"}  # tench and sea snake
VAL = [(f"ILSVRC2012_val_{k:08}", squares[:1]) for k, (_, squares) in enumerate(scenes(4), 1)]
TRAIN = [(f"{WNIDS[squares[0][0]]}_{k}", squares[:1]) for k, (_, squares) in enumerate(scenes(6), 10)]


def put_images(folder, images, in_classes=False):
    for name, squares in images:
        picture(folder / (WNIDS[squares[0][0]] if in_classes else ".") / f"{name}.JPEG", squares)


def expected(images):
    return [(name, ((WNIDS[colour], box),)) for name, ((colour, box),) in images]


def told(dataset):
    assert all(sample.path.is_file() for sample in dataset)
    return [
        (sample.name, tuple((target.concept, box) for target in sample.targets for box in target.boxes))
        for sample in dataset
    ]


class TestTable:
    @pytest.fixture
    def folder(self, tmp_path):
        return make_imagenet(tmp_path, scenes(4), ["red", "green"])

    def targets(self, folder, line):
        (folder / "LOC_val_solution.csv").write_text(f"ImageId,PredictionString\n{line}\n")
        return open_dataset(folder).sample("a").targets

    def test_boxes_as_drawn_and_images_in_folders_of_classes(self, folder):
        """The file's last pixel is included; torchvision wants such folders."""
        sample = open_dataset(folder).sample("000001")
        assert (sample.path, sample.targets[0].boxes) == (folder / "val/000001.JPEG", ((4, 4, 12, 12),))
        for sample in open_dataset(folder):
            (folder / "val" / sample.targets[0].concept).mkdir(exist_ok=True)
            sample.path.rename(folder / "val" / sample.targets[0].concept / sample.path.name)
        assert [sample.path.parent.name for sample in open_dataset(folder)] == ["n00000001", "n00000000"] * 2
        assert all(sample.path.is_file() for sample in open_dataset(folder))

    def test_several_boxes_and_classes(self, folder):
        red, green = self.targets(folder, "a,n00000000 1 2 3 4 n00000001 0 0 0 0 n00000000 5 6 7 8 ")
        assert (red.concept, red.boxes) == ("n00000000", ((1, 2, 4, 5), (5, 6, 8, 9)))
        assert (green.concept, green.boxes) == ("n00000001", ((0, 0, 1, 1),))

    def test_the_usual_words_where_there_is_no_file_of_words(self, folder):
        (folder / "LOC_synset_mapping.txt").unlink()
        (target,) = self.targets(folder, "a,n01751748 111 108 441 193")
        dataset = open_dataset(folder)
        assert (target.boxes, dataset.words(target.concept)[0]) == (((111, 108, 442, 194),), "sea snake")
        assert len(dataset.categories) == 1000
        assert dataset.concept("n01751748", imagenet_labels()).units == (65,)
        with pytest.raises(DataError, match=r"csv, line 2: 'n00000000' is no class of ImageNet"):
            self.targets(folder, "a,n00000000 1 2 3 4")

    def test_namesakes_are_told_apart_and_other_classifiers_asked_by_words(self, folder):
        """Two classes are called crane, and two maillot."""
        (folder / "LOC_synset_mapping.txt").write_text("n02012849 crane\nn03126707 crane\nn00000000 red\nn00000001 x\n")
        dataset = open_dataset(folder)
        bird, machine = (dataset.concept(wnid, imagenet_labels()) for wnid in ("n02012849", "n03126707"))
        assert (bird.units, machine.units) == ((134,), (517,))
        assert dataset.concept("n00000000", Labels(["blue", "red"])).units == (1,)
        with pytest.raises(ConceptError):
            dataset.concept("n00000001", Labels(["blue", "red"]))

    def test_all_real_classes(self, shared_data):
        dataset = open_dataset(shared_data / "imagenet")
        units = [dataset.concept(wnid, imagenet_labels()).units for wnid in dataset.categories]
        assert units == [(unit,) for unit in range(1000)]
        assert all(dataset.words(wnid)[0] == imagenet_labels().name(k) for k, wnid in enumerate(dataset.categories))

    def test_of_the_training_set(self, tmp_path):
        lines = [
            f"{name},{WNIDS[colour]} {x0} {y0} {x1 - 1} {y1 - 1} " for name, ((colour, (x0, y0, x1, y1)),) in TRAIN
        ]
        (tmp_path / "LOC_train_solution.csv").write_text("\n".join(["ImageId,PredictionString", *sorted(lines)]))
        put_images(tmp_path / "train", TRAIN, in_classes=True)
        dataset = open_dataset(tmp_path)
        assert (dataset.split, told(dataset)) == ("train", expected(TRAIN))


class TestXml:
    @pytest.fixture
    def folder(self, tmp_path):
        """The challenge's own archive."""
        write_imagenet_xml(tmp_path / "imagenet/ILSVRC/Annotations/CLS-LOC/val", VAL, WNIDS)
        put_images(tmp_path / "imagenet/ILSVRC/Data/CLS-LOC/val", VAL)
        return tmp_path / "imagenet"

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
    def test_layouts(self, tmp_path, xml, pictures, in_classes):
        write_imagenet_xml(tmp_path / xml, VAL, WNIDS)
        put_images(tmp_path / pictures, VAL, in_classes)
        dataset = open_dataset(tmp_path)
        assert (dataset.name, dataset.split, dataset.folder) == ("imagenet", "val", tmp_path)
        assert told(dataset) == expected(VAL)
        for sample in dataset:
            sample.check_size(read_image(sample.path).size)

    def test_the_folder_above_or_within_and_other_files_beside(self, folder):
        (folder / "imagenet_class_index.json").write_text("{}")
        for name in ("._ILSVRC2012_val_00000001.xml", "readme.xml"):  # as archivers leave them
            (folder / "ILSVRC/Annotations/CLS-LOC/val" / name).write_text("")
        assert told(open_dataset(folder.parent)) == told(open_dataset(folder / "ILSVRC")) == expected(VAL)

    def test_annotations_in_folders_of_classes_and_twice(self, tmp_path):
        for one in VAL:
            write_imagenet_xml(tmp_path / "val" / WNIDS[one[1][0][0]], [one], WNIDS)
        put_images(tmp_path / "val", VAL, in_classes=True)
        assert told(open_dataset(tmp_path)) == expected(VAL)
        write_imagenet_xml(tmp_path / "val", VAL[:1], WNIDS)
        with pytest.raises(DataError, match=r"has ILSVRC2012_val_00000001\.xml twice"):
            open_dataset(tmp_path)

    def test_the_table_where_both_are(self, folder):
        (folder / "LOC_val_solution.csv").write_text(f"ImageId,PredictionString\n{VAL[1][0]},n01440764 0 0 9 9\n")
        assert told(open_dataset(folder)) == [(VAL[1][0], (("n01440764", (0, 0, 10, 10)),))]

    def test_the_training_set(self, folder):
        for one in TRAIN:
            write_imagenet_xml(folder / "ILSVRC/Annotations/CLS-LOC/train" / one[0].split("_")[0], [one], WNIDS)
        put_images(folder / "ILSVRC/Data/CLS-LOC/train", TRAIN, in_classes=True)
        picture(folder / "ILSVRC/Data/CLS-LOC/train/n01440764/n01440764_99.JPEG", [])  # without a box
        assert open_dataset(folder).split == "val"
        assert told(open_dataset(folder, "train")) == expected(TRAIN)  # not all of one class, then all of the other

    def test_counted_from_nought_and_the_last_one_included(self, folder):
        """Whatever VOC's XML means by the same tags: else no box could begin at 0 or end at 499."""
        text = imagenet_xml([("n01440764", (0, 0, 500, 375))], size=(500, 375))
        (folder / f"ILSVRC/Annotations/CLS-LOC/val/{VAL[0][0]}.xml").write_text(text)
        sample = open_dataset(folder).sample(VAL[0][0])
        assert (sample.targets[0].boxes, sample.size) == (((0, 0, 500, 375),), (500, 375))

    @pytest.mark.parametrize("place", ["ILSVRC/ImageSets/CLS-LOC", "ImageSets/CLS-LOC"])
    def test_a_list_says_which_images(self, folder, place):
        listed = folder / place / "val.txt"
        listed.parent.mkdir(parents=True)
        listed.write_text(f"{VAL[2][0]} 3\n{VAL[0][0]} 1\n\n")
        assert told(open_dataset(folder)) == [expected(VAL)[0], expected(VAL)[2]]
        write_imagenet_xml(folder / "bbox_train/n01440764", [("n01440764_7", []), ("n01440764_8", [])], WNIDS)
        listed.with_name("train_loc.txt").write_text("n01440764/n01440764_8 1\n")
        assert open_dataset(folder, "train").names == ("n01440764_8",)
        listed.write_text("ILSVRC2012_val_00000009 9\n")
        with pytest.raises(DataError, match=r"val\.txt: it lists 'ILSVRC2012_val_00000009', but there is no .*xml in"):
            open_dataset(folder).sample("ILSVRC2012_val_00000009")
        listed.write_text("ILSVRC2012_val_00000001 1\na b c\n")
        with pytest.raises(DataError, match=r"val\.txt, line 2: an image with its number was expected"):
            open_dataset(folder)


class TestLists:
    @pytest.mark.parametrize(
        ("lists", "pictures"), [(".", "."), ("metadata/ILSVRC", "dataset/ILSVRC"), ("metadata", ".")]
    )
    def test_both_splits(self, tmp_path, lists, pictures):
        """The lists beside the images, and as their publisher has them."""
        write_wsol(tmp_path / lists)
        for name in (WSOL_ONE, WSOL_TWO, WSOL_SECOND):
            picture(tmp_path / pictures / name, [])
        dataset = open_dataset(tmp_path, "test")
        assert (dataset.name, dataset.one_main_object, dataset.tolerance) == ("wsol", True, 0)
        assert told(dataset) == [
            (WSOL_ONE, (("n01751748", (0, 8, 48, 20)),)),
            (WSOL_TWO, (("n09193705", (5, 9, 10, 13)), ("n09193705", (2, 9, 38, 21)))),  # the last pixel is included
        ]
        assert {sample.size for sample in dataset} == {(48, 48)}
        dataset = open_dataset(tmp_path)
        assert (dataset.split, told(dataset)) == ("val", [(WSOL_SECOND, (("n01440764", (1, 2, 4, 5)),))])
        assert dataset.sample(WSOL_SECOND).size is None

    def test_images_in_folders_of_classes_and_without_the_lists_that_are_not_needed(self, tmp_path):
        picture(tmp_path / "val/n01751748/ILSVRC2012_val_00000001.JPEG", [])
        write_wsol(tmp_path, localization=f"{WSOL_TWO},1,2,3,4")
        for name in ("image_ids.txt", "image_sizes.txt"):
            (tmp_path / "test" / name).unlink()
        dataset = open_dataset(tmp_path, "test")
        assert dataset.names == (WSOL_ONE, WSOL_TWO)
        one = dataset.sample(WSOL_ONE)
        assert (one.size, one.targets) == (None, ())
        assert one.path == tmp_path / "val/n01751748/ILSVRC2012_val_00000001.JPEG"
