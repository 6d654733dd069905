"""Pictures on disk that come in splits and in a defined order, whatever is told about each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from excite.datasets.splits import chosen_split
from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Collection", "the_only"]

Item_co = TypeVar("Item_co", covariant=True)
Kind = TypeVar("Kind", bound="Collection[object]")


class Collection(ABC, Generic[Item_co]):
    """Pictures in a defined order: iterating gives what is known about each.

    Attributes:
        name: Of the format, for people to read.
        layout: What the format looks like on disk, for people to read.
        names: The pictures, in the order in which they come.
    """

    name: ClassVar[str]
    layout: ClassVar[str]

    def __init__(self, folder: Path, split: str | None = None) -> None:
        self.folder = folder
        self.split = chosen_split(split, self._splits(), folder)
        self.names = tuple(self._read())
        if not self.names:
            raise DataError(f"the split {self.split!r} of {str(folder)!r} {self._nothing()}")

    @abstractmethod
    def _splits(self) -> list[str]:
        """The splits that are there."""

    @abstractmethod
    def _read(self) -> list[str]:
        """Read what is needed to tell about the pictures of the split; their names, in order."""

    @abstractmethod
    def _nothing(self) -> str:
        """What is to be said of a split without a single picture."""

    @classmethod
    @abstractmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether this folder looks like a data set of this format."""

    @abstractmethod
    def sample(self, name: str) -> Item_co:
        """What is known about the picture of this name."""

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Item_co]:
        return (self.sample(name) for name in self.names)


def the_only(
    folder: Path, found: Sequence[tuple[Path, type[Kind]]], kinds: Mapping[str, type[Kind]], what: str
) -> tuple[Path, type[Kind]]:
    """The one data set that was found in a folder, with its format; or an error that says which there might be.

    Args:
        folder: that was looked into.
        found: the data sets in it, each with its format.
        kinds: all formats, by name.
        what: is looked for, such as "data set".
    """
    if not found:
        expected = "; ".join(f"{kind.name} ({kind.layout})" for kind in kinds.values())
        raise DataError(f"{str(folder)!r} holds no {what} that is known: {expected}")
    if len(found) > 1:
        choices = ", ".join(f"{str(root)!r} ({kind.name})" for root, kind in found)
        several = what.replace("data set", "data sets")
        raise DataError(f"{str(folder)!r} holds {len(found)} {several}: name one of {choices}")
    return found[0]
