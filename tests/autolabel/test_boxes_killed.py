"""Killed at any moment, the files are whole; started again, nothing is lost and nothing is done twice."""

import signal
import subprocess
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from annotated import picture, scenes
from boxfiles import READERS, make, records, tree
from PIL import Image
from processes import PATIENCE, Forked, Forking, wait_for_lines
from skimage import data

import excite
from excite.autolabel import AutoLabeler, BoxQuery

FILES = {
    "coco": "boxes.json",
    "csv": "boxes.csv",
    "voc": "ImageSets/Main/trainval.txt",
    "yolo": "data.yaml",
    "label-studio": "tasks.json",
}

FORKING = """
import os, tempfile
from pathlib import Path
from annotated import picture, scenes
from boxfiles import make as run
from excite.autolabel import FORMATS
from excite.autolabel import run as module
with tempfile.TemporaryDirectory() as folder:  # the first time takes long
    for name, squares in scenes(1):
        picture(Path(folder, "photos", name + ".png"), squares)
    for kind in FORMATS:
        run(Path(folder, "photos"), Path(folder, kind), kind, ["red"])
module.PAUSE = module.SHARE = 0  # write the files after every image
os.fsync = lambda file: None  # quicker, and a kill is no power cut
"""


@pytest.fixture(scope="module")
def forking():
    with closing(Forking(FORKING)) as server:
        yield server


@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
def test_killed_at_every_step(forking, tmp_path, kind):
    """Before each change on the disk, and half-way through each file; then again. What is left is whole."""
    for name, squares in scenes(2):
        picture(tmp_path / "photos" / f"{name}.png", squares)
    job = {"photos": str(tmp_path / "photos"), "kind": kind, "concepts": ["red", "green"]}
    make(**job, out=tmp_path / "whole")
    expected = READERS[kind](tmp_path / "whole")
    partly = 0
    for step in count(1, {"voc": 4, "yolo": 11}.get(kind, 6)):  # where there are most files, more often
        out, kept, codes = tmp_path / f"out-{step}", [], []
        for killed_at in (step, step // 2 + 1):
            forking.start(**job, out=str(out), killed_at=killed_at)
            codes.append(forking.ended())
            written = records(out) or kept  # none are seen while a run takes over those of the one before
            assert written[: len(kept)] == kept, "what was written down stays"
            kept = written
            if (out / FILES[kind]).exists():
                read = READERS[kind](out)
                assert all(expected[name] == found for name, found in read.items())
                partly += 0 < len(read) < len(expected)
        make(**job, out=out)
        assert tree(out) == tree(tmp_path / "whole")
        assert records(out) == records(tmp_path / "whole"), "no image was answered twice"
        assert set(codes) <= {0, -signal.SIGKILL}
        if codes[0] == 0:
            break
    assert step > 15, "kills at few steps"
    assert partly > 0


def test_the_command_killed_with_its_workers(tmp_path, monkeypatch):
    """And then finished, into the same folder."""
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    Path("photos").mkdir()
    coffee = Image.fromarray(data.coffee())
    for number in range(4):
        coffee.crop((10 * number, 0, 300 + 10 * number, 300)).save(f"photos/{number:02}.png")
    options = ["--concept", "cup", "--format", "voc", "--out", "out", "--workers", "2"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    process = Forked(arguments=["boxes", "photos", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for_lines(out / "records.jsonl", 1, process)
    finally:
        process.kill()
    process.communicate(timeout=PATIENCE)  # which also waits for the workers: they end with their parent
    assert process.returncode == -signal.SIGKILL
    done = records(out)
    assert 1 <= len(done) < 4
    READERS["voc"](out)

    for folder in ("out", "whole"):
        AutoLabeler(excite.load(), ["photos"], Path(folder), BoxQuery(("cup",)), "voc").write()
    assert tree(out) == tree(Path("whole"))
    assert records(out) == records(Path("whole"))
    assert len(READERS["voc"](out)) == 4
