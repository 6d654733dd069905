"""``excite boxes`` on real photographs with the embedded classifier."""

import json
from pathlib import Path

import pytest
from PIL import Image
from skimage import data

import excite as library
from excite.api import locate
from excite.datasets import open_dataset


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """Photographs in folders that say what they show."""
    folder = tmp_path_factory.mktemp("album")
    for name, pixels in (("cat/chelsea.png", data.chelsea()), ("cup/coffee.png", data.coffee())):
        (folder / "photos" / name).parent.mkdir(parents=True)
        Image.fromarray(pixels).save(folder / "photos" / name)
    return folder


@pytest.fixture
def photos(album, monkeypatch, tmp_path):
    """The photographs; what is written goes elsewhere for each test."""
    monkeypatch.chdir(tmp_path)
    Path("photos").symlink_to(album / "photos")
    return album / "photos"


@pytest.mark.parametrize("how", [{}, {"method": "mwp", "layer": "blocks.10", "alpha": 2.0}])
def test_boxes_are_those_of_the_library(excite, photos, how):
    options = [word for name, value in how.items() for word in (f"--{name}", value)]
    ended = excite("boxes", "photos", "--concept", "cat", "--concept", "cup", *options, "--json")
    assert (ended.code, ended.err) == (0, "")
    content = json.loads(Path("excite-out/boxes/boxes.json").read_text())
    for image, annotation in zip(content["images"], content["annotations"], strict=True):
        found = locate(library.load(), photos / image["file_name"], ["cat", "cup"], **how)
        (there,) = (one for one in found if one.probability >= 0.5)
        x0, y0, x1, y1 = there.box
        assert (annotation["image_id"], annotation["bbox"]) == (image["id"], [x0, y0, x1 - x0, y1 - y0])
        assert annotation["score"] == pytest.approx(there.probability, abs=1e-6)


def test_a_training_set_from_folders(excite, photos):
    ended = excite("boxes", "photos", "--concepts-from-folders", "--format", "voc", "--out", "training")
    assert (ended.code, ended.err) == (0, "")
    *_, count, written = ended.out.splitlines()
    assert count == f"boxes: 2, in 2 of 2 images of {photos}"
    assert written.startswith("written: training/Annotations, training/JPEGImages, ")
    told = {sample.name: (sample.targets[0].concept, sample.targets[0].boxes) for sample in open_dataset("training")}
    cat, cup = (locate(library.load(), photos / one, one[:3])[0] for one in ("cat/chelsea.png", "cup/coffee.png"))
    assert told == {"cat-chelsea": ("cat", (cat.box,)), "cup-coffee": ("cup", (cup.box,))}


def test_what_a_word_was_taken_for(excite, photos):
    ended = excite("boxes", "photos/cat", "--concept", "cats", "--draw", "--json")
    assert ended.err == "excite: note: taken 'cats' for 'cat'\n"
    drawn, page = ended.answers[0]["files"][-2:]
    assert ">cats<" in Path(page).read_text()
    with Image.open(Path(drawn) / "chelsea.jpg") as picture:
        assert picture.size == (451, 300)
    assert ended.answers[0]["concepts"] == {"cats": 1}


def test_a_picture_that_cannot_be_read(excite, photos):
    Path("more").mkdir()
    Path("more/broken.jpg").write_bytes(b"no image")
    ended = excite("boxes", "photos/cat", "more", "--concept", "cat")
    assert ended.code == 1
    assert "boxes: 1, in 1 of 1 images" in ended.out
    first, second = ended.err.splitlines()
    assert "broken.jpg" in first
    assert second == "excite: 1 of 2 images could not be read"
    (image,) = json.loads(Path("excite-out/boxes/boxes.json").read_text())["images"]
    assert image["file_name"].endswith("cat/chelsea.png")
