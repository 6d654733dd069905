"""The three things that others can do for a cleaning, on this machine or on many: look, compare, and part."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.images import file_state
from excite.jobs.columns import arrow
from excite.tags.cleaning.rules import RULES, Rules
from excite.tags.cleaning.similar import similar_to
from excite.tags.cleaning.survey import normalised, survey
from excite.tags.corpus import Corpus, Piece

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from excite.tags.cleaning.survey import Survey
    from excite.tags.corpus import ColumnNames
    from excite.tags.normalising import Normalising

__all__ = ["Pile", "Shelf", "Steps", "dropped_schema", "kept_schema"]


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
    """Finds similar pictures among those of some users."""

    def key(self, task: Shelf) -> str:
        """Changes when the pictures or the rules do."""
        return hashlib.sha256(repr(task).encode() + task.pictures.tobytes()).hexdigest()[:32]

    def __call__(self, task: Shelf) -> dict[str, NDArray[np.int64]]:
        """The rows of pictures that are similar to an earlier one, and the rows of those."""
        found = similar_to(task.pictures, task.rules.shared, task.rules.against)
        return {"rows": task.pictures["row"][found >= 0], "like": found[found >= 0]}


@dataclass(frozen=True, eq=False)
class Pile:
    """A piece and what becomes of its pictures.

    Attributes:
        piece: the piece.
        verdicts: [rows], as in `excite.tags.cleaning.gathering.Gathered`.
        like: [rows], the row of the picture that each is like, or -1.
    """

    piece: Piece
    verdicts: NDArray[np.uint8] = field(repr=False)
    like: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True)
class Parting:
    """Parts a piece into pictures that are kept, with normalised tags, and those that are dropped, with the reason."""

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
    """The columns of what was dropped: ``like`` is the row of the picture it is similar to."""
    pa = arrow()
    words = pa.dictionary(pa.int32(), pa.string())
    names = [("row", pa.int64()), ("image", pa.string()), ("user", pa.string()), ("rule", words), ("like", pa.int64())]
    return pa.schema(names)
