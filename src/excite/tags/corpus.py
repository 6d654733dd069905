"""A corpus of tagged images as Parquet: its row groups, its rows in batches of bounded size, and its writer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from excite.errors import DataError, ExciteError
from excite.io.files import remove_leftovers_once, temporary_file
from excite.jobs.parquet import arrow

BATCH = 100_000  # rows in memory at a time: some 4 million tags
MOST_BYTES = 256 << 20  # of a row group, in memory
SEPARATORS = r"\s*[,;|\t\n]\s*"  # between tags that are a single text


def schema() -> Any:
    """The columns of a corpus; an unknown user is null."""
    pa = arrow()
    return pa.schema([("image", pa.string()), ("tags", pa.list_(pa.string())), ("user", pa.string())])


@dataclass(frozen=True)
class ColumnNames:
    """The names of the columns of a file; ``user`` is None if it is not read, and may be missing if not needed."""

    image: str = "image"
    tags: str = "tags"
    user: str | None = "user"
    users_needed: bool = True

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return [name for name in (self.image, self.tags, self.user) if name is not None]

    def found_in(self, path: Path, names: Sequence[str]) -> ColumnNames:
        """The columns that a file with these column names has; a DataError if a required one is missing."""
        wanted = self if self.users_needed or self.user in names else replace(self, user=None)
        missing = [name for name in wanted.names if name not in names]
        if missing:
            there = ", ".join(repr(name[:50]) for name in names[:30])[:300]
            raise DataError(
                f"{path} has no column {missing[0]!r}, only {there}: say which one it is, as in --columns tags=keywords"
            )
        return wanted


@dataclass(frozen=True)
class RowGroup:
    """A row group of a Parquet file of the corpus."""

    path: Path
    index: int  # within the file
    first: int  # row, within the corpus
    rows: int  # their number

    @property
    def slice(self) -> slice:
        """Its rows within the corpus."""
        return slice(self.first, self.first + self.rows)


@dataclass(frozen=True)
class Corpus:
    """A Parquet file, or a folder of them in the order of their names; a DataError if there is none, or it is damaged.

    pyarrow reads it, not duckdb: workers and resuming need its row groups, and text that is not UTF-8 one clear line.
    """

    path: Path
    columns: ColumnNames = ColumnNames()
    row_groups: tuple[RowGroup, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "row_groups", tuple(_row_groups(self.path, self.columns)))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(group.rows for group in self.row_groups)

    def batches(self, row_groups: Iterable[RowGroup] | None = None, rows: int = BATCH) -> Iterator[Any]:
        """The rows in order, as record batches of `schema`; tags that are a single text are split."""
        for group in self.row_groups if row_groups is None else row_groups:
            yield from self.row_group_batches(group, self.columns, rows)

    @staticmethod
    def row_group_batches(
        group: RowGroup, columns: ColumnNames, rows: int = BATCH, *, encoded: bool = False
    ) -> Iterator[Any]:
        """The rows of one row group; if ``encoded``, tags that Parquet stores in a dictionary stay so: far quicker."""
        pa = arrow()
        try:
            leaves = _leaves(group.path, columns.tags) if encoded else []
            with pa.parquet.ParquetFile(group.path, read_dictionary=leaves) as opened:
                found = columns.found_in(group.path, opened.schema_arrow.names)
                for batch in opened.iter_batches(rows, row_groups=[group.index], columns=found.names):
                    yield _canonical(batch, found, group.path, encoded=encoded)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read {group.path}: {' '.join(str(error).split())[:200]}") from None


def _row_groups(path: Path, columns: ColumnNames) -> Iterator[RowGroup]:
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"there is no .parquet file in {path}: give a corpus, or the folder of its parts")
    pa, first = arrow(), 0
    for file in files:
        try:
            with pa.parquet.ParquetFile(file) as opened:
                metadata, names = opened.metadata, opened.schema_arrow.names
        except FileNotFoundError:
            raise DataError(f"there is no corpus {str(file)!r}") from None
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last, for the names of its columns
            reason = " ".join(str(error).split())[:200]
            if not isinstance(error, pa.ArrowInvalid):
                raise DataError(f"cannot read {file} as Parquet: {reason}") from None
            if file.suffix in {".parquet", ".pq"}:
                raise DataError(f"{file} is damaged: {reason}") from None
            remedy = f"`excite tags clean {file} --out kept.parquet` makes one"
            raise DataError(f"{file} is no Parquet file: {remedy}") from None
        columns.found_in(file, names)
        for group in range(metadata.num_row_groups):
            if rows := metadata.row_group(group).num_rows:
                yield RowGroup(file, group, first, rows)
                first += rows


def _leaves(path: Path, column: str) -> list[str]:
    """The Parquet column paths of the tags within their lists."""
    with arrow().parquet.ParquetFile(path) as opened:
        paths = [opened.schema.column(number).path for number in range(len(opened.schema))]
    return [path for path in paths if path.startswith(f"{column}.")]


def _canonical(batch: Any, columns: ColumnNames, path: Path, *, encoded: bool) -> Any:
    """A batch in the columns of `schema`; text of tags is split at its separators."""
    pa = arrow()
    user = pa.nulls(batch.num_rows) if columns.user is None else batch.column(columns.user)  # often numbers
    image, tags = batch.column(columns.image), batch.column(columns.tags)
    if pa.types.is_dictionary(tags.type):
        tags = tags.dictionary_decode()
    if pa.types.is_string(tags.type) or pa.types.is_large_string(tags.type):
        tags = pa.compute.split_pattern_regex(tags, SEPARATORS)
    is_list = pa.types.is_list(tags.type)
    if not (encoded and is_list and tags.type.value_type == pa.dictionary(pa.int32(), pa.string())):
        tags = tags.cast(pa.list_(pa.string()))
    canonical = pa.record_batch([image.cast(pa.string()), tags, user.cast(pa.string())], names=schema().names)
    try:
        canonical.validate(full=True)  # files of other programs may hold any bytes as text
    except pa.ArrowInvalid:
        raise DataError(f"{path} holds text that is not UTF-8: write its tags, images and users as UTF-8") from None
    return canonical


class RowGroups:
    """Collects record batches and writes them in row groups of even size, or of fewer rows if these are very long.

    The bytes of the file do not depend on how the rows are divided into batches.
    """

    def __init__(self, writer: Any, schema: Any, rows: int) -> None:
        self.writer, self.schema, self.rows = writer, schema, rows
        self._waiting: list[Any] = []
        self._number = self._bytes = 0

    def add(self, batch: Any) -> None:
        """Append rows."""
        while self._number + batch.num_rows >= self.rows:
            room = self.rows - self._number
            self._waiting.append(batch.slice(0, room))
            batch = batch.slice(room)
            self.flush()
        if batch.num_rows:
            self._waiting.append(batch)
            self._number += batch.num_rows
            self._bytes += batch.nbytes
            if self._bytes > MOST_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write the collected rows as a row group."""
        if self._waiting:
            pa = arrow()
            table = pa.Table.from_batches(self._waiting, self.schema).unify_dictionaries().combine_chunks()
            columns = [_sorted_words(column.chunk(0)) for column in table.columns]
            self.writer.write_table(pa.table(columns, schema=self.schema), self.rows)
        self._waiting, self._number, self._bytes = [], 0, 0


