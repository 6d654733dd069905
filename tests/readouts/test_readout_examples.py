"""The examples in the docstrings are run."""

import doctest
import importlib

import pytest

MODULES = ["box", "colours", "figure", "overlay", "point", "save", "upsample"]


@pytest.mark.parametrize(
    "name", ["excite.images", "excite.attention", "excite.readouts", *(f"excite.readouts.{m}" for m in MODULES)]
)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
