"""The parallel steps of a cleaning (survey, compare, split), and the state that they are merged into.

Each image gets a verdict: 0 if it is kept, else the index of the rule that drops it among `RULES`, plus 1.
"""

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
from excite.tags.corpus import Corpus, RowGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.tags.cleaning.survey import Survey
    from excite.tags.corpus import ColumnNames
    from excite.tags.dictionary import TagNormaliser

KEPT = 0
CODES = {rule: code for code, rule in enumerate(RULES, 1)}
BUCKET = 250_000  # images compared at a time


@dataclass(frozen=True, eq=False)
class Bucket:
    """All images of some users, to be compared by these rules."""

    rules: Rules
    candidates: NDArray[Any] = field(repr=False)


@dataclass(frozen=True, eq=False)
class RowGroupVerdicts:
    """The verdict [rows] on each image of a row group, and the row [rows] of the image that it repeats, or -1."""

    row_group: RowGroup
    verdicts: NDArray[np.uint8] = field(repr=False)
    like: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True)
class CleaningSteps:
    """All steps as one work for `excite.jobs`; the type of the task selects the step."""

    columns: ColumnNames
    normaliser: TagNormaliser
    first: int

    def key(self, task: RowGroup | Bucket | RowGroupVerdicts) -> str:
        """Changes when the file, the rules or the verdicts do."""
        facts: list[Any]
        if isinstance(task, Bucket):
            facts, content = [repr(task)], task.candidates.tobytes()
        elif isinstance(task, RowGroupVerdicts):
            group, content = task.row_group, task.verdicts.tobytes()
            facts = [repr(self), file_state(group.path), group.index]
        else:
            facts, content = [repr(self), file_state(task.path), task.index, task.rows], b""
        return hashlib.sha256(json.dumps(facts).encode() + content).hexdigest()[:32]

    def __call__(self, task: RowGroup | Bucket | RowGroupVerdicts) -> dict[str, Any]:
        """The result of the step."""
        if isinstance(task, Bucket):
            found = similar_to(task.candidates, task.rules.shared, task.rules.against)
            return {"rows": task.candidates["row"][found >= 0], "like": found[found >= 0]}
        if isinstance(task, RowGroupVerdicts):
            return self._split(task)
        batches = Corpus.row_group_batches(task, self.columns, encoded=True)
        return {"surveys": [survey(batch, self.normaliser, self.first) for batch in batches]}

    def _split(self, task: RowGroupVerdicts) -> dict[str, list[Any]]:
        """Record batches of the kept images, with normalised tags, and of the dropped ones, with the rule."""
        pa = arrow()
        kept, dropped, start = [], [], 0
        for batch in Corpus.row_group_batches(task.row_group, self.columns, encoded=True):
            rows = slice(start, start + batch.num_rows)
            start = rows.stop
            stays = batch.filter(pa.array(task.verdicts[rows] == KEPT))
            tags = normalised(stays.column("tags"), self.normaliser)
            kept.append(pa.record_batch([stays.column("image"), tags, stays.column("user")], schema=kept_schema()))
            dropped.append(_dropped(batch, task, rows))
        return {"kept": kept, "dropped": dropped}


def _dropped(batch: Any, task: RowGroupVerdicts, rows: slice) -> Any:
    pa = arrow()
    gone = np.flatnonzero(task.verdicts[rows])
    rules = pa.DictionaryArray.from_arrays(pa.array(task.verdicts[rows][gone].astype(np.int32) - 1), pa.array(RULES))
    like = task.like[rows][gone]
    columns = [
        pa.array(task.row_group.first + rows.start + gone),
        batch.column("image").take(pa.array(gone)),
        batch.column("user").take(pa.array(gone)),
        rules,
        pa.array(like, mask=like < 0),
    ]
    return pa.record_batch(columns, schema=dropped_schema())


def kept_schema() -> Any:
    """The columns of a cleaned corpus, tags dictionary-encoded."""
    pa = arrow()
    words = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([("image", pa.string()), ("tags", pa.list_(words)), ("user", pa.string())])


def dropped_schema() -> Any:
    """The columns of the dropped images: ``like`` is the row of the similar image."""
    pa = arrow()
    words = pa.dictionary(pa.int32(), pa.string())
    names = [("row", pa.int64()), ("image", pa.string()), ("user", pa.string()), ("rule", words), ("like", pa.int64())]
    return pa.schema(names)


