"""What the speed of a method is: how many times it costs what the network's plain forward pass costs.

Seconds say more about a machine and its other guests than about a method. So each method is divided by the plain
forward pass of the same network on the same images in the same round, and the median of the rounds counts.
"""

from __future__ import annotations

import gc
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


FORWARD, GRADIENT, MWP, C_MWP = "forward", "input gradient", "mwp", "c-mwp"
COMPILED = "c-mwp compiled"  # the same maps from `excite.compile`
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Case:
    """What is timed: a method on a network, at a layer, for so many concepts on each of so many images.

    Attributes:
        network: for people to read.
        layer: where it ends; empty for the forward pass, which ends nowhere.
        method: ours and the two measures of all have short names, those of peers begin with their package.
        concepts: how many are asked for on each image.
        batch: how many images at once.
    """

    network: str
    layer: str
    method: str
    concepts: int = 1
    batch: int = 1


@dataclass(frozen=True)
class Interval:
    """Where the true median lies, and how sure that is."""

    low: float
    high: float
    confidence: float


def median_interval(values: Sequence[float]) -> Interval:
    """The narrowest pair of ranked values that holds the true median in at least 95 of 100 samples.

    Of n independent values, each is as likely above the true median as below, whatever their distribution. With less
    than six of them even the whole range is less sure than that, and it is said how sure.

    Example:
        >>> median_interval([5.0, 1.0, 2.0, 3.0, 4.0, 6.0])
        Interval(low=1.0, high=6.0, confidence=0.96875)
        >>> median_interval([1.0, 3.0])
        Interval(low=1.0, high=3.0, confidence=0.5)
    """
    ranked, number = sorted(values), len(values)
    inside = [1 - 2 * sum(math.comb(number, k) for k in range(cut + 1)) / 2**number for cut in range((number + 1) // 2)]
    cut = max((cut for cut, confidence in enumerate(inside) if confidence >= CONFIDENCE), default=0)
    return Interval(ranked[cut], ranked[number - 1 - cut], max(0.0, inside[cut]))


@dataclass(frozen=True)
class Timing:
    """How long one case took in each round, beside the two forward passes that began and ended that round.

    Attributes:
        seconds: of the case, a value for each round.
        forwards: of the plain forward pass, a pair for each round.
    """

    seconds: tuple[float, ...]
    forwards: tuple[tuple[float, float], ...]

    @property
    def ratios(self) -> list[float]:
        """Each round's own ratio to the forward pass."""
        return [one / fmean(pair) for one, pair in zip(self.seconds, self.forwards, strict=True)]

    @property
    def value(self) -> float:
        """The median ratio.

        Example:
            >>> Timing((2.0, 3.0, 8.0), ((1.0, 1.0), (1.0, 2.0), (2.0, 2.0))).value
            2.0
        """
        return median(self.ratios)

    @property
    def interval(self) -> Interval:
        """Where the true ratio lies."""
        return median_interval(self.ratios)

    def times(self, other: Timing) -> list[float]:
        """How many times as long as another one it took, in each of the rounds that they share.

        Example:
            >>> Timing((6.0,), ((1.0, 1.0),)).times(Timing((3.0,), ((1.0, 1.0),)))
            [2.0]
        """
        return [mine / others for mine, others in zip(self.seconds, other.seconds, strict=True)]

    def each_further(self, other: Timing, concepts: int) -> float:
        """What each further concept costs, in forward passes: the same rounds with so many more concepts.

        Example:
            >>> Timing((2.0,), ((1.0, 1.0),)).each_further(Timing((3.0,), ((1.0, 1.0),)), 4)
            0.25
        """
        pairs = zip(self.ratios, other.ratios, strict=True)
        return median((more - one) / concepts for one, more in pairs)


# Fair timing: all contenders take turns, so that whatever else the machine does hits all of them alike.

LEAST, MOST = 3, 200  # rounds


@dataclass(frozen=True)
class Contender:
    """Something to be timed.

    Attributes:
        case: what it is.
        prepare: makes what is run, once and untimed: a network of its own, hooks, signals.
    """

    case: Case
    prepare: Callable[[], Callable[[], object]]


@dataclass(frozen=True)
class Stopwatch:
    """How long a call takes; a GPU is waited for, or only the asking would be timed.

    Example:
        >>> ticks = iter([1.0, 3.5])
        >>> Stopwatch(clock=lambda: next(ticks))(lambda: None)
        2.5
    """

    clock: Callable[[], float] = time.perf_counter
    wait: Callable[[], object] = lambda: None

    @classmethod
    def on(cls, device: torch.device) -> Stopwatch:
        """The one for a device."""
        return cls(wait=torch.cuda.synchronize) if device.type == "cuda" else cls()

    def __call__(self, call: Callable[[], object]) -> float:
        """Seconds of one call; Python's garbage is collected before and not within."""
        with _no_collecting():
            self.wait()
            begin = self.clock()
            answer = call()
            self.wait()
            seconds = self.clock() - begin
        del answer  # what is freed after the call is no part of it
        return seconds


@dataclass
class Rounds:
    """Rounds of one group: a forward pass, then every contender once in an order of its own, then a forward pass.

    Right before each contender there is a forward pass as well, by which its time is divided: both then find the same
    machine, and caches as a forward pass leaves them, whatever the contender before has done to them.

    Attributes:
        timings: of each case that ran to the end of all rounds, the forward passes aside.
        failed: of each other case why not.
    """

    forward: Callable[[], object]
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    seed: int = 0
    failed: dict[Case, str] = field(default_factory=dict)
    _done: list[tuple[float, dict[Case, tuple[float, float]], float]] = field(default_factory=list)

    def run(self, contenders: Sequence[Contender], budget: float, least: int = LEAST) -> None:
        """As many rounds as fit in so many seconds, and at least so many.

        The first round warms up (kernels are chosen, memory is had) and is not counted, except where it alone takes
        longer than the budget: there it counts, and what it warms up is small beside it.
        """
        ready = dict(self._prepared(contenders))
        generator = torch.Generator().manual_seed(self.seed)
        gc.collect()
        gc.freeze()  # what is there already need not be searched for garbage before every call
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
        """How long each case took, in the order in which they were named."""
        cases = [case for case in self._done[0][1] if case not in self.failed]
        both = {case: [taken[case] for _, taken, _ in self._done] for case in cases}
        return {
            case: Timing(tuple(seconds for _, seconds in pairs), tuple((before, before) for before, _ in pairs))
            for case, pairs in both.items()
        }

    @property
    def forwards(self) -> Timing:
        """The last forward pass of each round beside the first: how still the machine was."""
        return Timing(tuple(last for _, _, last in self._done), tuple((first, first) for first, _, _ in self._done))

    def _prepared(self, contenders: Sequence[Contender]) -> Iterator[tuple[Case, Callable[[], object]]]:
        for contender in contenders:
            try:
                yield contender.case, contender.prepare()
            except Exception as error:  # noqa: BLE001 - a contender that cannot start is a finding: a row with its reason
                self.failed[contender.case] = reason_of(error)

    def _round(self, ready: dict[Case, Callable[[], object]], generator: torch.Generator) -> float:
        """One round, and how long it took as the stopwatch's clock says."""
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


def reason_of(error: BaseException) -> str:
    """What went wrong, in one line.

    Example:
        >>> reason_of(KeyError("conv9"))
        "KeyError: 'conv9'"
    """
    said: Any = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


@contextmanager
def _no_collecting() -> Iterator[None]:
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
