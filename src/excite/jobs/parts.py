"""The files in a folder of answers."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from excite.errors import ExciteError
from excite.jobs.columns import ODD, Columns, arrow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from excite.jobs.book import Entry

__all__ = ["Kept", "entries_in", "keys_in", "part_name", "parts_of", "read_part"]

PART = re.compile(r"part-(\d{5,})\.parquet")


def part_name(number: int) -> str:
    """What a file is called.

    Example:
        >>> part_name(3)
        'part-00003.parquet'
    """
    return f"part-{number:05}.parquet"


def parts_of(folder: Path) -> dict[int, Path]:
    """The files by number, in order.

    Example:
        >>> from pathlib import Path
        >>> parts_of(Path("not there"))
        {}
    """
    try:
        found = {int(named[1]): path for path in folder.iterdir() if (named := PART.fullmatch(path.name))}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ExciteError(f"cannot read {str(folder)!r}: {error.strerror or error}; use another --out") from None
    return dict(sorted(found.items()))


def read_part(path: Path, columns: Sequence[str] | None = None) -> tuple[Columns, Any]:
    """The columns of a file and its table, perhaps with some of them only.

    The file is opened once: whoever writes may put another one in its place at any moment, and the end of one file
    says nothing about the pages of another.
    """
    pa = arrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            found, table = Columns.read(file.schema_arrow), file.read(columns=columns)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ExciteError(f"cannot read {str(path)!r}: {reason}; move it away, or use another --out") from None
    if found is None:
        raise ExciteError(f"{str(path)!r} is there already and was not written by excite: choose another --out")
    return found, table


def entries_in(path: Path) -> tuple[Columns, list[Entry]]:
    """The columns of a file and all its answers."""
    columns, table = read_part(path)
    with _whole(path):
        return columns, columns.entries(table)


def keys_in(path: Path, required: frozenset[str]) -> list[str | None]:
    """The key of each answer of a file; None for one that is outdated."""
    columns, table = read_part(path, ["key", ODD])
    with _whole(path):
        return columns.keys(table, required)


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Whoever damages a file may leave it Parquet, but not what excite has written."""
    try:
        yield
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ExciteError(
            f"{str(path)!r} is damaged ({str(error)[:200]}); move it away, or use another --out"
        ) from None


class Kept(Mapping[str, "Entry"]):
    """Answers by key, of which only the place is kept in memory; they are read when asked for, a file at a time.

    Example:
        >>> len(Kept())
        0
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._parts: list[Path] = []
        self._ends = array("q")  # how many rows there are up to the end of each file
        self._read = lru_cache(maxsize=2)(self._entries)

    def note(self, part: Path, keys: Sequence[str | None]) -> None:
        """Remember where the answers of one more file are; of two with the same key the later one counts."""
        self._parts.append(part)
        begin = self._ends[-1] if self._ends else 0
        self._ends.append(begin + len(keys))
        self._places.update({key: place for place, key in enumerate(keys, begin) if key is not None})

    def __getitem__(self, key: str) -> Entry:
        place = self._places[key]
        number = bisect_right(self._ends, place)
        return self._read(number)[place - (self._ends[number - 1] if number else 0)]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def _entries(self, number: int) -> list[Entry]:
        return entries_in(self._parts[number])[1]
