"""Run excite's commands in this process and describe all that they answered and wrote, as plain JSON."""

import csv
import fcntl
import io
import json
import os
import re
import shlex
import shutil
import sys
import tarfile
import warnings
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image
from skimage import data

DEV = Path(__file__).parents[1]
PLACES = (DEV.with_name("tests"), DEV / "faulting", DEV)
sys.path[:0] = [str(place) for place in PLACES if str(place) not in sys.path]

from annotated import picture, scenes  # noqa: E402
from generate_tags import CorpusSpec, generate  # noqa: E402
from learning import TINY  # noqa: E402
from long_commands import COLOURS, make_inputs  # noqa: E402
from snapshot_pages import text_of_page  # noqa: E402

import excite  # noqa: E402
from excite.cli import main  # noqa: E402

__all__ = [
    "array_facts",
    "make_world",
    "observe",
    "options_of",
    "picture_facts",
    "quiet",
    "run",
    "same_place",
    "subcommands",
]

MASKS = (
    (r"/[\w./+-]*/site-packages/", "<site-packages>/"),
    (r"\(\d+ s\)", "(<time>)"),
    (r"\b\d{19}\b", "<nanoseconds>"),
    (r"\b20\d\d-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?)?", "<date>"),
)
FIGURES = re.compile(r"(?:layers|speed|check|frequency|cloud|curves|figure)[\w-]*\.png$")  # drawn by matplotlib
GRID = 4
PLACE = Path("/tmp/excite-snapshots")  # noqa: S108 - locked, and emptied before it is used
TIMED = frozenset({"seconds", "bytes", "version", "peak_mb", "rounds", "threads"})  # in JSON: times, and the machine
WRITTEN = 1_700_000_000_000_000_000  # nanoseconds


