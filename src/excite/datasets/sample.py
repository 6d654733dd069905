"""Annotations of one image: boxes, masks, categories; and the checks of values read from files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError, ExciteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

Box = tuple[float, float, float, float]
"""``(x0, y0, x1, y1)`` in pixels of the image, counted from 0; half-open, so ``x1 - x0`` is the width."""

FARTHEST = 1e6  # no image has so many pixels in a row
MOST_PIXELS = 2 * 10**8  # twice the limit of `excite.images`; a mask takes a byte for each
MOST_DIGITS = 9  # of a width, height or class number
MOST_BITS = 60  # of the length of a run of pixels


@dataclass(frozen=True)
class Instance:
    """One annotated object.

    Attributes:
        box: Around the object.
        difficult: Flagged as hard to recognise (VOC).
        crowd: A group annotated as one region (COCO).
        mask: Its pixels, where they are annotated.
        annotated_area: Its area in pixels, where that is annotated (COCO).
    """

    box: Box
    difficult: bool = False
    crowd: bool = False
    mask: Mask | None = None
    annotated_area: float | None = None

    def area(self, size: tuple[int, int]) -> float:
        """Its area in an image of that width and height: as annotated, or of its mask, or of its box."""
        if self.annotated_area is not None:
            return self.annotated_area
        if self.mask is not None:
            return float(self.mask.pixels(size).sum())
        return (self.box[2] - self.box[0]) * (self.box[3] - self.box[1])


@dataclass(frozen=True)
class Target:
    """All instances of one category in an image.

    Attributes:
        concept: The data set's name of the category; `Dataset.concept` finds the classifier's concept for it.
        instances: At least one.
    """

    concept: str
    instances: tuple[Instance, ...]

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The box of each instance."""
        return tuple(instance.box for instance in self.instances)

    @property
    def difficult(self) -> bool:
        """Whether every instance is difficult: such a target is not evaluated (the rule of VOC)."""
        return all(instance.difficult for instance in self.instances)

    def area(self, size: tuple[int, int]) -> float:
        """The sum of the areas of the instances; where they overlap, a pixel counts for each."""
        return sum(instance.area(size) for instance in self.instances)


def group_targets(objects: Iterable[tuple[str, Instance]]) -> tuple[Target, ...]:
    """One target for each category, in the order of their first objects."""
    found: dict[str, list[Instance]] = {}
    for category, instance in objects:
        found.setdefault(category, []).append(instance)
    return tuple(Target(category, tuple(instances)) for category, instances in found.items())


@dataclass(frozen=True)
class Sample:
    """An image and its annotated objects.

    Attributes:
        name: Its name within the data set.
        path: The file.
        targets: One for each category that was annotated, in the order of the data set's categories.
        size: Its annotated width and height, if any.
    """

    name: str
    path: Path
    targets: tuple[Target, ...]
    size: tuple[int, int] | None = None

    def check_size(self, size: tuple[int, int]) -> None:
        """Raise a `DataError` if the image was scaled or turned after its annotation: its boxes are wrong then."""
        if self.size not in {None, size}:
            raise DataError(
                f"{str(self.path)!r} is {size[0]} x {size[1]} pixels, but annotated for "
                f"{self.size[0]} x {self.size[1]}: its boxes lie elsewhere; annotate it again"
            )


def checked_box(x0: float, y0: float, x1: float, y1: float, where: str) -> Box:
    """The corners as a box, or an error that names the place of the annotation.

    A box may reach beyond its image or have no width (both occur in the official COCO files), but not be inside out.
    """
    if not all(abs(side) <= FARTHEST for side in (x0, y0, x1, y1)) or x1 < x0 or y1 < y0:  # NaN is not below either
        said = ", ".join(str(side)[:30] for side in (x0, y0, x1, y1))
        raise DataError(f"{where}: ({said}) is no box: give its left top and its right bottom corner, in pixels")
    return float(x0), float(y0), float(x1), float(y1)


