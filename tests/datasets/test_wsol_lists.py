"""MaxBoxAcc's lists of boxes, as they are published."""

import pytest
from annotated import picture

from excite.datasets import open_dataset
from excite.errors import DataError

ONE, TWO = "val/ILSVRC2012_val_00000001.JPEG", "val/ILSVRC2012_val_00000002.JPEG"
LISTS = {
    "image_ids.txt": [ONE, TWO],
    "class_labels.txt": [f"{ONE},65", f"{TWO},970"],
    "localization.txt": [f"{ONE},0,8,47,19", f"{TWO},5,9,9,12", f"{TWO},2,9,37,20"],
    "image_sizes.txt": [f"{ONE},48,48", f"{TWO},48,48"],
}
SECOND = "val2/0/0.jpeg"


def write(folder, **lists):
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in lists.items():
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))


def write_lists(folder, **changed):
    write(folder / "test", **{name.removesuffix(".txt"): lines for name, lines in LISTS.items()} | changed)
    write(folder / "val", image_ids=[SECOND], class_labels=[f"{SECOND},0"], localization=[f"{SECOND},1,2,3,4"])


@pytest.fixture(params=[(".", "."), ("metadata/ILSVRC", "dataset/ILSVRC"), ("metadata", ".")])
def folder(request, tmp_path):
    """The lists beside the images, and as their publisher has them."""
    lists, pictures = request.param
    write_lists(tmp_path / lists)
    for name in (ONE, TWO, SECOND):
        picture(tmp_path / pictures / name, [])
    return tmp_path


@pytest.fixture
def opened(tmp_path):
    def run(**changed):
        write_lists(tmp_path, **changed)
        return open_dataset(tmp_path, "test")

    return run


def test_samples(folder):
    dataset = open_dataset(folder, "test")
    assert (dataset.name, dataset.one_main_object, dataset.tolerance) == ("wsol", True, 0)
    one, two = dataset
    assert one.name == ONE
    assert [(target.concept, target.boxes) for target in one.targets] == [("n01751748", ((0, 8, 48, 20),))]
    assert two.targets[0].boxes == ((5, 9, 10, 13), (2, 9, 38, 21))  # the last pixel is included
    assert all(sample.path.is_file() and sample.size == (48, 48) for sample in dataset)


def test_the_other_split(folder):
    dataset = open_dataset(folder)
    (sample,) = dataset
    assert (dataset.split, sample.name, sample.size) == ("val", SECOND, None)
    assert (sample.targets[0].concept, sample.targets[0].boxes) == ("n01440764", ((1, 2, 4, 5),))
    assert sample.path.is_file()


def test_pictures_sorted_into_folders_of_classes(opened, tmp_path):
    picture(tmp_path / "val/n01751748/ILSVRC2012_val_00000001.JPEG", [])
    assert opened().sample(ONE).path == tmp_path / "val/n01751748/ILSVRC2012_val_00000001.JPEG"


def test_without_the_lists_that_are_not_needed(opened, tmp_path):
    opened()
    for name in ("image_ids.txt", "image_sizes.txt"):
        (tmp_path / "test" / name).unlink()
    dataset = open_dataset(tmp_path, "test")
    assert dataset.names == (ONE, TWO)
    assert dataset.sample(ONE).size is None


def test_a_picture_without_boxes(opened):
    assert opened(localization=[f"{TWO},1,2,3,4"]).sample(ONE).targets == ()


class TestBroken:
    @pytest.mark.parametrize(
        ("name", "line", "words"),
        [
            ("localization", f"{ONE},9,8,3,4", r"localization\.txt, line 1: .* is no box"),
            ("localization", f"{ONE},nan,8,9,14", r"localization\.txt, line 1: .* is no box"),
            ("localization", f"{ONE},-1,8,9,14", r"localization\.txt, line 1: .* begins outside of the image"),
            ("localization", f"{ONE},a,8,9,14", r"localization\.txt, line 1: the corners of a box must be numbers"),
            ("class_labels", f"{ONE},1000", r"class_labels\.txt, line 1: .* must be 0 to 999, not '1000'"),
            ("class_labels", f"{ONE},snake", r"class_labels\.txt, line 1: .* must be 0 to 999, not 'snake'"),
            ("class_labels", f"{TWO},1", r"class_labels\.txt: one line about 'val/.*1\.JPEG' .* there are 0"),
            ("image_sizes", f"{ONE},0,48", r"image_sizes\.txt, line 1: '0' x 48 is no size"),
            ("image_sizes", f"{ONE},48,tall", r"image_sizes\.txt, line 1: 48 x 'tall' is no size"),
        ],
    )
    def test_one_picture(self, opened, name, line, words):
        dataset = opened(**{name: [line]})
        with pytest.raises(DataError, match=words):
            dataset.sample(ONE)

    @pytest.mark.parametrize(
        ("name", "line", "words"),
        [
            ("localization", f"{ONE},1,2,3", r"localization\.txt, line 1: 5 columns were expected, not 4"),
            ("class_labels", ONE, r"class_labels\.txt, line 1: 2 columns were expected, not 1"),
            ("image_ids", "001.Albatross/1.jpg", r"image_ids\.txt, line 1: '001.* is no image of ImageNet"),
            ("localization", "val/0bt_c3/1.jpg,a.png,b.png", "line 1: .* is no image of ImageNet"),
            ("image_ids", "../val/ILSVRC2012_val_00000001.JPEG", "is no image of ImageNet"),
        ],
    )
    def test_a_list(self, opened, name, line, words):
        with pytest.raises(DataError, match=words):
            opened(**{name: [line]})
