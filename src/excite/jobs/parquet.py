"""A result store of Parquet files, each complete at every moment.

A value that is text, a number or a boolean has a column of its own type, so that other programs can filter and sum;
lists and dictionaries are JSON text. Every value is restored exactly.
"""

from __future__ import annotations

import json
import re
import threading
from array import array
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from excite.errors import ExciteError
from excite.io.files import atomic_write, remove_leftovers
from excite.io.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from excite.jobs.results import Entry


ROWS = 2000  # of a file; the last file is rewritten until it has so many
SECONDS = 5.0  # after which a result is on the disk at the latest
PART = re.compile(r"part-(\d{5,})\.parquet")
ODD = "odd_row"
"""The column for the JSON text of a whole row that does not fit the columns; empty in nearly every row."""

MARK = b"excite"
PLAIN: dict[type, str] = {str: "string", bool: "bool", int: "int64", float: "double"}
JSON_TEXT = "json"
SMALLEST, LARGEST = -(2**63), 2**63 - 1


def arrow() -> Any:
    """The package pyarrow, with its modules ``parquet`` and ``compute`` imported.

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
    """The columns of a file: the kind of each field of a result.

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
        """The columns for these results; a column has the kind of its first value."""
        firsts = {name: next((one[name] for one in entries if one.get(name) is not None), None) for name in entries[0]}
        return cls({name: PLAIN.get(type(value), JSON_TEXT) for name, value in firsts.items()} | {"key": "string"})

    @classmethod
    def read(cls, schema: Any) -> Columns | None:
        """The columns of a schema; None if excite has not written it."""
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
        """The fields of a result that fits."""
        return list(self.kinds)

    def table(self, entries: Sequence[Entry]) -> Any:
        """The results as a table."""
        pa = arrow()
        rows = [self._row(entry) for entry in entries]
        kinds = {**self.kinds, ODD: "string"}
        fields = [(name, pa.type_for_alias("string" if kind == JSON_TEXT else kind)) for name, kind in kinds.items()]
        schema = pa.schema(fields, metadata={MARK: json.dumps(self.kinds).encode()})
        return pa.Table.from_pylist(rows, schema=schema)

    def entries(self, table: Any) -> list[Entry]:
        """The results of a table."""
        return [self._entry(row) for row in table.to_pylist()]

    def keys(self, table: Any, required: frozenset[str]) -> list[str | None]:
        """The key of each row, from the columns ``key`` and ``odd_row``; None for an outdated row."""
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
    """Whether a column of this kind restores the value exactly."""
    if kind == JSON_TEXT or value is None:
        return True
    if isinstance(value, int) and not SMALLEST <= value <= LARGEST:
        return False
    if isinstance(value, str):  # undecodable bytes of a file name: JSON can escape them, Parquet cannot hold them
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    return PLAIN.get(type(value)) == kind


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
    """The columns of a file and its table, or only some columns of it.

    The file is opened once: a writer may replace it at any moment, and the footer of one file does not fit another.
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
    """The columns of a file and all its results."""
    columns, table = read_part(path)
    with _damage_reported(path):
        return columns, columns.entries(table)


def keys_in(path: Path, required: frozenset[str]) -> list[str | None]:
    """The key of each result of a file; None for an outdated one."""
    columns, table = read_part(path, ["key", ODD])
    with _damage_reported(path):
        return columns.keys(table, required)


@contextmanager
def _damage_reported(path: Path) -> Iterator[None]:
    """Report a file that is valid Parquet but not as excite has written it."""
    try:
        yield
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ExciteError(
            f"{str(path)!r} is damaged ({str(error)[:200]}); move it away, or use another --out"
        ) from None


class StoredEntries(Mapping[str, "Entry"]):
    """Results by key. Only their row numbers are in memory; they are read on demand, a file at a time.

    Of two results with the same key the later one counts.
    """

    def __init__(self, parts: Iterable[Path], required: frozenset[str]) -> None:
        self._rows: dict[str, int] = {}
        self._parts: list[Path] = []
        self._ends = array("q")  # the number of rows up to the end of each file
        self._entries = lru_cache(maxsize=2)(lambda number: entries_in(self._parts[number])[1])
        for part in parts:
            keys = keys_in(part, required)
            begin = self._ends[-1] if self._ends else 0
            self._parts.append(part)
            self._ends.append(begin + len(keys))
            self._rows.update({key: row for row, key in enumerate(keys, begin) if key is not None})

    def __getitem__(self, key: str) -> Entry:
        row = self._rows[key]
        number = bisect_right(self._ends, row)
        return self._entries(number)[row - (self._ends[number - 1] if number else 0)]

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class ParquetStore:
    """A folder of results, ``part-00000.parquet`` and so on, in the order of the tasks.

    Only the last file ever changes, and that atomically. A result waits at most `SECONDS` before it is in a file.

    Args:
        path: the folder; it need not be there yet.
        required: the fields of a result beside its key; a row without them is outdated.
    """

    def __init__(self, path: Path, required: Iterable[str]) -> None:
        self.path = path
        self.required = frozenset(required)
        self._guard = threading.Lock()  # between add and the timer
        self._lock = Lock(path)
        self._columns: Columns | None = None
        self._rows: list[Entry] = []  # of the last file
        self._number = 0  # of the last file
        self._unsaved = 0
        self._timer: threading.Timer | None = None
        self._late: ExciteError | None = None  # an error of the timer, raised by the next call

    def is_there(self) -> bool:
        """Whether there are results of an earlier run.

        Example:
            >>> from pathlib import Path
            >>> ParquetStore(Path("out/records.parquet"), ()).is_there()
            False
        """
        return bool(parts_of(self.path))

    def read(self) -> Mapping[str, Entry]:
        """The results so far, by key."""
        if self.path.exists() and not self.path.is_dir():
            raise ExciteError(f"{str(self.path)!r} is a file and no folder of answers: choose another --out")
        return StoredEntries(parts_of(self.path).values(), self.required)

    def add(self, entry: Entry) -> None:
        """Append a result, within seconds."""
        with self._guard:
            self._raise_late()
            if self._lock.take():
                self._begin()
            if self._columns is not None and list(entry) != self._columns.names and not self._unsaved:
                self._next()  # the files of an earlier run have other columns
            self._rows.append(entry)
            self._unsaved += 1
            if len(self._rows) >= ROWS:
                self._save()
                self._next(keep=True)
            elif self._timer is None:
                self._timer = threading.Timer(SECONDS, self._save_later)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Write what is not on the disk yet."""
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            try:
                if self._unsaved:
                    self._save()
                self._raise_late()
            finally:
                self._lock.release()

    def clear(self) -> None:
        """Remove all results."""
        for part in parts_of(self.path).values():
            try:
                part.unlink(missing_ok=True)
            except OSError as error:
                raise ExciteError(
                    f"cannot remove {str(part)!r}: {error.strerror or error}; choose another --out"
                ) from None
        self._columns, self._rows, self._number, self._unsaved = None, [], 0, 0

    def _begin(self) -> None:
        """Continue the last file, if it has room, and remove leftovers of a killed run."""
        remove_leftovers(self.path)
        parts = parts_of(self.path)
        self._columns, self._rows, self._number = None, [], 0
        if parts:
            self._number = max(parts)
            self._columns, self._rows = entries_in(parts[self._number])
        if len(self._rows) >= ROWS:
            self._next(keep=True)

    def _save_later(self) -> None:
        with self._guard:
            if self._timer is not threading.current_thread():  # cancelled too late
                return
            self._timer = None
            try:
                self._save()
            except ExciteError as error:
                self._late = error

    def _raise_late(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            raise late

    def _save(self) -> None:
        """Rewrite the last file with all its rows."""
        if self._columns is None:
            self._columns = Columns.of(self._rows)
        table = self._columns.table(self._rows)
        write = arrow().parquet.write_table
        path = self.path / f"part-{self._number:05}.parquet"
        atomic_write(path, lambda file: write(table, file, compression="zstd"))
        self._unsaved = 0

    def _next(self, *, keep: bool = False) -> None:
        """Begin another file, with the same columns or new ones."""
        if self._rows:
            self._number += 1
        self._rows = []
        if not keep:
            self._columns = None
