"""Statistics of a corpus: its tags and users, counted by SQL batch by batch, and how many of its tags are visual.

There is no list of all visual words, so there are two measures, each with a blind spot. A tag is *named* if it, or its
last word ("old dog"), is a word for something that a classifier of this package knows: objects, animals and people, not
"sunset". A tag is *learnt* if a trained classifier finds it at least 5 times as precisely as by guessing: not if it is
rare, but also if it always comes with something visible ("holiday" with beaches).
"""

import csv
import io
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excite.errors import DataError
from excite.jobs.parquet import arrow
from excite.tags import database, queries
from excite.tags.corpus import Corpus, RowGroup
from excite.tags.dictionary import Dictionary
from excite.vocabulary import Labels
from excite.vocabulary.inflection import singulars
from excite.vocabulary.labels import fold

THRESHOLDS = (10, 100, 1000, 10_000)
COLUMNS = ("tag", "precision", "share")  # of the measures of a classifier
SPACES = r"\s\v\x1c-\x1f\x85\p{Z}"  # within brackets


@dataclass(frozen=True)
class Statistics:
    """The counts of a corpus."""

    pictures: int  # rows
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]]  # numbers of tags, and how many images have them
    blank: int  # listed tags that are null or blank
    tags: Any  # a table of the distinct tags (text) and how often each is listed (count), in a dictionary's order
    users: Any  # a table of the users and the number of their images, likewise

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each distinct tag is listed, falling."""
        return np.asarray(self.tags["count"])

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
            "thresholds": [
                {"at_least": least, "tags": len(kept), "covers": _share(kept.sum(), self.listed)}
                for least, kept in ((least, counts[counts >= least]) for least in sorted(set(thresholds)))
            ],
            "zipf_slope": zipf_slope(counts),
        }


def statistics_of(corpus: Corpus, row_groups: Iterable[RowGroup] | None = None) -> Statistics:
    """Count the tags and users of a corpus, or of some of its row groups, in one pass."""
    ask = queries("statistics")
    with TemporaryDirectory() as spill, database(Path(spill), threads=2) as tables:
        tables.execute(f"SET VARIABLE spaces = '{SPACES}'")
        tables.execute(ask["tables"])
        for batch in corpus.batches(row_groups):
            tables.register("batch", arrow().Table.from_batches([batch]))
            tables.execute(ask["count"])
        tags, users = (tables.sql(ask[name]).to_arrow_table() for name in ("tags", "users"))
        lengths = tables.execute(ask["lengths"]).fetchnumpy()
        (blank,) = tables.execute(ask["blank"]).fetchone()
    pictures = int(lengths["count"].sum())
    if not pictures:
        raise DataError(f"{corpus.path} has no rows: there is nothing to count")
    return Statistics(pictures, (lengths["length"], lengths["count"]), blank, tags, users)


def zipf_slope(counts: NDArray[np.int64]) -> float | None:
    """The slope of log count against log rank (Zipf's law: -1), each factor of ten weighted equally."""
    ranks = np.arange(10, min(1000, len(counts)) + 1)  # the head is a matter of taste, the tail one of chance
    if len(ranks) < 20:
        return None
    slope, _ = np.polyfit(np.log(ranks), np.log(counts[ranks - 1]), 1, w=ranks**-0.5)
    return float(slope)


def _share(part: Any, whole: int) -> float | None:
    return float(part / whole) if whole else None


def known_words(labels: Labels) -> frozenset[str]:
    """All words for a label or a group of labels that `Labels.find` accepts, but for prefixes and numbers of labels."""
    synonyms = {fold(word) for unit in range(len(labels)) for word in labels.synonyms(unit)}
    return frozenset(synonyms | {word.split()[-1] for word in synonyms} | set(labels.kinds))


def is_named(tag: str, words: Container[str]) -> bool:
    """Whether a tag, or its last word, is among those words, as it is or as a plural."""
    whole = fold(tag)
    return any(form in words for word in (whole, *whole.split()[-1:]) for form in (word, *singulars(word)) if form)


def learnt_tags(path: Path) -> dict[str, bool]:
    """Whether a classifier has learnt each measured tag; those that no held-out image lists are left out."""
    try:
        lines = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
        missing = [name for name in COLUMNS if name not in (lines.fieldnames or ())]
        if missing:
            raise DataError(f"{path} holds no measures of tags: it has no column {missing[0]!r}")
        measured = {line["tag"]: [float(line[name] or "nan") for name in COLUMNS[1:]] for line in lines}
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read the measures {path}: {' '.join(str(error).split())}") from None
    return {
        tag: precision >= 5 * share
        for tag, (precision, share) in measured.items()
        if math.isfinite(precision) and share > 0
    }


def visual_share(dictionary: Dictionary, is_visual: Callable[[str], bool]) -> dict[str, Any]:
    """The visual share of a dictionary: of its tags, and of their listings."""
    counts = [count for tag, count in zip(dictionary.tags, dictionary.counts, strict=True) if is_visual(tag)]
    shares = _share(len(counts), len(dictionary)), _share(sum(counts), sum(dictionary.counts))
    return {"judged": len(dictionary), "of_tags": shares[0], "of_listed": shares[1]}


def learnt_share(dictionary: Dictionary, learnt: Mapping[str, bool]) -> dict[str, Any]:
    """The learnt share of the measured part of a dictionary."""
    measured = [one for one in zip(dictionary.tags, dictionary.counts, strict=True) if one[0] in learnt]
    if not measured:
        raise DataError("the measures are of other tags: none of them is in this dictionary")
    return visual_share(dictionary.listed(measured), learnt.__getitem__)
