"""``excite ls`` and what helps a newcomer."""

import json
from importlib.metadata import version

import pytest

import excite as library


def listed(ended):
    assert ended.code == 0
    assert ended.err == ""
    return json.loads(ended.out)


def test_models(excite):
    models = {model["model"]: model for model in listed(excite("ls", "models", "--json"))}
    assert list(models) == list(library.MODELS)
    assert models["efficientnet-lite0"]["layers"] == ["blocks.14", "blocks.10", "head"]
    assert models["vgg16"]["layers"] == ["pool4"]
    assert all({"description", "source"} <= set(model) for model in models.values())
    out = excite("ls", "models").out
    assert all(name in out for name in models)
    last = out.splitlines()[-1]
    assert last.startswith("next: excite attend PHOTO --model MODEL")
    assert all(form in last for form in ("torchvision:NAME", "timm:NAME", "a file"))


def test_methods(excite):
    assert [row["method"] for row in listed(excite("ls", "methods", "--json"))] == list(library.METHODS)
    out = excite("ls", "methods").out
    assert all(method.description in out for method in library.METHODS.values())


def test_layers(excite):
    rows = {row["layer"]: row for row in listed(excite("ls", "layers", "--json"))}
    names = dict(library.load().module.named_modules())
    assert set(rows) <= set(names)
    assert {"stem", "head", "pool", *(f"blocks.{block}" for block in range(16))} <= set(rows)
    assert "classifier" not in rows
    expected = {"kind": "InvertedResidual", "channels": 192, "size": "7x7", "stride": 32.0, "recommended": 1}
    assert rows["blocks.14"] == {"layer": "blocks.14", "receptive field": 787, **expected}
    assert rows["blocks.13"]["recommended"] is None
    order = list(rows)
    assert order.index("stem") < order.index("blocks.0") < order.index("blocks.15") < order.index("head")
    table = excite("ls", "layers", "efficientnet-lite0").out
    assert table.count("\n") == len(rows) + 2
    assert rows["stem.conv"]["receptive field"] == 3
    assert rows["pool"]["receptive field"] == "all"


def test_listed_layers_can_be_read(excite, cat):
    layers = ["stem", "blocks.14", "head.conv"]
    options = [word for layer in layers for word in ("--layer", layer)]
    ended = excite("attend", cat, "cat", *options, "--json", "--no-overlays")
    assert [found["layer"] for found in ended.answers[0]["maps"]] == layers


def test_labels(excite):
    rows = listed(excite("ls", "labels", "--json"))
    assert len(rows) == 1545
    assert rows[281] == {"index": 281, "label": "tabby", "synonyms": ["tabby cat"]}
    found = listed(excite("ls", "labels", "EGYPTIAN", "--json"))
    assert [row["index"] for row in found] == [285]
    assert excite("ls", "labels", "crane").out.splitlines()[1].split() == ["134", "crane"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["layers", "resnet"], ["no model 'resnet'", "efficientnet-lite0"]),
        (["labels", "--model", "resnet"], ["no model 'resnet'", "efficientnet-lite0", "torchvision:NAME"]),
        (["labels", "zzzzz"], ["no label contains 'zzzzz'", "1545"]),
        (["concepts"], ["no such command 'concepts'", "excite ls --help"]),
    ],
)
def test_mistakes(excite, arguments, words):
    complaint = excite("ls", *arguments).complaint
    assert all(word.lower() in complaint.lower() for word in words), complaint


def test_help_and_version(excite):
    for arguments, code in (([], 2), (["ls"], 2), (["-h"], 0), (["attend", "--help"], 0), (["ls", "layers", "-h"], 0)):
        ended = excite(*arguments)
        assert (ended.code, ended.err) == (code, "")
        assert ended.out.startswith("Usage: excite")
    assert excite("attend", "--help").out.count("  excite attend ") >= 4  # examples
    ended = excite("--version")
    assert (ended.code, ended.out) == (0, f"excite {version('excite')}\n")
