"""Answers as rows of a Parquet file, and back again to the last digit.

A value that is text, a number or a truth in itself has a column of its own type; lists and the like are JSON text. So
every program that reads Parquet can filter and sum, and what it needs a parser for is little.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from excite.errors import ExciteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.jobs.book import Entry

__all__ = ["Columns", "arrow"]

ODD = "odd_row"
"""The column for a row that does not fit the others, as JSON text of all of it; empty in nearly every row."""

MARK = b"excite"
PLAIN: dict[type, str] = {str: "string", bool: "bool", int: "int64", float: "double"}
JSON_TEXT = "json"
SMALLEST, LARGEST = -(2**63), 2**63 - 1


def arrow() -> Any:
    """The package pyarrow with its reader of Parquet and its functions.

    Example:
        >>> arrow().__name__
        'pyarrow'
    """
    try:
        import_module("pyarrow.parquet")
        import_module("pyarrow.compute")
    except ImportError:
        raise ExciteError("Parquet files need pyarrow: pip install 'excite[tags]'") from None
    return import_module("pyarrow")


@dataclass(frozen=True)
class Columns:
    """The columns of a file: for each name of an answer's values its kind.

    Example:
        >>> columns = Columns.of([{"key": "a", "image": "cat.jpg", "size": [4, 3]}])
        >>> columns.kinds
        {'key': 'string', 'image': 'string', 'size': 'json'}
        >>> columns.entries(columns.table([{"key": "a", "image": "cat.jpg", "size": [4, 3]}]))
        [{'key': 'a', 'image': 'cat.jpg', 'size': [4, 3]}]
    """

    kinds: dict[str, str]

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Columns:
        """Columns that suit these answers; a column is of the kind of its first value."""
        firsts = {name: next((one[name] for one in entries if one.get(name) is not None), None) for name in entries[0]}
        return cls({name: PLAIN.get(type(value), JSON_TEXT) for name, value in firsts.items()} | {"key": "string"})

    @classmethod
    def read(cls, schema: Any) -> Columns | None:
        """The columns of a file; None if excite has not written it."""
        marked = (schema.metadata or {}).get(MARK)
        try:
            kinds = None if marked is None else json.loads(marked)
        except (ValueError, RecursionError):
            return None
        if not isinstance(kinds, dict) or not {*kinds, "key", ODD} <= set(schema.names):
            return None
        return cls(kinds) if all(kind in {*PLAIN.values(), JSON_TEXT} for kind in map(str, kinds.values())) else None

    @property
    def names(self) -> list[str]:
        """Of the values of an answer that fits."""
        return list(self.kinds)

    def table(self, entries: Sequence[Entry]) -> Any:
        """The answers as a table."""
        pa = arrow()
        rows = [self._row(entry) for entry in entries]
        kinds = {**self.kinds, ODD: "string"}
        fields = [(name, pa.type_for_alias("string" if kind == JSON_TEXT else kind)) for name, kind in kinds.items()]
        schema = pa.schema(fields, metadata={MARK: json.dumps(self.kinds).encode()})
        return pa.Table.from_pylist(rows, schema=schema)

    def entries(self, table: Any) -> list[Entry]:
        """The answers of a table."""
        return [self._entry(row) for row in table.to_pylist()]

    def keys(self, table: Any, required: frozenset[str]) -> list[str | None]:
        """The key of each row of a table's columns ``key`` and ``odd_row``; None for one that is outdated."""
        whole = required <= self.kinds.keys()
        odd = [None if text is None else json.loads(text) for text in table[ODD].to_pylist()]
        keys: list[str] = table["key"].to_pylist()
        found = [
            (key if whole else None) if row is None else (row["key"] if required <= row.keys() else None)
            for key, row in zip(keys, odd, strict=True)
        ]
        if not all(key is None or isinstance(key, str) for key in found):
            raise ValueError("a key is no text")
        return found

    def _row(self, entry: Entry) -> dict[str, Any]:
        fits = list(entry) == self.names and all(_fits(entry[name], kind) for name, kind in self.kinds.items())
        row = {
            name: json.dumps(entry[name]) if kind == JSON_TEXT else entry[name]
            for name, kind in self.kinds.items()
            if name in entry and _fits(entry[name], kind)
        }
        if fits:
            return row
        return {"key": entry["key"].encode("utf-8", "backslashreplace").decode(), **row, ODD: json.dumps(entry)}

    def _entry(self, row: dict[str, Any]) -> Entry:
        if row[ODD] is not None:
            whole: Entry = json.loads(row[ODD])
            return whole
        return {name: json.loads(row[name]) if kind == JSON_TEXT else row[name] for name, kind in self.kinds.items()}


def _fits(value: Any, kind: str) -> bool:
    """Whether a column of this kind gives the value back exactly as it was."""
    if kind == JSON_TEXT or value is None:
        return True
    if isinstance(value, int) and not SMALLEST <= value <= LARGEST:
        return False
    return PLAIN.get(type(value)) == kind and not (isinstance(value, str) and not _is_unicode(value))


def _is_unicode(text: str) -> bool:
    """Bytes of odd file names are no characters: JSON can escape them, Parquet cannot hold them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
