"""Folders of one's own with a table of boxes."""

import json

import pytest
from annotated import coco_content, picture, scenes, write_coco

from excite.datasets import open_dataset
from excite.errors import DataError
from excite.images import read_image

HEADER = "image,width,height,concept,probability,x0,y0,x1,y1"


def table(folder, *lines, header=HEADER):
    (folder / "boxes.csv").write_text("\n".join([header, *lines]) + "\n")
    return folder


@pytest.fixture
def folder(tmp_path):
    picture(tmp_path / "a.png", [])
    picture(tmp_path / "more/b.jpg", [])
    return tmp_path


@pytest.fixture(params=["", "pictures"])
def with_scenes(request, tmp_path):
    lines = []
    for name, squares in scenes(3):
        picture(tmp_path / request.param / f"{name}.jpg", squares)
        lines += [f'"{name}.jpg",48,48,"{colour}",0.5,{",".join(map(str, box))}' for colour, box in squares]
    return table(tmp_path, *lines)


def test_samples(with_scenes):
    dataset = open_dataset(with_scenes)
    assert (dataset.name, dataset.split) == ("csv", "all")
    assert dataset.names == ("000000.jpg", "000001.jpg", "000002.jpg")
    assert dataset.categories == ("green", "red")
    assert not dataset.one_main_object
    for (_, squares), sample in zip(scenes(3), dataset, strict=True):
        assert {(target.concept, box) for target in sample.targets for box in target.boxes} == set(squares)
        sample.check_size(read_image(sample.path).size)


def test_columns_in_any_order_and_others(folder):
    table(folder, "7, cat ,4,3,2,1,a.png", header="score, concept,y1,x1,y0,x0,image")
    (sample,) = open_dataset(folder)
    assert (sample.size, [(target.concept, target.boxes) for target in sample.targets]) == (
        None,
        [("cat", ((1, 2, 3, 4),))],
    )


def test_names_with_folders_and_commas(folder):
    picture(folder / "copies/b.jpg", [])  # of the same name, but not meant
    picture(folder / "a, b .png", [])
    table(folder, "more/b.jpg,,,cat,,1,2,3,4", '"a, b .png",,,cat,,1,2,3,4')
    assert [sample.path for sample in open_dataset(folder)] == [folder / "a, b .png", folder / "more/b.jpg"]


def test_a_picture_without_boxes(folder):
    table(folder, "a.png,48,48,,,,,,", "b.jpg,48,48,cat,0.1,,,,", "b.jpg,48,48,dog,0.9,1,2,3,4")
    nothing, dog = open_dataset(folder)
    assert (nothing.targets, nothing.size) == ((), (48, 48))
    assert [target.concept for target in dog.targets] == ["dog"]


def test_annotations_come_first_also_below(with_scenes, tmp_path):
    boxes = json.dumps(coco_content(scenes(2), ["red", "green"]))
    picture(tmp_path / "out/drawn.png", [])
    (tmp_path / "out/boxes.json").write_text(boxes)
    assert open_dataset(with_scenes).name == "csv"  # before what is in folders below
    (tmp_path / "truth.json").write_text(boxes)
    assert open_dataset(with_scenes).name == "json"
    write_coco(tmp_path, coco_content(scenes(2), ["red", "green"]))
    assert open_dataset(with_scenes).name == "coco"


def test_other_data_in_the_folder_beside(tmp_path):
    picture(tmp_path / "photos/a.png", [])
    table(tmp_path / "photos", "a.png,,,cat,,1,2,3,4")
    assert open_dataset(tmp_path).name == "csv"
    write_coco(tmp_path / "coco", coco_content(scenes(2), ["red", "green"]))
    assert open_dataset(tmp_path).name == "coco"


class TestBroken:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("a.png,48,48,cat,0.5,9,2,3,4", "is no box"),
            ("a.png,48,48,cat,0.5,nan,2,3,4", "is no box"),
            ("a.png,48,48,cat,0.5,1,2,inf,4", "is no box"),
            ("a.png,48,48,cat,0.5,-1,2,3,4", "begins outside of the image"),
            ("a.png,48,48,cat,0.5,1,2,,4", "the corners of a box must be numbers"),
            ("a.png,48,48,cat,0.5,left,2,3,4", "the corners of a box must be numbers, not 'left 2 3 4'"),
            ("a.png,48,48,,0.5,1,2,3,4", "the concept is missing"),
            ("a.png,48,,cat,0.5,1,2,3,4", "48 x '' is no size of an image"),
            ("a.png,wide,48,cat,0.5,1,2,3,4", "'wide' x 48 is no size of an image"),
            ("a.png,0,48,cat,0.5,1,2,3,4", "'0' x 48 is no size of an image"),
        ],
    )
    def test_one_picture(self, folder, line, words):
        dataset = open_dataset(table(folder, "b.jpg,48,48,cat,0.5,1,2,3,4", line))
        assert dataset.sample("b.jpg").targets
        with pytest.raises(DataError, match=rf"boxes\.csv, line 3: .*{words}"):
            dataset.sample("a.png")

    def test_two_sizes(self, folder):
        dataset = open_dataset(table(folder, "a.png,48,48,cat,,1,2,3,4", "a.png,48,49,cat,,1,2,3,4"))
        with pytest.raises(DataError, match=r"boxes\.csv, line 3: .*another size"):
            dataset.sample("a.png")

    @pytest.mark.parametrize(
        ("header", "line", "words"),
        [
            ("image,concept,x0,y0,x1", "", r"line 1: the columns image,concept,x0,y0,x1,y1 are needed, and y1 is not"),
            ("", "", "line 1: .* and image,concept,x0,y0,x1,y1 is not there"),
            (f"{HEADER},x0", "", "line 1: the column 'x0' is there twice"),
            (HEADER, "a.png,cat,1,2,3,4", "line 2: 6 columns, but the first line names 9"),
            (HEADER, ",48,48,cat,0.5,1,2,3,4", "line 2: the name of an image is missing"),
            (HEADER, "", "lists no images"),
            (HEADER, f'"{"x" * 200_000}', r"line \d: field larger"),
        ],
    )
    def test_the_file(self, folder, header, line, words):
        with pytest.raises(DataError, match=words):
            open_dataset(table(folder, line, header=header))
