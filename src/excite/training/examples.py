"""Labelled images for fine-tuning: the categories present in each image, and those that are uncertain."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from excite.datasets import Dataset, open_dataset
from excite.datasets.voc import SPELLED_APART, Voc
from excite.errors import DataError, SplitError
from excite.vocabulary import Labels
from excite.vocabulary.labels import fold


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


def read_examples(folder: str | Path, split: str | None = None) -> Examples:
    """Read the labelled images of a data set in any format of `excite.datasets.open_dataset`, boxes or not.

    Without a split, those called "train" are taken, or else the only split.
    """
    try:
        dataset = open_dataset(folder, split or "train", boxes=False)
    except SplitError:
        if split is not None:
            raise
        dataset = open_dataset(folder, boxes=False)
    return _read_dataset(dataset)


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


def uniform_hash(name: str) -> float:
    """A number in [0, 1), uniform over names and constant for each name: for stable held-out splits."""
    digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
