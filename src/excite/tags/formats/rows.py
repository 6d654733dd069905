"""Rows of CSV, TSV and JSON Lines files as records of an image, its tags and its user.

A row that cannot be used is counted and skipped, so that one bad line among millions does not stop the run. Only one
row is in memory, and none is longer than `ROW_LIMIT`: memory is bounded whatever the file holds.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections import deque
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from excite.errors import DataError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator
    from pathlib import Path

    from excite.tags.corpus import ColumnNames


ROW_LIMIT = 16 * 2**20  # bytes of a row
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some programs begin a file with it
BLOCK = 2**20  # bytes; a row that is too long is discarded in blocks
LOOKED_AT = 1000  # objects that determine the columns of JSON Lines: each row may lack some

Record = tuple[str, list[str] | str, str | None]
"""An image, its tags as a list or as a text to be split, and its user."""


class BadRow(Exception):  # noqa: N818 (no error to the user: it is counted)
    """A row that is counted and skipped for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Number(str):
    """A JSON number as written: the user 007.10, or one of a thousand digits, stays what it is."""

    __slots__ = ()


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_no_number)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed if its name ends in .gz.

    Raises:
        DataError: it is missing, or cannot be read to its end.
    """
    try:
        with path.open("rb") as raw:
            yield cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if path.suffix.lower() == ".gz" else raw
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None


def bounded_line(file: BinaryIO) -> bytes:
    """The next line; of a longer one than `ROW_LIMIT` only the beginning, which is longer than `ROW_LIMIT`."""
    line = file.readline(ROW_LIMIT + 1)
    end = line
    while len(line) > ROW_LIMIT and end and not end.endswith(b"\n"):
        end = file.readline(BLOCK)
    return line


def record(image: object, tags: object, user: object) -> Record:
    """A row as a record: no tags are an empty list, no user is None; tags in brackets are a JSON list.

    Raises:
        BadRow: there is no image, the tags are neither a list of texts and numbers nor a text, or the user is neither
            text nor number.
    """
    if not isinstance(image, str) or not image or image.isspace():
        raise BadRow("no_image")
    if user is not None and not isinstance(user, str):
        raise BadRow("wrong_user")
    return image, _tags(tags), user or None


def _tags(tags: object) -> list[str] | str:
    if type(tags) is str:  # a Number is no list of tags
        text = tags.strip()
        if not (text.startswith("[") and text.endswith("]")):
            return tags if text else []
        try:
            tags = DECODER.decode(text)
            json.dumps(tags, ensure_ascii=False).encode()  # escapes may hold lone surrogates
        except (ValueError, RecursionError):
            raise BadRow("no_tags_list") from None
    if tags is None:
        return []
    if not isinstance(tags, list):
        raise BadRow("no_tags_list")
    try:
        "".join(tags)  # the quickest test whether all are texts
    except TypeError:
        raise BadRow("no_tags_list") from None
    return tags


def _good(image: object, tags: object, user: object, skipped: Counter[str]) -> Iterator[Record]:
    try:
        yield record(image, tags, user)
    except BadRow as bad:
        skipped[bad.reason] += 1


class _Lines:
    """The lines of a file for `csv.reader`, with a way back to the second line of a bad row.

    An unclosed quote swallows row after row until an error. Only its first line is to blame; the others are read again,
    for no more bytes than were read before, or a hostile file would take quadratic time.
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


def _rows(path: Path, skipped: Counter[str]) -> Iterator[list[str]]:
    """All rows with the header; bad ones are counted by reason, empty lines skipped."""
    tabs = path.name.lower().removesuffix(".gz").endswith(".tsv")
    with opened(path) as file, ExitStack() as ending:
        ending.callback(csv.field_size_limit, csv.field_size_limit(ROW_LIMIT))  # a limit of the whole process
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
    """The values of these columns in each row; bad rows are counted by reason.

    Raises:
        DataError: the file cannot be read, or a column is missing.
    """
    rows = _rows(path, skipped)
    header = next(rows, None)
    if header is None and not skipped:
        return
    if header is None or skipped:
        raise DataError(f"{path} must begin with a line of its columns' names, in UTF-8, as in image,tags,user")
    names = columns.found_in(path, header).names
    for name in names:
        if header.count(name) > 1:
            raise DataError(f"{path} has more than one column {name!r}: give them different names")
    indices = [header.index(name) for name in names]
    for row in rows:
        if len(row) == len(header):
            yield [row[index] for index in indices]
        else:
            skipped["wrong_columns"] += 1


def csv_records(path: Path, columns: ColumnNames, skipped: Counter[str]) -> Iterator[Record]:
    """The records of a CSV or TSV file; bad rows are counted by reason.

    Raises:
        DataError: the file cannot be read, or a column is missing.
    """
    for image, tags, *user in csv_columns(path, columns, skipped):
        yield from _good(image, tags, user[0] if user else None, skipped)


def json_objects(path: Path, skipped: Counter[str]) -> Iterator[dict[str, Any]]:
    """The objects of a JSON Lines file; bad lines are counted by reason, empty ones skipped.

    Raises:
        DataError: the file cannot be read.
    """
    with opened(path) as file:
        line = bounded_line(file).removeprefix(BYTE_ORDER_MARK)
        while line:
            if not line.isspace():
                try:
                    yield _object(line)
                except BadRow as bad:
                    skipped[bad.reason] += 1
            line = bounded_line(file)


def _object(line: bytes) -> dict[str, Any]:
    if len(line) > ROW_LIMIT:
        raise BadRow("too_long")
    try:
        found = DECODER.decode(line.decode())
        if b"\\ud" in line or b"\\uD" in line:  # escapes may hold lone surrogates, which are no text
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeError:
        raise BadRow("not_utf8") from None
    except (ValueError, RecursionError):
        raise BadRow("not_json") from None
    if not isinstance(found, dict):
        raise BadRow("not_json")
    return found


def json_records(path: Path, columns: ColumnNames, skipped: Counter[str]) -> Iterator[Record]:
    """The records of a JSON Lines file; bad rows are counted by reason.

    Raises:
        DataError: the file cannot be read, or a column is in none of its first objects.
    """
    image, tags, user = columns.image, columns.tags, columns.user
    names: dict[str, None] = {}  # ordered
    seen = 0
    for seen, found in enumerate(json_objects(path, skipped), 1):
        if seen <= LOOKED_AT:
            names.update(dict.fromkeys(found))
            if seen == LOOKED_AT:
                columns.found_in(path, list(names))
        yield from _good(found.get(image), found.get(tags), None if user is None else found.get(user), skipped)
    if 0 < seen < LOOKED_AT:
        columns.found_in(path, list(names))
