"""How a point and an image relate to where something is: its boxes, or its masks where there are any."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from excite.datasets import Box, Instance, Target

    Boxes = NDArray[np.float64]


def distance(point: tuple[int, int], target: Target, size: tuple[int, int]) -> float:
    """How many pixels a point lies beside the nearest instance of a target; 0 for a pixel that belongs to one.

    Exact, between the centres of pixels. An instance is its mask where it has one with a pixel in the image,
    otherwise its box. The Pointing Game counts a hit up to and including `Dataset.tolerance`.

    Args:
        point: ``(x, y)`` of a pixel of the image at its original size, counted from 0.
        target: what was to be pointed at.
        size: ``(width, height)`` of that image.

    Raises:
        DataError: A mask was made for an image of another size.

    Example:
        >>> from excite.datasets import Instance, Target
        >>> cup = Target("cup", (Instance((0, 0, 10, 10)), Instance((0, 30, 5, 35))))
        >>> distance((12, 13), cup, (40, 40)), distance((4, 28), cup, (40, 40))
        (5.0, 2.0)
    """
    boxes, mask = _region(target.instances, size)
    return min([box_distance(point, box) for box in boxes] + _mask_distances(point, mask))


def area_share(target: Target, size: tuple[int, int]) -> float:
    """The areas of all instances of a target together, as a share of the image's; above 1 where they overlap much.

    Example:
        >>> from excite.datasets import Instance, Target
        >>> area_share(Target("cup", (Instance((0, 0, 10, 10)), Instance((5, 5, 15, 15)))), (40, 40))
        0.125
    """
    return target.area(size) / (size[0] * size[1])


def box_distance(point: tuple[int, int], box: Box) -> float:
    """How many pixels a point lies beside a box; 0 for a pixel that the box touches.

    Example:
        >>> box_distance((13, 4), (0, 0, 10, 10)), box_distance((9, 9), (0, 0, 10, 10))
        (4.0, 0.0)
    """
    sides = ((point[0], box[0], box[2]), (point[1], box[1], box[3]))
    return math.hypot(*(_gap(pixel, low, high) for pixel, low, high in sides))


def _gap(pixel: int, low: float, high: float) -> int:
    first = math.floor(low)
    last = max(math.ceil(high) - 1, first)
    return max(first - pixel, pixel - last, 0)


@lru_cache(maxsize=32)  # several methods point at the targets of an image
def _region(instances: tuple[Instance, ...], size: tuple[int, int]) -> tuple[tuple[Box, ...], NDArray[np.bool_] | None]:
    """The boxes of those without a mask, and the union of the masks of the others."""
    boxes = []
    union = None
    for instance in instances:
        pixels = instance.mask.pixels(size) if instance.mask is not None else None
        if pixels is None or not pixels.any():
            boxes.append(instance.box)
        else:
            union = pixels if union is None else union | pixels
    return tuple(boxes), union


def _mask_distances(point: tuple[int, int], mask: NDArray[np.bool_] | None) -> list[float]:
    """To the nearest pixel of the mask, if there is a mask; squares of whole numbers are exact."""
    if mask is None:
        return []
    y, x = np.nonzero(mask)
    return [math.sqrt(int(((x - point[0]) ** 2 + (y - point[1]) ** 2).min()))]


# What a map is worth, given the true boxes of what was looked for: pure functions.

ALPHAS = tuple(0.5 * k for k in range(21))
"""The thresholds that are tried, in means of the map (the paper's range 0:0.5:10)."""


def overlap(one: Box, other: Box) -> float:
    """Intersection over union of two boxes.

    Example:
        >>> overlap((0, 0, 2, 2), (1, 0, 3, 2))
        0.3333333333333333
    """
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    inside = max(width, 0) * max(height, 0)
    union = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)) - inside
    return inside / union if union else 0.0


def best_overlaps(boxes: Boxes, truth: Boxes) -> Boxes:
    """What `overlap` gives for each box with that true box which it fits best, all at once: [boxes].

    Args:
        boxes: ``[boxes, 4]``.
        truth: ``[true boxes, 4]``, at least one.

    Example:
        >>> best_overlaps(np.array([[0, 0, 2, 2.0]]), np.array([[9, 9, 10, 10.0], [1, 0, 3, 2]])).round(3).tolist()
        [0.333]
    """
    one, other = boxes[:, None], truth[None]
    sides = np.minimum(one[..., 2:], other[..., 2:]) - np.maximum(one[..., :2], other[..., :2])
    inside = np.prod(sides.clip(min=0), axis=-1)
    union = _areas(boxes)[:, None] + _areas(truth) - inside
    found: Boxes = np.divide(inside, union, where=union > 0, out=np.zeros_like(inside)).max(axis=1)
    return found


def boxes_above(stretched: Tensor, alphas: Sequence[float] = ALPHAS) -> list[tuple[int, int, int, int] | None]:
    """What `excite.readouts.threshold_box` gives for each alpha, all at once.

    Args:
        stretched: the map at the size of its image.
        alphas: thresholds, in means of the map.

    Example:
        >>> boxes_above(torch.tensor([[0.0, 0.0, 3.0]]), [0, 1, 4])
        [(2, 0, 3, 1), (2, 0, 3, 1), None]
    """
    return boxes_over(stretched, mean_levels(stretched, alphas))


def mean_levels(stretched: Tensor, alphas: Sequence[float] = ALPHAS) -> Tensor:
    """What a pixel has to be above for each alpha; never below zero, see `excite.readouts.threshold_box`.

    Example:
        >>> mean_levels(torch.tensor([[0.0, 0.0, 3.0]]), [0, 4]).tolist()
        [0.0, 4.0]
    """
    mean = stretched.mean()
    return torch.stack([(alpha * mean).clamp(min=0) for alpha in alphas])


def boxes_over(stretched: Tensor, levels: Tensor) -> list[tuple[int, int, int, int] | None]:
    """For each level the tightest box around all pixels above it; None where there is none.

    A row holds a pixel above a level when its maximum is, so the map itself is gone through only once.

    Example:
        >>> boxes_over(torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([0.5, 3.0]))
        [(1, 0, 3, 1), None]
    """
    columns, rows = ((stretched.amax(dim=side) > levels[:, None]).numpy() for side in (0, 1))
    sides = zip(*_ends(columns), *_ends(rows), strict=True)
    return [(x0, y0, x1, y1) if x1 else None for x0, x1, y0, y1 in sides]


def _areas(boxes: Boxes) -> Boxes:
    areas: Boxes = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return areas


def _ends(lines: NDArray[np.bool_]) -> tuple[list[int], list[int]]:
    """For each line the first pixel that is true and one past the last; 0 for that where there is none."""
    last = lines.shape[1] - lines[:, ::-1].argmax(axis=1)
    return lines.argmax(axis=1).tolist(), np.where(lines.any(axis=1), last, 0).tolist()
