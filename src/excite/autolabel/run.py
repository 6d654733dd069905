"""Boxes for many images from image-level labels, in files that are complete at every moment."""

from __future__ import annotations

import glob
import json
import os
import re
import time
import unicodedata
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from PIL import Image

from excite import __version__
from excite.api import ALPHA, METHOD, locate
from excite.autolabel.batch import LONGEST, split_arguments
from excite.autolabel.files import Content, OutputFolder, open_own_results, resolved_parent
from excite.autolabel.formats import Detection, Document, ImageDetections, find_format
from excite.errors import ConceptError, ImageError, LostSignalWarning
from excite.images import ORIENTATION_TAG, UPRIGHT, file_state, read_image
from excite.io.cache import fingerprint
from excite.io.drawn import check_drawn, draw, is_drawn, shrunk, slug
from excite.jobs import Entry, Executor, attempt
from excite.jobs.loop import Progress, run
from excite.models import Classifier
from excite.models.classifier import identity
from excite.readouts.figure import name_boxes
from excite.readouts.gallery import Card, check_gallery, file_link, write_gallery
from excite.vocabulary import Concept, Labels
from excite.vocabulary.labels import fold, listed

PROBABLE = 0.5
PAUSE = 5.0  # at least so many seconds between two writes of the files,
SHARE = 20  # and so many times the duration of the last write: writing is a small part of the run
FIELDS = ("image", "size", "turned", "found")  # of a record: every box, so the threshold may change without a new run
ANYWHERE = Path("/")  # an overlay drawn by excite is no input, in whatever folder
LONGEST_STEM = 200  # bytes in a file name, which may have 255 in all
NO_TEXT = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # not allowed in XML or UTF-8


# The inputs: the images, the concepts to find, and the names of their boxes.


@dataclass(frozen=True)
class InputImage:
    """An image to make boxes for."""

    number: int  # its position in the order of the names, from 1
    path: Path  # as the user would name it
    name: str  # its path below the folder that holds all images, with forward slashes
    stem: str  # a unique name without blanks, dots and slashes

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return Path(os.path.abspath(self.path)).parent.name  # noqa: PTH100 - Path's own would follow links


def find_inputs(arguments: Sequence[str], files: OutputFolder) -> tuple[Path, list[InputImage]]:
    """The folder that holds all images, and the images in the order of their names below it."""
    found: dict[str, Path] = {}
    folders: list[str | Path] = []
    for argument in arguments:
        paths = list(_images_of(argument, files))
        if not paths:
            raise ImageError(f"no images found for {argument!r} but those that excite itself has put there")
        for path in paths:  # two links to one image are one image
            file = os.path.realpath(path)
            found[file] = min(found.get(file, path), path, key=resolved_parent)
        folders += [argument] if os.path.isdir(argument) else [path.parent for path in paths]  # noqa: PTH112 - any name
    root = Path(os.path.commonpath([os.path.realpath(folder) for folder in folders]))
    names = {resolved_parent(path).relative_to(root).as_posix(): path for path in found.values()}
    stems = _stems(sorted(names))
    return root, [InputImage(k, names[name], name, stems[name]) for k, name in enumerate(sorted(names), 1)]


def _images_of(argument: str, files: OutputFolder) -> Iterator[Path]:
    """The images of an argument, with links that an earlier run made replaced by their targets below the argument."""
    paths = split_arguments([argument], ANYWHERE)[0]
    matches = [argument] if os.path.exists(argument) else glob.glob(argument, recursive=True)  # noqa: PTH110, PTH207 - any name
    folders = {Path(os.path.realpath(match)) for match in matches if os.path.isdir(match)}  # noqa: PTH112 - any name
    named = folders | {resolved_parent(Path(match)) for match in matches if not os.path.isdir(match)}  # noqa: PTH112
    for path in paths:
        original = files.original(path)
        if original is None:
            yield path
        elif original != path and not named.isdisjoint((original, *original.parents)):
            yield original


def _stems(names: Sequence[str]) -> dict[str, str]:
    """A unique name without blanks for each; compared without case, as some file systems do."""
    taken: set[str] = set()
    last: dict[str, int] = {}
    stems = {}
    for name in names:
        stem = words = slug(name.removesuffix(Path(name).suffix), LONGEST_STEM)
        while stem.casefold() in taken:
            last[words] = last.get(words, 1) + 1
            stem = f"{words}-{last[words]}"
        taken.add(stem.casefold())
        stems[name] = stem
    return stems


@dataclass(frozen=True)
class Target:
    """A concept to find."""

    category: str  # the name of its boxes: the user's own word
    cue: Concept | str  # the classifier's concept for it; the word itself where the classifier has no labels


