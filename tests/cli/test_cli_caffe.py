"""Files of CNN-S and VGG16 in the formats of their publishers, with random weights: the commands that the paper needs.

Their layers fc6 and fc7 are narrow here, for files of a tenth of the size (shapes: tests/models/caffe/test_zoo.py).
"""

from dataclasses import replace

import pytest
from annotated import annotate, make_voc, scenes, voc_object
from models.caffe.writing import message, pieces
from PIL import Image
from safetensors.torch import load_file

import excite as library
from excite.models.caffe import network as caffe_network
from excite.models.caffe.network import CaffeNetwork, zoo_network
from excite.training import finetune as finetuning

WIDE, NARROW = 4096, 16  # outputs of fc6 and fc7


def blobs_of(network):
    """The weights of each layer by its name, as in Caffe."""
    children = ((step.layer.name, network.get_submodule(step.module)) for step in network._steps)
    return {name: list(state.values()) for name, child in children if (state := child.state_dict())}


def write(path, network, *, old):
    with path.open("wb") as file:
        file.writelines(pieces(message(network.definition, old=old), blobs_of(network)))
    return path


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """The networks of the zoo with narrow fully connected layers."""

    def built(name, classes):
        definition = zoo_network(name, classes).definition
        layers = tuple(
            replace(layer, options={**layer.options, "num_output": NARROW})
            if layer.options.get("num_output") == WIDE
            else layer
            for layer in definition.layers
        )
        return CaffeNetwork(replace(definition, layers=layers))

    monkeypatch.setattr(caffe_network, "zoo_network", built)


@pytest.mark.parametrize("old", [True, False], ids=["old format", "new format"])
def test_attend_with_a_file_of_cnn_s(excite, cat, here, old):
    classifier = library.load("cnn-s", weights="random")
    path = write(here / "VGG_CNN_S.caffemodel", classifier.module.network, old=old)
    asked = ("--model", "cnn-s", "--weights", path, "--method", "mwp")
    (answer,) = excite("attend", cat, "tabby", *asked, "--json", "--no-overlays").answers
    (told,), (found,) = answer["maps"], library.attend(classifier, cat, "tabby", method="mwp")
    assert told["probability"] == found.probability
    assert told["point"] == list(found.point())
    assert (told["layer"], told["mass"]) == ("conv5", found.mass)


def test_bench_pointing_with_a_file_of_cnn_s(excite, here):
    path = write(here / "VGG_CNN_S.caffemodel", library.load("cnn-s", weights="random").module.network, old=True)
    data = make_voc(here / "voc", scenes(2))
    for name, word in (("000000", "cat"), ("000001", "dog")):
        annotate(data, name, voc_object(word, (0, 0, 8, 8)))
    asked = ("--model", "cnn-s", "--weights", path, "--methods", "mwp,c-mwp", "--no-page", "--json")
    (answer,) = excite("bench", "pointing", "--data", data, *asked).answers
    assert [(row["model"], row["method"], row["layer"]) for row in answer["rows"]] == [
        ("cnn-s", "mwp", "conv5"),
        ("cnn-s", "c-mwp", "conv5"),
    ]
    assert [row["pairs"] for row in answer["rows"]] == [2, 2]


def test_finetune_with_a_file_of_vgg16(excite, here, monkeypatch):
    """All layers but the last stay as they are in the file, and other commands take the folder."""
    monkeypatch.setattr(finetuning, "plateaued", lambda losses: len(losses) >= 2)
    for colour in ("red", "green"):
        (here / "photos" / colour).mkdir(parents=True)
        Image.new("RGB", (30, 30), colour).save(here / "photos" / colour / "1.png")
    vgg16 = library.load("vgg16", weights="random").module.network
    path = write(here / "VGG_ILSVRC_16_layers.caffemodel", vgg16, old=True)
    asked = ("--model", "vgg16", "--weights", path, "--views", "1", "--out", "out", "--json")
    (answer,) = excite("finetune", "--data", "photos", *asked).answers
    assert (answer["pictures"], answer["categories"], answer["batch"]) == (2, ["green", "red"], 32)
    saved, given = load_file(here / "out/weights.safetensors"), vgg16.state_dict()
    assert saved.keys() == given.keys()
    assert [name for name in given if not saved[name].equal(given[name])] == ["fc8.weight", "fc8.bias"]
    assert saved["fc8.weight"].shape == (2, NARROW)
    (answer,) = excite(
        "attend", "photos/red/1.png", "red", "--model", "out", "--method", "mwp", "--json", "--no-overlays"
    ).answers
    assert answer["maps"][0]["layer"] == "pool4"