def run(words):
    """What ``excite WORDS`` answers: its exit code, and the text on both streams."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.filterwarnings("ignore", "torchvision's compiled operators")  # a fact about the machine, told once
        try:
            main(list(words))
        except SystemExit as ended:
            code = ended.code
    return code, out.getvalue(), err.getvalue()


def make_world(folder):
    """All inputs of all cases."""
    make_inputs(folder)
    Image.fromarray(data.chelsea()).save(folder / "cat.png")
    for name, squares in scenes(4):
        picture(folder / "sorted" / squares[0][0] / f"{name}.png", squares)
    (folder / "phrases.txt").write_text("a green thing\n\nred on the right\n")
    (folder / "broken.png").write_bytes(b"no picture")
    list(generate(CorpusSpec(120, tags=100), folder / "made"))
    for path in folder.rglob("*"):  # what was written when is part of what a ledger remembers
        os.utime(path, ns=(WRITTEN, WRITTEN))


@contextmanager
def quiet(folder, known=()):
    """In this folder, on one thread, with these models beside the real ones; afterwards all is as before."""
    threads, here, random = torch.get_num_threads(), Path.cwd(), torch.get_rng_state()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, {"EXCITE_HOME": str(folder / "home"), "COLUMNS": "110"}))
        stack.enter_context(mock.patch.dict(excite.MODELS, {card.name: card for card in known}))
        stack.callback(os.chdir, here)
        stack.callback(torch.set_num_threads, threads)
        stack.callback(torch.set_rng_state, random)
        torch.set_num_threads(1)
        torch.manual_seed(0)
        os.chdir(folder)
        yield


@contextmanager
def same_place(name):
    """A folder that has the same name in each run, because the keys of ledgers hold names; others wait meanwhile."""
    PLACE.mkdir(exist_ok=True)
    with (PLACE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = PLACE / name
        shutil.rmtree(folder, ignore_errors=True)
        yield folder
        shutil.rmtree(folder)


def observe(case, world, folder):
    """Run a case on a copy of the inputs, and describe what came of it."""
    shutil.copytree(world, folder)
    before = set(_files(folder))
    describe = Describe(case, folder)
    with quiet(folder, (COLOURS, TINY)):
        commands = [_ran(words, describe) for words in case.commands]
        written = sorted(path for path in set(_files(folder)) - before if path.parts[0] not in case.forget)
        files = {describe.masked(str(path)): describe.file(path) for path in written}
    return {"commands": commands, "files": files}


def _files(folder):
    return (path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and "home" not in path.parts)


def _ran(words, describe):
    arguments = shlex.split(words)
    code, out, err = run(arguments)
    lines = ["<help>"] if out.startswith("Usage: ") else out.splitlines()
    answers = [describe.value(json.loads(line)) for line in lines] if "--json" in arguments else describe.lines(lines)
    return {"command": words, "code": code, "answers": answers, "notes": describe.lines(err.splitlines())}


class Describe:
    """Files and answers as plain JSON, without what differs from run to run."""

    def __init__(self, case, folder):
        self.case, self.folder = case, folder

    def masked(self, text, name=""):
        text = text.replace(str(self.folder), "<folder>")
        for end, pattern in self.case.masks:
            if name.endswith(end):
                text = re.sub(pattern, "<masked>", text)
        for pattern, instead in MASKS:
            text = re.sub(pattern, instead, text)
        return _without_numbers(text) if self.case.structure else text

    def lines(self, lines, name=""):
        return [self.masked(line.rstrip(), name) for line in lines]

    def value(self, value, *, timed=False):
        """A value of JSON; of times, and of all within them, only the type."""
        if isinstance(value, dict):
            return {
                self.masked(name): each if name in self.case.exact else self.value(each, timed=timed or name in TIMED)
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [self.value(each, timed=timed) for each in value]
        if isinstance(value, str):
            return "<str>" if timed else self.masked(value)
        if self.case.structure and (value is None or isinstance(value, float)):
            return "<float or null>"
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return f"<{type(value).__name__}>" if timed or value > 10**18 else value
        return value

    def file(self, path):
        """What a file holds."""
        reader = getattr(self, "_" + path.suffix.lstrip(".").lower(), None)
        return self._text(path) if reader is None else reader(path)

    def _text(self, path):
        content = path.read_bytes()
        try:
            return self.lines(content.decode().splitlines(), path.name)
        except UnicodeDecodeError:
            return "<binary>"

    def _json(self, path):
        return self.value(json.loads(path.read_text()))

    def _jsonl(self, path):
        return [self.value(json.loads(line)) for line in path.read_text().splitlines()]

    def _csv(self, path):
        with path.open(newline="") as file:
            return self.lines((" | ".join(row) for row in csv.reader(file)), path.name)

    def _html(self, path):
        return self.lines(text_of_page(path.read_text()), path.name)

    def _png(self, path):
        with Image.open(path) as image:
            if FIGURES.search(path.name):
                return f"figure of {image.width} x {image.height}"
            return picture_facts(image)

    _jpg = _jpeg = _png

    def _npy(self, path):
        return array_facts(np.load(path))

    def _safetensors(self, path):
        from safetensors import safe_open

        with safe_open(path, "pt") as file:
            facts = {name: self._maybe_json(text) for name, text in sorted((file.metadata() or {}).items())}
            tensors = {name: array_facts(file.get_tensor(name).numpy()) for name in sorted(file.keys())}
        return {"metadata": facts, "tensors": tensors}

    def _maybe_json(self, text):
        try:
            return self.value(json.loads(text))
        except ValueError:
            return self.masked(text)

    def _parquet(self, path):
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        columns = {field.name: str(field.type) for field in table.schema}
        return {"columns": columns, "rows": [json.dumps(list(row.values())) for row in table.to_pylist()]}

    def _tar(self, path):
        with tarfile.open(path) as archive:
            return [f"{member.name} {member.size}" for member in archive.getmembers()]

    def _index(self, path):
        return "<binary>"

    _pt2 = _onnx = _index


def _without_numbers(text):
    """A text that measured times stand in: what is measured may also be missing, so empty cells are the same."""
    text = re.sub(r" +", " ", re.sub(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", "#", text))
    cells = [cell.strip() for cell in text.split("|")]
    return text if len(cells) == 1 else " | ".join(re.sub(r"^(#[^a-z]*)?$", "#", cell) for cell in cells)


def picture_facts(image):
    """What a picture looks like from afar."""
    small = image.convert("L").resize((GRID, GRID), Image.Resampling.BOX)
    return {"size": list(image.size), "mode": image.mode, "brightness": np.asarray(small, dtype=float).tolist()}


def array_facts(values):
    """A summary of numbers that notices when some of them change or move."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    ramp = np.linspace(-1, 1, flat.size) if flat.size else flat
    summary = {"sum": flat.sum(), "norm": np.sqrt((flat * flat).sum()), "ramp": (flat * ramp).sum()}
    return {"shape": list(values.shape), "type": str(values.dtype), **{k: float(v) for k, v in summary.items()}}


def subcommands(words=()):
    """Every command that ``--help`` leads to, as typed behind ``excite``."""
    _, out, _ = run([*words, "--help"])
    listed = re.search(r"^Commands:\n((?:  .*\n?)+)", out, re.MULTILINE)
    names = re.findall(r"^  (\S+)", listed[1], re.MULTILINE) if listed else []
    return [" ".join(words), *(each for name in names for each in subcommands((*words, name)))]


def options_of(command):
    """The arguments and options of a command as its help has them, with what is said about their values in brackets."""
    with mock.patch.dict(os.environ, {"COLUMNS": "110"}):
        _, out, _ = run([*command.split(), "--help-all"])
    usage = " ".join(re.search(r"^Usage: (.*?)\n\n", out, re.DOTALL | re.MULTILINE)[1].split())
    listed = re.split(r"^(?!Commands)[A-Z][a-z]+:\n", out, flags=re.MULTILINE)[1:]
    facts = {}
    for part in listed:
        block = re.match(r"(?:(?:  .*)?\n)*?(?=\n|\Z)", part)[0]
        for entry in re.split(r"^  (?=\S)", block, flags=re.MULTILINE)[1:]:
            name = re.split(r"\s{2,}|\n", entry, maxsplit=1)[0].strip()
            said = " ".join(entry.split())
            facts[name] = re.findall(r"\[((?:default: |required|env var|x[<>]|\d+<=x)[^\]]*)\]", said)
    return {"usage": usage, "options": facts}
