"""Statistics of a corpus: its tags and users counted with Arrow and NumPy, never as Python objects.

Memory grows with the number of distinct tags and users only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from excite.errors import DataError
from excite.jobs.parquet import arrow
from excite.tags.dictionary import Dictionary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from excite.tags.corpus import Corpus, RowGroup


UNMERGED = 1_000_000  # texts in unmerged parts: merging after each batch would take long
THRESHOLDS = (10, 100, 1000, 10_000)
ZIPF_RANKS = (10, 1000)  # the head is a matter of taste, the tail one of chance
FEWEST_RANKS = 20  # for a slope


class TextCounter:
    """Counts texts, as Arrow columns."""

    def __init__(self) -> None:
        self._texts: list[Any] = []
        self._counts: list[NDArray[np.int64]] = []
        self._waiting = 0

    def add(self, texts: Any, counts: Sequence[int] | NDArray[np.int64]) -> None:
        """Add counts of distinct texts."""
        self._texts.append(texts.cast(arrow().large_string()))  # all distinct tags may exceed 2 GB together
        self._counts.append(np.asarray(counts, np.int64))
        self._waiting += len(texts)
        if self._waiting > max(UNMERGED, len(self._texts[0])):  # so that each text is merged a few times only
            self._merge()

    def count(self, texts: Any, codes: NDArray[np.integer[Any]]) -> None:
        """Count distinct texts by the codes (indices) of their occurrences."""
        counts = np.bincount(codes, minlength=len(texts))
        self.add(texts.filter(arrow().array(counts > 0)), counts[counts > 0])

    def count_column(self, column: Any) -> None:
        """Count the values of a column, without null."""
        encoded = column.drop_null().dictionary_encode()
        self.count(encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False))

    def ranked(self) -> Any:
        """A table of text and count in the order of a Dictionary: the most frequent first, ties in code point order."""
        self._merge()
        table = arrow().table({"text": self._texts[0], "count": self._counts[0]})
        return table.take(arrow().compute.sort_indices(table, [("count", "descending"), ("text", "ascending")]))

    def _merge(self) -> None:
        pa = arrow()
        encoded = pa.concat_arrays([pa.array([], pa.large_string()), *self._texts]).dictionary_encode()
        counts = np.zeros(len(encoded.dictionary), np.int64)
        np.add.at(counts, encoded.indices.to_numpy(), np.concatenate([np.zeros(0, np.int64), *self._counts]))
        self._texts, self._counts, self._waiting = [encoded.dictionary], [counts], 0


@dataclass(frozen=True)
class TagColumn:
    """The tags of a batch as numbers, without null and blank tags.

    Attributes:
        texts: the distinct tags, an Arrow array; some may not be listed.
        codes: for each listed tag its index in `texts`.
        rows: for each listed tag the row of its image.
        positions: for each listed tag its position among the tags of its image, from 0.
        lengths: the number of tags of each image.
        blank: the number of tags left out.
    """

    texts: Any
    codes: NDArray[np.integer[Any]]
    rows: NDArray[np.integer[Any]]
    positions: NDArray[np.integer[Any]]
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
        positions = np.arange(len(rows)) - starts[rows]
        return cls(texts, codes, rows, positions, lengths, int((~kept).sum()))

    def once_a_picture(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and codes of the tags, each once per image."""
        pairs = self.rows.astype(np.int64) * len(self.texts) + self.codes
        rows, codes = np.divmod(arrow().array(pairs).unique().to_numpy(), max(1, len(self.texts)))
        return rows, codes


