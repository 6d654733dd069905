"""Time relative to the network's plain forward pass, and memory beside the loaded network.

Seconds depend on the machine and its load. So the time of each method is divided by that of the plain forward pass of
the same network on the same images in the same round, and the median over rounds is reported. All candidates take
turns, so that other load hits all of them alike.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

FORWARD, GRADIENT, MWP, C_MWP = "forward", "input gradient", "mwp", "c-mwp"
COMPILED = "c-mwp compiled"  # the same maps from `excite.compile`
LEAST, MOST = 3, 200  # rounds
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RUNS = 2  # of a call whose memory is measured: the second one shows what the first one keeps
MIB = 2**20


@dataclass(frozen=True)
class Case:
    """A method on a network, at a layer, for a number of concepts on each image of a batch."""

    network: str
    layer: str  # at which the map ends; empty for the forward pass
    method: str
    concepts: int = 1
    batch: int = 1


@dataclass(frozen=True)
class Timing:
    """The seconds of one case in each round, and those of the plain forward pass right before it."""

    seconds: tuple[float, ...]
    forwards: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """The ratio to the forward pass, in each round."""
        return [one / forward for one, forward in zip(self.seconds, self.forwards, strict=True)]


@dataclass(frozen=True)
class Candidate:
    """A call to be timed: its case, and ``prepare``, which makes it once and untimed (a copied network, hooks ...)."""

    case: Case
    prepare: Callable[[], Callable[[], object]]


@dataclass(frozen=True)
class Stopwatch:
    """The seconds of a call, including asynchronous work of a GPU."""

    clock: Callable[[], float] = time.perf_counter
    wait: Callable[[], object] = lambda: None

    @classmethod
    def on(cls, device: torch.device) -> Stopwatch:
        """The stopwatch of a device."""
        return cls(wait=torch.cuda.synchronize) if device.type == "cuda" else cls()

    def __call__(self, call: Callable[[], object]) -> float:
        """Seconds of one call; garbage is collected before it and not within."""
        gc.collect()
        gc.disable()
        try:
            self.wait()
            begin = self.clock()
            answer = call()
            self.wait()
            seconds = self.clock() - begin
        finally:
            gc.enable()
        del answer  # freeing it is not timed
        return seconds


@dataclass
class Rounds:
    """Rounds of one group: a forward pass, every candidate once in random order, and a forward pass.

    The time of each candidate is divided by that of a forward pass right before it, so that both find the same machine
    load and the same caches. ``failed`` has the reason for each case that did not run to the end.
    """

    forward: Callable[[], object]
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    seed: int = 0
    failed: dict[Case, str] = field(default_factory=dict)
    _done: list[tuple[float, dict[Case, tuple[float, float]], float]] = field(default_factory=list)

    def run(self, candidates: Sequence[Candidate], budget: float, least: int = LEAST) -> None:
        """As many rounds as fit in the budget of seconds, and at least ``least``."""
        ready = {}
        for candidate in candidates:
            try:
                ready[candidate.case] = candidate.prepare()
            except Exception as error:  # noqa: BLE001 - a candidate that cannot start is a row with its reason
                self.failed[candidate.case] = reason_of(error)
        generator = torch.Generator().manual_seed(self.seed)
        gc.collect()
        gc.freeze()  # existing objects are not searched before every call
        try:
            spent = self._round(ready, generator)
            if spent <= budget:
                self._done.clear()
                spent = 0.0
            while len(self._done) < least or (spent * (1 + 1 / len(self._done)) <= budget and len(self._done) < MOST):
                spent += self._round(ready, generator)
        finally:
            gc.unfreeze()

    @property
    def timings(self) -> dict[Case, Timing]:
        """The timing of each case, in the given order."""
        cases = [case for case in self._done[0][1] if case not in self.failed]
        return {case: _timing(taken[case] for _, taken, _ in self._done) for case in cases}

    @property
    def forwards(self) -> Timing:
        """The last forward pass of each round relative to the first: the noise of the machine."""
        return _timing((first, last) for first, _, last in self._done)

    def _round(self, ready: dict[Case, Callable[[], object]], generator: torch.Generator) -> float:
        """Run one round; its seconds."""
        begin = self.stopwatch.clock()
        first = self.stopwatch(self.forward)
        taken = dict.fromkeys(ready, (0.0, 0.0))
        cases = list(ready)
        for k in torch.randperm(len(cases), generator=generator).tolist():
            try:
                taken[cases[k]] = self.stopwatch(self.forward), self.stopwatch(ready[cases[k]])
            except Exception as error:  # noqa: BLE001 - as above: the others go on without it
                self.failed[cases[k]] = reason_of(error)
                del ready[cases[k]]
        self._done.append((first, taken, self.stopwatch(self.forward)))
        return self.stopwatch.clock() - begin


def _timing(pairs: Iterable[tuple[float, float]]) -> Timing:
    """From the seconds of a forward pass and of the call after it, in each round."""
    forwards, seconds = zip(*pairs, strict=True)
    return Timing(seconds, forwards)


def reason_of(error: BaseException) -> str:
    """An error in one line."""
    said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


# Memory, as the operating system reports it. Each method is measured in its own process: memory that an earlier one has
# freed would hide what the next one takes.


def in_own_process(work: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """The result of a call in a fresh process, or a ``note`` with the reason why there is none."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(work, *arguments).result()
        except BrokenProcessPool:
            return {"note": "its process was killed, most likely because memory ran out"}
        except Exception as error:  # noqa: BLE001 - a method that fails is a row with its reason
            return {"note": reason_of(error)}


def peak_of(warm_up: Callable[[], object], run: Callable[[], object], device: torch.device) -> float:
    """The peak MiB of a call, beyond those after a plain forward pass (``warm_up``).

    The call is made twice, so that what it keeps counts. On a GPU it is the memory of tensors there.
    """
    warm_up()
    gc.collect()
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device) / MIB
    else:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, others return free memory at once
        if trim is not None:
            trim(0)  # so that the call cannot reuse what the forward pass has freed
        before = memory_now()
        if STATUS.exists():
            RESET.write_text("5", encoding="ascii")  # resets the kernel's high-water mark
    for _ in range(RUNS):
        run()
    return (torch.cuda.max_memory_allocated(device) / MIB if on_gpu else memory_now("VmHWM")) - before


def memory_now(field: str = "VmRSS") -> float:
    """The resident MiB of this process, or its peak (``VmHWM``); without /proc always the peak."""
    if STATUS.exists():
        lines = STATUS.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / MIB if sys.platform == "darwin" else most / 1024  # macOS counts bytes
