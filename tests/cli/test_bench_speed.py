"""``excite bench speed``."""

import json
import sys

import pytest
from zoo import timm_models

try:
    timm_models()
except ImportError:
    pytest.skip("the small network is one of timm's", allow_module_level=True)

TINY = ("bench", "speed", "--model", "timm:test_resnet", "--quick", "--seconds", "0", "--out", "out")


def test_from_end_to_end(excite, here):
    ended = excite(*TINY, "--layers", "all")
    assert ended.code == 0, ended.err
    assert "each further concept" in ended.out.splitlines()[0]
    assert "written: out/speed.md, out/speed.csv, out/speed.json, out/speed.png" in ended.out
    assert (here / "out" / "speed.png").read_bytes().startswith(b"\x89PNG")
    rows = excite(*TINY, "--layers", "all", "--json").answers  # nothing is measured again
    assert rows == json.loads((here / "out" / "speed.json").read_text())
    methods = {row["method"] for row in rows}
    assert methods == {"forward", "input gradient", "mwp", "c-mwp"}
    assert {"network", "layer", "method", "concepts", "batch", "ratio_to_forward", "peak_mb"} <= set(rows[0])


def test_peers(excite, here, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "zennit"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "zennit", None)  # as if it were not installed
    rows = excite(*TINY, "--peers", "--concepts", "1", "--json").answers
    beside = {row["method"]: row for row in rows if row["group"] == "peers"}
    assert "not installed" in beside["zennit excitation"]["note"]
    assert beside["captum saliency"]["times_c_mwp"] > 0
    assert beside["c-mwp"]["network"] == "copy of timm:test_resnet"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--batches", "0"], ["--batches", "1,8"]),
        (["--concepts", "many"], ["--concepts", "many"]),
        (["--layers", "some"], ["--layers", "all", "default"]),
        (["--device", "toaster"], ["--device toaster", "use cpu"]),
        (["--model", "nothing"], ["'nothing'"]),
        (["--threads", "0"], ["--threads"]),
        (["--seconds", "-1"], ["--seconds"]),
    ],
)
def test_mistakes(excite, here, arguments, words):
    complaint = excite("bench", "speed", "--quick", *arguments).complaint
    assert all(word in complaint for word in words), complaint


def test_help(excite):
    out = excite("bench", "speed", "--help").out
    for option in (
        "--model --batches --concepts --layers --peers --memory --endurance --quick --threads --seconds --device "
        "--fresh --out --json"
    ).split():
        assert option in out
