"""``excite bench conservation``."""

import json

import pytest
from zoo import timm_models

from excite.experiments.conservation.run import Conservation

try:
    timm_models()
except ImportError:
    pytest.skip("the architectures are those of torchvision and timm", allow_module_level=True)

SMALL = ("bench", "conservation", "--family", "test_resnet", "--out", "out")


def test_the_list(excite):
    rows = json.loads(excite("bench", "conservation", "--list", "--json", "--family", "vgg").out)
    assert {"source": "torchvision", "family": "VGG", "model": "vgg11_bn"} in rows
    assert {row["source"] for row in rows} == {"torchvision", "timm"}
    table = excite("bench", "conservation", "--list", "--source", "torchvision").out.splitlines()
    assert table[0].split() == ["source", "family", "model"]
    assert all(line.startswith("torchvision") for line in table[1:])


def test_a_row_as_text_and_as_json(excite, here):
    ended = excite(*SMALL)
    assert ended.code == 0
    assert ended.out.startswith("conserved  test_resnet (timm) ")
    assert "mass 1.00000" in ended.out
    (row,) = excite(*SMALL, "--json").answers
    assert (row["model"], row["status"]) == ("test_resnet", "conserved")
    assert json.loads((here / "out" / "conservation.jsonl").read_text()) == row


def test_what_is_done_is_not_done_again(excite, here, monkeypatch):
    (row,) = excite(*SMALL, "--json").answers
    monkeypatch.setattr(Conservation, "__call__", lambda self, task: {**row, "model": "again"})
    assert excite(*SMALL, "--json").answers == [row]
    (other,) = excite(*SMALL, "--json", "--seed", "1").answers
    assert other["model"] == "again"


def test_the_page(excite, here):
    assert excite(*SMALL, "--markdown", "docs/page.md").code == 0
    page = (here / "docs" / "page.md").read_text()
    assert page.startswith("# Architectures\n")
    assert "| resnet | test_resnet (timm) | conserved | 1.00000 |" in page


def test_a_wrong_answer_is_an_exit_code(excite, here, monkeypatch):
    wrong = {"source": "timm", "family": "resnet", "model": "test_resnet", "status": "wrong", "crash": "ValueError: no"}
    monkeypatch.setattr(Conservation, "__call__", lambda self, task: dict(wrong))
    ended = excite(*SMALL)
    assert ended.code == 1
    assert ended.out.startswith("wrong ")
    assert "ValueError: no" in ended.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--family", "zzz"], ["'zzz'", "--list"]), (["--source", "keras"], ["'keras'", "torchvision"])],
)
def test_mistakes(excite, here, arguments, words):
    complaint = excite("bench", "conservation", *arguments).complaint
    assert all(word in complaint for word in words), complaint


def test_help(excite):
    ended = excite("bench")
    assert ended.code == 2
    assert "conservation" in ended.out
    out = excite("bench", "conservation", "--help").out
    for option in "--family --source --seed --out --workers --engine --address --json --markdown --list".split():
        assert option in out
