"""COCO's instance annotations."""

import pytest
from annotated import coco_content, scenes, write_coco

from excite.datasets import Instance, open_dataset
from excite.errors import DataError


@pytest.fixture
def content():
    return coco_content(scenes(4), ["red", "green"])


def test_in_the_order_of_the_pictures_numbers(tmp_path, content):
    dataset = open_dataset(write_coco(tmp_path, content))
    assert dataset.names == ("000003.jpg", "000002.jpg", "000001.jpg", "000000.jpg")  # their ids are 96 to 99


def test_categories_in_the_order_of_their_numbers(tmp_path, content):
    assert open_dataset(write_coco(tmp_path, content)).categories == ("red", "green")


def test_boxes_and_crowds(tmp_path, content):
    content["annotations"] = [
        {"image_id": 99, "category_id": 20, "bbox": [1.5, 2, 10, 4.25], "iscrowd": 1},
        {"image_id": 99, "category_id": 10, "bbox": [0, 0, 0, 3]},
        {"image_id": 99, "category_id": 20, "bbox": [0, 0, 1, 1], "iscrowd": 0},
    ]
    red, green = open_dataset(write_coco(tmp_path, content)).sample("000000.jpg").targets
    assert (red.concept, red.instances) == ("red", (Instance((0, 0, 0, 3)),))  # official files have such slivers
    assert green.instances == (Instance((1.5, 2, 11.5, 6.25), crowd=True), Instance((0, 0, 1, 1)))


def test_a_picture_with_nothing_in_it(tmp_path, content):
    content["annotations"] = []
    assert all(sample.targets == () for sample in open_dataset(write_coco(tmp_path, content)))


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
            ("annotations", 0, {"bbox": None}, r"annotations\[0\]: 'bbox' is missing or no list"),
            ("annotations", 0, {"category_id": 7}, r"annotations\[0\]: its category or its image"),
            ("annotations", 0, {"image_id": 7}, r"annotations\[0\]: its category or its image"),
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

    @pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"images": 3}', "[" * 100_000])
    def test_no_such_file(self, tmp_path, content, text):
        write_coco(tmp_path, content)
        (tmp_path / "annotations/instances_val2017.json").write_text(text)
        with pytest.raises(DataError, match=r"instances_val2017\.json: (broken JSON|it )"):
            open_dataset(tmp_path)
