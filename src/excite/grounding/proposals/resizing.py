"""Regions are found in a shrunk picture, in bounded time, and told in the pixels of the picture itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["enlarged_boxes", "enlarged_parts", "shrunk", "shrunk_parts"]

NARROWEST = 16
"""A very wide or tall picture keeps at least so many pixels across, if it has them: it may well show something."""


def shrunk(picture: Image.Image, longest: int) -> Image.Image:
    """The picture in RGB, its longer side at most so many pixels; a small one stays as it is.

    Example:
        >>> shrunk(Image.new("L", (2000, 20)), 256).size
        (256, 16)
    """
    picture = picture.convert("RGB")
    size = _shrunk_size(picture.size, longest)
    return picture if size == picture.size else picture.resize(size, Image.Resampling.BILINEAR)


def _shrunk_size(size: tuple[int, int], longest: int) -> tuple[int, int]:
    factor = min(1.0, longest / max(size))
    width, height = (max(min(side, NARROWEST), round(side * factor)) for side in size)
    return width, height


def enlarged_parts(parts: Array, size: tuple[int, int]) -> NDArray[np.int32]:
    """Parts [rows, columns] of a shrunk picture in a picture of this width and height: each pixel takes its nearest.

    Example:
        >>> enlarged_parts(np.array([[0, 1]]), (4, 1)).tolist()
        [[0, 0, 1, 1]]
    """
    rows, columns = (_taken(long, short) for long, short in zip(size[::-1], parts.shape, strict=True))
    return np.ascontiguousarray(parts[rows][:, columns], np.int32)


def enlarged_boxes(boxes: Array, shrunk_size: tuple[int, int], size: tuple[int, int]) -> NDArray[np.float32]:
    """Half-open boxes of a shrunk picture around the same pixels as `enlarged_parts` gives.

    Example:
        >>> enlarged_boxes(np.array([[1, 0, 2, 1]]), (2, 1), (5, 3)).tolist()
        [[2.0, 0.0, 5.0, 3.0]]
    """
    made = np.empty(boxes.shape, np.float32)
    for axis, (long, short) in enumerate(zip(size, shrunk_size, strict=True)):
        taken = _taken(long, short)
        made[:, axis::2] = np.searchsorted(taken, boxes[:, axis::2])
    return made


def shrunk_parts(parts: NDArray[np.int32], longest: int) -> NDArray[np.int32]:
    """The fewest pixels from which `enlarged_parts` makes these parts again; all of them if there is no such thing.

    Example:
        >>> shrunk_parts(np.repeat(np.arange(20, dtype=np.int32), 2)[None], 20).shape
        (1, 20)
    """
    height, width = parts.shape
    columns, rows = _shrunk_size((width, height), longest)
    picked = [(2 * np.arange(short) + 1) * long // (2 * short) for long, short in ((height, rows), (width, columns))]
    small = np.ascontiguousarray(parts[picked[0]][:, picked[1]])
    return small if np.array_equal(enlarged_parts(small, (width, height)), parts) else parts


def _taken(long: int, short: int) -> NDArray[np.int64]:
    """For each pixel of a line, which one of its shrunk line it takes: the one that its middle is in."""
    return np.asarray((2 * np.arange(long, dtype=np.int64) + 1) * short // (2 * long))
