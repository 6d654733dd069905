"""Corpora of any size whose truth is known: which rule drops which picture, and how often each tag is seen.

The truth comes from how the pictures are made (`excite.tags.kinds`), not from any cleaning: so it can tell
whether a cleaning is right. Tags follow Zipf's law, users differ in how much they show, some tags are written in
another way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.jobs.columns import arrow
from excite.tags.dictionary import Dictionary
from excite.tags.kinds import FIRST, KINDS, firsts_of, kinds_of
from excite.tags.row_groups import RowGroups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["CORPUS", "COUNTS", "TRUTH", "Generated", "generate"]

CORPUS, TRUTH, COUNTS = "corpus.parquet", "truth.parquet", "truth.tags.csv"
BLOCK = 250_000  # users stay within one; it is no multiple of a row group, so that many have pictures in two
LONGEST, SHORTEST, USUAL = 50, 5, 30  # tags a picture; most have at least the usual number, as in the paper
SHORT = 0.02  # of the pictures have fewer
MESSY = 0.02  # of the tags are written in another way
SHUFFLES = 1009  # ways to put a list into disorder
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstv" for vowel in "aeiou"]
Numbers = Any  # arrays of whole numbers


@dataclass(frozen=True)
class Generated:
    """What to make.

    Attributes:
        rows: how many pictures.
        seed: another one gives another corpus.
        tags: how many common tags there are; beside them as many marks as `marks`.
        marks: tags that tell the pictures of a user apart: twice as many as any user has pictures.
        pictures_a_user: on average; most have fewer and some many.
    """

    rows: int
    seed: int = 0
    tags: int = 60_000
    marks: int = 20_000
    pictures_a_user: int = 60

    def __post_init__(self) -> None:
        if self.rows < 1 or self.tags < 2 * LONGEST or self.marks < 8 or self.pictures_a_user < 1:
            raise DataError(
                f"a corpus has at least one picture and {2 * LONGEST} tags, 8 marks, and users who show any"
            )


def generate(wanted: Generated, folder: Path) -> Iterator[int]:
    """Write a corpus and its truth into a folder, and tell the number of pictures after each block.

    ``corpus.parquet`` holds the pictures; ``truth.parquet`` for each of them the rule that drops it ("" if none does),
    once compared with all that were seen and once with kept ones only; ``truth.tags.csv`` counts all tags.

    Example:
        >>> from pathlib import Path
        >>> list(generate(Generated(1000, tags=500, marks=2000), Path("made")))
        [1000]
    """
    pa = arrow()
    words = _Words(wanted)
    counts = np.zeros(wanted.tags + wanted.marks, np.int64)
    corpus_schema = pa.schema([("image", pa.string()), ("tags", pa.list_(words.type)), ("user", pa.string())])
    truth_schema = pa.schema([(name, pa.string()) for name in ("kind", "seen", "kept")])

    with RowGroups(folder / CORPUS, corpus_schema) as corpus, RowGroups(folder / TRUTH, truth_schema) as truth:
        for block, first in enumerate(range(0, wanted.rows, BLOCK)):
            rows = min(BLOCK, wanted.rows - first)
            made = _Block(wanted, words, first, rows, np.random.default_rng([wanted.seed, block]))
            counts += np.bincount(made.flat, minlength=len(counts))
            corpus.add(made.corpus(corpus_schema))
            truth.add(made.truth(truth_schema))
            yield first + rows
    Dictionary.of(dict(zip(words.plain, counts.tolist(), strict=True))).save(folder / COUNTS)


class _Words:
    """The tags as text: plain, and in other ways that mean the same."""

    def __init__(self, wanted: Generated) -> None:
        pa = arrow()
        random = np.random.default_rng([wanted.seed, 1 << 20])
        names = [_name(number) for number in range(wanted.tags)]
        pairs = random.random(wanted.tags) < 0.1  # of two words
        common = [f"{name} {names[k // 2]}" if pairs[k] else name for k, name in enumerate(names)]
        marks = [f"a{number:06d}" for number in range(wanted.marks)]  # before all others in the alphabet
        self.plain = [*common, *marks]
        written = [*self.plain, *(word.upper() for word in self.plain), *(f"  {word} " for word in self.plain)]
        self.ways = 3
        self.type = pa.dictionary(pa.int32(), pa.string())
        self.written = pa.array(written, pa.string())
        order = np.argsort(np.array(self.plain, dtype=object), kind="stable")
        self.rank = np.empty(len(order), np.int64)
        self.rank[order] = np.arange(len(order))
        mass = 1 / np.arange(3, wanted.tags + 3)  # the first few of Zipf's law would be in every list
        self.mass = np.cumsum(mass / mass.sum())


def _name(number: int) -> str:
    """A word that can be spoken: a number to the base of all syllables."""
    word = ""
    number += len(SYLLABLES)  # at least two syllables
    while number:
        number, digit = divmod(number, len(SYLLABLES))
        word += SYLLABLES[digit]
    return word


class _Block:
    """Some pictures, made in the order of their users and then mixed."""

    def __init__(self, wanted: Generated, words: _Words, first: int, rows: int, random: np.random.Generator) -> None:
        self._words, self._random, self._first, self._rows = words, random, first, rows
        users = np.sort(_users(rows, wanted.pictures_a_user, random))
        if 2 * np.bincount(users).max() > wanted.marks:
            raise DataError(f"{wanted.marks} marks do not tell the pictures of a user apart: give more marks or users")
        kinds, made_from = kinds_of(users, random)
        lists = self._common_lists()
        marks = wanted.tags + (2 * np.arange(rows)[:, None] + np.arange(2)) % wanted.marks
        firsts = firsts_of(kinds, made_from, lists[:, :FIRST], marks, random)
        self._place(users)
        self._kinds, self._users, self._made_from = kinds, users, made_from
        self.flat, self._lengths = self._listed(firsts, lists[:, FIRST:], kinds, made_from)

    def _common_lists(self) -> Numbers:
        """[rows, LONGEST + some] tags by Zipf's law, in disorder, no tag twice; -1 behind the last."""
        columns = LONGEST + 10
        strata = (np.arange(columns) + self._random.random((self._rows, columns), np.float32)) / columns
        tags = np.searchsorted(self._words.mass, strata.clip(max=1 - 1e-6))
        tags[:, 1:][tags[:, 1:] == tags[:, :-1]] = -1  # a stratum each, so the same ones stand side by side
        shuffles = np.argsort(self._random.random((SHUFFLES, columns)), axis=1)
        tags = np.take_along_axis(tags, shuffles[self._random.integers(SHUFFLES, size=self._rows)], axis=1)
        return np.take_along_axis(tags, np.argsort(tags < 0, axis=1, kind="stable"), axis=1)

    def _place(self, users: Numbers) -> None:
        """Mix the users, each one's pictures staying in their order."""
        places = self._random.permutation(self._rows)
        self._places = places[np.lexsort((places, users))]

    def _listed(self, firsts: Numbers, rests: Numbers, kinds: Numbers, made_from: Numbers) -> tuple[Numbers, Numbers]:
        """All tags one after the other in the order of the corpus, and how many each picture has."""
        names = np.array([kind.name for kind in KINDS])[kinds]
        lengths = self._random.integers(USUAL, LONGEST, len(kinds), endpoint=True)
        short = self._random.random(len(kinds)) < SHORT
        lengths[short] = self._random.integers(SHORTEST, USUAL, int(short.sum()))
        lengths[names == "few"] = self._random.integers(0, SHORTEST, int((names == "few").sum()))
        tags = np.concatenate([self._shuffled(firsts), np.where(_in(rests, firsts), -1, rests)], axis=1)
        tags = np.take_along_axis(tags, np.argsort(tags < 0, axis=1, kind="stable"), axis=1)
        lengths = np.minimum(lengths, (tags >= 0).sum(axis=1))
        tags[np.arange(tags.shape[1]) >= lengths[:, None]] = -1
        self._sort(tags, names == "sorted")
        follows = np.flatnonzero(names == "as a sorted one")
        tags[follows, :FIRST] = tags[made_from[follows], :FIRST]
        lengths[follows] = FIRST
        tags[follows, FIRST:] = -1
        self._unsort(tags, ~np.isin(names, ["sorted", "few"]))
        ordered = np.empty_like(tags)
        ordered[self._places] = tags
        return ordered[ordered >= 0], (ordered >= 0).sum(axis=1)

    def _shuffled(self, firsts: Numbers) -> Numbers:
        return self._random.permuted(firsts, axis=1)

    def _sort(self, tags: Numbers, chosen: Numbers) -> None:
        last = len(self._words.rank)
        ranks = np.where(tags[chosen] >= 0, self._words.rank[tags[chosen]], last)
        tags[chosen] = np.take_along_axis(tags[chosen], np.argsort(ranks, axis=1, kind="stable"), axis=1)

    def _unsort(self, tags: Numbers, chosen: Numbers) -> None:
        """No list is in alphabetical order by chance."""
        ranks = np.where(tags >= 0, self._words.rank[tags], len(self._words.rank))
        ordered = chosen & (ranks[:, 1:] >= ranks[:, :-1]).all(axis=1)
        tags[ordered, :2] = tags[ordered, 1::-1]

    def corpus(self, schema: Any) -> Any:
        """The pictures as a batch."""
        pa = arrow()
        number = len(self.flat)
        other = self._random.integers(1, self._words.ways, number)
        ways = np.where(self._random.random(number, np.float32) < MESSY, other, 0)
        written = pa.array((self.flat + ways * len(self._words.plain)).astype(np.int32))
        offsets = pa.array(np.concatenate([[0], np.cumsum(self._lengths)]).astype(np.int32))
        lists = pa.ListArray.from_arrays(offsets, pa.DictionaryArray.from_arrays(written, self._words.written))
        return pa.record_batch(
            [pa.array(self._images()), lists.cast(schema.field("tags").type), self._owners()], schema=schema
        )

    def _images(self) -> list[str]:
        numbers = np.empty(self._rows, np.int64)
        again = np.array([kind.seen == "repeated_image" for kind in KINDS])[self._kinds]
        source = np.where(again, self._made_from, np.arange(self._rows))
        numbers[self._places] = self._first + self._places[source]
        return [f"{number // 1000:06d}/{number:09d}.jpg" for number in numbers.tolist()]

    def _owners(self) -> Any:
        pa = arrow()
        numbers = np.empty(self._rows, np.int64)
        numbers[self._places] = self._users
        nobody = np.empty(self._rows, bool)
        nobody[self._places] = np.array([kind.name == "of nobody" for kind in KINDS])[self._kinds]
        block = self._first // BLOCK
        return pa.array([f"{block}-{number}" for number in numbers.tolist()], pa.string(), mask=nobody)

    def truth(self, schema: Any) -> Any:
        """What becomes of the pictures."""
        pa = arrow()
        kinds = np.empty(self._rows, np.int64)
        kinds[self._places] = self._kinds
        told = [[kind.name for kind in KINDS], [kind.seen for kind in KINDS], [kind.kept for kind in KINDS]]
        return pa.record_batch([pa.array(words).take(pa.array(kinds)) for words in told], schema=schema)


def _users(rows: int, pictures: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Whose each picture is: some users show many."""
    most = max(1, rows // pictures)
    return (most * random.random(rows) ** 2).astype(np.int64)


def _in(rests: Numbers, firsts: Numbers) -> NDArray[np.bool_]:
    """Where a tag is among the first ones of the same picture."""
    found = np.zeros(rests.shape, bool)
    for column in range(firsts.shape[1]):
        found |= rests == firsts[:, column : column + 1]
    return found
