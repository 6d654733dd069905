"""Checks that files are complete, with readers that share no code with their writers."""

import csv
import json
import tarfile
import zipfile
from pathlib import Path
from xml.dom import minidom

import numpy as np
import pyarrow.parquet as pq
from PIL import Image
from safetensors import safe_open

__all__ = ["check_readable", "is_half", "same_answers", "tree"]


def is_half(path):
    """Whether this is a temporary or partial file by its name."""
    return path.name.endswith((".tmp", ".part", ".sqlite-wal")) or path.name == ".lock" or ".work" in str(path)


def check_readable(folder, torn=False):
    """Every file is what its name says. Only JSON lines may end in the middle of a line, if ``torn``."""
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and not is_half(path):
            if path.suffix == ".jsonl" and torn:
                *lines, _last = path.read_text().split("\n")
                list(map(json.loads, lines))
            else:
                READERS.get(path.suffix, Path.read_bytes)(path)


def tree(folder):
    """All files of a folder, what is in them or where they lead; and its empty folders."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = str(path.readlink()).encode()
        elif path.is_file():
            found[name] = path.read_bytes()
        elif not any(path.iterdir()):
            found[name] = b"(an empty folder)"
    return found


def same_answers(name, found, expected):
    """Whether JSON lines hold all expected results, in any order: an image that came later is behind the others.

    There may be more: results of a classifier that was trained without that image. Of two lines with the same key the
    last one counts. Features are stored in the order of their lines.
    """
    return name.startswith("features/") or (
        name.endswith(".jsonl") and _by_key(expected[name]).items() <= _by_key(found[name]).items()
    )


def _by_key(content):
    return {line.split(b'", "')[0]: line for line in content.splitlines()}


def _csv(path):
    rows = list(csv.reader(path.read_text().splitlines()))
    assert rows
    assert len({len(row) for row in rows}) == 1


def _picture(path):
    with Image.open(path) as picture:
        picture.load()


def _tensors(path):
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118 - it is no dict
            file.get_tensor(name)


def _tar(path):
    with tarfile.open(path) as tar:
        for member in tar:
            assert len(tar.extractfile(member).read()) == member.size


def _text(path):
    path.read_text(encoding="utf-8")


READERS = {
    ".json": lambda path: json.loads(path.read_text()),
    ".jsonl": lambda path: [json.loads(line) for line in path.read_text().splitlines()],
    ".csv": _csv,
    ".png": _picture,
    ".npy": np.load,
    ".parquet": lambda path: pq.read_table(path).validate(full=True),
    ".safetensors": _tensors,
    ".tar": _tar,
    ".zip": lambda path: zipfile.ZipFile(path).testzip(),
    ".pt2": lambda path: zipfile.ZipFile(path).testzip(),
    ".xml": lambda path: minidom.parse(str(path)),  # noqa: S318 - our own
    ".md": _text,
    ".txt": _text,
}
