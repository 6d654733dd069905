"""Average precision of scores, and the rank correlation of maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike
    from torch import Tensor


def average_precision(scores: ArrayLike, truth: ArrayLike) -> float | None:
    """The mean, over all positives, of the precision among everything scored at least as high.

    This is the area under the precision-recall curve at all of its points, not interpolated. Equal scores count as seen
    together, so the order of the samples makes no difference.

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
    hits, seen = hits_by_score(values, positive)
    return float((np.diff(hits, prepend=0) * hits / seen).sum() / hits[-1])


def hits_by_score(scores: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """For each distinct score, best first: the hits, and the samples, that are scored at least as high.

    Example:
        >>> [counts.tolist() for counts in hits_by_score(np.array([3, 5, 3]), np.array([True, True, False]))]
        [[1, 2], [1, 3]]
    """
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], np.ones(min(len(ranked), 1), bool)))  # of equal scores
    return np.cumsum(right[order])[last], last + 1


def mean_average_precision(each: Sequence[float | None]) -> float | None:
    """The mean over the categories that have positives; None where none has.

    Example:
        >>> mean_average_precision([0.5, None, 1.0])
        0.75
    """
    known = [value for value in each if value is not None]
    return sum(known) / len(known) if known else None


def rank_correlation(one: Tensor, other: Tensor) -> float:
    """Spearman's rank correlation of two maps of one shape; 0 if one of them is constant.

    Example:
        >>> from torch import tensor
        >>> rank_correlation(tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([[1.0, 4.0], [9.0, 16.0]]))
        1.0
    """
    from scipy.stats import rankdata

    if one.shape != other.shape:
        raise ValueError(f"maps of {list(one.shape)} and {list(other.shape)} have no positions in common")
    first, second = (rankdata(values.detach().double().cpu().numpy()) for values in (one.flatten(), other.flatten()))
    first, second = first - first.mean(), second - second.mean()
    size = float(np.sqrt((first @ first) * (second @ second)))
    return float(np.clip(first @ second / size, -1.0, 1.0)) if size else 0.0
