"""Whether two maps put their places in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["rank_correlation", "ranks"]


def ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The place of each value in their order, from 1; equal ones share the mean of their places.

    Example:
        >>> ranks(np.array([0.5, 0.0, 0.5, 9.0]))
        array([2.5, 1. , 2.5, 4. ])
    """
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: np.ndarray[Any, Any] = (last - (counts - 1) / 2)[groups]
    return means


def rank_correlation(one: Tensor, other: Tensor) -> float:
    """Spearman's rank correlation of two maps of one size: 1 for the same order, -1 for the reverse.

    A map that is the same everywhere has no order. It tells nothing of another one, so the correlation is 0.

    Args:
        one: a map.
        other: the other, of the same shape.

    Example:
        >>> from torch import tensor
        >>> rank_correlation(tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([[1.0, 4.0], [9.0, 16.0]]))
        1.0
        >>> rank_correlation(tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([[0.0, 0.0], [0.0, 0.0]]))
        0.0
    """
    if one.shape != other.shape:
        raise ValueError(f"maps of {list(one.shape)} and {list(other.shape)} have no places in common")
    first, second = (ranks(values.detach().double().cpu().numpy().ravel()) for values in (one, other))
    first, second = first - first.mean(), second - second.mean()
    size = float(np.sqrt((first @ first) * (second @ second)))
    return float(np.clip(first @ second / size, -1.0, 1.0)) if size else 0.0
