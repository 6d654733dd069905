"""What rows of text files have in common: how they are opened, how long one may be, what makes one a picture with tags.

A row that cannot be used is counted and skipped, so that one bad line among millions stops nobody. Nothing here holds
more than one row, and no row may be longer than `ROW_LIMIT`: memory is bounded whatever the file holds.
"""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


__all__ = [
    "BYTE_ORDER_MARK",
    "DECODER",
    "ROW_LIMIT",
    "BadRow",
    "Number",
    "Record",
    "bounded_line",
    "opened",
    "record",
]

ROW_LIMIT = 16 * 2**20  # bytes of a row
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some programs begin a file with it
BLOCK = 2**20  # bytes of a row that is too long are thrown away in blocks

Record = tuple[str, list[str] | str, str | None]
"""A picture, its tags as a list or as a text still to be split, and its user."""


class BadRow(Exception):  # noqa: N818 (no error to the user: it is counted)
    """A row that is counted and skipped, for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Number(str):
    """A number of a JSON file as it is written there: a user 007.10 or of a thousand digits stays what it is."""

    __slots__ = ()


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_no_number)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked where its name ends in .gz.

    Raises:
        DataError: it is not there, or cannot be read to its end.

    Example:
        >>> with opened(Path("tags.jsonl.gz")) as file:                     # doctest: +SKIP
        ...     print(bounded_line(file))
    """
    try:
        with path.open("rb") as raw:
            yield cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if path.suffix.lower() == ".gz" else raw
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None


def bounded_line(file: BinaryIO) -> bytes:
    r"""The next line; of one that is longer than a row may be only the beginning, which is longer than `ROW_LIMIT`.

    Example:
        >>> import io
        >>> bounded_line(io.BytesIO(b"cat\ndog"))
        b'cat\n'
    """
    line = file.readline(ROW_LIMIT + 1)
    end = line
    while len(line) > ROW_LIMIT and end and not end.endswith(b"\n"):
        end = file.readline(BLOCK)
    return line


def record(image: object, tags: object, user: object) -> Record:
    """A row as a record: no tags are an empty list, no user is None.

    A text of tags that stands in brackets is a JSON list.

    Raises:
        BadRow: there is no picture, the tags are neither a list of texts and numbers nor a text, or the user is neither
            text nor number.

    Example:
        >>> record("1.jpg", ["cat", "dog"], "")
        ('1.jpg', ['cat', 'dog'], None)
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
            json.dumps(tags, ensure_ascii=False).encode()  # escapes may hold halves of characters
        except (ValueError, RecursionError):
            raise BadRow("no_tags_list") from None
    if tags is None:
        return []
    if not isinstance(tags, list):
        raise BadRow("no_tags_list")
    try:
        "".join(tags)  # the quickest question whether all are texts
    except TypeError:
        raise BadRow("no_tags_list") from None
    return tags
