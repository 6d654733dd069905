"""Records of pictures and tags written as Parquet, a bounded number of them in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.jobs.columns import arrow
from excite.tags.corpus import BATCH, SEPARATORS, schema
from excite.tags.row_groups import RowGroups

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from excite.tags.formats.rows import Record

__all__ = ["write_corpus"]

CHUNK = 10_000  # rows held as Python objects, which take several times the room of Arrow's
CHUNK_LETTERS = 32 * 2**20  # or fewer rows, where they are long
CHUNK_TAGS = 4 * 2**20  # or have many tags
MARK = "\x1f"  # in ASCII the sign between units
GROUP_BYTES = 256 * 2**20  # of a row group: rows may be long


def write_corpus(records: Iterable[Record], out: Path, separators: str | None = None) -> Path:
    """Write records in the columns of `schema`, in row groups of bounded size.

    Args:
        records: pictures, tags, users.
        out: the Parquet file; it is there when it is whole.
        separators: a regular expression of what stands between tags that are one text.

    Returns:
        The file.

    Raises:
        DataError: the separators are no regular expression.

    Example:
        >>> from pathlib import Path
        >>> write_corpus([("1.jpg", ["cat", "sofa"], None), ("2.jpg", "dog, ball", "ann")], Path("corpus.parquet"))
        PosixPath('corpus.parquet')
    """
    between = SEPARATORS if separators is None else separators
    _split([""], between)  # a bad expression is told before the work
    with RowGroups(out, schema(), BATCH, GROUP_BYTES) as groups:
        chunk = _Chunk(between)
        for record in records:
            chunk.add(*record)
            if chunk.full:
                groups.add(chunk.batch())
                chunk = _Chunk(between)
        groups.add(chunk.batch())
    return out


class _Chunk:
    """Some rows as Python objects: all tags in one list, for each row where its own end."""

    def __init__(self, separators: str) -> None:
        self.separators = separators
        self.images: list[str] = []
        self.users: list[str | None] = []
        self.tags: list[str] = []
        self.ends = [0]
        self.listed: list[int] = []  # the rows whose tags are a list,
        self.told: list[int] = []  # and those whose tags are a text
        self.texts: list[str] = []
        self.letters = 0

    def add(self, image: str, tags: list[str] | str, user: str | None) -> None:
        row = len(self.images)
        self.images.append(image)
        self.users.append(user)
        if isinstance(tags, str):
            self.told.append(row)
            self.texts.append(tags)
            self.letters += len(tags)
        else:
            self.listed.append(row)
            self.tags += tags
            self.ends.append(len(self.tags))
            self.letters += len("".join(tags))

    @property
    def full(self) -> bool:
        return len(self.images) == CHUNK or self.letters > CHUNK_LETTERS or len(self.tags) > CHUNK_TAGS

    def batch(self) -> Any:
        pa = arrow()
        users = pa.array(self.users, pa.string())
        return pa.record_batch([pa.array(self.images, pa.string()), self._lists(), users], schema=schema())

    def _lists(self) -> Any:
        """Lists as they are, texts split, in the order of the rows."""
        pa = arrow()
        given = pa.ListArray.from_arrays(pa.array(self.ends, pa.int32()), _strings(self.tags))
        if not self.told:
            return given
        split = _split(self.texts, self.separators)
        if not self.listed:
            return split
        return pa.concat_arrays([given, split]).take(arrow().compute.sort_indices(pa.array(self.listed + self.told)))


def _strings(texts: list[str]) -> Any:
    """Texts as Arrow has them: all letters in a row, and where each text ends. Arrow itself takes thrice as long."""
    pa = arrow()
    marked = (MARK.join(texts) + MARK).encode()
    ends = np.flatnonzero(np.frombuffer(marked, np.uint8) == ord(MARK))
    if not texts or len(ends) != len(texts):  # somebody uses the mark
        return pa.array(texts, pa.string())
    offsets = np.zeros(len(texts) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(texts))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer("".join(texts).encode()))


def _split(texts: list[str], separators: str) -> Any:
    pa = arrow()
    try:
        split = arrow().compute.split_pattern_regex(pa.array(texts, pa.string()), separators)
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise DataError(f"the separators {separators!r} are no regular expression: {reason}") from None
    return split.cast(pa.list_(pa.string()))
