"""How sure a mean over categories is: the pictures are drawn again and again, as if there were other ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Table = NDArray[np.bool_] | NDArray[np.integer[Any]]

__all__ = ["RESAMPLES", "interval", "mean_shares", "resampled_means"]

RESAMPLES = 2000
SEED = 0
AT_ONCE = 100  # so that 40,000 pictures of COCO need megabytes, not gigabytes


def resampled_means(asked: Table, hits: Sequence[Table], resamples: int = RESAMPLES) -> NDArray[np.float64]:
    """The means over categories of resampled pictures, each picture with all that was asked of it.

    All tables are resampled alike, so that differences between them are paired. Started again, the same pictures are
    drawn. A category that a resample lacks is left out of its mean.

    Args:
        asked: [pictures, categories], which pairs there are, or how many; each picture has at least one.
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
    """How often each picture was drawn, a row for each resample. Whole numbers: sums do not depend on their order."""
    random = np.random.default_rng(SEED)
    for start in range(0, resamples, AT_ONCE):
        rows = min(AT_ONCE, resamples - start)
        drawn = random.integers(pictures, size=(rows, pictures))
        yield np.stack([np.bincount(row, minlength=pictures) for row in drawn]).astype(np.float32)
