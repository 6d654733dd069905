"""Ledgers in a folder that may hold other things too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from excite.errors import ExciteError
from excite.jobs.ledger_init import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from excite.jobs.ledger_init import Book

__all__ = ["own_ledger"]

START = '{"key": "'


def own_ledger(path: Path, required: Iterable[str], *, parquet: bool = False) -> Book:
    """A ledger, unless the file is somebody else's: a ledger that is read drops the lines that it does not know.

    Example:
        >>> from pathlib import Path
        >>> own_ledger(Path("boxes/records.jsonl"), required=("image",)).read()
        {}
    """
    fields = tuple(required)
    ledger = open_ledger(path, fields, parquet=parquet)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline()
    except OSError:  # it is not there, or the ledger itself will say why it cannot be read
        return ledger
    if first and not _begins(first, {"key", *fields}):
        raise ExciteError(f"{str(path)!r} is there already and was not written by excite boxes: choose another --out")
    return ledger


def _begins(first: str, fields: set[str]) -> bool:
    """Whether this is the first line of a ledger, or of one that was killed while it wrote just that."""
    if not first.endswith("\n"):
        return first.startswith(START) or START.startswith(first)
    try:
        entry = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(entry, dict) and entry.keys() >= fields
