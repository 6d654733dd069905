"""Timing relative to the network's plain forward pass.

Seconds depend on the machine and its load. So the time of each method is divided by that of the plain forward pass of
the same network on the same images in the same round, and the median over rounds is reported. All candidates take
turns, so that other load hits all of them alike.
"""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from excite.metrics.statistics import median_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from excite.metrics.statistics import MedianInterval


FORWARD, GRADIENT, MWP, C_MWP = "forward", "input gradient", "mwp", "c-mwp"
COMPILED = "c-mwp compiled"  # the same maps from `excite.compile`
LEAST, MOST = 3, 200  # rounds


@dataclass(frozen=True)
class Case:
    """A method on a network, at a layer, for a number of concepts on each image of a batch.

    Attributes:
        network: its name.
        layer: at which the map ends; empty for the forward pass.
        method: its name.
        concepts: number on each image.
        batch: number of images.
    """

    network: str
    layer: str
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

    @property
    def value(self) -> float:
        """The median ratio."""
        return median(self.ratios)

    @property
    def interval(self) -> MedianInterval:
        """The 95 % interval of the median ratio."""
        return median_interval(self.ratios)

    def times(self, other: Timing) -> list[float]:
        """The ratio of its seconds to those of another case, in each round."""
        return [mine / others for mine, others in zip(self.seconds, other.seconds, strict=True)]

    def each_further(self, other: Timing, concepts: int) -> float:
        """The cost of each further concept in forward passes; ``other`` has that many more concepts."""
        pairs = zip(self.ratios, other.ratios, strict=True)
        return median((more - one) / concepts for one, more in pairs)


@dataclass(frozen=True)
class Candidate:
    """A call to be timed: its case, and ``prepare``, which makes it once and untimed (a copied network, hooks ...)."""

    case: Case
    prepare: Callable[[], Callable[[], object]]


@dataclass(frozen=True)
class Stopwatch:
    """The seconds of a call, including asynchronous work of a GPU.

    Example:
        >>> ticks = iter([1.0, 3.5])
        >>> Stopwatch(clock=lambda: next(ticks))(lambda: None)
        2.5
    """

    clock: Callable[[], float] = time.perf_counter
    wait: Callable[[], object] = lambda: None

    @classmethod
    def on(cls, device: torch.device) -> Stopwatch:
        """The stopwatch of a device."""
        return cls(wait=torch.cuda.synchronize) if device.type == "cuda" else cls()

    def __call__(self, call: Callable[[], object]) -> float:
        """Seconds of one call; garbage is collected before it and not within."""
        with _no_collecting():
            self.wait()
            begin = self.clock()
            answer = call()
            self.wait()
            seconds = self.clock() - begin
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
        """As many rounds as fit in the budget of seconds, and at least ``least``.

        The first round is a warm-up and is not counted, unless it alone takes longer than the budget.
        """
        ready = dict(self._prepared(candidates))
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

    def _prepared(self, candidates: Sequence[Candidate]) -> Iterator[tuple[Case, Callable[[], object]]]:
        for candidate in candidates:
            try:
                yield candidate.case, candidate.prepare()
            except Exception as error:  # noqa: BLE001 - a candidate that cannot start is a row with its reason
                self.failed[candidate.case] = reason_of(error)

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
    said: Any = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


@contextmanager
def _no_collecting() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
