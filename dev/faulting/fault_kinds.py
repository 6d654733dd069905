"""The faults: how each is made, and the state that the command must leave."""

import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from long_commands import COMMANDS
from readable import check_readable

__all__ = ["FAULTS"]

STOPPED = r"excite: stopped; what was finished is kept"
PATIENCE = 60


@dataclass(frozen=True)
class Happens:
    """An event in the middle of a run.

    Attributes:
        deed: what, see `process_faults.DEEDS`.
        exits: how the command may end.
        says: what its last line must match; "" where it can say nothing any more.
        kind: before which kind of step it happens.
        extra: more arguments.
        keeps_order: whether the answers stand in the same order afterwards.
    """

    deed: str
    exits: tuple[int, ...]
    says: str = ""
    kind: str = "write"
    extra: tuple[str, ...] = ()
    keeps_order: bool = True

    def make(self, laboratory, injection, whole):
        step, moment = _step(whole.steps[self.kind], injection.moment, self.kind)
        happening = {"kind": self.kind, "step": step, "deed": self.deed, "to": self.victim(laboratory, injection)}
        code, said = laboratory.run(injection.command, happening=happening, extra=self.extra)
        check_end(laboratory, injection, code, said, self)
        self.mend(laboratory)
        return {"moment": moment, "exit": code, "said": said}

    def victim(self, laboratory, injection):
        return None

    def mend(self, laboratory):
        """Nothing is to be mended."""


@dataclass(frozen=True)
class Full(Happens):
    """The disk is full from some moment on; a small result may still fit where a removed file was, and is whole."""

    def make(self, laboratory, injection, whole):
        if not laboratory.disk.mounted:
            return Happens("limit files", (1,), self.says).make(laboratory, injection, whole)
        seen = super().make(laboratory, injection, whole)
        assert seen["exit"] != 0 or laboratory.files(injection.command) == whole.files
        return seen

    def victim(self, laboratory, injection):
        return str(laboratory.disk.ballast)

    def mend(self, laboratory):
        laboratory.disk.ballast.unlink()


@dataclass(frozen=True)
class Vanishes(Happens):
    """An input is gone, or is no longer what it was, from some moment on."""

    what: str = "vanishes"
    keeps_order: bool = False

    def victim(self, laboratory, injection):
        return getattr(COMMANDS[injection.command], self.what)

    def mend(self, laboratory):
        laboratory.put_back()


@dataclass(frozen=True)
class ReadOnly:
    """Nothing can be written from the beginning."""

    exits: tuple[int, ...] = (1,)
    says: str = r"excite: .*(cannot write|[Rr]ead-only|[Pp]ermission)"
    keeps_order: bool = True

    def make(self, laboratory, injection, _whole):
        laboratory.disk.read_only(True)
        code, said = laboratory.run(injection.command, obedient=not laboratory.disk.mounted)
        laboratory.disk.read_only(False)
        check_end(laboratory, injection, code, said, self)
        return {"moment": "from the beginning", "exit": code, "said": said}


@dataclass(frozen=True)
class InTheWay:
    """The output path is a file that excite has not written."""

    exits: tuple[int, ...] = (1,)
    says: str = r"excite: .*out"
    keeps_order: bool = True

    def make(self, laboratory, injection, _whole):
        out = laboratory.folder / COMMANDS[injection.command].out
        out.write_text("mine")
        code, said = laboratory.run(injection.command)
        assert out.read_text() == "mine"
        out.unlink()
        check_end(laboratory, injection, code, said, self)
        return {"moment": "from the beginning", "exit": code, "said": said}


@dataclass(frozen=True)
class Torn:
    """Killed, and then the last thing it wrote down is cut off in the middle, as by a power cut."""

    keeps_order: bool = True

    def make(self, laboratory, injection, whole):
        store = laboratory.folder / COMMANDS[injection.command].store
        database = store.with_suffix(".sqlite-wal")
        steps = whole.steps["write"]
        step, moment = _step(steps, injection.moment, "write")
        happening = {"step": step, "deed": "SIGKILL"}
        code, said = laboratory.run(injection.command, happening=happening)
        assert code == -signal.SIGKILL
        store = database if database.exists() else store
        size = store.stat().st_size
        os.truncate(store, max(1, size - 7))
        return {"moment": f"{moment}; then {store.name} cut off", "exit": code, "said": said}


