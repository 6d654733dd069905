"""docs/trust.md says what its records say, and they say that nothing was lost."""

import importlib
import json
from pathlib import Path

import pytest
from fuzz_catalogue import READERS

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs" / "trust"


@pytest.fixture(scope="module")
def recipe():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "dev")
        yield importlib.import_module("trust_page")


def read(name):
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def test_the_page_is_what_the_records_say(recipe):
    text = recipe.PAGE.read_text(encoding="utf-8")
    assert recipe.page(text) == text, "to mend it: python dev/trust_page.py --write"


def test_what_must_be_shown():
    faults, fuzzed = read("faults"), read("fuzz")
    assert faults["injections"] >= 24
    assert faults["lost_or_wrong"] == 0
    assert fuzzed["cases"] >= 200_000
    assert fuzzed["readers"].keys() == READERS.keys()
    assert fuzzed["failures"] == []
    assert fuzzed["slowest_seconds"] < 5
    assert fuzzed["peak_mb"] < 1024


@pytest.mark.parametrize("model", ["efficientnet-lite0", "resnet50-caffe"])
def test_each_report_says_where_it_stands(model):
    report = read(f"check-{model}")
    assert report["model"] == model
    assert set(report["checks"]) == {"mass", "values", "randomisation", "classes", "removal", "stability"}
    assert (ROOT / "docs" / "pictures" / f"check-{model}.png").is_file()