def category_name(word: str) -> str:
    """A word in a form that every format can hold: on one line, with single blanks; a `ConceptError` if it has none."""
    name = " ".join(unicodedata.normalize("NFC", word).split())
    if not name:
        raise ConceptError("the concept is blank: name one, or see them all with `excite ls labels`")
    if NO_TEXT.search(name):
        raise ConceptError(f"the concept {name!r} holds characters that no file of boxes can hold: rename it")
    return name


def find_targets(words: Iterable[str], labels: Labels | None) -> tuple[Target, ...]:
    """The classifier's concept for each word, without repetitions; a `ConceptError` lists all unknown ones."""
    targets, errors = [], []
    for name in dict.fromkeys(map(category_name, words)):
        try:
            targets.append(Target(name, name if labels is None else labels.find(name)))
        except ConceptError as error:
            errors.append(str(error))
    if errors:
        count = f"{len(errors)} concepts are unknown. " if len(errors) > 1 else ""
        raise ConceptError(count + " ".join(errors))
    return tuple(targets)


def substitutions(targets: Iterable[Target]) -> str:
    """The words whose concept has another name, as text; blank if there are none."""
    pairs = [(one.category, one.cue if isinstance(one.cue, str) else one.cue.name) for one in targets]
    return listed([f"{word!r} for {name!r}" for word, name in pairs if fold(word) != fold(name)])


# The query, and the run.