@dataclass(frozen=True)
class Unread:
    """Standard output is a closed pipe, or on a full disk."""

    stdout: str
    exits: tuple[int, ...]
    says: str
    keeps_order: bool = True

    def make(self, laboratory, injection, _whole):
        code, said = laboratory.run(injection.command, stdout=self.stdout)
        check_end(laboratory, injection, code, said, self)
        return {"moment": "from the beginning", "exit": code, "said": said}


@dataclass(frozen=True)
class Twice:
    """Another run into the same folder, while the first is stopped in its middle."""

    keeps_order: bool = False

    def make(self, laboratory, injection, whole):
        step, moment = _step(whole.steps["write"], injection.moment, "write")
        first = laboratory.start(injection.command, "first", happening={"step": step, "deed": "SIGSTOP"})
        _wait_until_stopped(first)
        try:
            code, said = laboratory.run(injection.command, "second")
        finally:
            os.kill(first, signal.SIGCONT)
        ended = laboratory.forking.ended(first)
        both = laboratory.said("first") + said
        check_lines(both)
        assert (code, ended) in {(0, 0), (1, 0)}, (code, ended, both)
        if code:
            assert re.match(r"excite: another run", said[-1])
        return {"moment": moment, "exit": code, "said": said}


def _wait_until_stopped(process):
    deadline = time.monotonic() + PATIENCE
    while ") T " not in Path(f"/proc/{process}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def _step(steps, share, kind):
    """The number of the step at this share of all, and what to call it."""
    assert steps, f"it has nothing to {kind}"
    number = 1 + round(share * (len(steps) - 1))
    return number, f"before {kind} {number} of {len(steps)} ({steps[number - 1]})"


def check_lines(said):
    """Lines of ours, and no trace."""
    assert all(line.startswith("excite: ") for line in said), "\n".join(said)


def check_end(laboratory, injection, code, said, fault):
    """The exit code and the message are right, and all files are readable."""
    check_lines(said)
    assert code in fault.exits, (code, said)
    if code and fault.says:
        assert re.match(fault.says, said[-1] if said else ""), said
    if not fault.says:
        assert not [line for line in said if not line.startswith("excite: note: ")], said
    check_readable(laboratory.folder / COMMANDS[injection.command].out, torn=True)


WORKERS = ("--workers", "2")
ROOM = r"excite: .*([Nn]o space|room|too large)"

FAULTS = {
    "kill -9": Happens("SIGKILL", (-signal.SIGKILL,)),
    "Ctrl-C": Happens("SIGINT", (130,), STOPPED),
    "SIGTERM": Happens("SIGTERM", (143,), STOPPED),
    "full disk": Full("fill the disk", (1, 0), ROOM),
    "read-only folder": ReadOnly(),
    "input vanishes": Vanishes("take away", (1,), "excite: ", kind="read"),
    "input folder vanishes": Vanishes("take away", (1,), "excite: ", kind="read", what="folder"),
    "input cut off": Vanishes("spoil", (1,), "excite: ", kind="read"),
    "worker killed": Happens("kill a worker", (1,), "excite: a worker", "read", WORKERS),
    "Ctrl-C while workers begin": Happens("SIGINT to all", (130,), STOPPED, "read", WORKERS),
    "SIGTERM while workers begin": Happens("SIGTERM to all", (143,), STOPPED, "read", WORKERS),
    "two at once": Twice(),
    "a file in the way": InTheWay(),
    "torn write": Torn(),
    "reader gone": Unread("closed pipe", (1,), ""),
    "answers to a full disk": Unread("/dev/full", (1,), ROOM),
}
