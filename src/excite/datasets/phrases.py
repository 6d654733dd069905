"""Pictures described in words: phrases, and the regions that each of them refers to."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.datasets.base import Collection

if TYPE_CHECKING:
    from pathlib import Path

    from excite.datasets.sample import Box

__all__ = ["Described", "Phrase", "PhraseDataset", "union"]


@dataclass(frozen=True)
class Phrase:
    """Words that refer to something in an image, and where that is.

    Attributes:
        text: As it was written.
        boxes: All regions it refers to, at least one.
        group: The kind of thing, such as "people"; blank where the data set knows no kinds.
        sentence: The whole sentence it is part of; blank where it stands alone.
        also: Further kinds that it was given, which it counts for as well (Flickr30k Entities).
    """

    text: str
    boxes: tuple[Box, ...]
    group: str = ""
    sentence: str = ""
    also: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """All kinds that it counts for; none where the data set knows no kinds.

        Example:
            >>> Phrase("a doll", ((0, 0, 2, 2),), "people", also=("other",)).groups
            ('people', 'other')
        """
        return (self.group, *self.also) if self.group else ()


@dataclass(frozen=True)
class Described:
    """An image and what was said about it.

    Attributes:
        name: Its name within the data set.
        path: The file.
        phrases: In the order in which they were written down.
        size: Its width and height by its annotation, where that says so.
    """

    name: str
    path: Path
    phrases: tuple[Phrase, ...]
    size: tuple[int, int] | None = None


class PhraseDataset(Collection[Described]):
    """Described images in a defined order: iterating gives a `Described` for each.

    Attributes:
        left_out: What was not usable and why, with how often: "phrases without a box", "lines that are no JSON", ...
    """

    def __init__(self, folder: Path, split: str | None = None) -> None:
        self.left_out: Counter[str] = Counter()
        super().__init__(folder, split)

    def _nothing(self) -> str:
        told = "; ".join(f"{why}: {count}" for why, count in self.left_out.items())
        return f"has no phrases{f' ({told})' if told else ''}"

    @property
    @abstractmethod
    def groups(self) -> tuple[str, ...]:
        """The kinds of things that phrases may refer to, in the data set's own order; none if it knows none."""


def union(boxes: tuple[Box, ...]) -> Box:
    """The smallest box around all of these, of which there is at least one.

    Example:
        >>> union(((0, 0, 2, 1), (1, 0, 3, 4)))
        (0, 0, 3, 4)
    """
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)
