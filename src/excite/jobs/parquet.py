"""A folder of answers that survives being killed: Parquet files, each whole at every moment."""

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


# Answers as rows of a Parquet file, and back again to the last digit.
#
# A value that is text, a number or a truth in itself has a column of its own type; lists and the like are JSON text.
# So every program that reads Parquet can filter and sum, and what it needs a parser for is little.

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


# The files in a folder of answers.

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


# A folder of answers that survives being killed: Parquet files, each whole at every moment.

ROWS = 2000  # in a file; the last one is written again and again until it has so many
SECONDS = 5.0  # an answer is written down that much later at the latest


class ParquetStore:
    """The folder of answers, ``part-00000.parquet`` and so on, in the order of the tasks.

    Only the last file ever changes, and that in one step. An answer waits at most `SECONDS` before it is in a file.

    Args:
        path: the folder; it need not be there yet.
        required: what an answer must hold beside its key; a row without is outdated.
    """

    def __init__(self, path: Path, required: Iterable[str]) -> None:
        self.path = path
        self.required = frozenset(required)
        self._guard = threading.Lock()  # between whoever adds and the timer
        self._lock = Lock(path)
        self._columns: Columns | None = None
        self._rows: list[Entry] = []  # those of the last file
        self._number = 0  # of the last file
        self._unsaved = 0
        self._timer: threading.Timer | None = None
        self._late: ExciteError | None = None  # what went wrong when nobody was there to be told

    def is_there(self) -> bool:
        """Whether an earlier run has left answers.

        Example:
            >>> from pathlib import Path
            >>> ParquetStore(Path("out/records.parquet"), ()).is_there()
            False
        """
        return bool(parts_of(self.path))

    def read(self) -> Mapping[str, Entry]:
        """The answers so far, by key: of each only its place is kept in memory."""
        if self.path.exists() and not self.path.is_dir():
            raise ExciteError(f"{str(self.path)!r} is a file and no folder of answers: choose another --out")
        kept = Kept()
        for part in parts_of(self.path).values():
            kept.note(part, keys_in(part, self.required))
        return kept

    def add(self, entry: Entry) -> None:
        """Write one more answer down, within seconds."""
        with self._guard:
            self._tell()
            if self._lock.take():
                self._begin()
            if self._columns is not None and list(entry) != self._columns.names and not self._unsaved:
                self._next()  # the files of an earlier run held something else
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
        """Write down what is not yet."""
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            try:
                if self._unsaved:
                    self._save()
                self._tell()
            finally:
                self._lock.release()

    def clear(self) -> None:
        """Forget all answers."""
        for part in parts_of(self.path).values():
            try:
                part.unlink(missing_ok=True)
            except OSError as error:
                raise ExciteError(
                    f"cannot remove {str(part)!r}: {error.strerror or error}; choose another --out"
                ) from None
        self._columns, self._rows, self._number, self._unsaved = None, [], 0, 0

    def _begin(self) -> None:
        """Go on with the last file, if there is room in it; whatever a kill left half-written is removed."""
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
            if self._timer is not threading.current_thread():  # cancelled too late to be stopped
                return
            self._timer = None
            try:
                self._save()
            except ExciteError as error:
                self._late = error

    def _tell(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            raise late

    def _save(self) -> None:
        """Write the last file anew, with all its rows."""
        if self._columns is None:
            self._columns = Columns.of(self._rows)
        table = self._columns.table(self._rows)
        write = arrow().parquet.write_table
        atomic_write(self.path / part_name(self._number), lambda file: write(table, file, compression="zstd"))
        self._unsaved = 0

    def _next(self, *, keep: bool = False) -> None:
        """Begin another file, of the same columns or not."""
        if self._rows:
            self._number += 1
        self._rows = []
        if not keep:
            self._columns = None
