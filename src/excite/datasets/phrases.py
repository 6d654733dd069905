"""Images described in words: phrases, and the regions that each of them refers to."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.datasets.base import BaseDataset

if TYPE_CHECKING:
    from pathlib import Path

    from excite.datasets.sample import Box


@dataclass(frozen=True)
class Phrase:
    """A phrase with the boxes it refers to.

    Attributes:
        text: As in the data set.
        boxes: All regions it refers to, at least one.
        group: The kind of object, such as "people"; blank where the data set has no kinds.
        sentence: The sentence that contains it; blank without one.
        also: Further kinds, which it counts for as well (Flickr30k Entities).
    """

    text: str
    boxes: tuple[Box, ...]
    group: str = ""
    sentence: str = ""
    also: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """All kinds that it counts for.

        Example:
            >>> Phrase("a doll", ((0, 0, 2, 2),), "people", also=("other",)).groups
            ('people', 'other')
        """
        return (self.group, *self.also) if self.group else ()


@dataclass(frozen=True)
class PhraseSample:
    """An image and its phrases, in the order of the data set.

    Attributes:
        name: Its name within the data set.
        path: The file.
        phrases: At least one.
        size: Its annotated width and height, if any.
    """

    name: str
    path: Path
    phrases: tuple[Phrase, ...]
    size: tuple[int, int] | None = None


class PhraseDataset(BaseDataset[PhraseSample]):
    """Images with phrases: iterating gives a `PhraseSample` for each.

    Attributes:
        left_out: Reason -> number of unusable entries: "phrases without a box", "lines that are no JSON", ...
        groups: The kinds of objects that phrases may refer to, in the data set's own order; empty without any.
    """

    groups: tuple[str, ...] = ()

    def __init__(self, folder: Path, split: str | None = None) -> None:
        self.left_out: Counter[str] = Counter()
        self._samples: dict[str, PhraseSample] = {}
        super().__init__(folder, split)

    def _read(self) -> list[str]:
        self._read_samples()
        return list(self._samples)

    @abstractmethod
    def _read_samples(self) -> None:
        """Read the images of the split that have phrases, and count what cannot be used."""

    def sample(self, name: str) -> PhraseSample:
        """An image and its phrases."""
        return self._samples[name]

    def _nothing(self) -> str:
        reasons = "; ".join(f"{why}: {count}" for why, count in self.left_out.items())
        return f"has no phrases{f' ({reasons})' if reasons else ''}"


def union(boxes: tuple[Box, ...]) -> Box:
    """The smallest box around all of these, of which there is at least one.

    Example:
        >>> union(((0, 0, 2, 1), (1, 0, 3, 4)))
        (0, 0, 3, 4)
    """
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)
