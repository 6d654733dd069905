"""The maximum of a map (the Pointing Game's answer), and boxes around strong evidence (the paper's localisation)."""

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from excite.errors import ExciteError
from excite.io.files import to_numpy
from excite.readouts.overlay import Mode, checked_map, upsample

Numbers = NDArray[np.int64]

Box = tuple[int, int, int, int]  # half-open, x0, y0, x1, y1
LEVELS = (0.3, 0.4, 0.55, 0.7, 0.9, 1.2, 1.6, 2.1, 2.8)  # in means of a map of extent: where an object may end
FAINT = 0.05  # of the mean: less than this counts as this beside a border
APART = 0.5  # of the evidence in the main region: what another region must have to be an object of its own
DEFAULT_ALPHA = 1.0  # times the map's mean: evidence is strong above (the paper's alpha, there chosen per method)


def maximum_point(values: Tensor, size: tuple[int, int], mode: Mode = "bicubic") -> tuple[int, int] | None:
    """The pixel ``(x, y)`` of an image of ``(width, height)`` with the most evidence in a map ``[h, w]``.

    It is the argmax of the upsampled map, of several equal maxima the first in reading order. A map without positive
    values has none: the argmax would be an arbitrary corner.
    """
    upsampled = upsample(values, size, mode)
    return None if checked_map(values).max() <= 0 else peak(upsampled)


def peak(upsampled: Tensor) -> tuple[int, int]:
    """The same for a map at the size of its image with a positive value."""
    y, x = divmod(int(upsampled.argmax()), upsampled.shape[1])
    return x, y


def threshold_box(
    values: Tensor, size: tuple[int, int], alpha: float = DEFAULT_ALPHA, mode: Mode = "bicubic"
) -> Box | None:
    """The tightest box ``(x0, y0, x1, y1)`` around *all* pixels above ``alpha`` times the mean of the upsampled map.

    It is half-open, as crops and slices are: ``x1`` and ``y1`` are one past the last pixel. A pixel also has to be
    positive to count: the mean of a signed map may be negative. None where nothing is above the threshold (a constant
    map has no box for alpha >= 1).
    """
    checked_alpha(alpha)
    upsampled = upsample(values, size, mode)
    return None if checked_map(values).max() <= 0 else strong_box(upsampled, alpha)


def strong_box(upsampled: Tensor, alpha: float = DEFAULT_ALPHA) -> Box | None:
    """The same for a map at the size of its image with a positive value."""
    strong = upsampled > (alpha * upsampled.mean()).clamp(min=0)
    columns, rows = strong.any(dim=0).nonzero(), strong.any(dim=1).nonzero()
    if len(columns) == 0:
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def checked_alpha(alpha: float) -> float:
    """A threshold of at least 0, or an error."""
    if not (math.isfinite(alpha) and alpha >= 0):
        raise ExciteError(f"alpha must be a finite number of at least 0, not {alpha!r}: it multiplies the map's mean.")
    return alpha


def region_boxes(values: Tensor, size: tuple[int, int], apart: float = APART) -> list[Box]:
    """A box around each clearly separate region of a map of extent ``[h, w]``, that with the most evidence first.

    A region is what hangs together above a level, at the map's own resolution; of all levels, that where the border of
    the first region's box is clearest. The box surrounds what is above the mean when the region alone is stretched over
    the image. One with less than ``apart`` of the evidence of the first is no object of its own.
    """
    plane = checked_map(values).clamp(min=0)
    _, labels, evidence = max((_regions(to_numpy(plane), level) for level in LEVELS), key=itemgetter(0))
    order = [k for k in np.argsort(-evidence, kind="stable") if evidence[k] >= apart * evidence.max()]
    alone = [torch.where(torch.from_numpy(labels == k + 1).to(plane.device), plane, 0) for k in order]
    boxes = [strong_box(upsample(region, size)) for region in alone]
    return [box for box in boxes if box is not None]


def _regions(plane: NDArray[Any], level: float) -> tuple[float, Numbers, NDArray[Any]]:
    """How clear the main region above a level is (0 if there is none), the regions by number, and their evidence."""
    from scipy import ndimage  # not needed to draw a map

    labels, count = ndimage.label(plane > level * plane.mean(), np.ones((3, 3), bool))
    evidence = np.bincount(labels.ravel(), plane.ravel(), count + 1)[1:]
    main = ndimage.find_objects(labels)[evidence.argmax()] if count else None
    return (_clearness(np.sqrt(plane), *main) if main else 0.0), labels, evidence


def _clearness(roots: NDArray[Any], *box: slice) -> float:
    """How many times more the roots of a map are within the border of a box than behind it, each a quarter as wide."""
    wide = [max(1, round((side.stop - side.start) / 4)) for side in box]
    inner, whole, outer = (
        roots[tuple(slice(max(0, s.start - k * w), s.stop + k * w) for s, w in zip(box, wide, strict=True))]
        for k in (-1, 0, 1)
    )
    within = (whole.sum() - inner.sum()) / (whole.size - inner.size)
    behind = (outer.sum() - whole.sum()) / max(1, outer.size - whole.size)  # nothing is behind the image's own border
    return float((within + FAINT * roots.mean()) / (behind + FAINT * roots.mean()))


def scaled_box(box: Sequence[float], size: tuple[int, int], other: tuple[int, int]) -> Box:
    """A box of an image of one ``(width, height)`` in the same image at another, at least a pixel wide and high."""
    x0, y0, x1, y1 = (round(at * new / old) for at, old, new in zip(box, size * 2, other * 2, strict=True))
    x0, y0 = min(x0, other[0] - 1), min(y0, other[1] - 1)
    return x0, y0, max(x0 + 1, x1), max(y0 + 1, y1)


def scaled_point(point: Sequence[int], size: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """A pixel of an image of one ``(width, height)`` in the same image at another: the one at its middle.

    Example:
        >>> scaled_point((1, 0), (2, 2), (8, 8))
        (6, 2)
    """
    x, y = (int((at + 0.5) * new / old) for at, old, new in zip(point, size, other, strict=True))
    return x, y


def component_boxes(strong: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """The tightest box around each connected region, largest region first; of equals, the upper and then the left one.

    Half-open boxes ``[regions, 4]`` from the strong pixels ``[height, width]``, and how many pixels each region has;
    neighbours at a corner are connected too.
    """
    from scipy import ndimage  # not needed to draw a map

    labels, _ = ndimage.label(strong, np.ones((3, 3), bool), np.intp)
    found = [(x.start, y.start, x.stop, y.stop) for y, x in ndimage.find_objects(labels)]
    boxes = np.array(found, np.int64).reshape(-1, 4)
    sizes = np.bincount(labels.ravel())[1:]
    order = np.lexsort((boxes[:, 0], boxes[:, 1], -sizes))
    return boxes[order], sizes[order]
