"""Boxes for many images from image-level labels, in files that are complete at every moment."""

from __future__ import annotations

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
from excite.autolabel.files import OutputFolder, open_own_results
from excite.autolabel.formats import Detection, Document, ImageDetections, find_format
from excite.autolabel.inputs import category_name, find_inputs, find_targets
from excite.errors import ConceptError, ImageError, LostSignalWarning
from excite.images import ORIENTATION_TAG, UPRIGHT, file_state, read_image
from excite.io.cache import fingerprint
from excite.jobs import Executor
from excite.jobs.loop import run
from excite.models.classifier import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.autolabel.files import Content
    from excite.autolabel.inputs import InputImage, Target
    from excite.jobs import Entry
    from excite.models import Classifier
    from excite.vocabulary import Labels

    Progress = Callable[[Iterator[Entry], int], Iterator[Entry]]

PROBABLE = 0.5
PAUSE = 5.0  # at least so many seconds between two writes of the files,
SHARE = 20  # and so many times the duration of the last write: writing is a small part of the run
FIELDS = ("image", "size", "turned", "found")
"""The fields of a record. It holds every box with its probability, so the threshold may change without a new run."""


@dataclass(frozen=True)
class BoxQuery:
    """The concepts to find, and the probability that a box needs.

    Attributes:
        concepts: find these in every image; empty for the classifier's own best finding.
        from_folders: find the concept that the folder of an image is named after.
        at_least: the least probability of a box; None for 0.5, or for 0 where folders name the concepts.
        how: arguments of `excite.api.locate` other than the defaults.

    Example:
        >>> BoxQuery(("dog", "cat")).threshold, BoxQuery(from_folders=True).threshold
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
        """The least probability of a box."""
        if self.at_least is not None:
            return self.at_least
        return 0 if self.from_folders else PROBABLE

    def targets(self, pictures: Sequence[InputImage], labels: Labels | None) -> tuple[Target, ...]:
        """The concepts of all images, in the order of the categories; empty for the classifier's own findings."""
        if not self.concepts and not self.from_folders:
            for name in labels or ():  # whatever is found can be written
                category_name(name)
        return find_targets(sorted({one.folder for one in pictures}) if self.from_folders else self.concepts, labels)

    def tasks(self, pictures: Sequence[InputImage], targets: Sequence[Target]) -> list[BoxTask]:
        """The concepts of each image."""
        if not self.from_folders:
            return [BoxTask(picture, tuple(targets)) for picture in pictures]
        by_name = {one.category: one for one in targets}
        return [BoxTask(picture, (by_name[category_name(picture.folder)],)) for picture in pictures]


