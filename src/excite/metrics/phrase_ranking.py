"""How well ranked boxes find what phrases refer to.

Flickr30k Entities' own evaluation (Plummer et al., ICCV 2015, its version 1.0) was followed, and the paper used it:
each mention of a phrase has its own ranked boxes and one truth, the union of its boxes, which a box matches at an IoU
of at least 0.5. Unlike there, a mention of several groups counts once in the overall recall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["MATCH", "SMALL", "first_hit", "is_small", "overlaps", "recall_at"]

MATCH = 0.5
"""The IoU from which on a box matches."""

SMALL = 0.25
"""Of the picture, below which the paper calls an instance small."""


def overlaps(boxes: ArrayLike, others: ArrayLike) -> Floats:
    """Intersection over union of each box with each other one: [boxes, others]. A box without an area overlaps none.

    Args:
        boxes: half-open (x0, y0, x1, y1) [n, 4]; may be empty.
        others: likewise [m, 4].

    Example:
        >>> overlaps([(0, 0, 2, 2)], [(1, 0, 3, 2), (0, 0, 2, 2)]).round(3).tolist()
        [[0.333, 1.0]]
    """
    one, other = _boxes(boxes), _boxes(others)
    sides = np.minimum(one[:, None, 2:], other[None, :, 2:]) - np.maximum(one[:, None, :2], other[None, :, :2])
    inside = np.prod(sides.clip(min=0), axis=-1)
    union = _areas(one)[:, None] + _areas(other) - inside
    shared: Floats = np.divide(inside, union, where=union > 0, out=np.zeros_like(inside))
    return shared


def first_hit(ranked: ArrayLike, truth: ArrayLike, iou: float = MATCH, *, any_box: bool = False) -> int | None:
    """The rank, counted from 1, of the first box that matches; None where none does, or where no boxes are.

    Args:
        ranked: boxes, best first [n, 4].
        truth: the boxes that the phrase refers to, at least one [m, 4].
        iou: the overlap from which on a box matches.
        any_box: match any of the true boxes instead of the smallest box around them all.

    Example:
        >>> two_dogs = [(0, 0, 2, 2), (4, 0, 6, 2)]
        >>> ranked = [(0, 0, 2, 2), (0, 0, 6, 2)]
        >>> first_hit(ranked, two_dogs), first_hit(ranked, two_dogs, any_box=True)
        (2, 1)
    """
    found = overlaps(ranked, _truth(truth, any_box=any_box)).max(axis=1) >= iou
    return int(found.argmax()) + 1 if found.any() else None


def recall_at(first_hits: Iterable[int | None], n: int) -> float | None:
    """The share of the mentions whose first hit is among the first n boxes; None where there are no mentions.

    Example:
        >>> recall_at([1, 7, None, 5], 5)
        0.5
    """
    found = [rank is not None and rank <= n for rank in first_hits]
    return sum(found) / len(found) if found else None


def is_small(truth: ArrayLike, size: tuple[int, int], *, any_box: bool = False) -> bool:
    """Whether what a phrase refers to takes less than a quarter of the picture: the paper's subset of small instances.

    Measured is what has to be matched: the box around all the true ones, or with ``any_box`` their mean area.

    Example:
        >>> is_small([(0, 0, 10, 10)], (40, 20)), is_small([(0, 0, 10, 10), (30, 10, 40, 20)], (40, 20))
        (True, False)
    """
    area = _areas(_truth(truth, any_box=any_box)).mean()
    return bool(area < SMALL * size[0] * size[1])


def _truth(truth: ArrayLike, *, any_box: bool) -> Floats:
    """The boxes to be matched: all of them, or the smallest one around them."""
    boxes = _boxes(truth)
    if not len(boxes):
        raise DataError("a phrase without a true box cannot be judged: leave it out")
    if any_box:
        return boxes
    return np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])[None]


def _boxes(boxes: ArrayLike) -> Floats:
    array = np.asarray(boxes, dtype=np.float64)
    if array.size == 0:
        return array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4:
        raise DataError(f"boxes must be [number, 4], not {array.shape}")
    return array


def _areas(boxes: Floats) -> Floats:
    areas: Floats = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return areas
