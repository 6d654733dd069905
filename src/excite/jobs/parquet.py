"""A folder of answers that survives being killed: Parquet files, each whole at every moment."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from excite.errors import ExciteError
from excite.io.files import atomic_write
from excite.io.halves import sweep
from excite.io.locking import Lock
from excite.jobs.columns import Columns, arrow
from excite.jobs.parts import Kept, entries_in, keys_in, part_name, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from excite.jobs.book import Entry

__all__ = ["ParquetLedger"]

ROWS = 2000  # in a file; the last one is written again and again until it has so many
SECONDS = 5.0  # an answer is written down that much later at the latest


class ParquetLedger:
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
            >>> ParquetLedger(Path("out/records.parquet"), ()).is_there()
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
        sweep(self.path)
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
