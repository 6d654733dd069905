"""Tags counted without ever becoming Python objects: Arrow turns those of a batch into numbers, NumPy counts these.

What stays in memory is one line for each distinct tag and each user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from excite.jobs.columns import arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Listing", "Tally", "add_seen", "count_users"]

UNMERGED = 1_000_000  # texts that may wait: merging after each batch would take long


class Tally:
    """How often each text was seen, as Arrow columns.

    Example:
        >>> tally = Tally()
        >>> tally.add(arrow().array(["cat", "dog"]), [2, 3])
        >>> tally.add(arrow().array(["cat"]), [4])
        >>> tally.ranked().to_pydict()
        {'text': ['cat', 'dog'], 'count': [6, 3]}
    """

    def __init__(self) -> None:
        self._texts: list[Any] = []
        self._counts: list[NDArray[np.int64]] = []
        self._waiting = 0

    def add(self, texts: Any, counts: Sequence[int] | NDArray[np.int64]) -> None:
        """Count texts, each given once, so many times more."""
        self._texts.append(texts.cast(arrow().large_string()))  # all distinct tags may exceed 2 GB together
        self._counts.append(np.asarray(counts, np.int64))
        self._waiting += len(texts)
        if self._waiting > max(UNMERGED, len(self._texts[0])):  # so that each text is merged a few times only
            self._merge()

    def ranked(self) -> Any:
        """A table of text and count in the order of a Dictionary: the most frequent first, then by code points."""
        self._merge()
        table = arrow().table({"text": self._texts[0], "count": self._counts[0]})
        return table.take(arrow().compute.sort_indices(table, [("count", "descending"), ("text", "ascending")]))

    def _merge(self) -> None:
        """Make one part of all."""
        pa = arrow()
        encoded = pa.concat_arrays([pa.array([], pa.large_string()), *self._texts]).dictionary_encode()
        counts = np.zeros(len(encoded.dictionary), np.int64)
        np.add.at(counts, encoded.indices.to_numpy(), np.concatenate([np.zeros(0, np.int64), *self._counts]))
        self._texts, self._counts, self._waiting = [encoded.dictionary], [counts], 0


@dataclass(frozen=True)
class Listing:
    """The tags of a batch as numbers. Tags that are null or blank are none, and are left out.

    Attributes:
        texts: the distinct tags, an Arrow array; some may be of no listed tag.
        codes: for each listed tag its place in `texts`.
        rows: for each listed tag the row of its picture.
        places: for each listed tag its place among the tags of its picture, from 0.
        lengths: for each picture how many tags it has.
        blank: how many were left out.
    """

    texts: Any
    codes: NDArray[np.integer[Any]]
    rows: NDArray[np.integer[Any]]
    places: NDArray[np.integer[Any]]
    lengths: NDArray[np.integer[Any]]
    blank: int

    @classmethod
    def of(cls, batch: Any) -> Self:
        """The tags of a record batch of a corpus."""
        pc = arrow().compute
        column = batch.column("tags")
        encoded = pc.list_flatten(column).dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        texts = encoded.dictionary
        empty = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(texts)), 0).to_numpy(zero_copy_only=False)
        rows = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
        kept = ~np.append(empty, True)[codes]  # a null's -1 finds the last
        codes, rows = codes[kept], rows[kept]
        lengths = np.bincount(rows, minlength=batch.num_rows)
        starts = np.cumsum(lengths) - lengths
        places = np.arange(len(rows)) - starts[rows]
        return cls(texts, codes, rows, places, lengths, int((~kept).sum()))

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each of the texts is listed."""
        return np.bincount(self.codes, minlength=len(self.texts))

    def count_into(self, tally: Tally) -> None:
        """Add the listed tags to a tally."""
        add_seen(tally, self.texts, self.counts)

    def once_a_picture(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and codes of the tags, without those that a picture lists again."""
        pairs = self.rows.astype(np.int64) * len(self.texts) + self.codes
        rows, codes = np.divmod(arrow().array(pairs).unique().to_numpy(), max(1, len(self.texts)))
        return rows, codes


def count_users(column: Any, tally: Tally) -> None:
    """Count a column of users; those that are not known (null) are nobody."""
    encoded = column.drop_null().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    add_seen(tally, encoded.dictionary, np.bincount(codes, minlength=len(encoded.dictionary)))


def add_seen(tally: Tally, texts: Any, counts: NDArray[np.int64]) -> None:
    """Add those texts to a tally that were seen at all."""
    seen = counts > 0
    tally.add(texts.filter(arrow().array(seen)), counts[seen])
