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


@pytest.fixture(scope="module")
def found(album):
    classifier = library.load()
    files = {name: album / "photos" / name for name in ("cat/chelsea.png", "cup/coffee.png")}
    return {name: locate(classifier, path, ["cat", "cup"]) for name, path in files.items()}


def test_json(excite, photos, found):
    ended = excite("boxes", "photos", "--concept", "cat", "--concept", "cup", "--json")
    assert (ended.code, ended.err) == (0, "")
    (answer,) = ended.answers
    told = {name: [one for one in boxes if one.probability >= 0.5] for name, boxes in found.items()}
    assert answer == {
        "pictures": 2,
        "folder": str(photos),
        "boxes": 2,
        "without": 0,
        "format": "coco",
        "files": ["excite-out/boxes/boxes.json", "excite-out/boxes/labels.txt"],
        "concepts": {"cat": 1, "cup": 1},
        "notes": [],
        "failures": [],
    }
    content = json.loads(Path("excite-out/boxes/boxes.json").read_text())
    for image, annotation in zip(content["images"], content["annotations"], strict=True):
        ((x0, y0, x1, y1),) = (one.box for one in told[image["file_name"]])
        assert annotation["image_id"] == image["id"]
        assert annotation["bbox"] == [x0, y0, x1 - x0, y1 - y0]
        assert annotation["score"] == pytest.approx(told[image["file_name"]][0].probability, abs=1e-6)
    assert Path("excite-out/boxes/labels.txt").read_text() == "cat\ncup\n"


def test_a_training_set_from_folders(excite, photos, found):
    ended = excite("boxes", "photos", "--concepts-from-folders", "--format", "voc", "--out", "training")
    assert (ended.code, ended.err) == (0, "")
    header, cat, cup, count, written = ended.out.splitlines()
    assert (header.split(), cat.split(), cup.split()) == (["concept", "boxes"], ["cat", "1"], ["cup", "1"])
    assert count == f"boxes: 2, in 2 of 2 images of {photos}"
    assert written.startswith("written: training/Annotations, training/JPEGImages, ")
    told = {sample.name: (sample.targets[0].concept, sample.targets[0].boxes) for sample in open_dataset("training")}
    cat, cup = found["cat/chelsea.png"][0], found["cup/coffee.png"][1]
    assert told == {"cat-chelsea": ("cat", (cat.box,)), "cup-coffee": ("cup", (cup.box,))}


def test_what_a_word_was_taken_for(excite, photos):
    ended = excite("boxes", "photos/cat", "--concept", "cats", "--json")
    assert ended.err == "excite: note: taken 'cats' for 'cat'\n"
    assert ended.answers[0]["concepts"] == {"cats": 1}


def test_options_of_the_box(excite, photos, album):
    how = {"method": "c-mwp", "layer": "blocks.10", "alpha": 2.0}
    options = [word for name, value in how.items() for word in (f"--{name}", value)]
    assert excite("boxes", "photos/cat", "--concept", "cat", *options).code == 0
    (annotation,) = json.loads(Path("excite-out/boxes/boxes.json").read_text())["annotations"]
    (there,) = locate(library.load(), album / "photos/cat/chelsea.png", "cat", **how)
    x0, y0, x1, y1 = there.box
    assert annotation["bbox"] == [x0, y0, x1 - x0, y1 - y0]


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
