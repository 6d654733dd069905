"""The tags worth learning, most frequent first, and how often each was seen."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

from excite.errors import DataError
from excite.io.files import save_csv

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["Dictionary", "dictionary_beside"]

HEADER = ["tag", "count"]


@dataclass(frozen=True)
class Dictionary:
    """Tags in the order of a tag classifier's outputs.

    Attributes:
        tags: the most frequent first; those seen equally often in the order of their letters' code points.
        counts: how often each was seen in the corpus as read.
    """

    tags: tuple[str, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, counts: Mapping[str, int], least: int = 1, most: int | None = None) -> Self:
        """The tags seen at least so often, and of these at most so many.

        Example:
            >>> Dictionary.of({"cat": 3, "dog": 5, "emu": 1, "ant": 3}, least=2).tags
            ('dog', 'ant', 'cat')
        """
        return cls.ranked(((tag, count) for tag, count in counts.items() if count >= least), most)

    @classmethod
    def ranked(cls, counted: Iterable[tuple[str, int]], most: int | None = None) -> Self:
        """Tags that were counted, in their order, and at most so many."""
        ranked = sorted(counted, key=lambda one: (-one[1], one[0]))[:most]
        return cls(tuple(tag for tag, _ in ranked), tuple(count for _, count in ranked))

    @classmethod
    def read(cls, path: Path) -> Self:
        """A dictionary from the file that `save` wrote, or any CSV file that begins with ``tag,count``.

        Raises:
            DataError: the file cannot be read, or is no such file.
        """
        try:
            lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
            if not lines or lines[0] != HEADER:
                raise DataError(f"{path} is no dictionary: its first line must be {','.join(HEADER)}")
            counted = [(tag, int(count)) for tag, count in lines[1:]]
        except (OSError, ValueError, csv.Error) as error:
            raise DataError(f"cannot read the dictionary {path}: {' '.join(str(error).split())}") from None
        if len({tag for tag, _ in counted}) < len(counted):
            raise DataError(f"{path} holds a tag twice: each is one output of a classifier")
        return cls(tuple(tag for tag, _ in counted), tuple(count for _, count in counted))

    def save(self, path: Path) -> Path:
        """Write the dictionary as CSV."""
        return save_csv([HEADER, *zip(self.tags, self.counts, strict=True)], path)

    def __len__(self) -> int:
        return len(self.tags)

    @cached_property
    def units(self) -> Mapping[str, int]:
        """The place of each tag.

        Example:
            >>> Dictionary(("dog", "cat"), (5, 3)).units["cat"]
            1
        """
        return {tag: unit for unit, tag in enumerate(self.tags)}


def dictionary_beside(corpus: Path) -> Path:
    """Where the dictionary of a cleaned corpus lies.

    Example:
        >>> from pathlib import Path
        >>> dictionary_beside(Path("out/kept.parquet"))
        PosixPath('out/kept.tags.csv')
    """
    return corpus.with_suffix(".tags.csv")
