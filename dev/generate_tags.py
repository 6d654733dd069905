"""Synthetic corpora of any size with known truth: which rule drops which image, and how often each tag is listed.

The truth comes from how the images are made, not from any cleaning, so it can test one. Tags follow Zipf's law, users
differ in the number of their images, and some tags are written in another way. Every plain image has two marks among
its first five tags: tags that no other image of the same user begins with, unless it is derived from this one. So two
images share more than three of their first five tags only by design.

    python dev/generate_tags.py 1000000 --out made
    excite tags clean made/corpus.parquet --out kept.parquet --workers 2
    python recipes/check_cleaning.py made kept.parquet
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excite.errors import DataError
from excite.jobs.parquet import arrow
from excite.tags.corpus import row_group_writer
from excite.tags.dictionary import Dictionary

if TYPE_CHECKING:
    from collections.abc import Iterator


FIRST = 5
KEPT = ""
Rows = NDArray[np.int64]
Numbers = Any  # arrays of whole numbers

CORPUS, TRUTH, COUNTS = "corpus.parquet", "truth.parquet", "truth.tags.csv"
BLOCK = 250_000  # users stay within one; no multiple of a row group, so that many have images in two
LONGEST, SHORTEST, USUAL = 50, 5, 30  # tags per image; most have at least the usual number, as in the paper
SHORT = 0.02  # of the images have fewer
MESSY = 0.02  # of the tags are written in another way
SHUFFLES = 1009  # permutations of a list
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstv" for vowel in "aeiou"]


@dataclass(frozen=True)
class Kind:
    """A kind of image.

    Attributes:
        name: what it is.
        share: of all images.
        made_from: the kind of the earlier image, by the same user, whose first five tags it copies; "" for none.
        replaced: the number of these tags that it replaces by marks of its own.
        seen: the rule that drops it when images are compared with all seen before, "" if it is kept,
        kept: and when they are compared with kept ones only.
        once: whether an image is copied for it only once, because two copies would be similar to each other.
    """

    name: str
    share: float
    made_from: str = ""
    replaced: int = 0
    seen: str = KEPT
    kept: str = KEPT
    once: bool = False


KINDS = (
    Kind("plain", 0.26),
    Kind("few", 0.08, seen="few_tags", kept="few_tags"),
    Kind("sorted", 0.20, seen="alphabetical", kept="alphabetical"),
    Kind("as a sorted one", 0.01, made_from="sorted", once=True),  # which is dropped before the comparison
    Kind("same five", 0.18, "plain", 0, "similar", "similar"),
    Kind("same four", 0.17, "plain", 1, "similar", "similar"),
    Kind("same three", 0.06, "plain", 2),
    Kind("like one that was dropped", 0.03, "same four", 1, "similar", KEPT, once=True),  # with the plain one: three
    Kind("of nobody", 0.005, "plain"),  # the same five as a plain one, but without a user
    Kind("picture named again", 0.005, "plain", 0, "repeated_image", "repeated_image"),
)
INDICES = {kind.name: index for index, kind in enumerate(KINDS)}
PLAIN = INDICES["plain"]


def kinds_of(users: Rows, random: np.random.Generator) -> tuple[Rows, Rows]:
    """The kind of each image, and the image it is derived from (-1: none); images are ordered by user.

    An image whose user has no earlier image to derive it from becomes a plain one.
    """
    shares = np.array([kind.share for kind in KINDS])
    kinds = random.choice(len(KINDS), len(users), p=shares / shares.sum())
    made_from = np.full(len(users), -1)
    for index, kind in enumerate(KINDS):  # each is derived from a kind above it, which is settled
        if kind.made_from:
            mine = np.flatnonzero(kinds == index)
            last = _last_before(kinds == INDICES[kind.made_from], users)[mine]
            if kind.once:
                last[1:][last[1:] == last[:-1]] = -1
            made_from[mine] = last
            kinds[mine[last < 0]] = PLAIN
    return kinds, made_from


def _last_before(chosen: NDArray[np.bool_], users: Rows) -> Rows:
    """For each image the last chosen one before it by the same user; -1 for none."""
    rows = np.where(chosen, np.arange(len(chosen)), -1)
    last = np.maximum.accumulate(np.concatenate([[-1], rows[:-1]]))
    return np.where((last >= 0) & (users[last] == users), last, -1)


def firsts_of(kinds: Rows, made_from: Rows, own: Rows, marks: Rows, random: np.random.Generator) -> Rows:
    """The first five tags of each image, before they are shuffled.

    Args:
        kinds: of the images.
        made_from: the image that each is derived from.
        own: [images, 5], five tags of its own for each image.
        marks: [images, 2], two marks of its own for each image; a plain one begins with them.
        random: chooses the replaced tags.
    """
    firsts = own.copy()
    firsts[:, :2] = marks
    for index, kind in enumerate(KINDS):
        if kind.made_from:
            mine = np.flatnonzero(kinds == index)
            firsts[mine] = firsts[made_from[mine]]
            if kind.replaced == 1:  # a copy of a plain one replaces one of the last four, a copy of that the first
                column: Any = 0 if kind.made_from != "plain" else random.integers(1, FIRST, len(mine))
                firsts[mine, column] = marks[mine, 0]
            elif kind.replaced == 2:
                firsts[mine, :2] = marks[mine]
    return firsts


@dataclass(frozen=True)
class CorpusSpec:
    """The parameters of a synthetic corpus.

    Attributes:
        rows: the number of images.
        seed: of the random numbers.
        tags: the number of common tags,
        marks: and of tags that distinguish the images of a user: twice as many as any user has images.
        pictures_a_user: on average; most have fewer and some many.
    """

    rows: int
    seed: int = 0
    tags: int = 60_000
    marks: int = 20_000
    pictures_a_user: int = 60

    def __post_init__(self) -> None:
        if self.rows < 1 or self.tags < 2 * LONGEST or self.marks < 8 or self.pictures_a_user < 1:
            raise DataError(f"a corpus has at least one image and {2 * LONGEST} tags, 8 marks, and users who show any")


def generate(wanted: CorpusSpec, folder: Path) -> Iterator[int]:
    """Write a corpus and its truth into a folder, and yield the number of images after each block.

    ``corpus.parquet`` holds the images; ``truth.parquet`` for each of them the rule that drops it ("" if none does),
    once compared with all seen and once with kept ones only; ``truth.tags.csv`` counts all tags.

    Example:
        >>> from pathlib import Path
        >>> list(generate(CorpusSpec(1000, tags=500, marks=2000), Path("made")))
        [1000]
    """
    pa = arrow()
    words = _Words(wanted)
    counts = np.zeros(wanted.tags + wanted.marks, np.int64)
    corpus_schema = pa.schema([("image", pa.string()), ("tags", pa.list_(words.type)), ("user", pa.string())])
    truth_schema = pa.schema([(name, pa.string()) for name in ("kind", "seen", "kept")])

    with (
        row_group_writer(folder / CORPUS, corpus_schema) as corpus,
        row_group_writer(folder / TRUTH, truth_schema) as truth,
    ):
        for block, first in enumerate(range(0, wanted.rows, BLOCK)):
            rows = min(BLOCK, wanted.rows - first)
            made = _Block(wanted, words, first, rows, np.random.default_rng([wanted.seed, block]))
            counts += np.bincount(made.flat, minlength=len(counts))
            corpus.add(made.corpus(corpus_schema))
            truth.add(made.truth(truth_schema))
            yield first + rows
    Dictionary.ranked(one for one in zip(words.plain, counts.tolist(), strict=True) if one[1]).save(folder / COUNTS)


class _Words:
    """The tags as text: plain, and in other spellings of the same tag."""

    def __init__(self, wanted: CorpusSpec) -> None:
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
    """A pronounceable word: a number to the base of all syllables."""
    word = ""
    number += len(SYLLABLES)  # at least two syllables
    while number:
        number, digit = divmod(number, len(SYLLABLES))
        word += SYLLABLES[digit]
    return word


class _Block:
    """Some images, made in the order of their users and then mixed."""

    def __init__(self, wanted: CorpusSpec, words: _Words, first: int, rows: int, random: np.random.Generator) -> None:
        self._words, self._random, self._first, self._rows = words, random, first, rows
        most = max(1, rows // wanted.pictures_a_user)
        users = np.sort((most * random.random(rows) ** 2).astype(np.int64))  # some have many images
        if 2 * np.bincount(users).max() > wanted.marks:
            raise DataError(f"{wanted.marks} marks do not tell the images of a user apart: give more marks or users")
        kinds, made_from = kinds_of(users, random)
        lists = self._common_lists()
        marks = wanted.tags + (2 * np.arange(rows)[:, None] + np.arange(2)) % wanted.marks
        firsts = firsts_of(kinds, made_from, lists[:, :FIRST], marks, random)
        order = random.permutation(rows)  # mixes the users, and keeps the order of each one's images
        self._order = order[np.lexsort((order, users))]
        self._kinds, self._users, self._made_from = kinds, users, made_from
        self.flat, self._lengths = self._listed(firsts, lists[:, FIRST:], kinds, made_from)

    def _common_lists(self) -> Numbers:
        """[rows, LONGEST + some] distinct tags by Zipf's law, shuffled; -1 is padding."""
        columns = LONGEST + 10
        strata = (np.arange(columns) + self._random.random((self._rows, columns), np.float32)) / columns
        tags = np.searchsorted(self._words.mass, strata.clip(max=1 - 1e-6))
        tags[:, 1:][tags[:, 1:] == tags[:, :-1]] = -1  # a stratum each, so equal ones are adjacent
        shuffles = np.argsort(self._random.random((SHUFFLES, columns)), axis=1)
        tags = np.take_along_axis(tags, shuffles[self._random.integers(SHUFFLES, size=self._rows)], axis=1)
        return np.take_along_axis(tags, np.argsort(tags < 0, axis=1, kind="stable"), axis=1)

    def _listed(self, firsts: Numbers, rests: Numbers, kinds: Numbers, made_from: Numbers) -> tuple[Numbers, Numbers]:
        """All tags, flat, in the order of the corpus, and the number of each image's."""
        names = np.array([kind.name for kind in KINDS])[kinds]
        lengths = self._random.integers(USUAL, LONGEST, len(kinds), endpoint=True)
        short = self._random.random(len(kinds)) < SHORT
        lengths[short] = self._random.integers(SHORTEST, USUAL, int(short.sum()))
        lengths[names == "few"] = self._random.integers(0, SHORTEST, int((names == "few").sum()))
        again = (rests[:, :, None] == firsts[:, None]).any(axis=2)
        tags = np.concatenate([self._random.permuted(firsts, axis=1), np.where(again, -1, rests)], axis=1)
        tags = np.take_along_axis(tags, np.argsort(tags < 0, axis=1, kind="stable"), axis=1)
        lengths = np.minimum(lengths, (tags >= 0).sum(axis=1))
        tags[np.arange(tags.shape[1]) >= lengths[:, None]] = -1
        chosen = names == "sorted"
        order = np.argsort(self._ranks(tags[chosen]), axis=1, kind="stable")
        tags[chosen] = np.take_along_axis(tags[chosen], order, axis=1)
        follows = np.flatnonzero(names == "as a sorted one")
        tags[follows, :FIRST] = tags[made_from[follows], :FIRST]
        lengths[follows] = FIRST
        tags[follows, FIRST:] = -1
        ranks = self._ranks(tags)  # no other list is in alphabetical order, even by chance
        ordered = ~np.isin(names, ["sorted", "few"]) & (ranks[:, 1:] >= ranks[:, :-1]).all(axis=1)
        tags[ordered, :2] = tags[ordered, 1::-1]
        tags = self._mixed(tags)
        return tags[tags >= 0], (tags >= 0).sum(axis=1)

    def _ranks(self, tags: Numbers) -> Numbers:
        """The alphabetical rank of each tag; padding comes last."""
        return np.where(tags >= 0, self._words.rank[tags], len(self._words.rank))

    def corpus(self, schema: Any) -> Any:
        """The images as a record batch."""
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

    def _mixed(self, values: Numbers) -> Numbers:
        """Values of the images in the order of the corpus."""
        mixed = np.empty_like(values)
        mixed[self._order] = values
        return mixed

    def _images(self) -> list[str]:
        again = np.array([kind.seen == "repeated_image" for kind in KINDS])[self._kinds]
        source = np.where(again, self._made_from, np.arange(self._rows))
        numbers = self._mixed(self._first + self._order[source])
        return [f"{number // 1000:06d}/{number:09d}.jpg" for number in numbers.tolist()]

    def _owners(self) -> Any:
        nobody = self._mixed(np.array([kind.name == "of nobody" for kind in KINDS])[self._kinds])
        names = [f"{self._first // BLOCK}-{number}" for number in self._mixed(self._users).tolist()]
        return arrow().array(names, arrow().string(), mask=nobody)

    def truth(self, schema: Any) -> Any:
        """The kind of each image and the rules that drop it."""
        pa = arrow()
        kinds = pa.array(self._mixed(self._kinds))
        columns = [[kind.name for kind in KINDS], [kind.seen for kind in KINDS], [kind.kept for kind in KINDS]]
        return pa.record_batch([pa.array(words).take(kinds) for words in columns], schema=schema)


def main() -> None:
    """Write the corpus into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=int, metavar="PICTURES", help="how many images")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="for the corpus and its truth")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same corpus")
    parser.add_argument("--tags", type=int, default=60_000, help="how many common tags there are")
    given = parser.parse_args()
    for made in generate(CorpusSpec(given.rows, given.seed, given.tags), given.out):
        print(f"{made:,} images in {given.out / CORPUS}")


if __name__ == "__main__":
    main()
