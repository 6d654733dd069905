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


@pytest.mark.parametrize("layer", ["stem", "blocks.14", "head.conv"])
def test_every_listed_layer_can_be_read(excite, cat, layer):
    ended = excite("attend", cat, "cat", "--layer", layer, "--json", "--no-overlays")
    assert ended.answers[0]["maps"][0]["layer"] == layer


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


@pytest.mark.parametrize("arguments", [[], ["ls"]])
def test_a_command_without_a_command_explains_itself(excite, arguments):
    ended = excite(*arguments)
    assert ended.code == 2
    assert ended.out.startswith("Usage: excite")
    assert ended.err == ""


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["attend", "-h"], ["ls", "--help"], ["ls", "layers", "-h"]])
def test_help(excite, arguments):
    ended = excite(*arguments)
    assert ended.code == 0
    assert ended.out.startswith("Usage: excite")


def test_the_help_of_attend_names_all_options_and_shows_examples(excite):
    out = excite("attend", "--help").out
    for (
        option
    ) in "--model --layer --method --contrast --no-contrast --against --out --overlays --arrays --fresh --json".split():
        assert option in out
    examples = [line.split() for line in out.splitlines() if line.strip().startswith("excite attend")]
    assert len(examples) >= 4
    assert "PHOTO" in out.splitlines()[0]


def test_the_version(excite):
    ended = excite("--version")
    assert (ended.code, ended.out) == (0, f"excite {version('excite')}\n")
    assert version("excite") == library.__version__
