"""Killed at any moment, the files are whole; started again, nothing is lost and nothing is done twice."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from annotated import picture, scenes
from boxfiles import READERS, make, records, tree
from PIL import Image
from processes import PATIENCE, Forking, wait_for_lines
from skimage import data

import excite
from excite.autolabel import FORMATS, AutoLabeler, BoxQuery

PICTURES = 10
MOMENTS = [(0, 0), (1, 0), (2, 0.001), (4, 0.002), (7, 0.004)]
"""Kill it when so many answers have been written down, and so many seconds later."""

FILES = {"coco": "boxes.json", "csv": "boxes.csv", "voc": "ImageSets/Main/trainval.txt"}
COMMAND = shutil.which("excite", path=str(Path(sys.executable).parent))

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


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed") / "photos"
    for name, squares in scenes(PICTURES):
        picture(folder / f"{name}.png", squares)
    return folder


def job_for(photos, kind):
    return {"photos": str(photos), "kind": kind, "concepts": ["red", "green"]}


@pytest.mark.parametrize("kind", FORMATS)
def test_killed_at_every_step(forking, tmp_path, kind):
    """Before each change on the disk, and half-way through each file. What is left is whole, and can be finished."""
    for name, squares in scenes(2):
        picture(tmp_path / "photos" / f"{name}.png", squares)
    job = job_for(tmp_path / "photos", kind)
    make(**job, out=tmp_path / "whole")
    expected = READERS[kind](tmp_path / "whole")
    partly = 0
    for step in count(1, 2 if kind == "voc" else 5):  # where there are most files, more often
        out = tmp_path / f"out-{step}"
        forking.start(**job, out=str(out), killed_at=step)
        code = forking.ended()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        if (out / FILES[kind]).exists():
            read = READERS[kind](out)
            assert all(expected[name] == found for name, found in read.items())
            partly += 0 < len(read) < len(expected)
        make(**job, out=out)
        assert tree(out) == tree(tmp_path / "whole")
        assert records(out) == records(tmp_path / "whole")
    assert step > 15, "kills at few steps"
    assert partly > 0


def test_killed_again_and_again(forking, photos):
    kind, whole, out = "voc", photos.parent / "whole", photos.parent / "killed"
    job = job_for(photos, kind)
    make(**job, out=whole)
    expected = READERS[kind](whole)
    seen, keys = set(), []
    for lines, later in MOMENTS:
        child = forking.start(**job, out=str(out))
        if lines:
            wait_for_lines(out / "records.jsonl", max(lines, len(keys) + 1), forking)
        time.sleep(later)
        os.kill(child, signal.SIGKILL)
        assert forking.ended() == -signal.SIGKILL
        written = [record["key"] for record in records(out)]
        assert written[: len(keys)] == keys  # what was written down stays
        keys = written
        if (out / FILES[kind]).exists():
            read = READERS[kind](out)
            assert all(expected[name] == found for name, found in read.items())
            seen.add(len(read))
    assert len(seen) > len(MOMENTS) // 2, "it was hardly ever stopped half-way"
    forking.start(**job, out=str(out))
    assert forking.ended() == 0
    assert tree(out) == tree(whole)
    assert records(out) == records(whole)  # no image was answered twice


def test_the_command_killed_with_its_workers(tmp_path, monkeypatch):
    """And then finished, into the same folder."""
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    Path("photos").mkdir()
    coffee = Image.fromarray(data.coffee())
    for number in range(4):
        coffee.crop((10 * number, 0, 300 + 10 * number, 300)).save(f"photos/{number:02}.png")
    assert COMMAND is not None, "the command is not installed beside this Python"
    options = ["--concept", "cup", "--format", "voc", "--out", "out", "--workers", "2"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    process = subprocess.Popen([COMMAND, "boxes", "photos", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: S603
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
