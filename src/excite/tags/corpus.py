"""A corpus of images with tags, as Parquet: its pieces, and its rows in batches of bounded size."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np

from excite.errors import DataError, ExciteError
from excite.io.files import remove_leftovers_once, temporary_file
from excite.jobs.parquet import arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


BATCH = 100_000  # rows in memory at a time: some 4 million tags
SEPARATORS = r"\s*[,;|\t\n]\s*"  # between tags that are one text


def schema() -> Any:
    """The columns of a corpus: whose image it is may be unknown (null).

    Example:
        >>> schema().names
        ['image', 'tags', 'user']
    """
    pa = arrow()
    return pa.schema([("image", pa.string()), ("tags", pa.list_(pa.string())), ("user", pa.string())])


@dataclass(frozen=True)
class ColumnNames:
    """What the columns of a file are called.

    Attributes:
        image: the column of the images' names,
        tags: of their tags,
        user: and of their users; None where it is of no interest.
        users_needed: whether there must be one.

    Example:
        >>> ColumnNames(tags="keywords").tags
        'keywords'
    """

    image: str = "image"
    tags: str = "tags"
    user: str | None = "user"
    users_needed: bool = True

    @property
    def names(self) -> list[str]:
        """Those that are read."""
        return [name for name in (self.image, self.tags, self.user) if name is not None]

    def found_in(self, path: Path, names: Sequence[str]) -> ColumnNames:
        """Those that a file with columns of these names has.

        Raises:
            DataError: one that is needed is missing.

        Example:
            >>> from pathlib import Path
            >>> ColumnNames(users_needed=False).found_in(Path("a.csv"), ["image", "tags"]).names
            ['image', 'tags']
        """
        wanted = self if self.users_needed or self.user in names else replace(self, user=None)
        missing = [name for name in wanted.names if name not in names]
        if missing:
            there = ", ".join(repr(name[:50]) for name in names[:30])[:300]
            raise DataError(
                f"{path} has no column {missing[0]!r}, only {there}: say which one it is, as in --columns tags=keywords"
            )
        return wanted


@dataclass(frozen=True)
class Piece:
    """Some rows of a corpus: a row group of one of its files.

    Attributes:
        path: the file.
        group: which of its row groups.
        first: the number of its first row within the corpus.
        rows: how many.
    """

    path: Path
    group: int
    first: int
    rows: int


@dataclass(frozen=True)
class Corpus:
    """A Parquet file, or a folder of them in the order of their names.

    Args:
        path: the file or the folder.
        columns: what its columns are called.

    Raises:
        DataError: there is none, it is damaged, or a column is missing.

    Example:
        >>> corpus = Corpus(Path("kept.parquet"))                           # doctest: +SKIP
        >>> for batch in corpus.batches():                                  # doctest: +SKIP
        ...     print(batch.num_rows, batch.schema.names)
    """

    path: Path
    columns: ColumnNames = ColumnNames()
    pieces: tuple[Piece, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pieces", tuple(_pieces(self.path, self.columns)))

    @property
    def rows(self) -> int:
        """How many images it names."""
        return sum(piece.rows for piece in self.pieces)

    def batches(self, pieces: Iterable[Piece] | None = None, rows: int = BATCH) -> Iterator[Any]:
        """The rows in order, as record batches of `schema`; tags that are one text are split."""
        for piece in self.pieces if pieces is None else pieces:
            yield from self.batches_of(piece, self.columns, rows)

    @staticmethod
    def batches_of(piece: Piece, columns: ColumnNames, rows: int = BATCH, *, encoded: bool = False) -> Iterator[Any]:
        """The rows of one piece, for whoever does not need the whole corpus.

        Args:
            piece: the piece.
            columns: what its columns are called.
            rows: how many at a time.
            encoded: leave tags as the numbers for words that Parquet stores, where it does: far quicker.
        """
        return _batches(piece, columns, rows, encoded=encoded)


def _pieces(path: Path, columns: ColumnNames) -> Iterator[Piece]:
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"there is no .parquet file in {path}: give a corpus, or the folder of its parts")
    first = 0
    for file in files:
        metadata, names = _facts(file)
        columns.found_in(file, names)
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            yield Piece(file, group, first, rows)
            first += rows


def _facts(file: Path) -> tuple[Any, list[str]]:
    pa = arrow()
    try:
        with pa.parquet.ParquetFile(file) as opened:
            return opened.metadata, opened.schema_arrow.names
    except FileNotFoundError:
        raise DataError(f"there is no corpus {str(file)!r}") from None
    except pa.ArrowInvalid as error:
        if file.suffix in {".parquet", ".pq"}:
            raise DataError(f"{file} is damaged: {' '.join(str(error).split())[:200]}") from None
        raise DataError(f"{file} is no Parquet file: `excite tags clean {file} --out kept.parquet` makes one") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last, for the names of its columns
        raise DataError(f"cannot read {file} as Parquet: {' '.join(str(error).split())[:200]}") from None


def _batches(piece: Piece, columns: ColumnNames, rows: int, *, encoded: bool) -> Iterator[Any]:
    pa = arrow()
    try:
        leaves = _leaves(piece.path, columns.tags) if encoded else []
        with pa.parquet.ParquetFile(piece.path, read_dictionary=leaves) as opened:
            found = columns.found_in(piece.path, opened.schema_arrow.names)
            for batch in opened.iter_batches(rows, row_groups=[piece.group], columns=found.names):
                yield _canonical(batch, found, piece.path, encoded=encoded)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {piece.path}: {' '.join(str(error).split())[:200]}") from None


def _leaves(path: Path, column: str) -> list[str]:
    """What Parquet calls the tags within their lists."""
    with arrow().parquet.ParquetFile(path) as opened:
        paths = [opened.schema.column(number).path for number in range(len(opened.schema))]
    return [path for path in paths if path.startswith(f"{column}.")]


def _canonical(batch: Any, columns: ColumnNames, path: Path, *, encoded: bool) -> Any:
    pa = arrow()
    user = pa.nulls(batch.num_rows, pa.string()) if columns.user is None else _text(batch.column(columns.user))
    arrays = [_text(batch.column(columns.image)), _lists(batch.column(columns.tags), encoded=encoded), user]
    canonical = pa.record_batch(arrays, names=schema().names)
    try:
        canonical.validate(full=True)  # files of other programs may hold any bytes as text
    except pa.ArrowInvalid:
        raise DataError(f"{path} holds text that is not UTF-8: write its tags, images and users as UTF-8") from None
    return canonical


def _text(array: Any) -> Any:
    """Any column as text; numbers too, which users often are."""
    pa = arrow()
    return array if array.type == pa.string() else array.cast(pa.string())


def _lists(array: Any, *, encoded: bool) -> Any:
    """A column of tags as lists, where it holds text split at its separators."""
    pa = arrow()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        array = pa.compute.split_pattern_regex(array, SEPARATORS)
    wanted = pa.list_(pa.string())
    if encoded and pa.types.is_list(array.type) and array.type.value_type == pa.dictionary(pa.int32(), pa.string()):
        return array
    return array if array.type == wanted else array.cast(wanted)


# A Parquet file written batch by batch: its row groups of even size, and the file whole or not there.

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
            remove_leftovers_once(self.path.parent)
            self._half, self._file = self._ending.enter_context(temporary_file(self.path))
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