@contextmanager
def row_group_writer(path: Path, schema: Any, rows: int = BATCH) -> Iterator[RowGroups]:
    """Writes a Parquet file batch by batch, and moves it into place when it is complete."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers_once(path.parent)
        with temporary_file(path) as (half, file):
            writer = arrow().parquet.ParquetWriter(file, schema, store_schema=False, compression="zstd")
            try:
                groups = RowGroups(writer, schema, rows)
                yield groups
                groups.flush()
                writer.close()
            finally:  # the footer of an unfinished file cannot be written where the rest could not
                with suppress(OSError):
                    writer.close()
                writer.is_open = False  # or its destructor would try again
            file.flush()
            os.fsync(file.fileno())  # a move may otherwise outrun the content it moves
            half.replace(path)
    except OSError as error:
        raise ExciteError(f"cannot write {str(path)!r}: {error.strerror or error}; is there room for it?") from None


def _sorted_words(column: Any) -> Any:
    """A column with its dictionary, if any, sorted and without unused words: independent of the order of batches."""
    pa = arrow()
    if pa.types.is_list(column.type):
        inner = _sorted_words(column.flatten())
        offsets = pa.array(np.append(0, np.cumsum(column.value_lengths().to_numpy())).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, inner)
    if not pa.types.is_dictionary(column.type):
        return column
    numbers = column.indices.to_numpy()
    used = np.flatnonzero(np.bincount(numbers, minlength=len(column.dictionary)))
    words = column.dictionary.take(pa.array(used))
    order = pa.compute.sort_indices(words).to_numpy()
    ranks = np.zeros(len(column.dictionary), np.int32)
    ranks[used[order]] = np.arange(len(order))
    return pa.DictionaryArray.from_arrays(pa.array(ranks[numbers]), words.take(pa.array(order)))
