"""Uncertainty: Wilson's interval of a share, the bootstrap over images, the interval of a median, McNemar's test."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.bool_] | NDArray[np.integer[Any]]


Z = 1.959963984540054  # 95 % of the normal distribution lies within so many standard deviations
CONFIDENCE = 0.95
RESAMPLES = 2000
SEED = 0
CHUNK = 100  # resamples at once, so that 40,000 images of COCO need megabytes, not gigabytes
FEW = 5  # images: no interval is estimated from fewer


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, in percent."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1f} ({self.low:.1f}-{self.high:.1f})"


@dataclass(frozen=True)
class Share:
    """``count`` of ``total``, with Wilson's 95 % interval (which holds near 0 and 1 as well)."""

    count: int
    total: int

    @property
    def value(self) -> float:
        """The share itself."""
        return self.count / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval."""
        share, extra = self.value, Z * Z / self.total
        middle = share + extra / 2
        half = math.sqrt(extra * (share * (1 - share) + extra / 4))
        return max(0.0, (middle - half) / (1 + extra)), min(1.0, (middle + half) / (1 + extra))

    @property
    def percent(self) -> Estimate:
        """The share and its interval in percent."""
        low, high = self.interval
        return Estimate(100 * self.value, 100 * low, 100 * high)

    def __str__(self) -> str:
        return str(self.percent)


def paired_test(one: Sequence[bool], other: Sequence[bool]) -> float:
    """McNemar's exact test: the p-value of two paired outcomes.

    Only the targets count that one got and the other missed; under the null hypothesis each is a fair coin.
    """
    from scipy.stats import binomtest

    gained = sum(a and not b for a, b in zip(one, other, strict=True))
    lost = sum(b and not a for a, b in zip(one, other, strict=True))
    return float(binomtest(min(gained, lost), max(1, gained + lost)).pvalue)


def resampled_means(asked: Counts, hits: Sequence[Counts], resamples: int = RESAMPLES) -> NDArray[np.float64]:
    """Bootstrap over images: the mean over categories of hits / asked, for each resample.

    All tables are resampled alike, so that differences between them are paired, and with a fixed seed. A category that
    a resample lacks is left out of its mean.

    Args:
        asked: [images, categories], which pairs there are, or how many; each image has at least one.
        hits: for each method, which of those it hit, or how many.
        resamples: their number.

    Returns:
        shares [methods, resamples].
    """
    means = np.empty((len(hits), resamples))
    done = 0
    for drawn in _draws(len(asked), resamples):
        counts = np.stack([np.bincount(row, minlength=len(asked)) for row in drawn]).astype(np.float32)  # exact sums
        pairs = counts @ asked.astype(np.float32)
        for k, hit in enumerate(hits):
            means[k, done : done + len(drawn)] = mean_shares(counts @ hit.astype(np.float32), pairs)
        done += len(drawn)
    return means


def mean_shares(hits: NDArray[Any], pairs: NDArray[Any]) -> NDArray[np.float64]:
    """The mean of hits / pairs over the categories (last axis) that have pairs."""
    there = pairs > 0
    shares = np.divide(hits, pairs, where=there, out=np.zeros(pairs.shape), dtype=np.float64)
    means: NDArray[np.float64] = shares.sum(axis=-1) / there.sum(axis=-1)
    return means


def interval(means: NDArray[np.float64]) -> tuple[float, float]:
    """The central 95 % of resampled means."""
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def _draws(images: int, resamples: int) -> Iterator[NDArray[np.int64]]:
    """The images of each resample as rows of indices, in chunks; the same draws each time."""
    random = np.random.default_rng(SEED)
    for start in range(0, resamples, CHUNK):
        yield random.integers(images, size=(min(CHUNK, resamples - start), images))


@dataclass(frozen=True)
class Mean(Estimate):
    """A mean over images with its bootstrap 95 % interval; with fewer than `FEW` images its ends are infinite."""

    def __str__(self) -> str:
        return format(self)

    def __format__(self, spec: str) -> str:
        digits = spec or "z.2f"  # z: never -0.00
        interval = f" ({self.low:{digits}} to {self.high:{digits}})" if math.isfinite(self.low) else ""
        return f"{self.value:{digits}}{interval}"


def mean(values: Sequence[float]) -> Mean:
    """The mean of one value per image, with the same resamples each time."""
    numbers = np.asarray(values, dtype=np.float64)
    if len(numbers) < FEW:
        return Mean(float(numbers.mean()), -math.inf, math.inf)
    means = [numbers[drawn].mean(axis=1) for drawn in _draws(len(numbers), RESAMPLES)]
    return Mean(float(numbers.mean()), *interval(np.concatenate(means)))


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """The pointwise mean of several curves of one length."""
    return [float(value) for value in np.mean(curves, axis=0)]


@dataclass(frozen=True)
class MedianInterval:
    """An interval of the true median, and its confidence."""

    low: float
    high: float
    confidence: float


def median_interval(values: Sequence[float]) -> MedianInterval:
    """The narrowest pair of order statistics that holds the true median with a confidence of at least 95 %.

    Of n independent values each is as likely above the true median as below, whatever their distribution. With fewer
    than six values even the whole range has less confidence.
    """
    ranked, number = sorted(values), len(values)
    inside = [1 - 2 * sum(math.comb(number, k) for k in range(cut + 1)) / 2**number for cut in range((number + 1) // 2)]
    cut = max((cut for cut, confidence in enumerate(inside) if confidence >= CONFIDENCE), default=0)
    return MedianInterval(ranked[cut], ranked[number - 1 - cut], max(0.0, inside[cut]))
