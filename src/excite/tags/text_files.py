"""CSV, TSV and JSON Lines corpora, converted to Parquet, which everything else reads.

A row that cannot be used is counted and skipped, and none is longer than `ROW_LIMIT`. Neither duckdb nor pyarrow reads
these files: an unclosed quote costs them the rest of a file, bad lines have no reason, and long numbers lose digits.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from io import BufferedReader
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, TypeVar

from excite.errors import DataError
from excite.io.cache import fingerprint
from excite.io.files import save_json
from excite.jobs.parquet import arrow
from excite.tags.corpus import BATCH, SEPARATORS, ColumnNames, Corpus, row_group_writer, schema

ROW_LIMIT = 16 * 2**20  # bytes of a row
LOOKED_AT = 1000  # objects that determine the columns of JSON Lines: each row may lack some
MARK = "\x1f"  # ASCII's unit separator
CHUNK = 1000  # rows held as Python objects, which are slow to collect,
CHUNK_WEIGHT = 32 * 2**20  # or fewer if they have many tags and letters

Record = tuple[str, list[str] | str, str | None]  # an image, its tags as a list or a text to be split, and its user
Row = TypeVar("Row")


class Reason(str):
    """Why a row is skipped; given in place of the row."""

    __slots__ = ()


TOO_LONG, NOT_UTF8, NOT_JSON = Reason("too_long"), Reason("not_utf8"), Reason("not_json")
WRONG_COLUMNS = Reason("wrong_columns")  # another number of fields than the header's, or misplaced quotes
NO_IMAGE, WRONG_USER = Reason("no_image"), Reason("wrong_user")  # neither text nor number
NO_TAGS_LIST = Reason("no_tags_list")  # neither a list of texts and numbers nor one text


class Number(str):
    """A JSON number as written: the user 007.10, or one of a thousand digits, stays what it is."""

    __slots__ = ()


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_no_number)


def file_kind(path: Path) -> str:
    """The suffix of a file that determines its format, without a final .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """The bytes of a file, decompressed if its name ends in .gz; a DataError if they cannot be read to their end."""
    try:
        with path.open("rb") as raw:
            file: Any = gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw
            if file.peek(3).startswith(codecs.BOM_UTF8):
                file.read(3)
            yield file
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None


def bounded_line(file: BufferedReader) -> bytes:
    """The next line; of a longer one than `ROW_LIMIT` only the beginning, which is longer than `ROW_LIMIT`."""
    line = file.readline(ROW_LIMIT + 1)
    end = line
    while len(line) > ROW_LIMIT and end and not end.endswith(b"\n"):
        end = file.readline(2**20)
    return line


def text_lines(path: Path) -> Iterator[str | Reason]:
    """The lines of a text file that are not blank."""
    with opened(path) as file:
        while line := bounded_line(file):
            if len(line) > ROW_LIMIT:
                yield TOO_LONG
            elif not line.isspace():
                try:
                    yield line.decode()
                except UnicodeDecodeError:
                    yield NOT_UTF8


class _Lines:
    """The lines of a file for `csv.reader`, with a way back to the second line of a bad row.

    An unclosed quote swallows row after row until an error. Only its first line is to blame; the others are read again,
    for no more bytes than were read before, or a hostile file would take quadratic time.
    """

    def __init__(self, file: BufferedReader) -> None:
        self.file, self.again, self.may_go_back = file, deque[bytes](), 0
        self.begin_row()

    def begin_row(self) -> None:
        self.row: list[bytes] = []
        self.size, self.utf8 = 0, True

    def go_back(self) -> None:
        if self.size - len(self.row[0]) <= self.may_go_back:
            self.may_go_back -= self.size - len(self.row[0])
            self.again.extendleft(reversed(self.row[1:]))

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self.again:
            line = self.again.popleft()
        elif line := bounded_line(self.file):
            self.may_go_back += len(line)
        else:
            raise StopIteration
        self.row.append(line)
        self.size += len(line)
        if self.size > ROW_LIMIT:
            raise csv.Error(TOO_LONG)
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.utf8 = False
            return line.decode(errors="replace")


