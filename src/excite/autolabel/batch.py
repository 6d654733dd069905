"""A folder of answers to one question."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from excite.autolabel.album_work import Asking, Task
from excite.autolabel.naming import file_names
from excite.errors import ExciteError
from excite.jobs import Crew
from excite.jobs.ledger_init import open_ledger
from excite.jobs.loop import answered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from excite.autolabel.album_question import Question
    from excite.jobs.ledger_init import Entry

__all__ = ["Album"]

Answer = dict[str, Any]


class Album:
    """Answers one question for many pictures, into a folder.

    For each picture: one overlay for each concept and layer (``picture.concept.png``), a figure with all of them
    (``picture-maps.png``), and a line in ``answers.jsonl``. A run over several pictures that is started again skips
    those already answered there, if the picture, the question and the files of the answer are still the same.

    Names hold dots only between their parts, so that no file of one picture is called like one of another; and a PNG
    that excite has not drawn is never overwritten.

    Attributes:
        failures: what went wrong, a line for each picture that could not be read.
    """

    def __init__(
        self, question: Question, out: Path, *, overlays: bool = True, arrays: bool = False, fresh: bool = False
    ) -> None:
        _check_folder(out)
        self.out = out
        self.fresh = fresh
        self.failures: list[str] = []
        self.work = Asking(question.model.load(), question, out, overlays, arrays)
        labels = self.work.classifier.labels
        if labels is not None:  # an unknown concept is known now, not after a thousand pictures
            for concept in (*(question.concepts or ()), *question.against):
                labels.find(concept)

    def answers(self, photos: Sequence[Path], workers: int | Crew = 1) -> Iterator[Answer]:
        """Answer picture by picture. One that cannot be read is a failure among several, an error when alone.

        Args:
            photos: the pictures.
            workers: who does it: how many processes of this machine, or a crew.
        """
        crew, alone = Crew.of(workers), len(photos) == 1
        if alone and not crew.is_cluster:
            crew = replace(crew, workers=None, all_threads=True)  # nothing to share: its user waits for just this one
        files = file_names(photos)
        outcomes = answered(
            self.work,
            (Task(photo, files[photo]) for photo in photos),
            open_ledger(self.out / "answers.jsonl", ("image", "maps", "files"), parquet=crew.is_cluster),
            workers=crew,
            failures=None if alone else self.failures,
            still=lambda entry: not (self.fresh or alone) and self._is_whole(entry),
            writes=self.out if self.work.overlays or self.work.arrays else None,
        )
        with closing(outcomes):
            for task, entry in outcomes:
                yield self._as_asked(entry, task.photo)

    def _as_asked(self, entry: Entry, photo: Path) -> Answer:
        """An answer with the names that pictures and folder have in this run."""
        rows = [
            {**row, "overlay": None if row["overlay"] is None else str(self.out / row["overlay"])}
            for row in entry["maps"]
        ]
        return {"image": str(photo), "maps": rows}

    def _is_whole(self, entry: Entry) -> bool:
        """Whether the files of an earlier answer are still there, and nobody else has written them since."""
        try:
            return all((self.out / name).stat().st_mtime_ns == time for name, time in entry["files"].items())
        except OSError:
            return False


def _check_folder(out: Path) -> None:
    """Whether files can be written there, before any work is done for them."""
    try:
        nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    except OSError as error:
        raise ExciteError(f"cannot write to {str(out)!r}: {error.strerror}; choose another folder as --out") from None
    if not nearest.is_dir():
        raise ExciteError(f"cannot write to {str(out)!r}: {str(nearest)!r} is a file; choose a folder as --out")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ExciteError(f"cannot write to {str(out)!r}: no permission; choose another folder as --out")
