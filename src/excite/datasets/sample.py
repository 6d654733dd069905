"""What a data set tells about one picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Box", "Instance", "Sample", "Target", "checked_box"]

Box = tuple[float, float, float, float]
"""``(x0, y0, x1, y1)`` in pixels of the picture, counted from 0; half-open, so ``x1 - x0`` is the width."""

FARTHEST = 1e6
"""No picture has so many pixels in a row."""


@dataclass(frozen=True)
class Instance:
    """One annotated object.

    Attributes:
        box: Where it is.
        difficult: Its annotators found it hard to recognise (VOC).
        crowd: It stands for a group that nobody took apart (COCO).
    """

    box: Box
    difficult: bool = False
    crowd: bool = False


@dataclass(frozen=True)
class Target:
    """All instances of one category in a picture.

    Attributes:
        concept: The category as the data set calls it; `Dataset.concept` finds what a classifier calls it.
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
        """Whether every instance is difficult: such a target is not asked for (the rule of VOC)."""
        return all(instance.difficult for instance in self.instances)


@dataclass(frozen=True)
class Sample:
    """A picture and what is known to be in it.

    Attributes:
        name: Its name within the data set.
        path: The file.
        targets: One for each category that was annotated, in the order of the data set's categories.
    """

    name: str
    path: Path
    targets: tuple[Target, ...]


def checked_box(x0: float, y0: float, x1: float, y1: float, where: str) -> Box:
    """The corners as a box, or an error that says where the annotation is.

    A box may reach beyond its picture or have no width (both occur in the official COCO files), but not be inside out.

    Example:
        >>> checked_box(1, 2, 3, 4, "file.csv, line 1")
        (1.0, 2.0, 3.0, 4.0)
    """
    if not all(abs(side) <= FARTHEST for side in (x0, y0, x1, y1)) or x1 < x0 or y1 < y0:  # NaN is not below either
        raise DataError(
            f"{where}: ({x0}, {y0}, {x1}, {y1}) is no box: give its left top and its right bottom corner, in pixels"
        )
    return float(x0), float(y0), float(x1), float(y1)
