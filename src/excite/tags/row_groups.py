"""A Parquet file written batch by batch: its row groups of even size, and the file whole or not there."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np

from excite.errors import ExciteError
from excite.io.halves import half_file, sweep_once
from excite.jobs.columns import arrow
from excite.tags.corpus import BATCH

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RowGroups"]

MOST_BYTES = 1 << 30  # of a row group, in memory


class RowGroups:
    """Writes a Parquet file beside its place and moves it there when nothing went wrong.

    The bytes do not depend on how the rows were shared out to batches, unless they are so long that `most_bytes` of
    them are fewer than ``rows``.

    Args:
        path: the file.
        schema: its columns.
        rows: of a row group.
        most_bytes: a row group that holds so many is written, however few its rows are.

    Example:
        >>> from pathlib import Path
        >>> pa = arrow()
        >>> batch = pa.record_batch({"tag": ["sea", "sky"]})
        >>> with RowGroups(Path("out.parquet"), batch.schema) as file:
        ...     file.add(batch)
        >>> pa.parquet.read_table("out.parquet").num_rows
        2
    """

    def __init__(self, path: Path, schema: Any, rows: int = BATCH, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self._schema, self._rows, self._most_bytes = schema, rows, most_bytes
        self._ending = ExitStack()
        self._waiting: list[Any] = []
        self._number = self._bytes = 0
        self._writer: Any = None
        self._half: Path
        self._file: BinaryIO

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            sweep_once(self.path.parent)
            self._half, self._file = self._ending.enter_context(half_file(self.path))
            kind = arrow().parquet.ParquetWriter
            self._writer = kind(self._file, self._schema, store_schema=False, compression="zstd")
        except OSError as error:
            self._ending.close()
            raise self._unwritten(error) from None
        return self

    def add(self, batch: Any) -> None:
        """Take more rows in."""
        while self._number + batch.num_rows >= self._rows:
            room = self._rows - self._number
            self._waiting.append(batch.slice(0, room))
            batch = batch.slice(room)
            self._write()
        if batch.num_rows:
            self._waiting.append(batch)
            self._number += batch.num_rows
            self._bytes += batch.nbytes
            if self._bytes > self._most_bytes:
                self._write()

    def _write(self) -> None:
        pa = arrow()
        table = pa.Table.from_batches(self._waiting, self._schema).unify_dictionaries().combine_chunks()
        columns = [_in_order(column.chunk(0)) for column in table.columns]
        try:
            self._writer.write_table(pa.table(columns, schema=self._schema), self._rows)
        except OSError as error:
            raise self._unwritten(error) from None
        self._waiting, self._number, self._bytes = [], 0, 0

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        with self._ending:
            try:
                if error is None:
                    self._finish()
            finally:
                self._give_up()  # after a success there is nothing left to close

    def _finish(self) -> None:
        try:
            if self._waiting:
                self._write()
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())  # a move may otherwise outrun the content it moves
            self._half.replace(self.path)
        except OSError as error:
            raise self._unwritten(error) from None

    def _give_up(self) -> None:
        """Close what was not finished; the end of a file cannot be written where the rest could not."""
        with suppress(OSError):
            self._writer.close()
        self._writer.is_open = False  # or it would try again when nobody uses it any more

    def _unwritten(self, error: OSError) -> ExciteError:
        return ExciteError(f"cannot write {str(self.path)!r}: {error.strerror or error}; is there room for it?")


def _in_order(column: Any) -> Any:
    """The column; its words, where it holds numbers for words, without unused ones and in the order of their letters.

    Otherwise their order would tell which batch came first.
    """
    pa = arrow()
    if pa.types.is_list(column.type):
        inner = _in_order(column.flatten())
        offsets = pa.array(np.append(0, np.cumsum(column.value_lengths().to_numpy())).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, inner)
    if not pa.types.is_dictionary(column.type):
        return column
    numbers = column.indices.to_numpy()
    used = np.flatnonzero(np.bincount(numbers, minlength=len(column.dictionary)))
    words = column.dictionary.take(pa.array(used))
    order = pa.compute.sort_indices(words).to_numpy()
    places = np.zeros(len(column.dictionary), np.int32)
    places[used[order]] = np.arange(len(order))
    return pa.DictionaryArray.from_arrays(pa.array(places[numbers]), words.take(pa.array(order)))
