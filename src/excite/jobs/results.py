"""Result stores: append-only and readable after a kill; JSON lines for one machine, Parquet for a cluster."""

from __future__ import annotations

import json
from collections import ChainMap
from typing import TYPE_CHECKING, Any, Protocol, cast

from excite.errors import ExciteError
from excite.io.files import save_text
from excite.jobs.parquet import ParquetStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping
    from pathlib import Path

Entry = dict[str, Any]


class ResultStore(Protocol):
    """Keeps results by key."""

    def read(self) -> Mapping[str, Entry]:
        """The results so far, by key."""

    def add(self, entry: Entry) -> None:
        """Append a result; it is on the disk at once or within seconds."""

    def close(self) -> None:
        """Write what is not on the disk yet; the store may be used again afterwards."""

    def clear(self) -> None:
        """Remove all results."""


class JsonLinesStore:
    """A file with a JSON object per line. A line cut off by a kill is dropped when the file is read.

    Args:
        path: the file; it need not be there yet.
        required: the fields of a result beside its key; a line without them is damaged or outdated.
    """

    def __init__(self, path: Path, required: Iterable[str]) -> None:
        self.path = path
        self.required = frozenset(required)

    def read(self) -> dict[str, Entry]:
        """The results so far, by key; lines that are damaged or outdated are removed from the file."""
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ExciteError(f"cannot read {str(self.path)!r}: {error.strerror or error}; use another --out") from None
        lines = text.split("\n")
        entries = {entry["key"]: entry for entry in map(self._entry, lines) if entry is not None}
        if len(entries) != len(lines) - 1 or lines[-1]:  # a whole file ends in a line break
            self.rewrite(entries)
        return entries

    def rewrite(self, entries: Mapping[str, Entry]) -> None:
        """Replace all results, atomically."""
        save_text("".join(json.dumps(entry) + "\n" for entry in entries.values()), self.path)

    def add(self, entry: Entry) -> None:
        """Append a result at once."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise ExciteError(
                f"cannot write {str(self.path)!r}: {error.strerror or error}; choose another --out"
            ) from None

    def close(self) -> None:
        """Everything is on the disk already."""

    def clear(self) -> None:
        """Remove all results."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ExciteError(
                f"cannot remove {str(self.path)!r}: {error.strerror or error}; choose another --out"
            ) from None

    def _entry(self, line: str) -> Entry | None:
        """The result of a line, if it is complete."""
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            return None
        whole = isinstance(entry, dict) and isinstance(entry.get("key"), str) and self.required <= entry.keys()
        return entry if whole else None


def open_results(path: Path, required: Iterable[str], *, parquet: bool = False) -> ResultStore:
    """The store of a run: JSON lines, or a folder of Parquet files beside them. Both are read where both exist.

    Args:
        path: the file of JSON lines; the folder has the same name with the suffix ``.parquet``.
        required: the fields of a result beside its key.
        parquet: write the folder.

    Example:
        >>> from pathlib import Path
        >>> dict(open_results(Path("out/records.jsonl"), ("image",), parquet=True).read())
        {}
    """
    fields = tuple(required)
    lines, parts = JsonLinesStore(path, fields), ParquetStore(path.with_suffix(".parquet"), fields)
    if parquet:
        return _BothStores(parts, lines) if path.exists() else parts
    return _BothStores(lines, parts) if parts.is_there() else lines


class _BothStores:
    """Reads two stores and writes one, whose results take precedence: they may have replaced outdated ones."""

    def __init__(self, own: ResultStore, other: ResultStore) -> None:
        self._own, self._other = own, other

    def read(self) -> Mapping[str, Entry]:
        maps = [cast("MutableMapping[str, Entry]", store.read()) for store in (self._own, self._other)]
        return ChainMap(*maps)  # it is only read

    def add(self, entry: Entry) -> None:
        self._own.add(entry)

    def close(self) -> None:
        self._own.close()

    def clear(self) -> None:
        self._own.clear()
        self._other.clear()
