"""``excite bench speed``, and where its former parts are."""

import json

import pytest
from zoo import timm_models


def test_from_end_to_end(excite, here):
    try:
        timm_models()
    except ImportError:
        pytest.skip("the small network is one of timm's")
    small = ("bench", "speed", "--model", "timm:test_resnet", "--quick", "--seconds", "0", "--out", "out")
    ended = excite(*small, "--layers", "all")
    assert ended.code == 0, ended.err
    assert "each further concept" in ended.out.splitlines()[0]
    assert "written: out/speed.md, out/speed.csv, out/speed.json, out/speed.png" in ended.out
    rows = excite(*small, "--layers", "all", "--no-peers", "--json").answers  # nothing is measured again
    assert rows == json.loads((here / "out" / "speed.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--batches", "0"], ["--batches", "1,8"]),
        (["--layers", "some"], ["--layers", "all", "default"]),
        (["--device", "toaster"], ["--device toaster", "use cpu"]),
        (["--model", "nothing"], ["'nothing'"]),
        (["--peers"], ["python dev/speed_peers.py"]),
    ],
)
def test_mistakes(excite, here, arguments, words):
    complaint = excite("bench", "speed", "--quick", *arguments).complaint
    assert all(word in complaint for word in words), complaint


def test_conservation_moved(excite):
    assert "python dev/conservation" in excite("bench", "conservation", "--family", "vgg", "--list").complaint
