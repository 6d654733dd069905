"""Which pixels belong to an object, as COCO stores it: corners of polygons, or lengths of runs of pixels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError, ExciteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["Mask"]

FARTHEST = 1e6
"""No picture has so many pixels in a row."""

LONGEST = 60
"""No run is as long as a number of so many bits."""


@dataclass(frozen=True)
class Mask:
    """Which pixels belong to an object; decoded when it is asked for.

    Attributes:
        stored: The annotation as it is in the file, as JSON text: small, quick to compare, to hash and to send to
            other processes.

    Example:
        >>> Mask("[[1, 1, 3, 1, 3, 3, 1, 3]]").pixels((5, 4)).astype(int)
        array([[0, 0, 0, 0, 0],
               [0, 1, 1, 0, 0],
               [0, 1, 1, 0, 0],
               [0, 0, 0, 0, 0]])
    """

    stored: str

    def pixels(self, size: tuple[int, int]) -> NDArray[np.bool_]:
        """The mask, ``[height, width]``. What a polygon leaves of the picture is cut off.

        Args:
            size: ``(width, height)`` of the picture.

        Raises:
            DataError: The annotation is broken, or its runs of pixels do not fill a picture of that size.
        """
        content = self._content()
        return _from_polygons(content, size) if isinstance(content, list) else _from_runs(_runs(content, size), size)

    def check(self, size: tuple[int, int] | None) -> None:
        """Raise a `DataError` if it cannot be decoded, for a picture of that size where that is known."""
        content = self._content()
        if isinstance(content, list):
            _check_polygons(content)
        elif size is not None:
            _runs(content, size)

    def _content(self) -> Any:
        content = json.loads(self.stored)
        if not isinstance(content, list) and not (isinstance(content, dict) and {"size", "counts"} <= content.keys()):
            raise DataError("the segmentation must be polygons, or runs of pixels with 'size' and 'counts'")
        return content


def _from_polygons(polygons: list[Any], size: tuple[int, int]) -> NDArray[np.bool_]:
    """By the rounding of COCO's own program, so that every pixel is where others see it."""
    try:
        from pycocotools import mask
    except ImportError:
        raise ExciteError("masks of COCO that are polygons need pycocotools: pip install 'excite[coco]'") from None
    _check_polygons(polygons)
    width, height = size
    runs = mask.merge(mask.frPyObjects(polygons, height, width))
    return _from_runs(list(_unpacked(runs["counts"].decode("ascii"))), size)


def _check_polygons(polygons: list[Any]) -> None:
    """What pycocotools takes on trust: a list of four numbers, for instance, it takes for a box."""
    for polygon in polygons:
        if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2:
            raise DataError("a polygon of the segmentation must be x and y of three corners or more")
        if not all(map(_is_place, polygon)):
            raise DataError("the corners of the segmentation must be numbers of pixels")


def _is_place(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= FARTHEST  # NaN is not


def _from_runs(runs: Sequence[int], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Runs go down the columns, and begin outside of the object."""
    width, height = size
    inside = np.arange(len(runs)) % 2 == 1
    return np.repeat(inside, runs).reshape(width, height).T


def _runs(content: dict[str, Any], size: tuple[int, int]) -> list[int]:
    """The lengths of the runs. Checked, because pycocotools leaves pixels that no run covers to chance."""
    width, height = size
    if content["size"] != [height, width]:
        raise DataError(
            f"the segmentation is for a picture of [height, width] {str(content['size'])[:40]}, not {height, width}"
        )
    counts = content["counts"]
    runs = list(_unpacked(counts)) if isinstance(counts, str) else counts
    if not isinstance(runs, list) or not all(isinstance(run, int) and run >= 0 for run in runs):
        raise DataError("the counts of the segmentation must be lengths of runs of pixels")
    if sum(runs) != width * height:
        raise DataError(
            f"the counts of the segmentation cover {sum(runs)} pixels, but the picture has {width * height}"
        )
    return runs


def _unpacked(text: str) -> Iterator[int]:
    """The numbers in COCO's compressed text.

    A character holds five bits and says with a sixth whether more follow; from the fourth number on, only the
    difference to the one two before is stored.
    """
    seen: list[int] = []
    value = shift = 0
    for character in text:
        code = ord(character) - 48
        if not 0 <= code < 64 or shift > LONGEST:
            raise DataError(
                f"the counts of the segmentation are no runs of pixels in COCO's compressed text ({text[:20]!r})"
            )
        value |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        if code & 16:  # negative
            value -= 1 << shift
        seen.append(value + (seen[-2] if len(seen) > 2 else 0))
        yield seen[-1]
        value = shift = 0
    if shift:
        raise DataError("the counts of the segmentation are cut off")