class TextIds:
    """Consecutive numbers for distinct texts."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, texts: Iterable[str]) -> NDArray[np.int32]:
        """The number of each text; new ones get the next number."""
        numbers = self.numbers
        return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int32)


def repeated(images: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which images, as 128-bit hashes of their names [images, 2], have an earlier duplicate."""
    order = np.lexsort((images[:, 1], images[:, 0]))  # stable
    again = np.zeros(len(images), bool)
    ordered = images[order]
    again[order[1:]] = (ordered[1:] == ordered[:-1]).all(axis=1)
    return again


@dataclass(eq=False)
class CorpusSurvey:
    """The surveys of all batches, merged.

    Attributes:
        folder: for a file per bucket: all images of some users, to be compared.
        rules: the thresholds.
        rows: of the corpus.
        words: the numbers of the tags,
        counts: and how often each is listed.
        users: the numbers of the users.
        without_user: the number of images without a user, which are not compared.
        changes: the numbers of normalised tags, by change.
        verdicts: [rows].
        lengths: [rows], the number of tags of each image.
        alphabetical: [rows], whether they are in alphabetical order.
    """

    folder: Path
    rules: Rules
    rows: int
    words: TextIds = field(default_factory=TextIds)
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1 << 16, np.int64))
    users: TextIds = field(default_factory=TextIds)
    without_user: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    verdicts: NDArray[np.uint8] = field(init=False)
    lengths: NDArray[np.uint16] = field(init=False)
    alphabetical: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.verdicts = np.zeros(self.rows, np.uint8)
        self.lengths = np.zeros(self.rows, np.uint16)
        self.alphabetical = np.zeros(self.rows, bool)

    @property
    def buckets(self) -> int:
        """The number of buckets of about `BUCKET` images."""
        return self.rows // BUCKET + 1

    def drop_unnamed(self, images: NDArray[np.uint64]) -> None:
        """Drop images without a name, and those with a repeated one."""
        self.verdicts[repeated(images)] = CODES["repeated_image"]
        self.verdicts[~images.any(axis=1)] = CODES["no_image"]

    def add(self, first_row: int, seen: Survey) -> None:
        """Merge the next batch, and append its images to the buckets of their users."""
        rows = slice(first_row, first_row + len(seen.user))
        self.lengths[rows], self.alphabetical[rows] = seen.lengths, seen.alphabetical
        words = self._count(seen)
        users = np.append(self.users(seen.users), np.int32(-1))[seen.user]
        self.changes.update(seen.changes)
        known = users >= 0
        self.without_user += int((~known).sum())
        candidates = np.empty(len(users), candidate_type(seen.firsts.shape[1]))
        candidates["row"] = np.arange(rows.start, rows.stop)
        candidates["user"], candidates["tags"] = users, np.append(words, np.int32(-1))[seen.firsts]
        self._append(candidates[known & (self.verdicts[rows] == KEPT)])

    def drop_by_tags(self) -> None:
        """Drop images with too few tags, and those with tags in alphabetical order."""
        few, ordered = self.failing(self.rules)
        self.verdicts[few], self.verdicts[ordered] = CODES["few_tags"], CODES["alphabetical"]

    def failing(self, rules: Rules) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which images have too few tags by these rules, and which others have them in alphabetical order."""
        named = (self.verdicts == KEPT) | (self.verdicts > CODES["repeated_image"])
        few = named & (self.lengths < rules.least_tags)
        return few, named & ~few & self.alphabetical & rules.alphabetical

    def candidates(self, rules: Rules) -> Iterator[Bucket]:
        """The buckets, in the order of the corpus, without the images that other rules drop."""
        few, ordered = self.failing(rules)
        out, kind = few | ordered, candidate_type(self.rules.first)
        for number in range(self.buckets):
            path = self._path(number)
            pictures = np.fromfile(path, kind) if path.is_file() else np.empty(0, kind)
            yield Bucket(rules, pictures[~out[pictures["row"]]])

    def _count(self, seen: Survey) -> NDArray[np.int32]:
        numbers = self.words(seen.words)
        if len(self.words.numbers) > len(self.counts):
            self.counts = np.append(self.counts, np.zeros(len(self.words.numbers), np.int64))
        self.counts[numbers] += seen.counts  # the words are distinct
        return numbers

    def _append(self, candidates: NDArray[Any]) -> None:
        numbers = candidates["user"] % self.buckets
        order = np.argsort(numbers, kind="stable")
        starts = np.searchsorted(numbers[order], np.arange(self.buckets + 1))
        for number, (start, end) in enumerate(itertools.pairwise(starts)):
            if end > start:
                with self._path(number).open("ab") as file:
                    candidates[order[start:end]].tofile(file)

    def _path(self, number: int) -> Path:
        return self.folder / f"bucket-{number:05d}.bin"