@dataclass(frozen=True)
class Statistics:
    """The counts of a corpus.

    Attributes:
        pictures: the number of rows.
        lengths: the number of images by number of tags.
        blank: the number of listed tags that are null or blank.
        tags: a table of the distinct tags (``text``) and how often each is listed (``count``), in a dictionary's order.
        users: a table of the users and the number of their images, likewise.
    """

    pictures: int
    lengths: Mapping[int, int]
    blank: int
    tags: Any
    users: Any

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each distinct tag is listed, falling."""
        counts: NDArray[np.int64] = self.tags["count"].to_numpy()
        return counts

    @property
    def listed(self) -> int:
        """The number of listed tags."""
        return int(self.counts.sum())

    def most_frequent(self, number: int) -> Dictionary:
        """The ``number`` most frequent tags."""
        return dictionary_of(self.tags.slice(0, number))

    def at_least(self, least: int) -> Dictionary:
        """The tags listed at least ``least`` times."""
        return self.most_frequent(int((self.counts >= least).sum()))

    def counted(self, tags: Sequence[str]) -> Dictionary:
        """The given tags in their order, with how often this corpus lists each."""
        pa = arrow()
        found = arrow().compute.index_in(pa.array(tags, pa.large_string()), self.tags["text"].combine_chunks())
        positions = found.fill_null(-1).to_numpy(zero_copy_only=False)
        return Dictionary(tuple(tags), tuple(np.append(self.counts, 0)[positions].tolist()))

    def summary(self, thresholds: Iterable[int] = THRESHOLDS) -> dict[str, Any]:
        """All numbers, for JSON."""
        counts, owned = self.counts, self.users["count"].to_numpy()
        unigrams = _unigrams(self.tags["text"])
        return {
            "pictures": self.pictures,
            "users": len(owned),
            "pictures_without_user": self.pictures - int(owned.sum()),
            "tags_listed": self.listed,
            "blank_tags": self.blank,
            "distinct_tags": len(counts),
            "tags_a_picture": _spread(self.lengths),
            "pictures_a_user": {
                "median": quantile(Counter(owned.tolist()), 0.5),
                "most": int(owned[0]) if len(owned) else None,
            },
            "unigrams": {
                "of_distinct": _share(unigrams.sum(), len(counts)),
                "of_listed": _share(counts[unigrams].sum(), self.listed),
            },
            "thresholds": [self._above(least) for least in sorted(set(thresholds))],
            "zipf_slope": zipf_slope(counts),
        }

    def _above(self, least: int) -> dict[str, Any]:
        kept = self.counts[self.counts >= least]
        return {"at_least": least, "tags": len(kept), "covers": _share(kept.sum(), self.listed)}


def statistics_of(corpus: Corpus, row_groups: Iterable[RowGroup] | None = None) -> Statistics:
    """Count the tags and users of a corpus in one pass.

    Args:
        corpus: the images with their tags.
        row_groups: those to read; all if None.

    Raises:
        DataError: the corpus has no rows, or cannot be read.

    Example:
        >>> statistics_of(Corpus(Path("kept.parquet"))).most_frequent(3).tags  # doctest: +SKIP
        ('people', 'nature', 'background')
    """
    tags, users = TextCounter(), TextCounter()
    lengths: Counter[int] = Counter()
    pictures = blank = 0
    for batch in corpus.batches(row_groups):
        column = TagColumn.of(batch)
        tags.count(column.texts, column.codes)
        users.count_column(batch.column("user"))
        found, times = np.unique(column.lengths, return_counts=True)
        lengths.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
        pictures += batch.num_rows
        blank += column.blank
    if not pictures:
        raise DataError(f"{corpus.path} has no rows: there is nothing to count")
    return Statistics(pictures, lengths, blank, tags.ranked(), users.ranked())


def quantile(counted: Mapping[int, int], share: float) -> float | None:
    """A quantile of counted values, interpolated linearly.

    Args:
        counted: how often each value occurs.
        share: 0.5 for the median.

    Example:
        >>> quantile({3: 2, 5: 2}, 0.5), quantile({}, 0.5)
        (4.0, None)
    """
    values = sorted(counted)
    ends = np.cumsum([counted[value] for value in values])
    if not len(ends):
        return None
    rank = share * (ends[-1] - 1)
    below, above = (values[np.searchsorted(ends, whole, side="right")] for whole in (np.floor(rank), np.ceil(rank)))
    return float(below + (above - below) * (rank % 1))


def zipf_slope(counts: NDArray[np.int64]) -> float | None:
    """The slope of log count against log rank: -1 is Zipf's law.

    Fitted to the ranks 10 to 1000, each factor of ten weighted equally; None where there are too few tags.

    Example:
        >>> round(zipf_slope(6e6 / np.arange(1, 2000)), 3)
        -1.0
    """
    first, last = ZIPF_RANKS
    ranks = np.arange(first, min(last, len(counts)) + 1)
    if len(ranks) < FEWEST_RANKS:
        return None
    slope, _ = np.polyfit(np.log(ranks), np.log(counts[ranks - 1]), 1, w=ranks**-0.5)
    return float(slope)


def dictionary_of(table: Any) -> Dictionary:
    """The rows of a counter's table as a dictionary."""
    return Dictionary(tuple(table["text"].to_pylist()), tuple(table["count"].to_pylist()))


def _unigrams(texts: Any) -> NDArray[np.bool_]:
    """Which tags are a single word."""
    pc = arrow().compute
    spaced: NDArray[np.bool_] = pc.match_substring_regex(pc.utf8_trim_whitespace(texts), r"[\s\p{Z}]").to_numpy()
    return ~spaced


def _spread(lengths: Mapping[int, int]) -> dict[str, float | None]:
    total = sum(lengths.values())
    mean = sum(length * number for length, number in lengths.items()) / total
    quartiles = {name: quantile(lengths, share) for name, share in (("lower", 0.25), ("median", 0.5), ("upper", 0.75))}
    return {"mean": mean, **quartiles, "least": min(lengths), "most": max(lengths)}


def _share(part: Any, whole: int) -> float | None:
    return float(part / whole) if whole else None
