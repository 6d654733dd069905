"""The surveys of all batches brought together: every tag and user gets one number, every picture a verdict."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.tags.cleaning.rules import RULES
from excite.tags.cleaning.similar import candidate_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.tags.cleaning.rules import Rules
    from excite.tags.cleaning.survey import Survey

__all__ = ["Gathered", "Numbering", "repeated"]

KEPT = 0
CODES = {rule: code for code, rule in enumerate(RULES, 1)}
SHELF = 250_000  # pictures compared at a time


class Numbering:
    """Numbers for texts, in the order in which they are met.

    Example:
        >>> numbering = Numbering()
        >>> numbering(["sea", "sky"]).tolist(), numbering(["sun", "sea"]).tolist()
        ([0, 1], [2, 0])
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, texts: Iterable[str]) -> NDArray[np.int32]:
        """The numbers of these texts; a last -1 stands for none, so that -1 finds it."""
        numbers = self.numbers
        return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int32)


def repeated(images: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which pictures have the name of an earlier one; names are hashes of 128 bits.

    Example:
        >>> repeated(np.array([[1, 2], [3, 4], [1, 2], [1, 5]], np.uint64)).tolist()
        [False, False, True, False]
    """
    order = np.lexsort((images[:, 1], images[:, 0]))  # which keeps the order of equal ones
    again = np.zeros(len(images), bool)
    ordered = images[order]
    again[order[1:]] = (ordered[1:] == ordered[:-1]).all(axis=1)
    return again


@dataclass(eq=False)
class Gathered:
    """What is known of a corpus before pictures are compared.

    Attributes:
        shelves: a folder for files of pictures to be compared, each with all pictures of some users.
        rules: which pictures are dropped.
        words: the numbers of the tags,
        counts: and how often each was seen.
        users: the numbers of the users.
        verdicts: [rows], 0 for a picture that is kept so far, else the place of a rule among `RULES`, plus 1.
        lengths: [rows], how many tags each picture has.
        alphabetical: [rows], whether they stand in order.
        nobodys: how many pictures have no user, and so are compared with none.
        changes: what was done to the tags.
    """

    shelves: Path
    rules: Rules
    rows: int
    words: Numbering = field(default_factory=Numbering)
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1 << 16, np.int64))
    users: Numbering = field(default_factory=Numbering)
    nobodys: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    verdicts: NDArray[np.uint8] = field(init=False)
    lengths: NDArray[np.uint16] = field(init=False)
    alphabetical: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.verdicts = np.zeros(self.rows, np.uint8)
        self.lengths = np.zeros(self.rows, np.uint16)
        self.alphabetical = np.zeros(self.rows, bool)

    @property
    def number_of_shelves(self) -> int:
        """So many that each holds about `SHELF` pictures."""
        return self.rows // SHELF + 1

    def name(self, images: NDArray[np.uint64]) -> None:
        """Drop pictures without a name, and those whose name was there before."""
        self.verdicts[repeated(images)] = CODES["repeated_image"]
        self.verdicts[~images.any(axis=1)] = CODES["no_image"]

    def add(self, first_row: int, seen: Survey) -> None:
        """Take in the next batch, and put its pictures on the shelves of their users."""
        rows = slice(first_row, first_row + len(seen.user))
        self.lengths[rows], self.alphabetical[rows] = seen.lengths, seen.alphabetical
        words = self._count(seen)
        users = np.append(self.users(seen.users), np.int32(-1))[seen.user]
        self.changes.update(seen.changes)
        known = users >= 0
        self.nobodys += int((~known).sum())
        candidates = np.empty(len(users), candidate_type(seen.firsts.shape[1]))
        candidates["row"] = np.arange(rows.start, rows.stop)
        candidates["user"], candidates["tags"] = users, np.append(words, np.int32(-1))[seen.firsts]
        self._shelve(candidates[known & (self.verdicts[rows] == KEPT)])

    def judge(self) -> None:
        """Drop pictures with too few tags, and those whose tags stand in alphabetical order."""
        few, ordered = self.verdicts_of(self.rules)
        self.verdicts[few], self.verdicts[ordered] = CODES["few_tags"], CODES["alphabetical"]

    def verdicts_of(self, rules: Rules) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which pictures have too few tags by these rules, and which other ones have them in order."""
        named = (self.verdicts == KEPT) | (self.verdicts > CODES["repeated_image"])
        few = named & (self.lengths < rules.least_tags)
        return few, named & ~few & self.alphabetical & rules.alphabetical

    def shelf(self, number: int) -> NDArray[Any]:
        """All pictures of some users, whatever the rules say of them, in the order of the corpus."""
        path = self._path(number)
        kind = candidate_type(self.rules.first)
        return np.fromfile(path, kind) if path.is_file() else np.empty(0, kind)

    def candidates(self, rules: Rules) -> Iterator[NDArray[Any]]:
        """For each shelf the pictures on it that come as far as being compared."""
        few, ordered = self.verdicts_of(rules)
        out = few | ordered
        for number in range(self.number_of_shelves):
            pictures = self.shelf(number)
            yield pictures[~out[pictures["row"]]]

    def _count(self, seen: Survey) -> NDArray[np.int32]:
        numbers = self.words(seen.words)
        if len(self.words.numbers) > len(self.counts):
            self.counts = np.append(self.counts, np.zeros(len(self.words.numbers), np.int64))
        self.counts[numbers] += seen.counts  # each word is there once
        return numbers

    def _shelve(self, candidates: NDArray[Any]) -> None:
        numbers = candidates["user"] % self.number_of_shelves
        order = np.argsort(numbers, kind="stable")
        starts = np.searchsorted(numbers[order], np.arange(self.number_of_shelves + 1))
        for number, (start, end) in enumerate(itertools.pairwise(starts)):
            if end > start:
                with self._path(number).open("ab") as file:
                    candidates[order[start:end]].tofile(file)

    def _path(self, number: int) -> Path:
        return self.shelves / f"shelf-{number:05d}.bin"
