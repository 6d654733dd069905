"""Which ledger a run writes, and what earlier runs have left in the other."""

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


# What all ledgers can do.

Entry = dict[str, Any]


class ResultStore(Protocol):
    """Where answers are kept."""

    def read(self) -> Mapping[str, Entry]:
        """The answers so far, by key."""

    def add(self, entry: Entry) -> None:
        """Write one more answer down, at once or within seconds."""

    def close(self) -> None:
        """Write down what is not yet; it may be used again afterwards."""

    def clear(self) -> None:
        """Forget all answers."""


# A file of answers that survives being killed: a JSON object a line, written one at a time.


class JsonLinesStore:
    """The file of answers, a JSON object a line. A line cut off by a kill is dropped when it is read again.

    Args:
        path: the file; it need not be there yet.
        required: what an answer must hold beside its key; a line without is damaged or outdated.
    """

    def __init__(self, path: Path, required: Iterable[str]) -> None:
        self.path = path
        self.required = frozenset(required)

    def read(self) -> dict[str, Entry]:
        """The answers so far, by key; the file is left without lines that are damaged or outdated."""
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
        """Let these be all answers, in one step."""
        save_text("".join(json.dumps(entry) + "\n" for entry in entries.values()), self.path)

    def add(self, entry: Entry) -> None:
        """Write one more answer down at once."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise ExciteError(
                f"cannot write {str(self.path)!r}: {error.strerror or error}; choose another --out"
            ) from None

    def close(self) -> None:
        """Everything is written down already."""

    def clear(self) -> None:
        """Forget all answers."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ExciteError(
                f"cannot remove {str(self.path)!r}: {error.strerror or error}; choose another --out"
            ) from None

    def _entry(self, line: str) -> Entry | None:
        """A line of the ledger, if it is whole."""
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            return None
        whole = isinstance(entry, dict) and isinstance(entry.get("key"), str) and self.required <= entry.keys()
        return entry if whole else None


# Which ledger a run writes, and what earlier runs have left in the other.


def open_results(path: Path, required: Iterable[str], *, parquet: bool = False) -> ResultStore:
    """The ledger of a run: lines of JSON, or a folder of Parquet files beside them. Both are read where both are there.

    Args:
        path: the file of lines; the folder is called like it, but for the suffix.
        required: what an answer must hold beside its key.
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
    """Reads two ledgers and writes one.

    An answer that is in both is taken from the one that is written: if it no longer counts, and is found anew, the next
    run meets the new one first.
    """

    def __init__(self, own: ResultStore, other: ResultStore) -> None:
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
