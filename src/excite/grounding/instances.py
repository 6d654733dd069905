"""Which of several: the order of regions among the evidence for the noun ("the left man" of three)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from excite.grounding.phrase_maps import PhraseMap

    Numbers = NDArray[np.floating[Any]]

AXES = {"left": (0, False), "right": (0, True), "top": (1, False), "bottom": (1, True)}  # the axis, and its far end
BEYOND_ALL = 0.05  # the share of evidence at the wrong end that is still accepted: maps are coarse
WEIGHT = 0.5  # the power of that share


def instance_weights(found: PhraseMap, boxes: NDArray[np.float32], size: tuple[int, int]) -> Numbers:
    """The weight of each box [n, 4] by the hints "left", "right", "top" and "bottom" of a phrase.

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
        weights *= ((before if far else 1 - before).clip(0, 1) + BEYOND_ALL) ** WEIGHT
    return weights
