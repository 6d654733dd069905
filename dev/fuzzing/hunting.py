"""Case after case in processes that may crash, hang or eat memory: each is watched, ended in time, and begun again."""

import faulthandler
import json
import mmap
import os
import resource
import shutil
import signal
import struct
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fuzzed import HOSTILE, Reader, content_of
from judging import ACCEPTED, REFUSED, Judge

__all__ = ["MOST_BYTES", "MOST_CPU", "MOST_WALL", "Found", "Hunt"]

MOST_CPU = 5.0  # seconds of the processor for one file
MOST_WALL = 120.0  # seconds: a hang that only waits; others use the machine too
MOST_BYTES = 2**30  # of memory, above what the process had when it began
ROOM = 16 * 2**30  # what may be asked for at all
PACE = 0.02  # seconds between two looks at a process
LAYOUT = "<qdqqqdqqqd"
PAGE = resource.getpagesize()


@dataclass
class Found:
    """What came of the cases of a reader so far."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    slowest_seconds: float = 0.0
    slowest_case: int = -1
    peak_bytes: int = 0
    peak_case: int = -1
    cpu_seconds: float = 0.0
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Found") -> None:
        """Put more cases to these."""
        self.cases += other.cases
        self.accepted += other.accepted
        self.refused += other.refused
        self.cpu_seconds += other.cpu_seconds
        if other.slowest_seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest_case = other.slowest_seconds, other.slowest_case
        if other.peak_bytes > self.peak_bytes:
            self.peak_bytes, self.peak_case = other.peak_bytes, other.peak_case
        self.failures += other.failures


class _Slate:
    """A page of memory that a process writes on and its parent reads, also after it has died."""

    def __init__(self) -> None:
        self.page = mmap.mmap(-1, PAGE)
        self.write(-1, 0.0, Found())

    def write(self, case: int, began: float, found: Found) -> None:
        numbers = (found.cases, found.accepted, found.refused, found.slowest_seconds, found.slowest_case)
        packed = (case, began, *numbers, found.peak_bytes, found.peak_case, found.cpu_seconds)
        self.page[: struct.calcsize(LAYOUT)] = struct.pack(LAYOUT, *packed)

    def read(self) -> tuple[int, float, Found]:
        case, began, *numbers = struct.unpack(LAYOUT, self.page[: struct.calcsize(LAYOUT)])
        return case, began, Found(*numbers)


class Hunt:
    """Some cases of a reader, in one process after the other; ``look`` goes on with it.

    Args:
        reader: what is tried.
        cases: which, in increasing order.
        most_cpu: seconds of the processor for one case.
        most_wall: seconds for one case.
        most_bytes: of memory.
    """

    def __init__(
        self,
        reader: Reader,
        cases: Sequence[int],
        *,
        most_cpu: float = MOST_CPU,
        most_wall: float = MOST_WALL,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.reader, self.cases = reader, cases
        self.most_cpu, self.most_wall, self.most_bytes = most_cpu, most_wall, most_bytes
        self.found = Found()
        self._folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=_quick_folder()))
        self._reason = ""
        self._begin(cases)

    def look(self) -> bool:
        """Whether it is over; ends a process that takes too much, and begins another where one died."""
        ended, status = os.waitpid(self._process, os.WNOHANG)
        if not ended:
            self._watch()
            return False
        case, _, found = self._slate.read()
        self.found.add(found)
        self.found.failures += [tuple(json.loads(line)) for line in self._notes.read_text().splitlines()]
        if status == 0:
            shutil.rmtree(self._folder)
            return True
        if case < 0:
            raise RuntimeError(f"the process of {self.reader.name} died before its first case: {self._noise()}")
        self.found.cases += 1
        self.found.failures.append((case, self._reason or _ending(status)))
        self._begin([one for one in self.cases if one > case])
        return False

    def finish(self) -> Found:
        """Wait until it is over."""
        while not self.look():
            time.sleep(PACE)
        return self.found

    def _begin(self, cases: Sequence[int]) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self._notes, self._said = self._folder / "failures.jsonl", self._folder / "said.txt"
        self._notes.touch()
        self._slate, self._reason = _Slate(), ""
        self._process = os.fork()
        if self._process == 0:
            self._child(cases)

    def _child(self, cases: Sequence[int]) -> None:
        """Never returns."""
        code = 1
        try:
            output = os.open(self._said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            faulthandler.disable()  # what pytest has switched on would tell of every crash at length
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            place = self._folder / "files"
            place.mkdir()
            self._work(Judge(self.reader, place, self._said), cases)
            code = 0
        except BaseException:  # noqa: BLE001 - told to the parent by the exit code
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)

    def _work(self, judge: Judge, cases: Sequence[int]) -> None:
        found = Found()
        content_of(self.reader, 0)  # the good files are made before anything is measured
        base = _memory("VmRSS")
        size = _memory("VmSize") + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        for case in cases:
            content = content_of(self.reader, case)
            if content is None:
                continue
            Path("/proc/self/clear_refs").write_text("5")  # the highest mark of memory begins anew
            began, cpu = time.monotonic(), time.process_time()
            self._slate.write(case, began, found)
            signal.setitimer(signal.ITIMER_PROF, self.most_cpu)  # the system ends the process, whatever it does
            verdict = judge.judge(content)
            signal.setitimer(signal.ITIMER_PROF, 0)
            seconds, peak = time.process_time() - cpu, _memory("VmHWM") - base
            if case < HOSTILE and verdict == REFUSED:
                verdict = "a good file is refused"  # nothing but a reader's first check would be tried
            if peak > self.most_bytes:
                verdict = f"it took {peak >> 20} MB of memory"
            one = Found(1, verdict == ACCEPTED, verdict == REFUSED, seconds, case, peak, case, seconds)
            found.add(one)
            if verdict not in {ACCEPTED, REFUSED}:
                with self._notes.open("a") as notes:
                    notes.write(json.dumps([case, verdict]) + "\n")
            self._slate.write(case, began, found)

    def _watch(self) -> None:
        case, began, _ = self._slate.read()
        if case >= 0 and time.monotonic() - began > self.most_wall:
            self._end(f"it hung for {self.most_wall:g} s")
        elif _memory("VmRSS", self._process) > self.most_bytes + _memory("VmRSS"):
            self._end(f"it took more than {self.most_bytes >> 20} MB of memory")

    def _end(self, reason: str) -> None:
        self._reason = reason
        os.kill(self._process, signal.SIGKILL)

    def _noise(self) -> str:
        return self._said.read_text(errors="replace")[-2000:] if self._said.exists() else ""


def _ending(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"it ended the process with the exit code {code}"
    if -code == signal.SIGPROF:
        return "it took more seconds of the processor than it may"
    return f"it crashed ({signal.Signals(-code).name})"


def _memory(field: str, process: int | str = "self") -> int:
    """A field of the system's notes on a process, in bytes; 0 for one that is over."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(f"{field}:")), 0)


def _quick_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a disk in memory, where there is one