def _csv_rows(path: Path) -> Iterator[list[str] | Reason]:
    """All rows with the header, without empty lines."""
    limit = csv.field_size_limit(ROW_LIMIT)  # of the whole process
    try:
        with opened(path) as file:
            lines = _Lines(file)
            reader = csv.reader(lines, delimiter="\t" if file_kind(path) == ".tsv" else ",", strict=True)
            while True:
                lines.begin_row()
                try:
                    row = next(reader)
                except StopIteration:
                    return
                except csv.Error:
                    yield TOO_LONG if lines.size > ROW_LIMIT else WRONG_COLUMNS
                    lines.go_back()
                    continue
                if row:
                    yield row if lines.utf8 else NOT_UTF8
    finally:
        csv.field_size_limit(limit)


def csv_columns(path: Path, columns: ColumnNames) -> Iterator[list[str] | Reason]:
    """The values of these columns in each row; a DataError if one is missing."""
    rows = _csv_rows(path)
    header = next(rows, None)
    if header is None:
        return
    if isinstance(header, Reason):
        raise DataError(f"{path} must begin with a line of its columns' names, in UTF-8, as in image,tags,user")
    names = columns.found_in(path, header).names
    for name in names:
        if header.count(name) > 1:
            raise DataError(f"{path} has more than one column {name!r}: give them different names")
    indices = [header.index(name) for name in names]
    for row in rows:
        if isinstance(row, Reason):
            yield row
        else:
            yield [row[index] for index in indices] if len(row) == len(header) else WRONG_COLUMNS


def json_objects(path: Path) -> Iterator[dict[str, Any] | Reason]:
    """The objects of a JSON Lines file."""
    for line in text_lines(path):
        if isinstance(line, Reason):
            yield line
            continue
        try:
            found = DECODER.decode(line)
            if "\\ud" in line or "\\uD" in line:  # escapes may hold lone surrogates, which are no text
                json.dumps(found, ensure_ascii=False).encode()
        except UnicodeError:
            found = NOT_UTF8
        except (ValueError, RecursionError):
            found = NOT_JSON
        yield found if isinstance(found, dict | Reason) else NOT_JSON


def _csv_records(path: Path, columns: ColumnNames) -> Iterator[Record | Reason]:
    for row in csv_columns(path, columns):
        yield row if isinstance(row, Reason) else _record(row[0], row[1], row[2] if len(row) > 2 else None)


def _json_records(path: Path, columns: ColumnNames) -> Iterator[Record | Reason]:
    image, tags, user = columns.image, columns.tags, columns.user
    names: dict[str, None] = {}  # ordered
    seen = 0
    for found in json_objects(path):
        if isinstance(found, Reason):
            yield found
            continue
        seen += 1
        if seen <= LOOKED_AT:
            names.update(dict.fromkeys(found))
        if seen == LOOKED_AT:
            columns.found_in(path, list(names))
        yield _record(found.get(image), found.get(tags), None if user is None else found.get(user))
    if 0 < seen < LOOKED_AT:
        columns.found_in(path, list(names))


def _record(image: object, tags: object, user: object) -> Record | Reason:
    """A row as a record: no tags are an empty list, no user is None."""
    if not isinstance(image, str) or not image or image.isspace():
        return NO_IMAGE
    if user is not None and not isinstance(user, str):
        return WRONG_USER
    listed = _tags(tags)
    return NO_TAGS_LIST if listed is None else (image, listed, user or None)


def _tags(tags: object) -> list[str] | str | None:
    """A list of texts and numbers, or a text of tags; in brackets, a text is a JSON list. None if it is neither."""
    try:
        if type(tags) is str:  # a Number is no list of tags
            text = tags.strip()
            if not (text.startswith("[") and text.endswith("]")):
                return tags if text else []
            tags = DECODER.decode(text)
            json.dumps(tags, ensure_ascii=False).encode()  # escapes may hold lone surrogates
        if isinstance(tags, list):
            "".join(tags)  # the quickest test whether all are texts
            return tags
    except (ValueError, TypeError, RecursionError):
        return None
    return [] if tags is None else None


