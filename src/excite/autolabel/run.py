"""Boxes for many images, kept in files that are whole at every moment."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from PIL import Image

from excite import __version__
from excite.api import ALPHA, METHOD, locate
from excite.autolabel.files import Files, own_ledger
from excite.autolabel.formats import Boxed, Document, Found, find_format
from excite.autolabel.inputs import category, check_labels, find_pictures, folders_of, understood
from excite.errors import ConceptError, ImageError, LostSignalWarning
from excite.images import file_state, read_image
from excite.images.reading import ORIENTATION_TAG, UPRIGHT
from excite.jobs import Executor
from excite.jobs.loop import run
from excite.models.classifier import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.api import Located
    from excite.autolabel.files import Content
    from excite.autolabel.inputs import Picture, Wanted
    from excite.jobs import Entry
    from excite.models import Classifier
    from excite.vocabulary import Labels

    Progress = Callable[[Iterator[Entry], int], Iterator[Entry]]


# What a run has done, as plain values and in words.


def summary(boxing: Boxing) -> dict[str, Any]:
    """How many boxes there are of what, in which files, and what one should know about them."""
    document = boxing.document()
    counts = Counter(found.concept for one in document.pictures for found in one.boxes)
    without = sum(not one.boxes for one in document.pictures)
    names = dict.fromkeys(name.split("/")[0] for name in boxing.content(document))
    return {
        "pictures": len(boxing.tasks),
        "folder": str(boxing.root),
        "boxes": counts.total(),
        "without": without,
        "format": boxing.kind,
        "files": [str(boxing.files.out / name) for name in names],
        "concepts": {name: counts[name] for name in document.categories},
        "notes": list(_notes(boxing, without)),
        "failures": boxing.failures,
    }


def _notes(boxing: Boxing, without: int) -> Iterator[str]:
    least = boxing.question.threshold
    if without and least:
        yield f"no box in {_pictures(without)}: nothing was probable enough; lower --at-least (now {least:g}) for more"
    elif without:
        yield f"no box in {_pictures(without)}: there is no evidence for what was looked for"
    turned = sum(record["turned"] for record in boxing.records.values())
    if turned:
        yield (
            f"{_pictures(turned)} stored on the side (EXIF): boxes are those of the upright image; turn the files "
            "themselves for programs that do not"
        )
    if boxing.files.copied:
        yield f"{_pictures(boxing.files.copied)} copied into {str(boxing.files.out)!r}: links cannot be made there"


def _pictures(count: int) -> str:
    return f"{count} image{'s' if count != 1 else ''}"


# What is done for each image: one look, and where each concept is.
#
# What is written down are facts (the box, how probable the concept is), so that the threshold may change without
# another look.

FIELDS = ("image", "size", "turned", "found")
"""What a record holds."""


@dataclass(frozen=True)
class Task:
    """An image and what to look for in it; nothing: what the classifier finds."""

    picture: Picture
    wanted: tuple[Wanted, ...]

    @cached_property
    def image(self) -> str:
        """The file, whatever way leads to it."""
        return str(self.picture.path.resolve())


@dataclass(frozen=True, eq=False)
class Locating:
    """The work done for each image.

    Attributes:
        classifier: who is asked.
        how: arguments of `excite.api.locate` that are not as usual.
        question: all of that as text.
    """

    classifier: Classifier
    how: Mapping[str, Any] = field(default_factory=dict)
    question: str = field(init=False)

    def __post_init__(self) -> None:
        words = list(self.classifier.labels or ())
        how = {"method": METHOD, "alpha": ALPHA, **self.how}  # what is usual may change too
        facts = ["boxes", how, __version__, identity(self.classifier), words]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Task) -> str:
        """Changes when the image, what is looked for, the classifier or the program does."""
        wanted = [asdict(one) for one in task.wanted]
        facts = [self.question, wanted, *file_state(task.picture.path)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def __call__(self, task: Task) -> dict[str, Any]:
        """One look at the image, and a box for each concept that there is evidence for."""
        picture = read_image(task.picture.path)
        return {
            "image": task.image,
            "size": list(picture.size),
            "turned": _is_turned(task.picture.path),
            "found": [
                {"concept": name, "probability": one.probability, "box": None if one.box is None else list(one.box)}
                for name, one in self._found(picture, task.wanted)
            ],
        }

    def _found(self, picture: Image.Image, wanted: Sequence[Wanted]) -> list[tuple[str, Located]]:
        """What was found, each with the name of its category."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LostSignalWarning)  # no evidence is no box, which is counted in the end
            found = locate(self.classifier, picture, [one.cue for one in wanted] or None, **self.how)
        if wanted:
            return list(zip((one.category for one in wanted), found, strict=True))
        best = max(found, key=lambda one: one.probability)
        return [(category(best.concept), best)]


