"""What a corpus of tags is like: how many, how often, by whom."""

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

    from excite.tags.corpus import Corpus, Piece


# Tags counted without ever becoming Python objects: Arrow turns those of a batch into numbers, NumPy counts these.
#
# What stays in memory is one line for each distinct tag and each user.

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
        rows: for each listed tag the row of its image.
        places: for each listed tag its place among the tags of its image, from 0.
        lengths: for each image how many tags it has.
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
        """Rows and codes of the tags, without those that an image lists again."""
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


# What a corpus of tags is like: how many, how often, by whom.

THRESHOLDS = (10, 100, 1000, 10_000)
ZIPF_RANKS = (10, 1000)  # the head is a matter of taste, the tail one of chance
FEWEST_RANKS = 20  # a slope of fewer points says nothing


@dataclass(frozen=True)
class Statistics:
    """What was counted.

    Attributes:
        pictures: how many rows there are.
        lengths: how many images have so many tags.
        blank: listed tags that are null or blank, and not counted as tags.
        tags: a table of the distinct tags (``text``) and how often each is listed (``count``), in a dictionary's order.
        users: a table of the users and how many images each has, likewise.
    """

    pictures: int
    lengths: Mapping[int, int]
    blank: int
    tags: Any
    users: Any

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each distinct tag is listed, falling."""
        return _numbers(self.tags)

    @property
    def listed(self) -> int:
        """How many tags are listed in all."""
        return int(self.counts.sum())

    def most_frequent(self, number: int) -> Dictionary:
        """So many tags, or all there are."""
        return dictionary_of(self.tags.slice(0, number))

    def at_least(self, least: int) -> Dictionary:
        """The tags that are listed at least so often."""
        return self.most_frequent(int((self.counts >= least).sum()))

    def counted(self, tags: Sequence[str]) -> Dictionary:
        """Given tags in their own order, with how often this corpus lists each."""
        pa = arrow()
        found = arrow().compute.index_in(pa.array(tags, pa.large_string()), self.tags["text"].combine_chunks())
        places = found.fill_null(-1).to_numpy(zero_copy_only=False)
        return Dictionary(tuple(tags), tuple(np.append(self.counts, 0)[places].tolist()))

    def summary(self, thresholds: Iterable[int] = THRESHOLDS) -> dict[str, Any]:
        """All of it in numbers, for people and for JSON."""
        counts, owned = self.counts, _numbers(self.users)
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


def statistics_of(corpus: Corpus, pieces: Iterable[Piece] | None = None) -> Statistics:
    """Count the tags and users of a corpus in one pass.

    Args:
        corpus: the images with their tags.
        pieces: those of its pieces to read; all if none are given.

    Raises:
        DataError: the corpus has no rows, or cannot be read.

    Example:
        >>> statistics_of(Corpus(Path("kept.parquet"))).most_frequent(3).tags  # doctest: +SKIP
        ('people', 'nature', 'background')
    """
    tags, users = Tally(), Tally()
    lengths: Counter[int] = Counter()
    pictures = blank = 0
    for batch in corpus.batches(pieces):
        listing = Listing.of(batch)
        listing.count_into(tags)
        count_users(batch.column("user"), users)
        found, times = np.unique(listing.lengths, return_counts=True)
        lengths.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
        pictures += batch.num_rows
        blank += listing.blank
    if not pictures:
        raise DataError(f"{corpus.path} has no rows: there is nothing to count")
    return Statistics(pictures, lengths, blank, tags.ranked(), users.ranked())


def quantile(counted: Mapping[int, int], share: float) -> float | None:
    """The value below which such a share of all values lies, between two values as far as the share says.

    Args:
        counted: how often each value is there.
        share: 0.5 for the median.

    Example:
        >>> quantile({3: 2, 5: 2}, 0.5), quantile({}, 0.5)
        (4.0, None)
    """
    values = sorted(counted)
    ends = np.cumsum([counted[value] for value in values])
    if not len(ends):
        return None
    place = share * (ends[-1] - 1)
    below, above = (values[np.searchsorted(ends, whole, side="right")] for whole in (np.floor(place), np.ceil(place)))
    return float(below + (above - below) * (place % 1))


def zipf_slope(counts: NDArray[np.int64]) -> float | None:
    """How steeply the counts fall with their rank, both as logarithms: -1 is Zipf's law.

    A straight line through the ranks 10 to 1000, where each factor of ten weighs the same; None where there are too
    few tags to fit one.

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


def _numbers(table: Any) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = table["count"].to_numpy()
    return numbers


def dictionary_of(table: Any) -> Dictionary:
    """The rows of a tally as a dictionary."""
    return Dictionary(tuple(table["text"].to_pylist()), tuple(table["count"].to_pylist()))


def _unigrams(texts: Any) -> NDArray[np.bool_]:
    """Which tags are one word: no space inside."""
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