READERS: dict[str, Callable[[Path, ColumnNames], Iterator[Record | Reason]]] = {
    **dict.fromkeys((".csv", ".tsv"), _csv_records),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json_records),
}
PARQUET = (".parquet", ".pq")
READABLE = f"{', '.join(PARQUET)}, a folder of .parquet files, {', '.join(READERS)}, the last five also as .gz"


def counting(rows: Iterable[Row | Reason], skipped: Counter[str]) -> Iterator[Row]:
    """The good rows; the others are counted by reason."""
    for row in rows:
        if isinstance(row, Reason):
            skipped[row] += 1
        else:
            yield row


def write_corpus(records: Iterable[Record], out: Path) -> Path:
    """Write records in the columns of `schema`, atomically, in row groups of bounded size."""
    with row_group_writer(out, schema(), BATCH) as groups:
        for chunk in _chunks(records):
            groups.add(_batch(chunk))
    return out


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    chunk, weight = [], 0
    for record in records:
        chunk.append(record)
        tags = record[1]
        weight += len(tags) if isinstance(tags, str) else len(tags) + len("".join(tags))
        if len(chunk) == CHUNK or weight > CHUNK_WEIGHT:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


def _batch(records: list[Record]) -> Any:
    """A record batch; texts of tags are split at their separators."""
    pa = arrow()
    images, tags, users = zip(*records, strict=True)
    listed = [[] if isinstance(one, str) else one for one in tags]
    flat = list(chain.from_iterable(listed))
    joined = pa.array([MARK.join(flat)], pa.string())  # split again, three times as fast as lists by Arrow alone
    words = pa.compute.split_pattern(joined, MARK).flatten()
    if len(words) != len(flat):  # a tag holds the mark, or there is none
        words = pa.array(flat, pa.string())
    lists = pa.ListArray.from_arrays(pa.array(list(accumulate(map(len, listed), initial=0)), pa.int32()), words)
    texts = pa.array([one if isinstance(one, str) else None for one in tags], pa.string())
    if texts.null_count < len(texts):
        split = pa.compute.split_pattern_regex(texts, SEPARATORS).cast(lists.type)
        lists = pa.compute.if_else(texts.is_null(), lists, split)
    return pa.record_batch([pa.array(images, pa.string()), lists, pa.array(users, pa.string())], schema=schema())


def import_text(path: Path, out: Path, columns: ColumnNames) -> Counter[str]:
    """Convert a text file of images and tags to Parquet; returns the numbers of skipped rows by reason."""
    skipped: Counter[str] = Counter()
    records = counting(READERS[file_kind(path)](path, columns), skipped)
    first = next(records, None)
    if first is None and skipped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common())
        raise DataError(f"{path} has no row that can be used ({reasons}): it takes a header and CSV, or JSON Lines")
    if first is None:
        raise DataError(f"{path} is empty: there is no image in it")
    write_corpus(chain([first], records), out)
    return skipped


def open_corpus(path: Path, columns: ColumnNames, work: Path) -> tuple[Corpus, Counter[str]]:
    """Open a corpus of any format, and count the skipped rows of a text file, which becomes ``work/corpus.parquet``."""
    kind = file_kind(path)
    if path.is_dir() or kind in PARQUET:
        return Corpus(path, columns), Counter()
    if kind not in READERS:
        raise DataError(f"cannot tell what {path} is by its name; what can be read: {READABLE}")
    try:
        about = path.stat()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    facts = [str(path.resolve()), about.st_size, about.st_mtime_ns, asdict(columns)]
    made, note = work / "corpus.parquet", work / f"skipped.{fingerprint(facts)}.json"
    if made.is_file() and note.is_file():
        return Corpus(made), Counter(json.loads(note.read_text()))
    for other in work.glob("skipped.*.json"):  # first, so that none is ever of another file
        other.unlink()
    skipped = import_text(path, made, columns)
    save_json(skipped, note)
    return Corpus(made), skipped
