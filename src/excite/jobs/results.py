"""Which ledger a run writes, and what earlier runs have left in the other."""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING, cast

from excite.jobs.lines import Ledger
from excite.jobs.parquet import ParquetLedger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping
    from pathlib import Path

    from excite.jobs.book import Book, Entry

__all__ = ["open_ledger"]


def open_ledger(path: Path, required: Iterable[str], *, parquet: bool = False) -> Book:
    """The ledger of a run: lines of JSON, or a folder of Parquet files beside them. Both are read where both are there.

    Args:
        path: the file of lines; the folder is called like it, but for the suffix.
        required: what an answer must hold beside its key.
        parquet: write the folder.

    Example:
        >>> from pathlib import Path
        >>> dict(open_ledger(Path("out/records.jsonl"), ("image",), parquet=True).read())
        {}
    """
    fields = tuple(required)
    lines, parts = Ledger(path, fields), ParquetLedger(path.with_suffix(".parquet"), fields)
    if parquet:
        return _Both(parts, lines) if path.exists() else parts
    return _Both(lines, parts) if parts.is_there() else lines


class _Both:
    """Reads two ledgers and writes one.

    An answer that is in both is taken from the one that is written: if it no longer counts, and is found anew, the next
    run meets the new one first.
    """

    def __init__(self, own: Book, other: Book) -> None:
        self._own, self._other = own, other

    def read(self) -> Mapping[str, Entry]:
        maps = [cast("MutableMapping[str, Entry]", book.read()) for book in (self._own, self._other)]
        return ChainMap(*maps)  # which is only read

    def add(self, entry: Entry) -> None:
        self._own.add(entry)

    def close(self) -> None:
        self._own.close()

    def clear(self) -> None:
        self._own.clear()
        self._other.clear()
