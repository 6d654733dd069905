"""``excite finetune``: from a folder of images to a classifier that other commands take."""

import learning
import pytest
from PIL import Image

from excite.datasets import DATASETS
from excite.training import finetune as finetuning


@pytest.fixture
def data(here, monkeypatch):
    learning.know_tiny(monkeypatch)
    monkeypatch.setattr(finetuning, "plateaued", lambda losses: len(losses) >= 8)
    return learning.make_train(here / "data", pictures=16)


def finetune(excite, data, *options):
    return excite("finetune", "--data", data, "--model", "tiny", "--rate", "0.1", "--out", "out", *options)


def test_the_answer(excite, data):
    ended = finetune(excite, data, "--held-out", "0.3", "--json")
    assert (ended.code, ended.err) == (0, "")
    (answer,) = ended.answers
    assert answer["pictures"] + answer["held_out"] == 16
    assert answer["categories"] == ["green", "red"]
    assert answer["epochs"] == 8
    assert 0 < answer["loss"] < 2
    assert 0 <= answer["map"] <= 1
    assert set(answer["precision"]) == {"green", "red"}
    assert answer["batch"] == 64
    assert answer["seconds"] >= 0
    assert answer["files"] == ["out/weights.safetensors", "out/classifier.json"]


def test_folders_named_after_labels(excite, data, here):
    """photos/red/*.png and photos/green/**/*.JPG, with or without train/ above; what cannot be read is listed."""
    colours = {"red/1.png": "red", "red/2.webp": "red", "green/a/3.JPG": "lime", "green/a/4.bmp": "lime"}
    for name, colour in {**colours, "5.png": "blue"}.items():  # the last has no label
        for root in (here / "photos", here / "split/train"):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 30), colour).save(path)
    for folder in ("photos", "split"):
        (answer,) = finetune(excite, folder, "--json", "--views", "1").answers
        assert (answer["pictures"], answer["categories"]) == (4, ["green", "red"])
    (found,) = excite("layers", "out", "--data", "photos", "--method", "mwp", "--json").answers
    assert found["by"] == "removal"
    assert found["rows"][0]["removal"]["total"] + found["chosen_on"] == 4
    assert "choose by removal" in excite("layers", "out", "--data", "photos", "--by", "pointing").complaint
    refused = finetune(excite, "photos/red").complaint
    assert all(f"{kind.name} ({kind.layout})" in refused for kind in DATASETS.values())
    assert "folders (" not in excite("bench", "pointing", "--data", "photos").complaint  # which needs boxes


def test_for_people(excite, data):
    ended = finetune(excite, data, "--categories", "red", "--views", "1")
    assert ended.code == 0
    assert ended.out.startswith("1 categories learnt from 16 images in 8 epochs")
    assert "written: out/weights.safetensors, out/classifier.json" in ended.out
    assert "next: excite attend PHOTO --model out" in ended.out


def test_other_commands_take_the_folder(excite, data, here):
    (here / "words.txt").write_text("red, rot\ngreen\n")
    assert finetune(excite, data, "--labels", "words.txt").code == 0
    ended = excite("attend", data / "JPEGImages/000001.jpg", "rot", "--model", "out", "--json", "--no-overlays")
    (answer,) = ended.answers
    assert answer["maps"][0]["concept"] == "red"
    assert [row["label"] for row in excite("ls", "labels", "--model", "out", "--json").answers[0]] == ["red", "green"]
    assert excite("ls", "layers", "out", "--json").code == 0


def test_the_long_way(excite, data):
    (answer,) = finetune(excite, data, "--augment", "--json").answers
    assert answer["views"] == "new"


def test_broken_pictures_are_told_and_the_rest_is_learnt(excite, data, here):
    (data / "JPEGImages/000004.jpg").write_bytes(b"no image")
    (data / "Annotations/000005.xml").write_text("<annotation")
    ended = finetune(excite, data, "--json")
    assert ended.code == 1
    assert ended.answers[0]["pictures"] == 14
    lines = ended.err.splitlines()
    assert len(lines) == 3
    assert "000005.xml" in lines[0]
    assert "000004.jpg" in lines[1]
    assert lines[2] == "excite: 2 of 16 images could not be read"
    assert (here / "out" / "classifier.json").is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--split", "test"], "has no split 'test'"),
        (["--categories", "blue"], "the data has no category 'blue': it has green, red"),
        (["--categories", "red", "--labels", "words.txt"], "leave --categories out"),
        (["--categories", "red,,green"], "none of them blank"),
        (["--held-out", "1"], "--held-out"),
        (["--model", "nothing"], "no model 'nothing'"),
        (["--weights", "nowhere.safetensors"], "no file 'nowhere.safetensors'"),
        (["--rate", "1e38"], "give a lower --rate"),
        (["--out", "words.txt"], "words.txt"),
    ],
)
def test_complaints(excite, data, here, options, said):
    (here / "words.txt").write_text("red\n")
    assert said in finetune(excite, data, "--batch", "2", *options).complaint
