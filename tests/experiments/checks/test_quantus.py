"""The metrics are those of Quantus: its numbers lie in docs/trust/quantus.json, ours are measured here."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def recipe():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "dev")
        yield importlib.import_module("compare_quantus")


RECORD = json.loads((ROOT / "docs" / "trust" / "quantus.json").read_text(encoding="utf-8"))


def test_every_metric_agrees(recipe):
    apart = recipe.gaps(recipe.ours(RECORD["others"]), RECORD["found"])
    assert len(apart) == 4
    assert max(apart.values()) < recipe.AGREE
    assert all(len(numbers) >= 4 for numbers in RECORD["found"].values())


def test_other_numbers_would_be_seen(recipe, tmp_path):
    others = [(other + 1) % recipe.CLASSES for other in RECORD["others"]]
    apart = recipe.gaps(recipe.ours(others), RECORD["found"])
    assert apart["rank correlation between classes"] > recipe.AGREE
    record = {**RECORD, "found": {**RECORD["found"], "distance moved by noise": [0.0] * 4}}
    (tmp_path / "quantus.json").write_text(json.dumps(record))
    with pytest.raises(SystemExit, match="differ by more"):
        recipe.main(["--record", str(tmp_path / "quantus.json")])
