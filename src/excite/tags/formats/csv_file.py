"""CSV and TSV files: a header, then one picture a row, with line breaks inside quotes where somebody put them."""

from __future__ import annotations

import csv
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from excite.errors import DataError
from excite.tags.formats.rows import BYTE_ORDER_MARK, ROW_LIMIT, BadRow, bounded_line, opened, record

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator
    from pathlib import Path

    from excite.tags.corpus import ColumnNames
    from excite.tags.formats.rows import Record

__all__ = ["csv_columns", "csv_records"]


class _Lines:
    """The lines of a file for `csv.reader`, which may go back to the second line of a row that came to nothing.

    A quote that is never closed swallows row after row until something is wrong. Only its first line is to blame; the
    others are read again. That is done for no more bytes than were read before, or a hostile file would take for ever.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.again: deque[bytes] = deque()
        self.row: list[bytes] = []
        self.size = 0
        self.may_go_back = 0
        self.utf8 = True

    def begin_row(self) -> None:
        self.row, self.size, self.utf8 = [], 0, True

    def go_back(self) -> None:
        size = sum(map(len, self.row[1:]))
        if size <= self.may_go_back:
            self.may_go_back -= size
            self.again.extendleft(reversed(self.row[1:]))

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self.again.popleft() if self.again else self._new()
        self.row.append(line)
        self.size += len(line)
        if self.size > ROW_LIMIT:
            raise BadRow("too_long")
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.utf8 = False
            return line.decode(errors="replace")

    def _new(self) -> bytes:
        line = bounded_line(self.file)
        if not line:
            raise StopIteration
        if not self.may_go_back:  # the first line
            line = line.removeprefix(BYTE_ORDER_MARK)
        self.may_go_back += len(line)
        return line


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let Python's reader take fields as long as a row may be: its own limit holds for the whole process."""
    before = csv.field_size_limit(ROW_LIMIT)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _rows(path: Path, skipped: Counter[str]) -> Iterator[list[str]]:
    """All rows, the header too; those that are none are counted by what is wrong. Empty lines are none."""
    tabs = path.name.lower().removesuffix(".gz").endswith(".tsv")
    with opened(path) as file, _long_fields():
        lines = _Lines(file)
        reader = csv.reader(lines, delimiter="\t" if tabs else ",", strict=True)
        while True:
            lines.begin_row()
            try:
                row = next(reader)
            except StopIteration:
                return
            except (BadRow, csv.Error) as error:
                skipped[error.reason if isinstance(error, BadRow) else "wrong_columns"] += 1
                lines.go_back()
                continue
            if not lines.utf8:
                skipped["not_utf8"] += 1
            elif row:
                yield row


def csv_columns(path: Path, columns: ColumnNames, skipped: Counter[str]) -> Iterator[list[str]]:
    """The values of these columns in each row; rows that cannot be used are counted by what is wrong.

    Raises:
        DataError: the file cannot be read, or a column is missing.

    Example:
        >>> list(csv_columns(Path("tags.csv"), ColumnNames(), Counter()))   # doctest: +SKIP
        [['1.jpg', 'cat, sofa', 'ann']]
    """
    rows = _rows(path, skipped)
    header = next(rows, None)
    if header is None and not skipped:
        return
    if header is None or skipped:
        raise DataError(f"{path} must begin with a line of its columns' names, in UTF-8, as in image,tags,user")
    places = [_place(path, header, name) for name in columns.found_in(path, header).names]
    for row in rows:
        if len(row) == len(header):
            yield [row[place] for place in places]
        else:
            skipped["wrong_columns"] += 1


def _place(path: Path, header: list[str], name: str) -> int:
    if header.count(name) > 1:
        raise DataError(f"{path} has more than one column {name!r}: give them different names")
    return header.index(name)


def csv_records(path: Path, columns: ColumnNames, skipped: Counter[str]) -> Iterator[Record]:
    """The pictures of a file with their tags; rows that cannot be used are counted by what is wrong.

    Raises:
        DataError: the file cannot be read, or a column is missing.

    Example:
        >>> list(csv_records(Path("tags.csv"), ColumnNames(), Counter()))   # doctest: +SKIP
        [('1.jpg', 'cat, sofa', 'ann')]
    """
    for image, tags, *user in csv_columns(path, columns, skipped):
        try:
            yield record(image, tags, user[0] if user else None)
        except BadRow as bad:
            skipped[bad.reason] += 1