@dataclass(frozen=True)
class BoxQuery:
    """The concepts to find, and the probability that a box needs."""

    concepts: tuple[str, ...] = ()  # in every image; empty for the classifier's own best finding
    from_folders: bool = False  # find the concept that the folder of an image is named after
    at_least: float | None = None  # the least probability; None for 0.5, or for 0 where folders name the concepts
    how: Mapping[str, Any] = field(default_factory=dict)  # arguments of `excite.api.locate` other than the defaults

    def __post_init__(self) -> None:
        if self.concepts and self.from_folders:
            raise ConceptError("the folders already say what to look for: name no concepts beside them")
        if self.at_least is not None and not 0 <= self.at_least <= 1:
            raise ConceptError(f"at least {self.at_least} is no probability: give a number from 0 to 1")

    @property
    def threshold(self) -> float:
        """The least probability of a box."""
        default = 0 if self.from_folders else PROBABLE
        return default if self.at_least is None else self.at_least

    def tasks(self, pictures: Sequence[InputImage], labels: Labels | None) -> tuple[tuple[Target, ...], list[BoxTask]]:
        """All concepts, in the order of the categories (none for the classifier's own findings), and those of each."""
        if not self.concepts and not self.from_folders:
            for name in labels or ():  # whatever is found can be written
                category_name(name)
        words = sorted({one.folder for one in pictures}) if self.from_folders else self.concepts
        targets = find_targets(words, labels)
        of = {one.category: (one,) for one in targets}
        wanted = (of[category_name(one.folder)] if self.from_folders else targets for one in pictures)
        return targets, [BoxTask(picture, each) for picture, each in zip(pictures, wanted, strict=True)]


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
        drawn: also draw the boxes, into ``drawn/NAME.jpg``, and show all images on a page, ``index.html``.

    Attributes:
        root: the folder that holds all images: their names in the files are relative to it.
        targets: all concepts to find; empty for the classifier's own findings.
        failures: a line for each image that cannot be read.

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
        drawn: bool = False,
    ) -> None:
        self.question, self.kind, self.drawn = question, kind, drawn
        self._format = find_format(kind)
        self.files = OutputFolder(out, kind)
        self._store = open_own_results(out / "records.jsonl", FIELDS)  # for this machine; reads a cluster's too
        self.root, pictures = find_inputs(arguments, self.files)
        self.targets, self.tasks = question.tasks(pictures, classifier.labels)
        self.work = BoxWork(classifier, question.how)
        self.failures: list[str] = []
        self.files.check(self.content(Document(tuple(ImageDetections(picture, (1, 1)) for picture in pictures), ())))
        if drawn:
            check_gallery(out / "index.html")
            for picture in pictures:
                check_drawn(self._drawing(picture))
        if fresh:
            self._store.clear()
        done = self._store.read()
        keys = (
            attempt(self.work.key, task) for task in self.tasks
        )  # an image that cannot be read is reported when it is its turn
        self.records = {done[key]["image"]: done[key] for key in keys if isinstance(key, str) and key in done}
        self._next = 0.0
        self._is_first = True

    def write(self, *, workers: int | Executor = 1, progress: Progress | None = None) -> dict[str, Any]:
        """Make all missing boxes and write the files; the summary of the run as plain values for JSON.

        Args:
            workers: a number of processes, or an executor.
            progress: passes entries on while it shows how many of a total there are.
        """
        executor = Executor.of(workers)
        with self.files.lock:
            self.files.read_again()
            wanted = self.content(self.document())
            if self.records or not any(os.path.lexists(self.files.out / name) for name in wanted):
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
            if self.drawn:
                self._draw(progress)
            return self._summary()

    def document(self) -> Document:
        """All boxes so far."""
        pictures = []
        for task in self.tasks:
            if record := self.records.get(task.image):
                boxes = tuple(
                    Detection(found["concept"], found["probability"], tuple(found["box"]))
                    for found in record["found"]
                    if found["box"] is not None and found["probability"] >= self.question.threshold
                )
                pictures.append(ImageDetections(task.picture, tuple(record["size"]), boxes))
        found = sorted({found.concept for one in pictures for found in one.boxes})
        return Document(tuple(pictures), tuple(one.category for one in self.targets) or tuple(found))

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

    def _drawing(self, picture: InputImage) -> Path:
        return self.files.out / "drawn" / f"{picture.stem}.jpg"

    def _draw(self, progress: Progress | None) -> None:
        """Draw the boxes of each image, and write the page."""
        document, page = self.document(), self.files.out / "index.html"
        pictures = document.pictures
        count = sum(len(one.boxes) for one in pictures)
        shown = pictures if progress is None else progress(pictures, len(pictures))
        cards = (card for one in shown for card in self._cards(one, document.categories, page))
        write_gallery(page, f"{count} boxes in {_images(len(pictures))} of {self.root.name or self.root}", cards)

    def _cards(self, one: ImageDetections, names: Sequence[str], page: Path) -> Iterator[Card]:
        """The card of an image; its boxes are drawn unless they are already. None if it has become unreadable."""
        path, boxes = one.picture.path, [(found.concept, found.box) for found in one.boxes]
        shown = self._drawing(one.picture) if boxes else path
        try:
            question = [boxes, names, *file_state(path), __version__]
            if boxes and not is_drawn(shown, question):
                small = shrunk(read_image(path), LONGEST)
                drawn = name_boxes(small, boxes, names, scale=small.width / one.size[0])
                draw(drawn, shown, question, replace=True)
            image = read_image(shown)
        except ImageError as error:
            self.failures.append(str(error))
        else:
            facts = {found.concept: found.probability for found in one.boxes}
            yield Card(image, one.picture.name, file_link(shown, page), facts)

    def _summary(self) -> dict[str, Any]:
        document = self.document()
        counts = Counter(found.concept for one in document.pictures for found in one.boxes)
        without = sum(not one.boxes for one in document.pictures)
        names = [*dict.fromkeys(name.split("/")[0] for name in self.content(document))]
        names += ["drawn", "index.html"] if self.drawn else []
        least, notes = self.question.threshold, []
        if without:
            reason = f"nothing was probable enough; lower --at-least (now {least:g}) for more"
            nothing = "there is no evidence for what was looked for"
            notes.append(f"no box in {_images(without)}: {reason if least else nothing}")
        if turned := sum(record["turned"] for record in self.records.values()):
            notes.append(
                f"{_images(turned)} stored on the side (EXIF): boxes are those of the upright image; turn the files "
                "themselves for programs that do not"
            )
        if self.kind == "label-studio":
            notes.append(
                f"Label Studio shows the images with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and "
                f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={self.root.parent}; add {self.root} as local storage there"
            )
        if copied := self.files.copied:
            notes.append(f"{_images(copied)} copied into {str(self.files.out)!r}: links cannot be made there")
        return {
            "pictures": len(self.tasks),
            "folder": str(self.root),
            "boxes": counts.total(),
            "without": without,
            "format": self.kind,
            "files": [str(self.files.out / name) for name in names],
            "concepts": {name: counts[name] for name in document.categories},
            "notes": notes,
            "failures": self.failures,
        }


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
    """Finds the boxes of one image, with arguments of `excite.api.locate` other than the defaults."""

    classifier: Classifier
    how: Mapping[str, Any] = field(default_factory=dict)
    question: str = field(init=False)  # classifier, arguments and versions as text: part of every key

    def __post_init__(self) -> None:
        how = {"method": METHOD, "alpha": ALPHA, **self.how}  # a default may change between versions
        facts = ["boxes", how, __version__, identity(self.classifier), list(self.classifier.labels or ())]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: BoxTask) -> str:
        """Changes when the image, the concepts, the classifier or the program does."""
        return fingerprint([self.question, [asdict(one) for one in task.targets], *file_state(task.picture.path)])

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
