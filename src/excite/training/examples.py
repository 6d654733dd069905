"""Pictures to learn from: what each one shows, and what nobody is sure about."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from excite.datasets import open_dataset
from excite.datasets.base import chosen_split, image_path, read_text
from excite.datasets.voc import SPELLED_APART, Voc
from excite.errors import DataError
from excite.vocabulary import Labels
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    from excite.datasets import Dataset, Sample

__all__ = ["Example", "Examples", "place_of", "read_examples"]

LABELS_ONLY = "annotations/labels_"  # SPLIT.jsonl: {"file": NAME, "labels": [CATEGORY, ...]} a line


@dataclass(frozen=True)
class Example:
    """An image to learn from.

    Attributes:
        name: its name within the data set.
        path: the file.
        present: the categories that it shows.
        unsure: those of which it shows difficult instances only: neither there nor not there, by VOC's custom.
    """

    name: str
    path: Path
    present: frozenset[str]
    unsure: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Examples:
    """The images of a split, and the words of the categories to be learnt.

    Attributes:
        labels: for each category, in order, what it is called; one of its words is the data set's own.
        categories: the data set's own words, in the same order.
        pictures: the examples.
        failures: a line for each image whose annotation cannot be read.
    """

    labels: Labels
    categories: tuple[str, ...]
    pictures: tuple[Example, ...]
    failures: tuple[str, ...] = ()

    def of(self, labels: Labels) -> Examples:
        """The same images, for these labels only; one of each label's words must be the data set's."""
        categories = tuple(self._called(labels, unit) for unit in range(len(labels)))
        if len(set(categories)) < len(categories):
            raise DataError(f"several labels mean the same category: {', '.join(categories)}")
        return replace(self, labels=labels, categories=categories)

    def _called(self, labels: Labels, unit: int) -> str:
        wanted = {fold(word) for word in labels.synonyms(unit)}
        for known, category in enumerate(self.categories):
            if wanted & {fold(word) for word in (category, *self.labels.synonyms(known))}:
                return category
        raise DataError(f"the data has no category {labels.name(unit)!r}: it has {', '.join(self.categories)}")

    def split(self, share: float) -> tuple[Examples, Examples]:
        """Without about this share of the images, and these alone; which, depends on nothing but their names.

        Example:
            >>> pictures = tuple(Example(f"{k}.jpg", Path(f"{k}.jpg"), frozenset()) for k in range(1000))
            >>> kept, aside = Examples(Labels(["cat"]), ("cat",), pictures).split(0.1)
            >>> len(kept.pictures), len(aside.pictures)
            (901, 99)
        """
        aside = {picture for picture in self.pictures if place_of(picture.name) < share}
        kept = tuple(picture for picture in self.pictures if picture not in aside)
        return replace(self, pictures=kept), replace(self, pictures=tuple(p for p in self.pictures if p in aside))


def read_examples(folder: str | Path, split: str) -> Examples:
    """The examples of a data set that `excite.datasets.open_dataset` knows, or of one that has labels only.

    The latter has ``annotations/labels_SPLIT.jsonl`` and its images in the folder ``SPLIT``.

    Raises:
        DataError: there is no such data set or split, or it cannot be read.

    Example:
        >>> read_examples("VOCdevkit", "train").categories[:2]  # doctest: +SKIP
        ('aeroplane', 'bicycle')
    """
    folder = Path(folder)
    files = {path.stem.removeprefix("labels_"): path for path in sorted(folder.glob(f"{LABELS_ONLY}*.jsonl"))}
    with_boxes = {path.stem.removeprefix("instances_") for path in folder.glob("annotations/instances_*.json")}
    if files.keys() - with_boxes:
        name = chosen_split(split, sorted(files.keys() | with_boxes), folder)
        if name not in with_boxes:
            return _labels_only(files[name], folder / name)
    return _of_dataset(open_dataset(folder, split))


def _of_dataset(dataset: Dataset) -> Examples:
    apart = SPELLED_APART if isinstance(dataset, Voc) else {}
    words = [(name, apart[name]) if name in apart else (name,) for name in dataset.categories]
    if not words:
        raise DataError(f"the split {dataset.split!r} of {str(dataset.folder)!r} has no categories to learn")
    pictures, failures = [], []
    for name in dataset.names:
        try:
            pictures.append(_example(dataset.sample(name)))
        except DataError as error:
            failures.append(str(error))
    return Examples(Labels(words), dataset.categories, tuple(pictures), tuple(failures))


def _example(sample: Sample) -> Example:
    present = frozenset(target.concept for target in sample.targets if not target.difficult)
    unsure = frozenset(target.concept for target in sample.targets if target.difficult)
    return Example(sample.name, sample.path, present, unsure)


def _labels_only(path: Path, folder: Path) -> Examples:
    lines = read_text(path).splitlines()
    pictures = tuple(_line(line, f"{path}, line {number}", folder) for number, line in enumerate(lines, 1) if line)
    categories = sorted({category for picture in pictures for category in picture.present})
    if not categories:
        raise DataError(f"{path} names no categories: there is nothing to learn")
    if len({picture.name for picture in pictures}) < len(pictures):
        raise DataError(f"{path} has several lines for the same image")
    return Examples(Labels(categories), tuple(categories), pictures)


def _line(line: str, where: str, folder: Path) -> Example:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: broken JSON ({error})") from None
    if not isinstance(entry, dict) or not isinstance(entry.get("file"), str) or not _are_words(entry.get("labels")):
        raise DataError(f'{where}: {{"file": NAME, "labels": [CATEGORY, ...]}} was expected')
    return Example(entry["file"], image_path(folder, entry["file"], where), frozenset(entry["labels"]))


def _are_words(labels: object) -> bool:
    return isinstance(labels, list) and all(isinstance(label, str) and label.strip() for label in labels)


def place_of(name: str) -> float:
    """A number from 0 to 1 that looks drawn at random, but is the same for the same name for ever.

    Example:
        >>> round(place_of("photo.jpg"), 3)
        0.452
    """
    digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
