"""Statistics of a corpus: its tags and users, counted by SQL batch by batch.

Memory grows with the number of distinct tags and users only, and beyond a limit on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.jobs.parquet import arrow
from excite.tags.database import database
from excite.tags.dictionary import Dictionary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from excite.tags.corpus import Corpus, RowGroup


THRESHOLDS = (10, 100, 1000, 10_000)
ZIPF_RANKS = (10, 1000)  # the head is a matter of taste, the tail one of chance
FEWEST_RANKS = 20  # for a slope
THREADS = 2
SPACES = r"\s\v\x1c-\x1f\x85\p{Z}"  # within brackets
TABLES = """
    CREATE TABLE tags (text VARCHAR, count BIGINT);
    CREATE TABLE users (text VARCHAR, count BIGINT);
    CREATE TABLE lengths (length BIGINT, count BIGINT);
    CREATE TABLE blanks (count BIGINT);
    CREATE MACRO is_blank(text) AS text IS NULL OR regexp_full_match(text, '[{spaces}]*')"""
COUNT = (
    """CREATE OR REPLACE TEMP TABLE listed AS
        SELECT text, count(*) AS count FROM (SELECT unnest(tags) AS text FROM batch) GROUP BY text""",
    """CREATE OR REPLACE TEMP TABLE blank AS
        SELECT list(text) AS texts, sum(count) AS count FROM listed WHERE is_blank(text)""",
    "INSERT INTO tags FROM listed WHERE NOT is_blank(text)",
    'INSERT INTO users SELECT "user", count(*) FROM batch WHERE "user" IS NOT NULL GROUP BY "user"',
    """INSERT INTO lengths SELECT
        CASE WHEN texts IS NULL THEN coalesce(len(tags), 0)
        ELSE len(list_filter(coalesce(tags, []), lambda tag: tag IS NOT NULL AND NOT list_contains(texts, tag))) END
        AS length, count(*) FROM batch, blank GROUP BY length""",
    "INSERT INTO blanks SELECT count FROM blank",
)
"""The queries for each batch; blank tags are sought among the distinct ones."""

RANKED = "SELECT text, sum(count)::BIGINT AS count FROM {} GROUP BY text ORDER BY count DESC, text"


@dataclass(frozen=True)
class Statistics:
    """The counts of a corpus.

    Attributes:
        pictures: the number of rows.
        lengths: the distinct numbers of tags of an image, and how many images have them.
        blank: the number of listed tags that are null or blank.
        tags: a table of the distinct tags (``text``) and how often each is listed (``count``), in a dictionary's order.
        users: a table of the users and the number of their images, likewise.
    """

    pictures: int
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]]
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
        table = self.tags.slice(0, number)
        return Dictionary(tuple(table["text"].to_pylist()), tuple(table["count"].to_pylist()))

    def at_least(self, least: int) -> Dictionary:
        """The tags listed at least ``least`` times."""
        return self.most_frequent(int((self.counts >= least).sum()))

    def counted(self, tags: Sequence[str]) -> Dictionary:
        """The given tags in their order, with how often this corpus lists each."""
        found = arrow().compute.index_in(arrow().array(tags, self.tags["text"].type), self.tags["text"])
        positions = found.fill_null(-1).to_numpy(zero_copy_only=False)
        return Dictionary(tuple(tags), tuple(np.append(self.counts, 0)[positions].tolist()))

    def summary(self, thresholds: Iterable[int] = THRESHOLDS) -> dict[str, Any]:
        """All numbers, for JSON."""
        counts, owned = self.counts, self.users["count"].to_numpy()
        inside = rf"[^{SPACES}][{SPACES}]+[^{SPACES}]"
        unigrams = ~arrow().compute.match_substring_regex(self.tags["text"], inside).to_numpy()
        lengths = np.repeat(*self.lengths)
        lower, median, upper = np.quantile(lengths, [0.25, 0.5, 0.75]).tolist()
        spread = {"mean": float(lengths.mean()), "lower": lower, "median": median, "upper": upper}
        return {
            "pictures": self.pictures,
            "users": len(owned),
            "pictures_without_user": self.pictures - int(owned.sum()),
            "tags_listed": self.listed,
            "blank_tags": self.blank,
            "distinct_tags": len(counts),
            "tags_a_picture": {**spread, "least": int(lengths.min()), "most": int(lengths.max())},
            "pictures_a_user": {
                "median": float(np.median(owned)) if len(owned) else None,
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
    with TemporaryDirectory() as spill, database(Path(spill), THREADS) as tables:
        tables.execute(TABLES.format(spaces=SPACES))
        for batch in corpus.batches(row_groups):
            tables.register("batch", arrow().Table.from_batches([batch]))
            for query in COUNT:
                tables.execute(query)
        tags, users = (tables.sql(RANKED.format(name)).to_arrow_table() for name in ("tags", "users"))
        lengths = tables.execute("SELECT length, sum(count)::BIGINT AS count FROM lengths GROUP BY ALL").fetchnumpy()
        (blank,) = tables.execute("SELECT coalesce(sum(count), 0)::BIGINT FROM blanks").fetchone()
    pictures = int(lengths["count"].sum())
    if not pictures:
        raise DataError(f"{corpus.path} has no rows: there is nothing to count")
    return Statistics(pictures, (lengths["length"], lengths["count"]), blank, tags, users)


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


def _share(part: Any, whole: int) -> float | None:
    return float(part / whole) if whole else None