class AutoLabeler:
    """Makes boxes for images and writes them into a folder, in one of `excite.autolabel.FORMATS`.

    Every result is appended at once to ``records.jsonl``, so an interrupted run is resumed. The files of the format are
    complete at every moment and grow; in the end they are the same, however often the run was interrupted.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        arguments: folders, images and patterns.
        out: the folder for the files.
        question: the concepts to find.
        kind: the format.
        fresh: repeat what an earlier run into this folder has done.

    Attributes:
        root: the folder that holds all images: their names in the files are relative to it.
        targets: all concepts to find; empty for the classifier's own findings.
        failures: a line for each image that cannot be read.

    Raises:
        ExciteError: no images, an unknown concept, or files in the folder that excite has not written.

    Example:
        >>> labeler = AutoLabeler(excite.load(), ["photos"], Path("boxes"), BoxQuery(("dog",)), "voc")  # doctest: +SKIP
        >>> labeler.write()["boxes"]                                                                    # doctest: +SKIP
        12
    """

    def __init__(
        self,
        classifier: Classifier,
        arguments: Sequence[str],
        out: Path,
        question: BoxQuery,
        kind: str = "coco",
        *,
        fresh: bool = False,
    ) -> None:
        self.question, self.kind = question, kind
        self._format = find_format(kind)
        self.files = OutputFolder(out, kind)
        self._store = open_own_results(out / "records.jsonl", FIELDS)  # for this machine; reads a cluster's too
        self.root, pictures = find_inputs(arguments, self.files)
        self.targets = question.targets(pictures, classifier.labels)
        self.tasks = question.tasks(pictures, self.targets)
        self.work = BoxWork(classifier, question.how)
        self.failures: list[str] = []
        self.files.check(self.content(Document(tuple(ImageDetections(picture, (1, 1)) for picture in pictures), ())))
        if fresh:
            self._store.clear()
        done = self._store.read()
        keys = map(self._key, self.tasks)
        self.records = {done[key]["image"]: done[key] for key in keys if key is not None and key in done}
        self._next = 0.0
        self._is_first = True

    def _key(self, task: BoxTask) -> str | None:
        try:
            return self.work.key(task)
        except ImageError:  # reported in its turn
            return None

    def write(self, *, workers: int | Executor = 1, progress: Progress | None = None) -> dict[str, Any]:
        """Make all missing boxes and write the files; the summary of the run as plain values for JSON.

        Args:
            workers: a number of processes, or an executor.
            progress: passes entries on while it shows how many of a total there are.
        """
        with self.files.lock:
            self.files.read_again()
            return self._write(Executor.of(workers), progress)

    def _write(self, executor: Executor, progress: Progress | None) -> dict[str, Any]:
        if self.records or not self.files.hold_any(self.content(self.document())):
            self._save()  # files of another query are not replaced before there is a new result
        store = self._store
        if executor.is_cluster:
            store = open_own_results(self.files.out / "records.jsonl", FIELDS, parquet=True)
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
        return self._summary()

    def document(self) -> Document:
        """All boxes so far."""
        done = [(task, self.records[task.image]) for task in self.tasks if task.image in self.records]
        pictures = tuple(
            ImageDetections(task.picture, tuple(record["size"]), self._boxes(record)) for task, record in done
        )
        if self.targets:
            return Document(pictures, tuple(one.category for one in self.targets))
        return Document(pictures, tuple(sorted({found.concept for one in pictures for found in one.boxes})))

    def _boxes(self, record: Entry) -> tuple[Detection, ...]:
        return tuple(
            Detection(found["concept"], found["probability"], tuple(found["box"]))
            for found in record["found"]
            if found["box"] is not None and found["probability"] >= self.question.threshold
        )

    def content(self, document: Document) -> dict[str, Content]:
        """The files of a document."""
        labels = "".join(f"{name}\n" for name in document.categories)
        return {**self._format(document), "labels.txt": labels.encode()}

    def _save(self) -> None:
        """Write the files with all results so far."""
        began = time.monotonic()
        content = self.content(self.document())
        self.files.write(content)
        if self._is_first:
            self.files.remove_others(content)
            self._is_first = False
        ended = time.monotonic()
        self._next = ended + max(PAUSE, SHARE * (ended - began))

    def _summary(self) -> dict[str, Any]:
        document = self.document()
        counts = Counter(found.concept for one in document.pictures for found in one.boxes)
        without = sum(not one.boxes for one in document.pictures)
        names = dict.fromkeys(name.split("/")[0] for name in self.content(document))
        return {
            "pictures": len(self.tasks),
            "folder": str(self.root),
            "boxes": counts.total(),
            "without": without,
            "format": self.kind,
            "files": [str(self.files.out / name) for name in names],
            "concepts": {name: counts[name] for name in document.categories},
            "notes": list(self._notes(without)),
            "failures": self.failures,
        }

    def _notes(self, without: int) -> Iterator[str]:
        least = self.question.threshold
        if without:
            reason = f"nothing was probable enough; lower --at-least (now {least:g}) for more"
            yield f"no box in {_images(without)}: {reason if least else 'there is no evidence for what was looked for'}"
        turned = sum(record["turned"] for record in self.records.values())
        if turned:
            yield (
                f"{_images(turned)} stored on the side (EXIF): boxes are those of the upright image; turn the files "
                "themselves for programs that do not"
            )
        if self.files.copied:
            yield f"{_images(self.files.copied)} copied into {str(self.files.out)!r}: links cannot be made there"


def _images(count: int) -> str:
    return f"{count} image{'s' if count != 1 else ''}"


# The work for one image.


@dataclass(frozen=True)
class BoxTask:
    """An image and the concepts to find in it; none for the classifier's own best finding."""

    picture: InputImage
    targets: tuple[Target, ...]

    @cached_property
    def image(self) -> str:
        """The file, with all links resolved."""
        return str(self.picture.path.resolve())


@dataclass(frozen=True, eq=False)
class BoxWork:
    """Finds the boxes of one image.

    Attributes:
        how: arguments of `excite.api.locate` other than the defaults.
        question: classifier, arguments and versions as text: part of every key.
    """

    classifier: Classifier
    how: Mapping[str, Any] = field(default_factory=dict)
    question: str = field(init=False)

    def __post_init__(self) -> None:
        how = {"method": METHOD, "alpha": ALPHA, **self.how}  # a default may change between versions
        facts = ["boxes", how, __version__, identity(self.classifier), list(self.classifier.labels or ())]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: BoxTask) -> str:
        """Changes when the image, the concepts, the classifier or the program does."""
        facts = [self.question, [asdict(one) for one in task.targets], *file_state(task.picture.path)]
        return fingerprint(facts)

    def __call__(self, task: BoxTask) -> dict[str, Any]:
        """One forward pass, and a box for each concept with evidence."""
        picture = read_image(task.picture.path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LostSignalWarning)  # no evidence is no box, which is counted in the end
            found = locate(self.classifier, picture, [one.cue for one in task.targets] or None, **self.how)
        names = [one.category for one in task.targets]
        if not names:
            found = [max(found, key=lambda one: one.probability)]
            names = [category_name(found[0].concept)]
        return {
            "image": task.image,
            "size": list(picture.size),
            "turned": _is_turned(task.picture.path),
            "found": [
                {"concept": name, "probability": one.probability, "box": None if one.box is None else list(one.box)}
                for name, one in zip(names, found, strict=True)
            ],
        }


def _is_turned(path: Path) -> bool:
    """Whether a readable file holds its pixels otherwise than upright."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as stored:
            if stored.getexif().get(ORIENTATION_TAG) not in UPRIGHT:
                return False
            stored.load()  # formats that turn themselves when decoded have no orientation left
            return stored.getexif().get(ORIENTATION_TAG) in UPRIGHT
    except Exception:  # noqa: BLE001 - read_image has reported damaged metadata already
        return False
