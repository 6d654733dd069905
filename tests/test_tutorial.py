"""The tutorial notebook: every cell runs, and shows what it is there to show."""

import base64
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOK = DOCS / "tutorial.ipynb"
PICTURES = {"photograph", "findings", "contrast", "against", "layers", "own"}  # what each cell shows, by its name
PAGES = {"one", "ground", "save"}
TEXTS = {"load", "numbers", "locate", "chain", "walks", "memory"}
PROGRAM = """
import sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=120, coalesce_streams=True).execute()
nbformat.write(notebook, sys.argv[2])
"""


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {cell["id"]: cell for cell in cells if cell["cell_type"] == "code"}


def executed(folder):
    """The cells of the notebook after a run in a process of its own, in which any warning is an error.

    All that Jupyter writes and reads goes to the folder: the settings of whoever runs this must not matter.
    """
    own = {name: str(folder / name) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")}
    environment = {**os.environ, **own, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    result = folder / "executed.ipynb"
    command = [sys.executable, "-c", PROGRAM, str(NOTEBOOK), str(result)]
    ended = subprocess.run(  # noqa: S603 - our own program
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return code_cells(result)


def shown(cell):
    """What a cell shows, by kind; what it prints is text."""
    kinds = {}
    for output in cell["outputs"]:
        assert output.get("name") != "stderr", output
        kinds |= output.get("data", {"text/plain": output.get("text")})
    return {kind: "".join(content) for kind, content in kinds.items()}


def contrast_of(content):
    """How much there is to see in an encoded image."""
    with Image.open(io.BytesIO(base64.b64decode(content))) as picture:
        return np.asarray(picture.convert("L")).std()


def test_is_committed_without_outputs():
    for cell in code_cells(NOTEBOOK).values():
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


def test_every_cell_is_checked():
    assert set(code_cells(NOTEBOOK)) == PICTURES | PAGES | TEXTS


def test_its_links_lead_somewhere():
    linked = re.findall(r"\]\(([^)]+)\)", NOTEBOOK.read_text(encoding="utf-8"))
    assert linked
    assert [name for name in linked if not (DOCS / name).is_file()] == []


def test_runs_and_shows_its_maps(tmp_path):
    """One test, because the run is what costs."""
    cells = executed(tmp_path)
    found = {name: shown(cell) for name, cell in cells.items()}
    assert all(found[name]["text/plain"].strip() for name in TEXTS)
    for name in PICTURES:
        assert contrast_of(found[name]["image/png"]) > 20, name
    for name in PAGES:
        (source,) = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', found[name]["text/html"])
        assert contrast_of(source) > 20, name
        assert re.search(r'alt="\w[^"]+"', found[name]["text/html"]), name
    assert "the network ran 1 time" in found["memory"]["text/plain"]
    assert "0.8000, 0.2000, 0.0000" in found["walks"]["text/plain"]
