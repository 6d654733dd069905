"""How sure a share is, and whether two of them differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Table = NDArray[np.bool_] | NDArray[np.integer[Any]]


Z = 1.959963984540054  # the normal distribution has 95 % within so many deviations


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, in percent."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Share:
    """So many of so many, with Wilson's 95 % interval (which, unlike the textbook's, holds near 0 and 1 as well)."""

    count: int
    total: int

    @property
    def value(self) -> float:
        """The share itself."""
        return self.count / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true share lies, in 95 of 100 such samples.

        Example:
            >>> low, high = Share(0, 10).interval
            >>> round(low, 3), round(high, 3)
            (0.0, 0.278)
        """
        share, extra = self.value, Z * Z / self.total
        middle = share + extra / 2
        half = math.sqrt(extra * (share * (1 - share) + extra / 4))
        return max(0.0, (middle - half) / (1 + extra)), min(1.0, (middle + half) / (1 + extra))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f} ({100 * low:.1f}-{100 * high:.1f})"


def paired_test(one: Sequence[bool], other: Sequence[bool]) -> float:
    """How likely two outcomes on the same targets would differ at least so much if neither were better.

    Only the targets count that one got and the other missed; each would be a fair coin (McNemar's test, exact).

    Example:
        >>> paired_test([True] * 6, [False] * 6)
        0.03125
    """
    gained = sum(a and not b for a, b in zip(one, other, strict=True))
    lost = sum(b and not a for a, b in zip(one, other, strict=True))
    tosses, ways, tail = gained + lost, 1, 0
    for heads in range(min(gained, lost) + 1):
        tail += ways
        ways = ways * (tosses - heads) // (heads + 1)  # in how many ways there is one more head
    return min(1.0, 2 * tail / (1 << tosses))


# How sure a mean over categories is: the images are drawn again and again, as if there were other ones.

RESAMPLES = 2000
SEED = 0
AT_ONCE = 100  # so that 40,000 images of COCO need megabytes, not gigabytes


def resampled_means(asked: Table, hits: Sequence[Table], resamples: int = RESAMPLES) -> NDArray[np.float64]:
    """The means over categories of resampled images, each image with all that was asked of it.

    All tables are resampled alike, so that differences between them are paired. Started again, the same images are
    drawn. A category that a resample lacks is left out of its mean.

    Args:
        asked: [images, categories], which pairs there are, or how many; each image has at least one.
        hits: for each contestant, which of those it hit, or how many.
        resamples: how often.

    Returns:
        shares [contestants, resamples].

    Example:
        >>> asked = np.ones((3, 1), dtype=bool)
        >>> resampled_means(asked, [~asked, asked], resamples=2)
        array([[0., 0.],
               [1., 1.]])
    """
    means = np.empty((len(hits), resamples))
    done = 0
    for drawn in _draws(len(asked), resamples):
        pairs = drawn @ asked.astype(np.float32)
        for k, hit in enumerate(hits):
            means[k, done : done + len(drawn)] = mean_shares(drawn @ hit.astype(np.float32), pairs)
        done += len(drawn)
    return means


def mean_shares(hits: NDArray[Any], pairs: NDArray[Any]) -> NDArray[np.float64]:
    """The mean of hits / pairs over the categories (last axis) that have pairs.

    Example:
        >>> float(mean_shares(np.array([1, 0, 2]), np.array([2, 0, 2])))
        0.75
    """
    there = pairs > 0
    shares = np.divide(hits, pairs, where=there, out=np.zeros(pairs.shape), dtype=np.float64)
    means: NDArray[np.float64] = shares.sum(axis=-1) / there.sum(axis=-1)
    return means


def interval(means: NDArray[np.float64]) -> tuple[float, float]:
    """Between which values 95 of 100 resampled means lie.

    Example:
        >>> interval(np.arange(1001.0))
        (25.0, 975.0)
    """
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def _draws(pictures: int, resamples: int) -> Iterator[NDArray[np.float32]]:
    """How often each image was drawn, a row for each resample. Whole numbers: sums do not depend on their order."""
    random = np.random.default_rng(SEED)
    for start in range(0, resamples, AT_ONCE):
        rows = min(AT_ONCE, resamples - start)
        drawn = random.integers(pictures, size=(rows, pictures))
        yield np.stack([np.bincount(row, minlength=pictures) for row in drawn]).astype(np.float32)


# Means over images, and how sure they are.

FEW = 5  # images: with less there is nothing to draw from


@dataclass(frozen=True)
class Mean:
    """A mean with its 95 % interval: the images are drawn again and again, as if there were other ones.

    With few images nobody knows how sure it is: the ends of the interval are infinite.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return format(self)

    def __format__(self, spec: str) -> str:
        digits = spec or "z.2f"  # z: never -0.00
        interval = f" ({self.low:{digits}} to {self.high:{digits}})" if math.isfinite(self.low) else ""
        return f"{self.value:{digits}}{interval}"


def mean(values: Sequence[float]) -> Mean:
    """The mean of one value an image. Started again, the same images are drawn.

    Example:
        >>> str(mean([0.5] * 5)), str(mean([0.5] * 4))
        ('0.50 (0.50 to 0.50)', '0.50')
    """
    numbers = np.asarray(values, dtype=np.float64)
    if len(numbers) < FEW:
        return Mean(float(numbers.mean()), -math.inf, math.inf)
    drawn = np.random.default_rng(0).integers(0, len(numbers), (RESAMPLES, len(numbers)))
    low, high = np.quantile(numbers[drawn].mean(axis=1), [0.025, 0.975])
    return Mean(float(numbers.mean()), float(low), float(high))


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean of several curves of one length, place by place.

    Example:
        >>> mean_curve([[1.0, 0.0], [0.0, 0.0]])
        [0.5, 0.0]
    """
    return [float(value) for value in np.mean(curves, axis=0)]
