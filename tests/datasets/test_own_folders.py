"""Folders of one's own with annotations in VOC's or COCO's format."""

import json

import pytest
from annotated import coco_content, picture, scenes, voc_object, write_coco

from excite.datasets import open_dataset
from excite.errors import DataError, ImageError
from excite.images import read_image


def write_xml(path, squares):
    path.parent.mkdir(parents=True, exist_ok=True)
    objects = "".join(voc_object(colour, box) for colour, box in squares)
    path.write_text(f"<annotation>{objects}</annotation>")


@pytest.fixture(params=[("", ""), ("Annotations", "images"), ("annotations", "photos/2024")])
def with_xml(request, tmp_path):
    annotations, pictures = request.param
    for name, squares in scenes(3):
        write_xml(tmp_path / annotations / f"{name}.xml", squares)
        picture(tmp_path / pictures / f"{name}.PNG", squares)
    return tmp_path


@pytest.fixture(params=["instances.json", "annotations/boxes.json"])
def with_json(request, tmp_path):
    content = coco_content(scenes(3), ["red", "green"])
    for name, squares in scenes(3):
        picture(tmp_path / "pictures" / f"{name}.jpg", squares)
    (tmp_path / request.param).parent.mkdir(exist_ok=True)
    (tmp_path / request.param).write_text(json.dumps(content))
    return tmp_path


class TestXml:
    def test_samples(self, with_xml):
        dataset = open_dataset(with_xml)
        assert (dataset.name, dataset.split, dataset.names) == ("xml", "all", ("000000", "000001", "000002"))
        assert dataset.categories == ("green", "red")
        for (name, squares), sample in zip(scenes(3), dataset, strict=True):
            assert sample.name == name
            assert read_image(sample.path).size == (48, 48)
            assert {(target.concept, box) for target in sample.targets for box in target.boxes} == set(squares)

    def test_an_annotation_without_picture(self, with_xml):
        write_xml(next(with_xml.rglob("*.xml")).with_name("lost.xml"), [])
        sample = open_dataset(with_xml).sample("lost")
        with pytest.raises(ImageError, match=r"there is no file .*lost\.jpg"):
            read_image(sample.path)

    def test_two_pictures_of_a_name(self, with_xml):
        picture(with_xml / "other/000001.jpg", [])
        dataset = open_dataset(with_xml)
        with pytest.raises(DataError, match=r"000001\.xml: .*both have the name of its image"):
            dataset.sample("000001")
        assert dataset.sample("000002").targets

    def test_two_annotations_of_a_name(self, tmp_path):
        write_xml(tmp_path / "a.xml", [])
        write_xml(tmp_path / "Annotations/a.xml", [])
        with pytest.raises(DataError, match=r"a\.xml' and .*a\.xml' have the same name"):
            open_dataset(tmp_path)

    def test_no_pictures(self, tmp_path):
        write_xml(tmp_path / "a.xml", [])
        with pytest.raises(DataError, match="has annotations but no images to them"):
            open_dataset(tmp_path)


class TestJson:
    def test_samples(self, with_json):
        dataset = open_dataset(with_json)
        assert (dataset.name, len(dataset), dataset.categories) == ("json", 3, ("red", "green"))
        for sample in dataset:
            assert sample.path == with_json / "pictures" / sample.name
            assert all(instance.mask is None for target in sample.targets for instance in target.instances)

    def test_names_with_folders(self, tmp_path):
        content = coco_content(scenes(2), ["red", "green"])
        for image in content["images"]:
            image["file_name"] = f"pictures/{image['file_name']}"
        for name, _ in scenes(2):
            picture(tmp_path / "pictures" / f"{name}.jpg", [])
            picture(tmp_path / "copies" / f"{name}.jpg", [])  # of the same name, but not meant
        (tmp_path / "boxes.json").write_text(json.dumps(content))
        assert {sample.path.parent.name for sample in open_dataset(tmp_path)} == {"pictures"}
        content["images"][0]["file_name"] = "../secret.jpg"
        (tmp_path / "boxes.json").write_text(json.dumps(content))
        with pytest.raises(DataError, match="is no name of an image"):
            list(open_dataset(tmp_path))

    def test_several_are_splits(self, with_json):
        content = json.dumps(coco_content(scenes(1), ["red", "green"]))
        for name in ("train", "val"):
            (with_json / f"{name}.json").write_text(content)
        assert open_dataset(with_json, "train").names == ("000000.jpg",)
        assert open_dataset(with_json).split == "val"

    def test_something_else(self, tmp_path):
        picture(tmp_path / "a.png", [])
        (tmp_path / "package.json").write_text('{"name": "excite"}')
        with pytest.raises(DataError, match=r"package\.json: it has no list 'categories', so it is no instances file"):
            open_dataset(tmp_path)

    def test_with_cocos_names_it_is_coco(self, tmp_path):
        picture(tmp_path / "val2017/a.jpg", [])
        write_coco(tmp_path, coco_content(scenes(1), ["red", "green"]))
        (tmp_path / "annotations/captions.json").write_text("{}")
        assert open_dataset(tmp_path).name == "coco"
