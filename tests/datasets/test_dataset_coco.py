"""COCO's instance annotations."""

import json

import pytest
from annotated import SIDE, coco_content, scenes, write_coco

from excite.datasets import Instance, Mask, open_dataset
from excite.errors import DataError


@pytest.fixture
def content():
    return coco_content(scenes(4), ["red", "green"])


def test_in_the_order_of_the_pictures_numbers(tmp_path, content):
    dataset = open_dataset(write_coco(tmp_path, content))
    assert dataset.names == ("000003.jpg", "000002.jpg", "000001.jpg", "000000.jpg")  # their ids are 96 to 99


def test_boxes_and_crowds(tmp_path, content):
    content["annotations"] = [
        {"image_id": 99, "category_id": 20, "bbox": [1.5, 2, 10, 4.25], "iscrowd": 1},
        {"image_id": 99, "category_id": 10, "bbox": [0, 0, 0, 3]},
        {"image_id": 99, "category_id": 20, "bbox": [0, 0, 1, 1], "iscrowd": 0},
    ]
    red, green = open_dataset(write_coco(tmp_path, content)).sample("000000.jpg").targets
    assert (red.concept, red.instances) == ("red", (Instance((0, 0, 0, 3)),))  # official files have such slivers
    assert green.instances == (Instance((1.5, 2, 11.5, 6.25), crowd=True), Instance((0, 0, 1, 1)))


POLYGON = [[1, 1, 9, 1, 9, 9, 1, 9]]
RUNS = {"size": [SIDE, SIDE], "counts": [10, 20, SIDE * SIDE - 30]}


class TestMasks:
    def instance(self, tmp_path, content, **fields):
        content["annotations"] = [{"image_id": 99, "category_id": 10, "bbox": [1, 1, 8, 8], **fields}]
        (target,) = open_dataset(write_coco(tmp_path, content)).sample("000000.jpg").targets
        return target.instances[0]

    def test_polygons(self, tmp_path, content):
        instance = self.instance(tmp_path, content, segmentation=POLYGON, area=64.5)
        assert instance == Instance((1, 1, 9, 9), mask=Mask(json.dumps(POLYGON)), annotated_area=64.5)
        assert instance.mask.pixels((SIDE, SIDE)).sum() == 64

    def test_a_crowd_of_runs(self, tmp_path, content):
        instance = self.instance(tmp_path, content, segmentation=RUNS, iscrowd=1)
        assert (instance.crowd, instance.annotated_area) == (True, None)
        assert instance.mask.pixels((SIDE, SIDE)).sum() == instance.area((SIDE, SIDE)) == 20

    @pytest.mark.parametrize("nothing", [None, []])
    def test_without_an_outline_the_box_counts(self, tmp_path, content, nothing):
        assert self.instance(tmp_path, content, segmentation=nothing).mask is None

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"segmentation": [[1, 1, 2, 2]]}, "three corners"),
            ({"segmentation": {**RUNS, "size": [SIDE, SIDE + 1]}, "iscrowd": 1}, "for an image of"),
            ({"segmentation": {"size": [2 * SIDE, SIDE], "counts": [2 * SIDE * SIDE]}}, "for an image of"),
            ({"segmentation": {**RUNS, "counts": [1]}}, "cover 1 pixels"),
            ({"segmentation": "a cat"}, "must be polygons"),
            ({"area": "large"}, "the area must be a number of pixels, not large"),
            ({"area": -1}, "the area must be"),
            ({"area": float("nan")}, "the area must be"),
            ({"area": 10**400}, "the area must be"),
        ],
    )
    def test_broken(self, tmp_path, content, fields, words):
        """Known when the sample is asked for, so that its image is left out before anything is made of it."""
        with pytest.raises(DataError, match=rf"instances_val2017\.json, annotations\[0\]: .*{words}"):
            self.instance(tmp_path, content, **fields)


