"""What a corpus of tags is like: how many, how often, by whom, and what comes with a tag.

One pass over the rows in batches. Arrow turns the tags of a batch into numbers and NumPy counts the numbers, so no
listed tag ever becomes a Python object; what stays in memory is one line for each distinct tag and each user.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from excite.errors import DataError
from excite.ledger.columns import arrow
from excite.tags.dictionary import Dictionary
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from excite.tags.corpus import Corpus, Piece

__all__ = [
    "THRESHOLDS",
    "Listing",
    "Statistics",
    "TagFacts",
    "Tally",
    "quantile",
    "statistics_of",
    "tag_facts",
    "zipf_slope",
]

THRESHOLDS = (10, 100, 1000, 10_000)
ZIPF_RANKS = (10, 1000)  # the head is a matter of taste, the tail one of chance
FEWEST_RANKS = 20  # a slope of fewer points says nothing
FIRST_PLACES = 5  # the tags that a classifier learns
FEWEST_TOGETHER = 5  # a lift of fewer pictures is chance
MOST_TOGETHER, MOST_USERS = 30, 10  # that are named
LONGEST_SHOWN = 60  # letters of a tag in a message
MOST_COMPARED = 20_000  # tags that a misspelt one is compared with
UNMERGED = 1_000_000  # texts that may wait: merging after each batch would take long


def compute() -> Any:
    """Arrow's functions over columns, which are a module of their own.

    Example:
        >>> compute().sum([1, 2]).as_py()
        3
    """
    arrow()  # says what to do where there is none
    return import_module("pyarrow.compute")


def checked(values: Any) -> Any:
    """Text of a corpus as it is, when it is text: Parquet files of other programs may hold any bytes.

    Raises:
        DataError: it is not UTF-8.

    Example:
        >>> checked(arrow().array(["dog"])).to_pylist()
        ['dog']
    """
    try:
        values.validate(full=True)
    except arrow().ArrowInvalid:
        raise DataError("the corpus holds text that is not UTF-8: write its tags, images and users as UTF-8") from None
    return values


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
        return table.take(compute().sort_indices(table, [("count", "descending"), ("text", "ascending")]))

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
        pc = compute()
        column = batch.column("tags")
        encoded = pc.list_flatten(column).dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        texts = checked(encoded.dictionary)
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
        _add_seen(tally, self.texts, self.counts)

    def once_a_picture(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and codes of the tags, without those that a picture lists again."""
        pairs = self.rows.astype(np.int64) * len(self.texts) + self.codes
        rows, codes = np.divmod(arrow().array(pairs).unique().to_numpy(), max(1, len(self.texts)))
        return rows, codes


