"""Which of several objects a phrase with hints means ("the left man" of three): their order, and their shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from excite.grounding.phrase_maps import PhraseMap

    Numbers = NDArray[np.floating[Any]]

AXES = {"left": (0, False), "right": (0, True), "top": (1, False), "bottom": (1, True)}  # the axis, and its far end
BEYOND_ALL = 0.05  # the share of evidence at the wrong end that is still accepted: maps are coarse
ORDER = 0.25  # the power of that share
TOUCHING = 0.83  # for each side of the image that a box touches: what fills an image is background, not one of several
TALL = 0.37  # the power of height / width, as shares of the image's: floor, sky and tables are wide, most things not
EDGE = 128  # a box touches a side of the image within this part of it


def instance_weights(found: PhraseMap, boxes: NDArray[np.float32], size: tuple[int, int]) -> Numbers:
    """The weight of each box [n, 4] as one of several objects; 1 for a phrase without hints, which may mean all."""
    if not found.hints:
        return np.ones(len(boxes))
    return order_weights(found, boxes, size) * shape_weights(boxes, size)


def order_weights(found: PhraseMap, boxes: NDArray[np.float32], size: tuple[int, int]) -> Numbers:
    """The weight of each box by the hints "left", "right", "top" and "bottom".

    "Left" is where most of the noun's evidence lies to the right of the box's middle. Unlike a ramp over the image this
    compares the objects with each other: of three men at the right side, one is the left one.
    """
    weights = np.ones(len(boxes))
    evidence = found.head.values.double().numpy()
    total = evidence.sum()
    kinds = dict.fromkeys(hint.kind for hint in found.hints if hint.kind in AXES)
    for axis, far in map(AXES.__getitem__, kinds if total > 0 else ()):
        line = evidence.sum(axis=axis) / total
        middles = (boxes[:, axis] + boxes[:, axis + 2]) / 2 / size[axis]
        before = np.interp(middles, np.linspace(0, 1, len(line) + 1), np.cumsum([0, *line]))
        weights *= ((before if far else 1 - before).clip(0, 1) + BEYOND_ALL) ** ORDER
    return weights


def shape_weights(boxes: NDArray[np.float32], size: tuple[int, int]) -> Numbers:
    """The weight of each box by its shape, see `TOUCHING` and `TALL`; 0 without pixels."""
    limits = np.array([*size, *size])
    touching = np.abs(boxes - np.array([0, 0, *size])) < limits / EDGE
    width, height = ((boxes[:, 2:] - boxes[:, :2]) / limits[:2]).astype(np.float64).T
    tall = np.divide(height, width, out=np.zeros_like(width), where=width > 0)
    return np.asarray(tall**TALL * TOUCHING ** touching.sum(axis=1))