def _is_turned(path: Path) -> bool:
    """Whether a file that could be read holds its pixels otherwise than upright."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as stored:
            if stored.getexif().get(ORIENTATION_TAG) not in UPRIGHT:
                return False
            stored.load()  # formats that turn themselves when decoded have no orientation left
            return stored.getexif().get(ORIENTATION_TAG) in UPRIGHT
    except Exception:  # noqa: BLE001 - the reader of images has already told what is wrong with its metadata
        return False


# Boxes for many images, kept in files that are whole at every moment.

PAUSE = 5.0  # at least so many seconds from one writing of the files to the next,
SHARE = 20  # and so many times as long as the last one took: writing is a small part of all work


class Boxing:
    """Makes boxes for images and writes them into a folder, in one of `excite.autolabel.FORMATS`.

    Every answer is written down at once in ``records.jsonl``, so that a run that was stopped goes on where it was. The
    files themselves are whole from the beginning, and hold more and more. In the end they are the same, however often
    the run was stopped.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        arguments: folders, images and patterns.
        out: the folder for the files.
        question: what to look for.
        kind: the format.
        fresh: do everything again, also what an earlier run into this folder has done.

    Attributes:
        root: the folder that holds all images: their names in the files are relative to it.
        wanted: all that is looked for; nothing where the classifier tells what it finds.
        failures: a line for each image that cannot be read.

    Raises:
        ExciteError: something is wrong that can be known before the first look: no images, a concept that is not
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

    def write(self, *, workers: int | Executor = 1, progress: Progress | None = None) -> dict[str, Any]:
        """Make all boxes that are not there yet, and write the files; what was done, as plain values for JSON.

        Args:
            workers: who does it: how many processes of this machine, or a crew.
            progress: passes entries on while it shows how many of a total there are.
        """
        with self.files.lock:
            self.files.read_again()
            return self._write(workers, progress)

    def _write(self, workers: int | Executor, progress: Progress | None) -> dict[str, Any]:
        if self.records or not self.files.hold_any(self.content(self.document())):
            self._save()  # files of another question stay as they are until there is something new
        executor = Executor.of(workers)
        store = (
            own_ledger(self.files.out / "records.jsonl", FIELDS, parquet=True) if executor.is_cluster else self._ledger
        )
        outcomes = run(self.work, self.tasks, store, workers=executor, failures=self.failures)
        # closed in any case: otherwise, after an error, workers would go on with the rest
        with closing(cast("Generator[Entry, None, None]", outcomes)) as entries:
            try:
                for entry in entries if progress is None else progress(entries, len(self.tasks)):
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
        """What an earlier run has found out, by image."""
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


# What is asked of the images.

PROBABLE = 0.5


@dataclass(frozen=True)
class Question:
    """What to look for, and how sure the classifier has to be.

    Attributes:
        concepts: look for these in every image; none for the classifier's own best finding.
        from_folders: look for what the folder of an image is called.
        at_least: a concept that is less probable gets no box; None for 0.5, or for 0 where folders tell what is there.
        how: arguments of `excite.api.locate` that are not as usual.

    Example:
        >>> Question(("dog", "cat")).threshold, Question(from_folders=True).threshold
        (0.5, 0)
    """

    concepts: tuple[str, ...] = ()
    from_folders: bool = False
    at_least: float | None = None
    how: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.concepts and self.from_folders:
            raise ConceptError("the folders already say what to look for: name no concepts beside them")
        if self.at_least is not None and not 0 <= self.at_least <= 1:
            raise ConceptError(f"at least {self.at_least} is no probability: give a number from 0 to 1")

    @property
    def threshold(self) -> float:
        """How probable a concept has to be; what a folder is called is known to be there."""
        if self.at_least is not None:
            return self.at_least
        return 0 if self.from_folders else PROBABLE

    def wanted(self, pictures: Sequence[Picture], labels: Labels | None) -> tuple[Wanted, ...]:
        """All that is looked for, in the order of the files; nothing where the classifier tells what it finds."""
        if not self.concepts and not self.from_folders:
            check_labels(labels)
        return understood(folders_of(pictures) if self.from_folders else self.concepts, labels)

    def tasks(self, pictures: Sequence[Picture], wanted: Sequence[Wanted]) -> list[Task]:
        """What of that is looked for in which image."""
        if not self.from_folders:
            return [Task(picture, tuple(wanted)) for picture in pictures]
        called = {one.category: one for one in wanted}
        return [Task(picture, (called[category(picture.folder)],)) for picture in pictures]