@dataclass(frozen=True)
class Statistics:
    """What was counted.

    Attributes:
        pictures: how many rows there are.
        lengths: how many pictures have so many tags.
        blank: listed tags that are null or blank, and not counted as tags.
        tags: a table of the distinct tags (``text``) and how often each is listed (``count``), in a dictionary's order.
        users: a table of the users and how many pictures each has, likewise.
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
        return _dictionary(self.tags.slice(0, number))

    def at_least(self, least: int) -> Dictionary:
        """The tags that are listed at least so often."""
        return self.most_frequent(int((self.counts >= least).sum()))

    def counted(self, tags: Sequence[str]) -> Dictionary:
        """Given tags in their own order, with how often this corpus lists each."""
        pa = arrow()
        found = compute().index_in(pa.array(tags, pa.large_string()), self.tags["text"].combine_chunks())
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
        corpus: the pictures with their tags.
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


def count_users(column: Any, tally: Tally) -> None:
    """Count a column of users; those that are not known (null) are nobody."""
    encoded = column.drop_null().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    _add_seen(tally, checked(encoded.dictionary), np.bincount(codes, minlength=len(encoded.dictionary)))


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


def _add_seen(tally: Tally, texts: Any, counts: NDArray[np.int64]) -> None:
    seen = counts > 0
    tally.add(texts.filter(arrow().array(seen)), counts[seen])


def _numbers(table: Any) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = table["count"].to_numpy()
    return numbers


def _dictionary(table: Any) -> Dictionary:
    return Dictionary(tuple(table["text"].to_pylist()), tuple(table["count"].to_pylist()))


def _unigrams(texts: Any) -> NDArray[np.bool_]:
    """Which tags are one word: no space inside."""
    pc = compute()
    spaced: NDArray[np.bool_] = pc.match_substring_regex(pc.utf8_trim_whitespace(texts), r"[\s\p{Z}]").to_numpy()
    return ~spaced


def _spread(lengths: Mapping[int, int]) -> dict[str, float | None]:
    total = sum(lengths.values())
    mean = sum(length * number for length, number in lengths.items()) / total
    quartiles = {name: quantile(lengths, share) for name, share in (("lower", 0.25), ("median", 0.5), ("upper", 0.75))}
    return {"mean": mean, **quartiles, "least": min(lengths), "most": max(lengths)}


def _share(part: Any, whole: int) -> float | None:
    return float(part / whole) if whole else None


@dataclass(frozen=True)
class TagFacts:
    """What a corpus tells about one tag.

    Attributes:
        tag: the tag.
        listed: how often it is listed,
        pictures: and by how many pictures.
        rank: its place among all tags, 1 for the most frequent,
        distinct: of which there are so many.
        places: how often it is listed first, second, ... fifth, and later.
        together: for each tag that comes with it ``tag``, ``pictures`` that list both, and the ``lift``: how many times
            more these are than if the two had nothing to do with each other. Most pictures first, at least 5.
        users: ``user`` and ``pictures`` of those who use it most.
        samples: some pictures that list it among the first five, chosen by chance: name and tags.
    """

    tag: str
    listed: int
    pictures: int
    rank: int
    distinct: int
    places: tuple[int, ...]
    together: tuple[dict[str, Any], ...]
    users: tuple[dict[str, Any], ...]
    samples: tuple[tuple[str, list[str]], ...]


def tag_facts(tag: str, corpus: Corpus, pieces: Iterable[Piece] | None = None, *, samples: int = 72) -> TagFacts:
    """Look for a tag in a corpus, in one pass.

    Args:
        tag: exactly as the corpus writes it.
        corpus: the pictures with their tags.
        pieces: those of its pieces to read; all if none are given.
        samples: how many pictures that list it to name.

    Raises:
        DataError: no picture lists it; the message names tags that are written alike.

    Example:
        >>> tag_facts("dog", Corpus(Path("kept.parquet"))).together[0]  # doctest: +SKIP
        {'tag': 'pet', 'pictures': 5120, 'lift': 38.4}
    """
    around = _Around(tag, samples)
    for batch in corpus.batches(pieces):
        around.see(batch)
    return around.facts()


class _Around:
    """What was seen of a tag so far, and of all others that it is compared with."""

    def __init__(self, tag: str, samples: int) -> None:
        self._tag, self._most = tag, samples
        self._listed, self._in_pictures, self._together, self._users = Tally(), Tally(), Tally(), Tally()
        self._rows = 0
        self._places = np.zeros(FIRST_PLACES + 1, np.int64)
        self._random = np.random.default_rng(0)
        self._samples: list[tuple[float, str, list[str]]] = []

    def see(self, batch: Any) -> None:
        """Count the rows of a batch."""
        self._rows += batch.num_rows
        listing = Listing.of(batch)
        listing.count_into(self._listed)
        rows, codes = listing.once_a_picture()
        texts = listing.texts
        _add_seen(self._in_pictures, texts, np.bincount(codes, minlength=len(texts)))
        code = compute().index(texts, self._tag).as_py()
        if code < 0:
            return
        places = listing.places[listing.codes == code]
        self._places += np.bincount(np.minimum(places, FIRST_PLACES), minlength=len(self._places))
        with_it = np.zeros(batch.num_rows, bool)
        with_it[listing.rows[listing.codes == code]] = True
        _add_seen(self._together, texts, np.bincount(codes[with_it[rows]], minlength=len(texts)))
        count_users(batch.column("user").filter(arrow().array(with_it)), self._users)
        among_first = (listing.codes == code) & (listing.places < FIRST_PLACES)
        self._choose(batch, np.unique(listing.rows[among_first]))

    def _choose(self, batch: Any, rows: NDArray[Any]) -> None:
        """Each picture draws a lot, in the order of the corpus, and the lowest lots stay: however it is cut up."""
        lots = self._random.random(len(rows))
        lowest = np.argsort(lots, kind="stable")[: self._most]
        taken = checked(batch.take(arrow().array(rows[lowest])))
        named = zip(
            lots[lowest].tolist(), taken.column("image").to_pylist(), taken.column("tags").to_pylist(), strict=True
        )
        self._samples = sorted([*self._samples, *named], key=lambda one: one[0])[: self._most]

    def facts(self) -> TagFacts:
        """All that was seen."""
        everything = Statistics(self._rows, {}, 0, self._listed.ranked(), self._users.ranked())
        rank = compute().index(everything.tags["text"], self._tag).as_py() + 1
        if not rank:
            raise DataError(_not_there(self._tag, everything))
        together = Statistics(self._rows, {}, 0, self._together.ranked(), None)
        (pictures,) = together.counted([self._tag]).counts
        users = _dictionary(everything.users.slice(0, MOST_USERS))
        return TagFacts(
            tag=self._tag,
            listed=int(self._places.sum()),
            pictures=pictures,
            rank=rank,
            distinct=len(everything.tags),
            places=tuple(self._places.tolist()),
            together=tuple(islice(self._lifts(together.at_least(FEWEST_TOGETHER), pictures), MOST_TOGETHER)),
            users=tuple({"user": name, "pictures": n} for name, n in zip(users.tags, users.counts, strict=True)),
            samples=tuple((image, tags) for _, image, tags in self._samples),
        )

    def _lifts(self, together: Dictionary, pictures: int) -> Iterator[dict[str, Any]]:
        in_pictures = Statistics(self._rows, {}, 0, self._in_pictures.ranked(), None).counted(together.tags)
        for tag, both, other in zip(together.tags, together.counts, in_pictures.counts, strict=True):
            if tag != self._tag:
                yield {"tag": tag, "pictures": both, "lift": both * self._rows / (pictures * other)}


def _not_there(tag: str, everything: Statistics) -> str:
    if not everything.listed:
        return "the corpus lists no tags at all"
    written: dict[str, str] = {}
    for known in everything.most_frequent(MOST_COMPARED).tags:
        written.setdefault(fold(known), known)  # of several spellings the most frequent one
    wanted = fold(tag[:LONGEST_SHOWN])
    alike = set(get_close_matches(wanted, written, 50, 0.6))
    nearest = sorted((one for one in written if one in alike), key=lambda one: -likeness(wanted, one))  # then by rank
    told = f"the nearest tags are {', '.join(repr(written[one]) for one in nearest[:5])}"
    none = "no frequent tag is written alike: `excite tags stats` lists them"
    return f"no picture lists {tag[:LONGEST_SHOWN]!r}; {told if nearest else none}"


def shown(text: str) -> str:
    r"""A tag or a user for a line of a terminal: a corpus may hold whole books, and letters that move the cursor.

    Example:
        >>> shown("dog"), shown("\x1b[2J" + "very " * 100)
        ('dog', '\\x1b[2Jvery very very very very very very very very very very ...')
    """
    cut = text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "..."
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in cut)


def likeness(one: str, other: str) -> float:
    """How alike two words are written, 1 for the same.

    Example:
        >>> likeness("dog", "dogs") > likeness("dog", "do it")
        True
    """
    return SequenceMatcher(None, one, other).ratio()
