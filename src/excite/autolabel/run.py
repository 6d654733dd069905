"""Boxes for many pictures, kept in files that are whole at every moment."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from excite.autolabel.document import Boxed, Document, Found
from excite.autolabel.files import Files
from excite.autolabel.formats import find_format
from excite.autolabel.inputs import find_pictures
from excite.autolabel.ledgers import own_ledger
from excite.autolabel.summary import summary
from excite.autolabel.work import FIELDS, Locating
from excite.errors import ImageError
from excite.jobs import Crew
from excite.jobs.loop import run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from excite.autolabel.files import Content
    from excite.autolabel.question import Question
    from excite.autolabel.work import Task
    from excite.jobs.ledger_init import Entry
    from excite.models import Classifier

    Watch = Callable[[Iterator[Entry], int], Iterator[Entry]]

__all__ = ["Boxing"]

PAUSE = 5.0  # at least so many seconds from one writing of the files to the next,
SHARE = 20  # and so many times as long as the last one took: writing is a small part of all work


class Boxing:
    """Makes boxes for pictures and writes them into a folder, in one of `excite.autolabel.FORMATS`.

    Every answer is written down at once in ``records.jsonl``, so that a run that was stopped goes on where it was. The
    files themselves are whole from the beginning, and hold more and more. In the end they are the same, however often
    the run was stopped.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        arguments: folders, pictures and patterns.
        out: the folder for the files.
        question: what to look for.
        kind: the format.
        fresh: do everything again, also what an earlier run into this folder has done.

    Attributes:
        root: the folder that holds all pictures: their names in the files are relative to it.
        wanted: all that is looked for; nothing where the classifier tells what it finds.
        failures: a line for each picture that cannot be read.

    Raises:
        ExciteError: something is wrong that can be known before the first look: no pictures, a concept that is not
            known, or files in the folder that are somebody else's.

    Example:
        >>> boxing = Boxing(excite.load(), ["photos"], Path("boxes"), Question(("dog",)), "voc")  # doctest: +SKIP
        >>> boxing.write()["boxes"]                                                               # doctest: +SKIP
        12
    """

    def __init__(
        self,
        classifier: Classifier,
        arguments: Sequence[str],
        out: Path,
        question: Question,
        kind: str = "coco",
        *,
        fresh: bool = False,
    ) -> None:
        self.question, self.kind = question, kind
        self._format = find_format(kind)
        self.files = Files(out, kind)
        self._ledger = own_ledger(out / "records.jsonl", FIELDS)  # that of a run on this machine; it knows others' too
        self.root, pictures = find_pictures(arguments, self.files)
        self.wanted = question.wanted(pictures, classifier.labels)
        self.tasks = question.tasks(pictures, self.wanted)
        self.work = Locating(classifier, question.how)
        self.failures: list[str] = []
        self.files.check(self.content(Document(tuple(Boxed(picture, (1, 1)) for picture in pictures), ())))
        if fresh:
            self._ledger.clear()
        self.records = self._known()
        self._next = 0.0
        self._is_first = True

    def write(self, *, workers: int | Crew = 1, watch: Watch | None = None) -> dict[str, Any]:
        """Make all boxes that are not there yet, and write the files; what was done, as plain values for JSON.

        Args:
            workers: who does it: how many processes of this machine, or a crew.
            watch: passes entries on while it shows how many of a total there are.
        """
        with self.files.lock:
            self.files.read_again()
            return self._write(workers, watch)

    def _write(self, workers: int | Crew, watch: Watch | None) -> dict[str, Any]:
        if self.records or not self.files.hold_any(self.content(self.document())):
            self._save()  # files of another question stay as they are until there is something new
        crew = Crew.of(workers)
        ledger = own_ledger(self.files.out / "records.jsonl", FIELDS, parquet=True) if crew.is_cluster else self._ledger
        outcomes = run(self.work, self.tasks, ledger, workers=crew, failures=self.failures)
        # closed in any case: otherwise, after an error, workers would go on with the rest
        with closing(cast("Generator[Entry, None, None]", outcomes)) as entries:
            try:
                for entry in entries if watch is None else watch(entries, len(self.tasks)):
                    self.records[entry["image"]] = entry
                    if time.monotonic() >= self._next:
                        self._save()
            except KeyboardInterrupt:
                self._save()
                raise
        self._save()
        return summary(self)

    def document(self) -> Document:
        """All that is known by now."""
        done = [(task, self.records[task.image]) for task in self.tasks if task.image in self.records]
        pictures = tuple(Boxed(task.picture, tuple(record["size"]), self._boxes(record)) for task, record in done)
        return Document(pictures, self._categories(pictures))

    def _categories(self, pictures: Sequence[Boxed]) -> tuple[str, ...]:
        if self.wanted:
            return tuple(one.category for one in self.wanted)
        return tuple(sorted({found.concept for one in pictures for found in one.boxes}))

    def _boxes(self, record: Entry) -> tuple[Found, ...]:
        return tuple(
            Found(found["concept"], found["probability"], tuple(found["box"]))
            for found in record["found"]
            if found["box"] is not None and found["probability"] >= self.question.threshold
        )

    def _known(self) -> dict[str, Entry]:
        """What an earlier run has found out, by picture."""
        done = self._ledger.read()
        keys = map(self._key, self.tasks)
        return {done[key]["image"]: done[key] for key in keys if key is not None and key in done}

    def _key(self, task: Task) -> str | None:
        try:
            return self.work.key(task)
        except ImageError:  # told when its turn comes
            return None

    def content(self, document: Document) -> dict[str, Content]:
        """The files that hold it."""
        labels = "".join(f"{name}\n" for name in document.categories)
        return {**self._format(document), "labels.txt": labels.encode()}

    def _save(self) -> None:
        """Write the files as they should be now."""
        began = time.monotonic()
        content = self.content(self.document())
        self.files.write(content)
        if self._is_first:
            self.files.remove_others(content)
            self._is_first = False
        ended = time.monotonic()
        self._next = ended + max(PAUSE, SHARE * (ended - began))
