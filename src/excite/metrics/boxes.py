"""How a point and a picture relate to where something is: its boxes, or its masks where there are any."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from excite.datasets import Box, Instance, Target

__all__ = ["area_share", "box_distance", "distance"]


def distance(point: tuple[int, int], target: Target, size: tuple[int, int]) -> float:
    """How many pixels a point lies beside the nearest instance of a target; 0 for a pixel that belongs to one.

    Exact, between the centres of pixels. An instance is its mask where it has one with a pixel in the picture,
    otherwise its box. The Pointing Game counts a hit up to and including `Dataset.tolerance`.

    Args:
        point: ``(x, y)`` of a pixel of the picture at its original size, counted from 0.
        target: what was to be pointed at.
        size: ``(width, height)`` of that picture.

    Raises:
        DataError: A mask was made for a picture of another size.

    Example:
        >>> from excite.datasets import Instance, Target
        >>> cup = Target("cup", (Instance((0, 0, 10, 10)), Instance((0, 30, 5, 35))))
        >>> distance((12, 13), cup, (40, 40)), distance((4, 28), cup, (40, 40))
        (5.0, 2.0)
    """
    boxes, mask = _region(target.instances, size)
    return min([box_distance(point, box) for box in boxes] + _mask_distances(point, mask))


def area_share(target: Target, size: tuple[int, int]) -> float:
    """The areas of all instances of a target together, as a share of the picture's; above 1 where they overlap much.

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


@lru_cache(maxsize=32)  # several methods point at the targets of a picture
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
