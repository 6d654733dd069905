"""The rules of the paper's appendix, as SQL (``rules.sql``) on what a survey of the corpus has collected of each image.

Similar images of one user are found without comparing all pairs: two images share at least k of their first tags
exactly when they have a set of k tags in common. So each image is filed under all sets of k of its first tags (five
sets for five tags and k = 4). The work is linear in the number of images. Names, users and sets of tags are compared by
hashes of 128, 64 and 64 bits: that any two of 17 million images are wrongly taken for similar has a chance of 1e-8.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excite.errors import DataError
from excite.tags import queries
from excite.tags.dictionary import Dictionary

RULES = ("no_image", "repeated_image", "few_tags", "alphabetical", "similar")  # the first that applies is the reason
KEPT, SIMILAR = 0, 5  # the verdict on a kept image; on others the number of the rule, from 1
AGAINST = ("seen", "kept")
ASK = queries("rules")
PAPER_COUNT, PAPER_ROWS = 1000, 17_000_000
LISTED = "SELECT count(*), coalesce(sum(count), 0)::BIGINT FROM counts WHERE kind = 'tag' AND count >= ?"


def usual_count(rows: int) -> int:
    """How often a tag must be listed in a corpus of so many images: as in the paper, or the square root of that share.

    By Zipf's law the tags of a dictionary times the least count are a share of the corpus. With the square root, both
    shrink alike in a smaller one. A tag listed once could not be learnt and measured.

    Example:
        >>> [usual_count(rows) for rows in (100, 3_300, 1_000_000, 17_000_000, 10**9)]
        [2, 14, 243, 1000, 1000]
    """
    return max(2, min(PAPER_COUNT, round(PAPER_COUNT * math.sqrt(rows / PAPER_ROWS))))


@dataclass(frozen=True)
class Rules:
    """The thresholds, by default the paper's."""

    least_count: int = PAPER_COUNT  # the dictionary holds the tags listed so often (0: see `usual_count`),
    most_tags: int | None = None  # and of these the most frequent; None for all
    least_tags: int = 5  # an image with fewer tags is dropped
    alphabetical: bool = True  # whether an image with tags in alphabetical order is dropped
    similar: bool = True  # whether an image is dropped if of its
    first: int = 5  # first tags
    overlap: int = 3  # more than so many are those of an earlier image of the same user
    against: str = "seen"  # the earlier images compared: all that reach this rule, or "kept" ones

    def __post_init__(self) -> None:
        if self.against not in AGAINST:
            raise DataError(f"images are compared with those {' or '.join(AGAINST)} before, not {self.against!r}")
        if not 0 <= self.overlap < self.first <= 20:
            raise DataError(
                f"of {self.first} first tags more than {self.overlap} cannot be shared, or it costs too much"
            )


class CorpusSurvey:
    """The surveys of all parts of a corpus (Parquet files) as tables of a database, on which the rules are queries."""

    def __init__(self, tables: Any, images: Sequence[Path], counts: Sequence[Path]) -> None:
        self._tables, self._folder = tables, images[0].parent if images else None
        tables.read_parquet(list(map(str, images))).create_view("images")
        tables.read_parquet(list(map(str, counts))).create_view("all_counts")
        tables.execute(ASK["merge"])
        self.rows, self.users, self.without_user = self._row(
            'SELECT count(*), count(DISTINCT "user"), count(*) - count("user") FROM images'
        )
        self.different_tags, self.listed_tags = self._row(LISTED, 0)

    def _row(self, query: str, *given: int) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self._tables.execute(query, given).fetchone()
        return found

    @property
    def changes(self) -> dict[str, int]:
        """The numbers of normalised tags, by change."""
        query = "SELECT text, count FROM counts WHERE kind = 'change' ORDER BY text"
        return dict(self._tables.execute(query).fetchall())

    def dictionary(self, rules: Rules) -> Dictionary:
        """The tags listed often enough, the most frequent first."""
        query = "SELECT text, count FROM counts WHERE kind = 'tag' AND count >= ? ORDER BY count DESC, text LIMIT ?"
        return Dictionary.listed(self._tables.execute(query, [rules.least_count, rules.most_tags]).fetchall())

    def dictionary_size(self, least_count: int) -> dict[str, Any]:
        """The number of tags listed at least so often, and their share of all listed tags."""
        tags, listed = self._row(LISTED, least_count)
        return {"tags": tags, "share_of_listed": round(listed / max(self.listed_tags, 1), 4)}

    def verdicts(self, rules: Rules) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """For each image the number of the rule that drops it, or `KEPT`; and the row that it is similar to, or -1."""
        verdicts, like = np.zeros(self.rows, np.uint8), np.full(self.rows, -1, np.int64)
        chosen = combinations(range(1, rules.first + 1), rules.overlap + 1)
        self._tables.execute("CREATE OR REPLACE TEMP TABLE choices (places INTEGER[])")
        self._tables.execute("INSERT INTO choices SELECT unnest($places)", {"places": list(map(list, chosen))})
        self._tables.execute(f"SET VARIABLE least_tags = {rules.least_tags}")
        self._tables.execute(f"SET VARIABLE alphabetical = {rules.alphabetical}")
        self._tables.execute(ASK["judge"])
        for rows, found in self._batches("SELECT row, verdict FROM judged WHERE verdict > 0"):
            verdicts[rows] = found
        if rules.similar:
            self._tables.execute(ASK["share"])
            for rows, others in self._batches(ASK["like_seen"]) if rules.against == "seen" else self._like_kept():
                verdicts[rows], like[rows] = SIMILAR, others
        return verdicts, like

    def _batches(self, query: str) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The two columns of a query as arrays, in batches."""
        for batch in self._tables.sql(query).to_arrow_reader(1_000_000):
            rows, found = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
            if rows.dtype.kind not in "iu" or rows.max(initial=0) >= self.rows or rows.min(initial=0) < 0:
                raise DataError(
                    f"a survey in {self._folder} is damaged (it has no such rows): remove it and start again"
                )
            yield rows, found

    def _like_kept(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Images similar to an earlier kept one: each depends on those before it, so one user after the other."""
        batches = self._tables.sql(ASK["in_order"]).to_arrow_reader(100_000)
        listed = (
            row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        for _, images in groupby(listed, itemgetter(0)):
            kept: dict[int, int] = {}  # the first kept image of each set of tags
            for row, sets in groupby(images, itemgetter(1)):
                mine = [tags for _, _, tags in sets]
                like = min((kept[tags] for tags in mine if tags in kept), default=None)
                if like is None:
                    for tags in mine:
                        kept[tags] = row
                else:
                    yield np.array([row]), np.array([like])
