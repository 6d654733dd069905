"""Which regions look like things: our own cheap score, and a choice of the best that differ.

The score has four terms, whose weights come from pictures of PASCAL VOC: a linear model of how well a region's box fits
an annotated one, rounded. Twenty further terms (shape, position, how the region is made up), and boosted trees instead
of a linear model, found more things in some of the other pictures and fewer in others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from excite.grounding.proposals.growing import SegmentTree
    from excite.grounding.proposals.regions import Regions

    Array = NDArray[Any]

__all__ = ["differing", "region_boxes", "region_scores"]

SIZE, CONTRAST, INNER, TOUCHING = 0.1, 0.5, 0.5, -0.15
"""Weights: doubling the box is worth as much as 14 % of the strongest border."""


def region_boxes(tree: SegmentTree, regions: Regions) -> NDArray[np.int64]:
    """The half-open box around each region [regions, 4]."""
    there = (regions.nodes >= 0)[..., None]
    boxes = tree.boxes[regions.nodes]
    low = np.where(there, boxes[..., :2], np.iinfo(np.int64).max).min(axis=1)
    high = np.where(there, boxes[..., 2:], -1).max(axis=1)
    return np.concatenate([low, high], axis=1)


def region_scores(tree: SegmentTree, regions: Regions, boxes: Array) -> NDArray[np.float64]:
    """How much each region looks like a thing: large, with a strong border, not along the picture's own border."""
    nodes = regions.nodes
    there = nodes >= 0

    def summed(values: Array) -> Array:
        return np.asarray(np.where(there, values[nodes], 0).sum(axis=1))

    height, width = tree.labels.shape
    size = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) / (height * width)
    strongest = max(float(tree.heights.max()), float(np.finfo(np.float32).tiny))  # a plain picture has no border at all
    length = np.maximum(summed(tree.edge_length) - 2 * regions.inner_length, 1)
    contrast = (summed(tree.edge_sum) - 2 * regions.inner_sum) / length / strongest
    inner = np.where(there, tree.heights[nodes], 0).max(axis=1) / strongest  # parts that are found together, high up
    touching = np.sqrt(summed(tree.touching) / (2 * (height + width)))
    return np.asarray(SIZE * np.log(size) + CONTRAST * contrast + INNER * inner + TOUCHING * touching)


def differing(boxes: Array, scores: Array, count: int, most: float) -> NDArray[np.int64]:
    """The best so many, best first, no two of whose boxes have more than ``most`` in common (their IoU).

    Example:
        >>> boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 9], [20, 0, 30, 10]])
        >>> differing(boxes, np.array([0.5, 0.9, 0.1]), 10, 0.8).tolist()
        [1, 2]
    """
    order = np.argsort(-scores, kind="stable")
    first = np.unique(boxes[order], axis=0, return_index=True)[1]  # equal boxes are many, and quick to be rid of
    order = order[np.sort(first)]
    x0, y0, x1, y1 = boxes[order].astype(np.float32).T
    area = (x1 - x0) * (y1 - y0)
    left = np.arange(len(order))
    kept: list[int] = []
    while len(left) and len(kept) < count:
        here = left[0]
        kept.append(int(order[here]))
        left = left[1:]
        wide = np.minimum(x1[left], x1[here]) - np.maximum(x0[left], x0[here])
        high = np.minimum(y1[left], y1[here]) - np.maximum(y0[left], y0[here])
        common = np.maximum(wide, 0) * np.maximum(high, 0)
        left = left[common <= most * (area[left] + area[here] - common)]
    return np.array(kept, np.int64)
