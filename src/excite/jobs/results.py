"""The result store: one result for each key, safe against kills, full disks and two runs at once.

While a run adds results they are in a database, ``records.sqlite`` (WAL mode: one small append each; exclusive locking
mode: network file systems will do, and a second run is refused). When it ends they are written to ``records.jsonl``,
and the database is removed: one that is there is that of a killed run, and the next run takes its results over.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from excite.errors import ExciteError
from excite.io.files import atomic_write, save_text
from excite.jobs.parquet import parts_of, read_parquet, save_parquet

Entry = dict[str, Any]

TABLE = "CREATE TABLE results (key BLOB UNIQUE, entry TEXT)"
ADD = "INSERT INTO results VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET entry = excluded.entry"  # keeps its place
ALL = "SELECT entry FROM results ORDER BY rowid"


class ResultStore:
    """Keeps results by key, in the order in which they were added, in the file of JSON lines ``path``.

    A result without the ``required`` fields is damaged or outdated, and left out. With ``parquet`` the folder with that
    suffix is written too when a run ends.
    """

    def __init__(self, path: Path, required: Iterable[str], *, parquet: bool = False) -> None:
        self.path, self.required, self.parquet = path, frozenset(required), parquet
        self.database = path.with_suffix(".sqlite")
        self._connection: sqlite3.Connection | None = None

    def read(self) -> Mapping[str, Entry]:
        """The results so far, by key, also those of a run that was killed; damaged lines are removed from the file."""
        self._take_over()
        if self._connection is not None:
            with self._errors_told():
                return _Results(self._whole(str(text) for (text,) in self._connection.execute(ALL)))
        found = self._whole(self._lines())
        if self.path.exists() and self.path.stat().st_size != sum(len(line.encode()) + 1 for line in found.values()):
            save_text("".join(f"{line}\n" for line in found.values()), self.path)
        return _Results(found)

    def add(self, entry: Entry) -> None:
        """Add a result, or replace that with the same key; it is on the disk at once."""
        connection = self._connection or self._open()
        with self._errors_told():
            connection.execute(ADD, (_bytes(entry["key"]), json.dumps(entry)))

    def close(self) -> None:
        """Write the file of JSON lines, if results were added; the store may be used again afterwards."""
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        try:
            with self._errors_told():
                rows = connection.execute(ALL)
                atomic_write(self.path, lambda file: file.writelines(f"{text}\n".encode() for (text,) in rows))
                if self.parquet:
                    results = _Results(self._whole(self._lines()))
                    save_parquet(self.path.with_suffix(".parquet"), results.values())
                connection.execute("PRAGMA journal_mode = DELETE")  # the log: what a kill leaves is one whole file
                self.database.unlink(missing_ok=True)  # while it is locked
        finally:
            connection.close()

    def rewrite(self, entries: Mapping[str, Entry]) -> None:
        """Replace all results, atomically."""
        save_text("".join(json.dumps(entry) + "\n" for entry in entries.values()), self.path)

    def clear(self) -> None:
        """Remove all results."""
        self._take_over()
        self.close()
        with self._errors_told():
            self.path.unlink(missing_ok=True)
            for part in parts_of(self.path.with_suffix(".parquet")):
                part.unlink()

    def _take_over(self) -> None:
        """Write the results of a killed run to the file."""
        if self._connection is None and self._has_database():
            self._open()
            self.close()

    def _has_database(self) -> bool:
        return os.path.exists(self.database)  # noqa: PTH110 - a Path raises an error for a name that is too long

    def _open(self) -> sqlite3.Connection:
        """Open and lock the database; a new one gets the results of the file."""
        with self._errors_told():
            self.database.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.database, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                for mode in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
                    connection.execute(f"PRAGMA {mode}")
                connection.execute("BEGIN IMMEDIATE")
                self._fill(connection)
                connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
        if not self._has_database():  # another run has ended, and removed it, before this one had locked it
            connection.close()
            return self._open()
        self._connection = connection
        return connection

    def _fill(self, connection: sqlite3.Connection) -> None:
        found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        if not found:
            connection.execute(TABLE)
            connection.executemany(ADD, ((_bytes(key), text) for key, text in self._whole(self._lines()).items()))
        elif found != [(TABLE,)]:
            raise ExciteError(f"{str(self.database)!r} was not written by excite: choose another --out")

    def _lines(self) -> Iterator[str]:
        """The lines of the file, or else the rows of the Parquet folder, which excite 0.1 wrote alone."""
        try:
            with self.path.open(encoding="utf-8", errors="replace", newline="\n") as file:
                yield from file
        except FileNotFoundError:
            for entry in read_parquet(self.path.with_suffix(".parquet")):
                yield json.dumps(entry)
        except OSError as error:
            raise ExciteError(f"cannot read {str(self.path)!r}: {error.strerror or error}; use another --out") from None

    def _whole(self, lines: Iterable[str]) -> dict[str, str]:
        """The lines of complete results, by key: a line that a kill cut off is none."""
        found = {}
        for line in lines:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict) and isinstance(entry.get("key"), str) and self.required <= entry.keys():
                found[entry["key"]] = line.rstrip("\n")
        return found

    @contextmanager
    def _errors_told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise ExciteError(f"cannot write {str(self.path)!r}: {reason}; choose another --out") from None
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:  # of any kind
                raise ExciteError(
                    f"another run is writing {str(self.path.parent)!r}: wait for it, or use another --out"
                ) from None
            raise ExciteError(
                f"cannot write {str(self.database)!r} ({error}): has the disk room? Move the file away if it is "
                "damaged, or choose another --out"
            ) from None


class _Results(Mapping[str, Entry]):
    """Results by key. They stay text until one is asked for, which takes a quarter of the memory."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def __getitem__(self, key: str) -> Entry:
        entry: Entry = json.loads(self._texts[key])
        return entry

    def __contains__(self, key: object) -> bool:
        return key in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def _bytes(key: str) -> bytes:
    """A key for the database; one with bytes of a file name that are no text cannot be text there."""
    return key.encode(errors="surrogatepass")


JsonLinesStore = ResultStore  # its name until 0.2
