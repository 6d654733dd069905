"""How well scores rank what is there before what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

__all__ = ["average_precision", "mean_average_precision"]


def average_precision(scores: ArrayLike, truth: ArrayLike) -> float | None:
    """The mean, over all positives, of the precision among everything scored at least as high.

    That is the area under the curve of precision over recall, taken at all of its points and not interpolated. Equal
    scores count as seen together, so the order of the samples makes no difference.

    Args:
        scores: one for each sample.
        truth: whether each is a positive.

    Returns:
        A number in 0..1; None where there is no positive.

    Example:
        >>> average_precision([0.9, 0.8, 0.7, 0.1], [True, False, True, False])
        0.8333333333333333
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(truth, dtype=bool)
    if values.shape != positive.shape or values.ndim != 1:
        raise DataError(
            f"scores {values.shape} and truth {positive.shape} do not fit: give one of each for each sample"
        )
    if np.isnan(values).any():
        raise DataError("some scores are no numbers: nothing can be ranked by them")
    if not positive.any():
        return None
    order = np.argsort(-values, kind="stable")
    hits = np.cumsum(positive[order])
    last = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))  # of those with the same score
    found = np.diff(hits[last], prepend=0)
    return float((found * hits[last] / (last + 1)).sum() / hits[-1])


def mean_average_precision(each: Sequence[float | None]) -> float | None:
    """The mean over the categories that have positives; None where none has.

    Example:
        >>> mean_average_precision([0.5, None, 1.0])
        0.75
    """
    known = [value for value in each if value is not None]
    return sum(known) / len(known) if known else None