def is_coordinate(value: object) -> bool:
    """Whether a JSON value is a number of pixels that an image can have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= FARTHEST  # NaN is not


def is_outside(box: Box, size: tuple[int, int] | None) -> bool:
    """Whether no part of a box is in an image of this width and height; some reach beyond it by rounding."""
    return box[2] <= 0 or box[3] <= 0 or (size is not None and (box[0] >= size[0] or box[1] >= size[1]))


def check_begin(box: Box, where: str) -> Box:
    """The box, or an error if it begins left of its image or above it: where pixels are counted from 0, none can."""
    if min(box[:2]) < 0:
        raise DataError(f"{where}: {box} begins outside of the image: its first pixel is 0")
    return box


def checked_size(width: object, height: object, where: str) -> tuple[int, int]:
    """Width and height of an image, or an error that names the place of the annotation."""
    if isinstance(width, int) and isinstance(height, int) and min(width, height) > 0 and width * height <= MOST_PIXELS:
        return width, height
    said = " x ".join(repr(side)[:40] for side in (width, height))
    raise DataError(f"{where}: {said} is no size of an image: give its width and height in pixels")


def parse_size(width: str, height: str, where: str) -> tuple[int, int]:
    """Width and height of an image from text."""
    return checked_size(parse_int(width) or width[:20], parse_int(height) or height[:20], where)


def parse_int(text: str) -> int | None:
    """The number written in decimal digits; None for any other text.

    Example:
        >>> parse_int("640"), parse_int("-1"), parse_int("wide")
        (640, None, None)
    """
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


# Masks as COCO stores them: polygons, or run lengths.


@dataclass(frozen=True)
class Mask:
    """The pixels of an object, decoded on demand.

    Attributes:
        stored: The annotation as JSON text: small, quick to compare, to hash and to send to other processes.

    Example:
        >>> Mask("[[1, 1, 3, 1, 3, 3, 1, 3]]").pixels((5, 4)).astype(int)
        array([[0, 0, 0, 0, 0],
               [0, 1, 1, 0, 0],
               [0, 1, 1, 0, 0],
               [0, 0, 0, 0, 0]])
    """

    stored: str

    def pixels(self, size: tuple[int, int]) -> NDArray[np.bool_]:
        """The mask, ``[height, width]``; the parts of a polygon outside of the image are cut off.

        Args:
            size: ``(width, height)`` of the image.

        Raises:
            DataError: The annotation is broken, or its runs of pixels do not fill an image of that size.
        """
        content = self._content()
        return _from_polygons(content, size) if isinstance(content, list) else _from_runs(_runs(content, size), size)

    def check(self, size: tuple[int, int] | None) -> None:
        """Raise a `DataError` if it cannot be decoded, for an image of that size where that is known."""
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
    """Rasterised by pycocotools, so that every pixel agrees with other evaluations."""
    try:
        from pycocotools import mask
    except ImportError:
        raise ExciteError("masks of COCO that are polygons need pycocotools: pip install 'excite[coco]'") from None
    _check_polygons(polygons)
    width, height = size
    runs = mask.merge(mask.frPyObjects(polygons, height, width))
    return _from_runs(list(_unpacked(runs["counts"].decode("ascii"))), size)


def _check_polygons(polygons: list[Any]) -> None:
    """Checks that pycocotools leaves out: it takes a list of four numbers, for instance, for a box."""
    for polygon in polygons:
        if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2:
            raise DataError("a polygon of the segmentation must be x and y of three corners or more")
        if not all(map(is_coordinate, polygon)):
            raise DataError("the corners of the segmentation must be numbers of pixels")


def _from_runs(runs: Sequence[int], size: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask of alternating runs, outside of the object first, column by column."""
    width, height = size
    inside = np.arange(len(runs)) % 2 == 1
    return np.repeat(inside, runs).reshape(width, height).T


def _runs(content: dict[str, Any], size: tuple[int, int]) -> list[int]:
    """The run lengths, checked: pycocotools leaves pixels that no run covers undefined."""
    width, height = size
    if content["size"] != [height, width]:
        raise DataError(
            f"the segmentation is for an image of [height, width] {str(content['size'])[:40]}, not {height, width}"
        )
    counts = content["counts"]
    runs = list(_unpacked(counts)) if isinstance(counts, str) else counts
    if not isinstance(runs, list) or not all(isinstance(run, int) and run >= 0 for run in runs):
        raise DataError("the counts of the segmentation must be lengths of runs of pixels")
    if sum(runs) != width * height:
        raise DataError(f"the counts of the segmentation cover {sum(runs)} pixels, but the image has {width * height}")
    return runs


def _unpacked(text: str) -> Iterator[int]:
    """The run lengths in COCO's compressed text.

    A character holds five bits, and a sixth that is set if more follow; from the fourth number on, the difference to
    the one two before is stored.
    """
    seen: list[int] = []
    value = shift = 0
    for character in text:
        code = ord(character) - 48
        if not 0 <= code < 64 or shift > MOST_BITS:
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
