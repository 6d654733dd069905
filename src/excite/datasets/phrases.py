"""Pictures described in words: phrases, and the regions that each of them refers to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from excite.datasets.dataset import chosen_split
from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from excite.datasets.sample import Box

__all__ = ["Described", "Phrase", "PhraseDataset", "union"]


@dataclass(frozen=True)
class Phrase:
    """Words that refer to something in a picture, and where that is.

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
    """A picture and what was said about it.

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


class PhraseDataset(ABC):
    """Described pictures in a defined order: iterating gives a `Described` for each.

    Attributes:
        name: Of the format, for people to read.
        layout: What the format looks like on disk, for people to read.
        names: The pictures that have phrases, in the order in which they come.
        left_out: What was not usable and why, with how often: "phrases without a box", "lines that are no JSON", ...
    """

    name: ClassVar[str]
    layout: ClassVar[str]

    def __init__(self, folder: Path, split: str | None = None) -> None:
        self.folder = folder
        self.split = chosen_split(split, self._splits(), folder)
        self.left_out: Counter[str] = Counter()
        self.names = tuple(self._read())
        if not self.names:
            told = "; ".join(f"{why}: {count}" for why, count in self.left_out.items())
            raise DataError(f"the split {self.split!r} of {str(folder)!r} has no phrases{f' ({told})' if told else ''}")

    @abstractmethod
    def _splits(self) -> list[str]:
        """The splits that are there."""

    @abstractmethod
    def _read(self) -> list[str]:
        """Read what is needed to describe the pictures of the split, counting what is left out; their names."""

    @classmethod
    @abstractmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether this folder looks like a data set of this format."""

    @property
    @abstractmethod
    def groups(self) -> tuple[str, ...]:
        """The kinds of things that phrases may refer to, in the data set's own order; none if it knows none."""

    @abstractmethod
    def sample(self, name: str) -> Described:
        """What was said about the picture of this name."""

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Described]:
        return (self.sample(name) for name in self.names)


def union(boxes: tuple[Box, ...]) -> Box:
    """The smallest box around all of these, of which there is at least one.

    Example:
        >>> union(((0, 0, 2, 1), (1, 0, 3, 4)))
        (0, 0, 3, 4)
    """
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)
