"""The box around strong evidence, as in the paper's localisation of dominant objects."""

import math

from torch import Tensor

from excite.errors import ExciteError
from excite.readouts.upsample import Mode, checked_map, upsample

__all__ = ["DEFAULT_ALPHA", "checked_alpha", "strong_box", "threshold_box"]

DEFAULT_ALPHA = 1.0
"""Evidence is strong above this many times the map's mean (the paper's alpha, there chosen per method)."""


def threshold_box(
    values: Tensor, size: tuple[int, int], alpha: float = DEFAULT_ALPHA, mode: Mode = "bicubic"
) -> tuple[int, int, int, int] | None:
    """The tightest box around *all* pixels above ``alpha`` times the mean of the stretched map.

    It is half-open, as crops and slices are: ``x1`` and ``y1`` are one past the last pixel, so that ``x1 -
    x0`` is the width and ``image.crop(box)`` is the content. A pixel also has to be positive to count, which
    matters only for signed maps: their mean may be below zero, and a threshold there would box places that
    speak against the concept.

    Args:
        values: the map, ``[h, w]``.
        size: ``(width, height)`` of the picture.
        alpha: the threshold in means of the map; 0 takes every positive pixel.
        mode: how the map is stretched over the picture.

    Returns:
        ``(x0, y0, x1, y1)``, or ``None`` when nothing is above the threshold (an even map has no box for
        alpha >= 1).

    Raises:
        ExciteError: the map holds NaN or infinity, or is not a plane, or alpha is negative or not finite.

    Example:
        >>> import torch
        >>> threshold_box(torch.tensor([[0.0, 0.0, 1.0]]), size=(9, 3), mode="nearest")
        (6, 0, 9, 3)
    """
    checked_alpha(alpha)
    stretched = upsample(values, size, mode)
    return None if checked_map(values).max() <= 0 else strong_box(stretched, alpha)


def strong_box(stretched: Tensor, alpha: float = DEFAULT_ALPHA) -> tuple[int, int, int, int] | None:
    """The same for a map that is as large as its picture and has evidence somewhere.

    Example:
        >>> import torch
        >>> strong_box(torch.eye(3)[:2])
        (0, 0, 2, 2)
    """
    strong = stretched > (alpha * stretched.mean()).clamp(min=0)
    columns, rows = strong.any(dim=0).nonzero(), strong.any(dim=1).nonzero()
    if len(columns) == 0:
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def checked_alpha(alpha: float) -> float:
    """A threshold that makes sense, or an error that says which would."""
    if not (math.isfinite(alpha) and alpha >= 0):
        raise ExciteError(f"alpha must be a finite number of at least 0, not {alpha!r}: it multiplies the map's mean.")
    return alpha
