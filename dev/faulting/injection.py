"""Makes a fault and checks the result: complete files, one clear line, and a second run that succeeds."""

import os
import re
import shutil
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from disk import small_disk
from fault_kinds import FAULTS
from long_commands import COMMANDS, archive, make_inputs
from processes import Forking
from readable import check_readable, same_answers, tree
from serving import serving

__all__ = ["Injection", "Laboratory"]

SCRIPT = """
import excite, torch, torch._dynamo, typer, pyarrow.parquet, pyarrow.compute, PIL.Image, safetensors.torch
import excite.autolabel, excite.experiments.pointing.run, excite.training.finetune, excite.training.tags.run
import excite.tags.cleaning, excite.tags.images.shards
from process_faults import run
torch.set_num_threads(1)
"""
MORE = """
import matplotlib.pyplot
import excite.autolabel.batch, excite.grounding, excite.export, excite.tags.figures
import excite.experiments.localization.run, excite.experiments.grounding.run, excite.experiments.report.figures
import excite.experiments.layer_sweep, excite.experiments.speed.run
"""
"""What only some commands need: whoever tries all of them imports it once."""


@dataclass(frozen=True)
class Injection:
    """A command, what happens to it, and when: a share of its steps on the disk, from 0 to 1."""

    command: str
    fault: str
    moment: float = 0.5

    def __str__(self):
        return f"{self.command}, {self.fault}, {self.moment:g}"


@dataclass
class Whole:
    """The output of an undisturbed run, and its steps on the disk by kind."""

    files: dict
    steps: dict


class Laboratory:
    """Where faults are made: a disk of our own, and processes that begin at once.

    Args:
        folder: an empty folder.
        everything: all commands are to be tried, and not only the quick ones.
    """

    def __init__(self, folder, everything=False):
        self._ending = ExitStack()
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.disk = self._ending.enter_context(small_disk(folder / "disk"))
        self.folder = self.disk.folder
        make_inputs(self.folder)
        self.inputs = tree(self.folder)
        server = self._ending.enter_context(serving(archive()))
        (self.notes / "archive").write_bytes(server.content)
        self.archive = {"url": server.url, "file": str(self.notes / "archive")}
        self.forking = self._ending.enter_context(closing(Forking(SCRIPT + MORE * everything)))
        self._whole = {}
        self._heard = {}

    def close(self):
        self._ending.close()

    def start(self, command, name="run", extra=(), **more):
        """Begin a command; the number of its process."""
        arguments = [*COMMANDS[command].arguments, *extra]
        said = str(self.notes / name)
        self._listen(f"{said}.err")
        return self.forking.start(arguments=arguments, folder=str(self.folder), said=said, archive=self.archive, **more)

    def run(self, command, name="run", **more):
        """A command from its beginning to its end, and what it said on standard error."""
        code = self.forking.ended(self.start(command, name, **more))
        return code, self.said(name)

    def _listen(self, path):
        """Have standard error in a pipe: a limit on the size of files is none on what is said."""
        if path in self._heard:
            os.close(self._heard[path])
            Path(path).unlink()
        os.mkfifo(path)
        self._heard[path] = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def said(self, name="run"):
        """The lines on standard error of a run that has ended."""
        path, told = str(self.notes / f"{name}.err"), b""
        with suppress(BlockingIOError):  # a worker that has not ended yet has nothing to say any more
            while some := os.read(self._heard[path], 65536):
                told += some
        return told.decode().splitlines()

    def whole(self, command):
        """The output of an undisturbed run."""
        if command not in self._whole:
            code, said = self.run(command)
            assert code == 0, said
            check_readable(self.folder / COMMANDS[command].out)
            self._whole[command] = Whole(self.files(command), self._steps())
            self.forget(command)
        return self._whole[command]

    def files(self, command):
        """What is in the output, without what may differ."""
        found = tree(self.folder / COMMANDS[command].out)
        for end, vague in COMMANDS[command].vague:
            for name in found:
                if name.endswith(end):
                    found[name] = re.sub(vague.encode(), b"?", found[name])
        return found

    def forget(self, command):
        """Remove the output."""
        out = self.folder / COMMANDS[command].out
        shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)

    def inject(self, injection):
        """Make the fault, check what is left, mend it, go on, and check that nothing is missing; a record of it."""
        started = time.monotonic()
        whole, fault = self.whole(injection.command), FAULTS[injection.fault]
        try:
            seen = fault.make(self, injection, whole)
            self._check_inputs()
            again, said = self.run(injection.command, "again")
            assert again == 0, said
            assert not any(line for line in said if not line.startswith("excite: note: ")), said
            check_readable(self.folder / COMMANDS[injection.command].out)
            found, expected = self.files(injection.command), whole.files
            assert sorted(found) == sorted(expected)
            differ = [name for name in found if found[name] != expected[name]]
            assert not [name for name in differ if fault.keeps_order or not same_answers(name, found, expected)]
            self._check_inputs()
        finally:
            self.disk.read_only(False)
            self.disk.ballast.unlink(missing_ok=True)
            self.put_back()
            self.forget(injection.command)
        return {
            "command": injection.command,
            "fault": injection.fault,
            **seen,
            "resumed": "identical but for times" if COMMANDS[injection.command].vague else "identical",
            "seconds": round(time.monotonic() - started, 2),
        }

    def put_back(self):
        for path in self.folder.rglob("*.away"):
            place = path.with_name(path.name.removesuffix(".away"))
            place.unlink(missing_ok=True)
            path.rename(place)

    def _check_inputs(self):
        outs = {long.out for long in COMMANDS.values()}
        now = {name: content for name, content in tree(self.folder).items() if name.split("/")[0] not in outs}
        assert now == self.inputs, set(now.items()) ^ set(self.inputs.items())

    def _steps(self):
        steps = {"write": [], "read": []}
        for line in (self.notes / "run.steps").read_text().splitlines():
            kind, event, name = line.split(" ", 2)
            steps[kind].append(f"{event} {name}")
        return steps
