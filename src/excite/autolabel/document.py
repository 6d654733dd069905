"""What was found in which pictures, in no format yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from excite.autolabel.inputs import Picture

__all__ = ["Box", "Boxed", "Document", "Found"]

Box = tuple[int, int, int, int]
"""``(x0, y0, x1, y1)`` in pixels of the upright picture, counted from 0; half-open, so ``x1 - x0`` is the width."""


@dataclass(frozen=True)
class Found:
    """A box, what is in it, and how probable it is that the picture shows that at all."""

    concept: str
    probability: float
    box: Box


@dataclass(frozen=True)
class Boxed:
    """A picture, its width and height as it was read, and its boxes: none where nothing was found."""

    picture: Picture
    size: tuple[int, int]
    boxes: tuple[Found, ...] = ()


@dataclass(frozen=True)
class Document:
    """All that goes into the files.

    Attributes:
        pictures: those that are done, in the order of their numbers.
        categories: what boxes may be called, in the order of their numbers, which begin with 1.
    """

    pictures: tuple[Boxed, ...]
    categories: tuple[str, ...]
