"""VOC, COCO, and folders of one's own images with annotations in their formats or with a table of boxes."""

import json

import pytest
from annotated import SIDE, coco_content, make_voc, picture, scenes, voc_object, write_coco

from excite.datasets import Instance, Mask, open_dataset
from excite.errors import DataError, ImageError
from excite.images import read_image

COLOURS = ["red", "green"]
COLUMNS = "image,width,height,concept,probability,x0,y0,x1,y1"
POLYGON = [[1, 1, 9, 1, 9, 9, 1, 9]]


@pytest.fixture
def voc(tmp_path):
    return make_voc(tmp_path, scenes(4))


@pytest.fixture
def content():
    return coco_content(scenes(4), COLOURS)


def write_xml(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<annotation>{text}</annotation>")
    return path


def write_table(folder, *lines, columns=COLUMNS):
    (folder / "boxes.csv").write_text("\n".join([columns, *lines]) + "\n")
    return folder


def boxes_of(sample):
    return [(target.concept, box) for target in sample.targets for box in target.boxes]


class TestVoc:
    def annotated(self, folder, text):
        write_xml(folder / "Annotations/000000.xml", text)
        return open_dataset(folder).sample("000000")

    def test_the_images_in_the_order_of_the_list(self, voc):
        (voc / "ImageSets/Main/val.txt").write_text("000002\n000000\n\n")
        (voc / "JPEGImages/000000.jpg").rename(voc / "JPEGImages/000000.png")
        (voc / "JPEGImages/000002.jpg").unlink()
        paths = [voc / "JPEGImages/000002.jpg", voc / "JPEGImages/000000.png"]  # reading it says that it is missing
        assert [(sample.name, sample.path) for sample in open_dataset(voc)] == [
            ("000002", paths[0]),
            ("000000", paths[1]),
        ]

    def test_boxes_count_from_nought_and_are_half_open_and_a_part_is_no_object(self, voc):
        box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>48</xmax><ymax>48.5</ymax></bndbox>"
        sample = self.annotated(voc, f"<object><name>cat</name>{box}<part><name>head</name>{box}</part></object>")
        assert boxes_of(sample) == [("cat", (0.0, 0.0, 48.0, 48.5))]

    def test_targets_of_several_categories(self, voc):
        objects = [("dog", (0, 0, 4, 4)), ("cat", (5, 5, 9, 9), 1), ("dog", (1, 1, 2, 2), 1)]
        cat, dog = self.annotated(voc, "".join(voc_object(*each) for each in objects)).targets
        assert (cat.concept, cat.difficult) == ("cat", True)
        assert (dog.concept, dog.difficult) == ("dog", False)  # one of two is not difficult
        assert dog.instances == (Instance((0, 0, 4, 4)), Instance((1, 1, 2, 2), difficult=True))

    def test_categories_in_spite_of_a_broken_annotation(self, voc):
        """Else one broken file would end the run, instead of leaving out its image."""
        (voc / "Annotations/000001.xml").write_text("<annotation>")
        assert open_dataset(voc).categories == ("green", "red")

    @pytest.mark.parametrize(
        ("sides", "size"), [((500, 375), (500, 375)), ((0, 0), None), (("", ""), None), (None, None)]
    )
    def test_sizes(self, voc, sides, size):
        """Images are turned upright when they are read; boxes that were drawn before that lie elsewhere."""
        text = "<size></size>" if sides is None else "<size><width>{}</width><height>{}</height></size>".format(*sides)
        sample = self.annotated(voc, text)
        assert sample.size == size
        sample.check_size((500, 375))
        if size:
            with pytest.raises(DataError, match=r"000000\.jpg' is 375 x 500 pixels, but annotated for 500 x 375"):
                sample.check_size((375, 500))


class TestCoco:
    def instance(self, folder, content, **fields):
        content["annotations"] = [{"image_id": 99, "category_id": 10, "bbox": [1, 1, 8, 8], **fields}]
        (target,) = open_dataset(write_coco(folder, content)).sample("000000.jpg").targets
        return target.instances[0]

    def test_order_boxes_crowds_and_sizes(self, tmp_path, content):
        content["categories"].append({"id": 15, "name": "blue"})
        content["annotations"] = [
            {"image_id": 99, "category_id": 20, "bbox": [1.5, 2, 10, 4.25], "iscrowd": 1},
            {"image_id": 99, "category_id": 10, "bbox": [0, 0, 0, 3]},
            {"image_id": 99, "category_id": 20, "bbox": [0, 0, 1, 1], "iscrowd": 0},
        ]
        content["images"][1].update(width=640, height=480)
        del content["images"][2]["width"], content["images"][2]["height"]
        dataset = open_dataset(write_coco(tmp_path, content))
        assert dataset.names == ("000003.jpg", "000002.jpg", "000001.jpg", "000000.jpg")  # their ids are 96 to 99
        assert dataset.categories == ("red", "blue", "green")
        assert [sample.size for sample in dataset] == [(SIDE, SIDE), None, (640, 480), (SIDE, SIDE)]
        red, green = dataset.sample("000000.jpg").targets
        assert (red.concept, red.instances) == ("red", (Instance((0, 0, 0, 3)),))  # official files have such slivers
        assert green.instances == (Instance((1.5, 2, 11.5, 6.25), crowd=True), Instance((0, 0, 1, 1)))

    def test_masks(self, tmp_path, content):
        polygons = self.instance(tmp_path, content, segmentation=POLYGON, area=64.5)
        assert polygons == Instance((1, 1, 9, 9), mask=Mask(json.dumps(POLYGON)), annotated_area=64.5)
        assert polygons.mask.pixels((SIDE, SIDE)).sum() == 64
        runs = {"size": [SIDE, SIDE], "counts": [10, 20, SIDE * SIDE - 30]}
        crowd = self.instance(tmp_path, content, segmentation=runs, iscrowd=1)
        assert (crowd.crowd, crowd.annotated_area) == (True, None)
        assert crowd.mask.pixels((SIDE, SIDE)).sum() == crowd.area((SIDE, SIDE)) == 20
        assert all(self.instance(tmp_path, content, segmentation=nothing).mask is None for nothing in (None, []))

    def test_the_layout_of_2014(self, tmp_path):
        name = "COCO_val2014_000000000001.jpg"
        names = [(f"COCO_val2014_{k:012}", squares) for k, (_, squares) in enumerate(scenes(2))]
        write_coco(tmp_path, coco_content(names, COLOURS), "val2014")
        (tmp_path / "val2014").mkdir()
        dataset = open_dataset(tmp_path, "val")
        assert dataset.sample(name).path.parent == tmp_path / "val2014"
        assert dataset.also_called(name) == ("COCO_val2014_000000000001", "98")

    @pytest.mark.parametrize("place", ["val2017", "images/val2017", "images"])
    def test_where_the_images_are(self, tmp_path, content, place):
        picture(tmp_path / place / "000001.jpg", [])
        (tmp_path / "annotations").mkdir()
        (tmp_path / "annotations/captions.json").write_text("{}")
        dataset = open_dataset(write_coco(tmp_path, content))
        assert (dataset.name, dataset.sample("000001.jpg").path) == ("coco", tmp_path / place / "000001.jpg")


@pytest.fixture(
    params=[
        ("xml", ".", "."),
        ("xml", "Annotations", "images"),
        ("xml", "annotations", "photos/2024"),
        ("json", "instances.json", "pictures"),
        ("json", "annotations/boxes.json", "pictures"),
        ("csv", ".", "."),
        ("csv", ".", "pictures"),
    ],
    ids="-".join,
)
def own(request, tmp_path):
    """A user's own folder: the kind of its annotations, and where they and the images are."""
    kind, place, pictures = request.param
    lines = []
    for name, squares in scenes(3):
        picture(tmp_path / pictures / f"{name}.jpg", squares)
        lines += [f'"{name}.jpg",48,48,"{colour}",0.5,{",".join(map(str, box))}' for colour, box in squares]
        if kind == "xml":
            write_xml(tmp_path / place / f"{name}.xml", "".join(voc_object(*square) for square in squares))
    if kind == "json":
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(json.dumps(coco_content(scenes(3), COLOURS)))
    if kind == "csv":
        write_table(tmp_path, *lines)
    return tmp_path, kind


class TestOwnFolders:
    def test_samples(self, own):
        folder, kind = own
        dataset = open_dataset(folder)
        assert (dataset.name, dataset.one_main_object) == (kind, False)
        assert dataset.split == "all" or kind == "json"
        assert sorted(dataset.categories) == ["green", "red"]
        samples = {sample.name.removesuffix(".jpg"): sample for sample in dataset}
        for name, squares in scenes(3):
            assert set(boxes_of(samples[name])) == set(squares)
            samples[name].check_size(read_image(samples[name].path).size)

    def test_an_annotation_without_image_and_two_images_of_a_name(self, tmp_path):
        for name in ("lost", "twice", "good"):
            write_xml(tmp_path / f"{name}.xml", voc_object("cat", (0, 0, 4, 4)))
        with pytest.raises(DataError, match="has annotations but no images to them"):
            open_dataset(tmp_path)
        for name in ("good.png", "twice.png", "other/twice.jpg"):
            picture(tmp_path / name, [])
        dataset = open_dataset(tmp_path)
        with pytest.raises(ImageError, match=r"there is no file .*lost\.jpg"):
            read_image(dataset.sample("lost").path)
        with pytest.raises(DataError, match=r"twice\.xml: .*both have the name of its image"):
            dataset.sample("twice")
        assert dataset.sample("good").targets
        write_xml(tmp_path / "Annotations/good.xml", "")
        with pytest.raises(DataError, match=r"good\.xml' and .*good\.xml' have the same name"):
            open_dataset(tmp_path)

    def test_names_with_folders(self, tmp_path, content):
        for image in content["images"]:
            picture(tmp_path / "copies" / image["file_name"], [])  # of the same name, but not meant
            image["file_name"] = f"pictures/{image['file_name']}"
            picture(tmp_path / image["file_name"], [])
        (tmp_path / "boxes.json").write_text(json.dumps(content))
        assert {sample.path.parent.name for sample in open_dataset(tmp_path)} == {"pictures"}
        content["images"][0]["file_name"] = "../secret.jpg"
        (tmp_path / "boxes.json").write_text(json.dumps(content))
        with pytest.raises(DataError, match="is no name of an image"):
            list(open_dataset(tmp_path))

    def test_several_json_files_are_splits(self, tmp_path):
        picture(tmp_path / "000000.jpg", [])
        for count, name in enumerate(("train", "val", "more"), 1):
            (tmp_path / f"{name}.json").write_text(json.dumps(coco_content(scenes(count), COLOURS)))
        assert open_dataset(tmp_path, "train").names == ("000000.jpg",)
        assert open_dataset(tmp_path).split == "val"


class TestTable:
    def test_columns_in_any_order_and_others(self, tmp_path):
        picture(tmp_path / "a.png", [])
        write_table(tmp_path, "7, cat ,4,3,2,1,a.png", columns="score, concept,y1,x1,y0,x0,image")
        (sample,) = open_dataset(tmp_path)
        assert (sample.size, boxes_of(sample)) == (None, [("cat", (1, 2, 3, 4))])

    def test_names_with_folders_and_commas_and_an_image_without_boxes(self, tmp_path):
        for name in ("a, b .png", "more/b.jpg", "copies/b.jpg", "c.png"):  # the copy is not meant
            picture(tmp_path / name, [])
        lines = ["more/b.jpg,48,48,cat,0.1,,,,", "more/b.jpg,48,48,dog,0.9,1,2,3,4", "c.png,48,48,,,,,,"]
        samples = list(open_dataset(write_table(tmp_path, *lines, '"a, b .png",,,cat,,1,2,3,4')))
        assert [sample.path for sample in samples] == [tmp_path / name for name in ("a, b .png", "c.png", "more/b.jpg")]
        assert [boxes_of(sample) for sample in samples] == [[("cat", (1, 2, 3, 4))], [], [("dog", (1, 2, 3, 4))]]
        assert samples[1].size == (48, 48)

    def test_annotations_come_first_also_below(self, tmp_path):
        own, boxes = tmp_path / "photos", json.dumps(coco_content(scenes(2), COLOURS))
        picture(own / "a.png", [])
        write_table(own, "a.png,,,cat,,1,2,3,4")
        picture(own / "out/drawn.png", [])
        (own / "out/boxes.json").write_text(boxes)
        assert open_dataset(own).name == open_dataset(tmp_path).name == "csv"  # before what is in folders below
        (own / "truth.json").write_text(boxes)
        assert open_dataset(own).name == "json"
        write_coco(own, coco_content(scenes(2), COLOURS))
        assert open_dataset(own).name == "coco"

    def test_other_data_in_the_folder_beside(self, tmp_path):
        picture(tmp_path / "photos/a.png", [])
        write_table(tmp_path / "photos", "a.png,,,cat,,1,2,3,4")
        write_coco(tmp_path / "coco", coco_content(scenes(2), COLOURS))
        assert open_dataset(tmp_path).name == "coco"