@pytest.mark.parametrize("side", [None, 0, -3, "48", 48.5, 10**9])
def test_sizes(tmp_path, content, side):
    content["images"][0]["width"] = side
    content["images"][1].update(width=640, height=480)
    del content["images"][2]["width"], content["images"][2]["height"]
    dataset = open_dataset(write_coco(tmp_path, content))
    with pytest.raises(DataError, match=r"the image with id 99: .* is no size of an image"):
        dataset.sample("000000.jpg")
    assert [dataset.sample(f"00000{k}.jpg").size for k in (1, 2, 3)] == [(640, 480), None, (SIDE, SIDE)]


def test_the_layout_of_2014(tmp_path):
    names = [(f"COCO_val2014_{k:012}", squares) for k, (_, squares) in enumerate(scenes(2))]
    write_coco(tmp_path, coco_content(names, ["red", "green"]), "val2014")
    (tmp_path / "val2014").mkdir()
    dataset = open_dataset(tmp_path, "val")
    assert dataset.sample("COCO_val2014_000000000001.jpg").path.parent == tmp_path / "val2014"
    assert dataset.also_called("COCO_val2014_000000000001.jpg") == ("COCO_val2014_000000000001", "98")


def test_a_category_without_instances(tmp_path, content):
    content["categories"].append({"id": 15, "name": "blue"})
    dataset = open_dataset(write_coco(tmp_path, content))
    assert dataset.categories == ("red", "blue", "green")
    assert not any(target.concept == "blue" for sample in dataset for target in sample.targets)


@pytest.mark.parametrize("place", ["val2017", "images/val2017", "images"])
def test_where_the_pictures_are(tmp_path, content, place):
    (tmp_path / place).mkdir(parents=True)
    assert open_dataset(write_coco(tmp_path, content)).sample("000001.jpg").path == tmp_path / place / "000001.jpg"


def damaged(content, part, place, **changes):
    content[part][place] = {**content[part][place], **changes}
    return content


class TestBroken:
    @pytest.mark.parametrize(
        ("part", "place", "changes", "words"),
        [
            ("annotations", 1, {"bbox": [1, 2, 3]}, r"annotations\[1\]: the bbox must be four numbers"),
            ("annotations", 1, {"bbox": [1, 2, 3, "4"]}, r"annotations\[1\]: the bbox must be four numbers"),
            ("annotations", 1, {"bbox": [1, 2, -3, 4]}, r"annotations\[1\]: .* is no box"),
            ("annotations", 1, {"bbox": [1, 2, 10**400, 4]}, r"annotations\[1\]: .* is no box"),
            ("annotations", 0, {"bbox": None}, r"annotations\[0\]: the bbox must be four numbers, not None"),
            ("annotations", 0, {"category_id": 7}, r"annotations\[0\]: its category_id 7 is missing or not in"),
            ("annotations", 0, {"category_id": None}, r"annotations\[0\]: its category_id None is missing or not in"),
            ("annotations", 0, {"image_id": 7}, r"annotations\[0\]: its image is not in this file"),
            ("annotations", 0, {"image_id": None}, r"annotations\[0\]: 'image_id' is missing or no int"),
            ("categories", 0, {"name": "red"}, "several categories have the same name"),
            ("images", 2, {"file_name": 3}, r"images\[2\]: 'file_name' is missing or no str"),
            ("images", 2, {"file_name": "000000.jpg"}, "several images have the same file_name"),
            ("images", 2, {"id": 99}, "several images have the same id"),
            ("categories", 0, {"name": None}, r"categories\[0\]: 'name'"),
        ],
    )
    def test_names_file_and_place(self, tmp_path, content, part, place, changes, words):
        write_coco(tmp_path, damaged(content, part, place, **changes))
        with pytest.raises(DataError, match=rf"instances_val2017\.json.*{words}"):
            list(open_dataset(tmp_path))

    @pytest.mark.parametrize("text", ["{", "[1]", '{"images": 3}', "[" * 100_000, f'{{"images": [{"1" * 5000}]}}'])
    def test_no_such_file(self, tmp_path, content, text):
        write_coco(tmp_path, content)
        (tmp_path / "annotations/instances_val2017.json").write_text(text)
        with pytest.raises(DataError, match=r"instances_val2017\.json: (broken JSON|it )"):
            open_dataset(tmp_path)
