"""The three things that others can do for a cleaning, on this machine or on many: look, compare, and part."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.images import file_state
from excite.jobs.parquet import arrow
from excite.tags.cleaning.survey import RULES, Rules, candidate_type, normalised, similar_to, survey
from excite.tags.corpus import Corpus, Piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.tags.cleaning.survey import Survey
    from excite.tags.corpus import ColumnNames
    from excite.tags.dictionary import Normalising


@dataclass(frozen=True)
class Looking:
    """Surveys a piece of a corpus."""

    columns: ColumnNames
    normalising: Normalising
    first: int

    def key(self, task: Piece) -> str:
        """Changes when the file does, or what is looked at."""
        facts = [repr(self), file_state(task.path), task.group, task.rows]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def __call__(self, task: Piece) -> dict[str, list[Survey]]:
        """A survey for each batch of the piece."""
        batches = Corpus.batches_of(task, self.columns, encoded=True)
        return {"surveys": [survey(batch, self.normalising, self.first) for batch in batches]}


@dataclass(frozen=True, eq=False)
class Shelf:
    """Pictures of some users that are to be compared, by these rules."""

    rules: Rules
    pictures: NDArray[Any] = field(repr=False)


class Comparing:
    """Finds similar images among those of some users."""

    def key(self, task: Shelf) -> str:
        """Changes when the images or the rules do."""
        return hashlib.sha256(repr(task).encode() + task.pictures.tobytes()).hexdigest()[:32]

    def __call__(self, task: Shelf) -> dict[str, NDArray[np.int64]]:
        """The rows of images that are similar to an earlier one, and the rows of those."""
        found = similar_to(task.pictures, task.rules.shared, task.rules.against)
        return {"rows": task.pictures["row"][found >= 0], "like": found[found >= 0]}


@dataclass(frozen=True, eq=False)
class Pile:
    """A piece and what becomes of its images.

    Attributes:
        piece: the piece.
        verdicts: [rows], as in `excite.tags.cleaning.steps.Gathered`.
        like: [rows], the row of the image that each is like, or -1.
    """

    piece: Piece
    verdicts: NDArray[np.uint8] = field(repr=False)
    like: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True)
class Parting:
    """Parts a piece into images that are kept, with normalised tags, and those that are dropped, with the reason."""

    columns: ColumnNames
    normalising: Normalising

    def key(self, task: Pile) -> str:
        """Changes when the file does, or the verdicts."""
        facts = [repr(self), file_state(task.piece.path), task.piece.group]
        return hashlib.sha256(json.dumps(facts).encode() + task.verdicts.tobytes()).hexdigest()[:32]

    def __call__(self, task: Pile) -> dict[str, list[Any]]:
        """Record batches of both kinds."""
        pa = arrow()
        kept, dropped, start = [], [], 0
        for batch in Corpus.batches_of(task.piece, self.columns, encoded=True):
            rows = slice(start, start + batch.num_rows)
            start = rows.stop
            stays = pa.array(task.verdicts[rows] == 0)
            kept.append(self._kept(batch.filter(stays)))
            dropped.append(_dropped(batch, task, rows))
        return {"kept": kept, "dropped": dropped}

    def _kept(self, batch: Any) -> Any:
        pa = arrow()
        tags = normalised(batch.column("tags"), self.normalising)
        return pa.record_batch([batch.column("image"), tags, batch.column("user")], schema=kept_schema())


class Steps:
    """All of it: which step is meant, is told by the task."""

    def __init__(self, columns: ColumnNames, normalising: Normalising, first: int) -> None:
        parting = Parting(columns, normalising)
        self._steps: dict[type, Any] = {Piece: Looking(columns, normalising, first), Shelf: Comparing(), Pile: parting}

    def key(self, task: Piece | Shelf | Pile) -> str:
        """Changes when the task does."""
        key: str = self._steps[type(task)].key(task)
        return key

    def __call__(self, task: Piece | Shelf | Pile) -> dict[str, Any]:
        """The answer of the step."""
        answer: dict[str, Any] = self._steps[type(task)](task)
        return answer


def _dropped(batch: Any, task: Pile, rows: slice) -> Any:
    pa = arrow()
    gone = np.flatnonzero(task.verdicts[rows])
    reasons = pa.DictionaryArray.from_arrays(pa.array(task.verdicts[rows][gone].astype(np.int32) - 1), pa.array(RULES))
    like = task.like[rows][gone]
    columns = [
        pa.array(task.piece.first + rows.start + gone),
        batch.column("image").take(pa.array(gone)),
        batch.column("user").take(pa.array(gone)),
        reasons,
        pa.array(like, mask=like < 0),
    ]
    return pa.record_batch(columns, schema=dropped_schema())


def kept_schema() -> Any:
    """The columns of a cleaned corpus while it is made: tags as numbers for words, which take less room."""
    pa = arrow()
    words = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([("image", pa.string()), ("tags", pa.list_(words)), ("user", pa.string())])


def dropped_schema() -> Any:
    """The columns of what was dropped: ``like`` is the row of the image it is similar to."""
    pa = arrow()
    words = pa.dictionary(pa.int32(), pa.string())
    names = [("row", pa.int64()), ("image", pa.string()), ("user", pa.string()), ("rule", words), ("like", pa.int64())]
    return pa.schema(names)


# The surveys of all batches brought together: every tag and user gets one number, every image a verdict.

KEPT = 0
CODES = {rule: code for code, rule in enumerate(RULES, 1)}
SHELF = 250_000  # images compared at a time


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
    """Which images have the name of an earlier one; names are hashes of 128 bits.

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
    """What is known of a corpus before images are compared.

    Attributes:
        shelves: a folder for files of images to be compared, each with all images of some users.
        rules: which images are dropped.
        words: the numbers of the tags,
        counts: and how often each was seen.
        users: the numbers of the users.
        verdicts: [rows], 0 for an image that is kept so far, else the place of a rule among `RULES`, plus 1.
        lengths: [rows], how many tags each image has.
        alphabetical: [rows], whether they stand in order.
        nobodys: how many images have no user, and so are compared with none.
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
        """So many that each holds about `SHELF` images."""
        return self.rows // SHELF + 1

    def name(self, images: NDArray[np.uint64]) -> None:
        """Drop images without a name, and those whose name was there before."""
        self.verdicts[repeated(images)] = CODES["repeated_image"]
        self.verdicts[~images.any(axis=1)] = CODES["no_image"]

    def add(self, first_row: int, seen: Survey) -> None:
        """Take in the next batch, and put its images on the shelves of their users."""
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
        """Drop images with too few tags, and those whose tags stand in alphabetical order."""
        few, ordered = self.verdicts_of(self.rules)
        self.verdicts[few], self.verdicts[ordered] = CODES["few_tags"], CODES["alphabetical"]

    def verdicts_of(self, rules: Rules) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which images have too few tags by these rules, and which other ones have them in order."""
        named = (self.verdicts == KEPT) | (self.verdicts > CODES["repeated_image"])
        few = named & (self.lengths < rules.least_tags)
        return few, named & ~few & self.alphabetical & rules.alphabetical

    def shelf(self, number: int) -> NDArray[Any]:
        """All images of some users, whatever the rules say of them, in the order of the corpus."""
        path = self._path(number)
        kind = candidate_type(self.rules.first)
        return np.fromfile(path, kind) if path.is_file() else np.empty(0, kind)

    def candidates(self, rules: Rules) -> Iterator[NDArray[Any]]:
        """For each shelf the images on it that come as far as being compared."""
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
