"""What is shown works: the examples in all docstrings, and the programs in examples/."""

import doctest
import importlib
import pkgutil
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import excite

MODULES = ["excite", *(found.name for found in pkgutil.walk_packages(excite.__path__, "excite."))]
EXAMPLES = Path(__file__).parents[1] / "examples"
WRITTEN = {  # what each program says that it writes
    "demo.py": ["cat.png", "Egyptian cat.png", "tabby.png", "plastic bag.png", "demo.png"],
    "own_network.py": [],
    "several_layers.py": ["layers.png"],
}


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    assert doctest.testmod(module, extraglobs={"excite": excite}).failed == 0


def test_docstrings_hold_examples():
    """If the finder found none, the test above would check nothing."""
    finder = doctest.DocTestFinder()
    found = {name: sum(len(test.examples) for test in finder.find(importlib.import_module(name))) for name in MODULES}
    assert len(MODULES) > 40
    assert sum(found.values()) > 60
    must = "images attention session api propagation.mwp io.files"
    assert all(found[f"excite.{name}"] > 0 for name in must.split())


def test_every_program_is_checked():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(WRITTEN)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", WRITTEN)
def test_programs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    said = capsys.readouterr().out
    assert said
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == set(WRITTEN[name])
    for line in said.splitlines():
        if line.startswith("look at "):
            assert (tmp_path / line.removeprefix("look at ")).is_file()
    for path in tmp_path.rglob("*.png"):
        with Image.open(path) as picture:
            assert np.asarray(picture.convert("L")).std() > 5  # there is something to see
