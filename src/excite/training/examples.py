"""Labelled images for fine-tuning: the categories present in each image, and those that are uncertain."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from excite.datasets import open_dataset
from excite.datasets.base import chosen_split, image_path, parse_json, read_text
from excite.datasets.voc import SPELLED_APART, Voc
from excite.errors import DataError
from excite.vocabulary import Labels
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    from excite.datasets import Dataset


@dataclass(frozen=True)
class Example:
    """A labelled image."""

    name: str  # its name within the data set
    path: Path  # the file
    present: frozenset[str]  # the categories in the image
    unsure: frozenset[str] = frozenset()  # only difficult instances: neither present nor absent, by VOC's convention


@dataclass(frozen=True)
class Examples:
    """The labelled images of a split."""

    labels: Labels  # the words for each category; one of them is the data set's own
    categories: tuple[str, ...]  # the data set's own words, in the same order
    pictures: tuple[Example, ...]  # the images
    failures: tuple[str, ...] = ()  # a line for each annotation that cannot be read

    def of(self, labels: Labels) -> Examples:
        """The same images with these labels only; one word of each label must be the data set's."""
        categories = tuple(self._category(labels, unit) for unit in range(len(labels)))
        if len(set(categories)) < len(categories):
            raise DataError(f"several labels mean the same category: {', '.join(categories)}")
        return replace(self, labels=labels, categories=categories)

    def _category(self, labels: Labels, unit: int) -> str:
        wanted = {fold(word) for word in labels.synonyms(unit)}
        for known, category in enumerate(self.categories):
            if wanted & {fold(word) for word in (category, *self.labels.synonyms(known))}:
                return category
        raise DataError(f"the data has no category {labels.name(unit)!r}: it has {', '.join(self.categories)}")

    def split(self, share: float) -> tuple[Examples, Examples]:
        """Training images and about this share of held-out images, chosen by the hash of their names."""
        parts: tuple[list[Example], list[Example]] = [], []
        for picture in self.pictures:
            parts[uniform_hash(picture.name) < share].append(picture)
        training, held_out = (replace(self, pictures=tuple(part)) for part in parts)
        return training, held_out


def read_examples(folder: str | Path, split: str) -> Examples:
    """Read a data set that `excite.datasets.open_dataset` knows, or one with image-level labels only.

    The latter has ``annotations/labels_SPLIT.jsonl`` with {"file": NAME, "labels": [CATEGORY, ...]} a line, and its
    images in the folder ``SPLIT``.
    """
    folder = Path(folder)
    files = {path.stem.removeprefix("labels_"): path for path in sorted(folder.glob("annotations/labels_*.jsonl"))}
    with_boxes = {path.stem.removeprefix("instances_") for path in folder.glob("annotations/instances_*.json")}
    if files.keys() - with_boxes:
        name = chosen_split(split, sorted(files.keys() | with_boxes), folder)
        if name not in with_boxes:
            return _read_labels_only(files[name], folder / name)
    return _read_dataset(open_dataset(folder, split))


def _read_dataset(dataset: Dataset) -> Examples:
    apart = SPELLED_APART if isinstance(dataset, Voc) else {}
    words = [(name, apart[name]) if name in apart else (name,) for name in dataset.categories]
    if not words:
        raise DataError(f"the split {dataset.split!r} of {str(dataset.folder)!r} has no categories to learn")
    pictures, failures = [], []
    for name in dataset.names:
        try:
            sample = dataset.sample(name)
        except DataError as error:
            failures.append(str(error))
            continue
        present = frozenset(target.concept for target in sample.targets if not target.difficult)
        unsure = frozenset(target.concept for target in sample.targets if target.difficult)
        pictures.append(Example(sample.name, sample.path, present, unsure))
    return Examples(Labels(words), dataset.categories, tuple(pictures), tuple(failures))


def _read_labels_only(path: Path, folder: Path) -> Examples:
    lines = read_text(path).splitlines()
    pictures = tuple(_line(line, f"{path}, line {number}", folder) for number, line in enumerate(lines, 1) if line)
    categories = sorted({category for picture in pictures for category in picture.present})
    if not categories:
        raise DataError(f"{path} names no categories: there is nothing to learn")
    if len({picture.name for picture in pictures}) < len(pictures):
        raise DataError(f"{path} has several lines for the same image")
    return Examples(Labels(categories), tuple(categories), pictures)


def _line(line: str, where: str, folder: Path) -> Example:
    entry = parse_json(line, where)
    file, labels = (entry.get("file"), entry.get("labels")) if isinstance(entry, dict) else (None, None)
    is_list = isinstance(labels, list) and all(isinstance(label, str) and label.strip() for label in labels)
    if not isinstance(file, str) or labels is None or not is_list:
        raise DataError(f'{where}: {{"file": NAME, "labels": [CATEGORY, ...]}} was expected')
    return Example(file, image_path(folder, file, where), frozenset(labels))


def uniform_hash(name: str) -> float:
    """A number in [0, 1), uniform over names and constant for each name: for stable held-out splits."""
    digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
