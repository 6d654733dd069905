"""Boxes: distance of a point, intersection over union, and the boxes around the strong part of a map."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from excite.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from excite.datasets import Box, Instance, Target

    Floats = NDArray[np.float64]

ALPHAS = tuple(0.5 * k for k in range(21))
"""Thresholds alpha, in multiples of the map's mean (the paper's range 0:0.5:10)."""

MATCH = 0.5
"""The least IoU at which a box fits an object."""


def distance(point: tuple[int, int], target: Target, size: tuple[int, int]) -> float:
    """Distance in pixels from a point to the nearest instance of a target; 0 for a pixel that belongs to one.

    Exact, between pixel centres. An instance is its mask where it has one with a pixel in the image, otherwise its box.
    The Pointing Game counts a hit up to and including `Dataset.tolerance`.

    Example:
        >>> from excite.datasets import Instance, Target
        >>> cup = Target("cup", (Instance((0, 0, 10, 10)), Instance((0, 30, 5, 35))))
        >>> distance((12, 13), cup, (40, 40)), distance((4, 28), cup, (40, 40))
        (5.0, 2.0)
    """
    boxes, mask = _region(target.instances, size)
    distances = [box_distance(point, box) for box in boxes]
    if mask is not None:
        y, x = np.nonzero(mask)
        distances.append(math.sqrt(int(((x - point[0]) ** 2 + (y - point[1]) ** 2).min())))  # exact: whole numbers
    return min(distances)


@lru_cache(maxsize=32)  # shared by all methods on one image
def _region(instances: tuple[Instance, ...], size: tuple[int, int]) -> tuple[tuple[Box, ...], NDArray[np.bool_] | None]:
    """The boxes of the instances without a mask, and the union of the masks of the others."""
    boxes = []
    union = None
    for instance in instances:
        pixels = instance.mask.pixels(size) if instance.mask is not None else None
        if pixels is None or not pixels.any():
            boxes.append(instance.box)
        else:
            union = pixels if union is None else union | pixels
    return tuple(boxes), union


def area_share(target: Target, size: tuple[int, int]) -> float:
    """Total area of a target's instances as a share of the image; above 1 where they overlap much."""
    return target.area(size) / (size[0] * size[1])


def box_distance(point: tuple[int, int], box: Box) -> float:
    """Distance in pixels from a point to a box; 0 for a pixel that the box touches."""
    gaps = []
    for pixel, low, high in ((point[0], box[0], box[2]), (point[1], box[1], box[3])):
        first = math.floor(low)
        last = max(math.ceil(high) - 1, first)
        gaps.append(max(first - pixel, pixel - last, 0))
    return math.hypot(*gaps)


def box_iou(boxes: ArrayLike, others: ArrayLike) -> Floats:
    """Intersection over union of each half-open box [n, 4] with each other [m, 4], as [n, m]; 0 for those without area.

    Example:
        >>> box_iou([(0, 0, 2, 2)], [(1, 0, 3, 2), (0, 0, 2, 2)]).round(3).tolist()
        [[0.333, 1.0]]
    """
    inside, union = shared_areas(as_boxes(boxes), as_boxes(others))
    iou: Floats = np.divide(inside, union, where=union > 0, out=np.zeros_like(inside))
    return iou


def shared_areas(one: NDArray[Any], other: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The area of the intersection and of the union of each box [n, 4] with each other one [m, 4], both [n, m]."""
    ends = (
        (np.maximum(one[:, None, k], other[:, k]), np.minimum(one[:, None, k + 2], other[:, k + 2])) for k in (0, 1)
    )
    wide, high = (np.maximum(last - first, 0) for first, last in ends)
    inside = wide * high
    return inside, box_areas(one)[:, None] + box_areas(other) - inside


def as_boxes(boxes: ArrayLike) -> Floats:
    """Boxes as an array [n, 4], also of no boxes."""
    array = np.asarray(boxes, dtype=np.float64)
    if array.size == 0:
        return array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4:
        raise DataError(f"boxes must be [number, 4], not {array.shape}")
    return array


def box_areas(boxes: NDArray[Any]) -> NDArray[Any]:
    """The area of each box of [n, 4]."""
    areas: NDArray[Any] = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return areas


def boxes_above(stretched: Tensor) -> list[tuple[int, int, int, int] | None]:
    """`excite.readouts.threshold_box` for each of `ALPHAS`, all at once; the map is at the size of its image."""
    return boxes_over(stretched, torch.tensor(ALPHAS, dtype=stretched.dtype) * stretched.mean().clamp(min=0))


def boxes_over(stretched: Tensor, levels: Tensor) -> list[tuple[int, int, int, int] | None]:
    """For each level the tightest box around all pixels above it; None where there is none.

    Computed from the maxima of rows and columns, so the map itself is traversed only once.
    """
    columns, rows = ((stretched.amax(dim=side) > levels[:, None]).numpy() for side in (0, 1))
    sides = zip(*_ends(columns), *_ends(rows), strict=True)
    return [(x0, y0, x1, y1) if x1 else None for x0, x1, y0, y1 in sides]


def _ends(lines: NDArray[np.bool_]) -> tuple[list[int], list[int]]:
    """For each line the first true position and one past the last; the latter is 0 where there is none."""
    last = lines.shape[1] - lines[:, ::-1].argmax(axis=1)
    return lines.argmax(axis=1).tolist(), np.where(lines.any(axis=1), last, 0).tolist()
