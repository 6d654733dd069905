"""What the speed of a method is: how many times it costs what the network's plain forward pass costs.

Seconds say more about a machine and its other guests than about a method. So each method is divided by the plain
forward pass of the same network on the same pictures in the same round, and the median of the rounds counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COMPILED", "C_MWP", "FORWARD", "GRADIENT", "MWP", "Case", "Interval", "Timing", "median_interval"]

FORWARD, GRADIENT, MWP, C_MWP = "forward", "input gradient", "mwp", "c-mwp"
COMPILED = "c-mwp compiled"  # the same maps from `excite.compile`
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Case:
    """What is timed: a method on a network, at a layer, for so many concepts on each of so many pictures.

    Attributes:
        network: for people to read.
        layer: where it ends; empty for the forward pass, which ends nowhere.
        method: ours and the two measures of all have short names, those of peers begin with their package.
        concepts: how many are asked for on each picture.
        batch: how many pictures at once.
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
