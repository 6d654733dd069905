"""PASCAL VOC in its own layout, and other data annotated in that format."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from excite.datasets.base import Dataset, picture_called, picture_in, read_text
from excite.datasets.objects_xml import read_objects
from excite.datasets.sample import Instance, Sample, Target
from excite.errors import ConceptError, DataError

if TYPE_CHECKING:
    from pathlib import Path

    from excite.vocabulary import Concept, Labels

__all__ = ["Voc"]

LISTS = "ImageSets/Main"
FIRST_PIXEL = 1  # VOC counts from 1
SPELLED_APART = {"diningtable": "dining table", "pottedplant": "potted plant", "tvmonitor": "tv monitor"}
OF_ONE_CLASS = re.compile(r".+_(train|val|trainval|test)")  # lists that say which pictures show a class


class Voc(Dataset):
    """Several kinds of objects a picture, each with a box and perhaps flagged as difficult."""

    name = "voc"
    layout = f"{LISTS}/SPLIT.txt, Annotations/*.xml, JPEGImages/*.jpg"

    def _splits(self) -> list[str]:
        lists = sorted(path.stem for path in (self.folder / LISTS).glob("*.txt"))
        return [name for name in lists if not OF_ONE_CLASS.fullmatch(name)]

    def _read(self) -> list[str]:
        return _read_names(self.folder / LISTS / f"{self.split}.txt")

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether lists of pictures and annotations are there."""
        return (folder / LISTS).is_dir() and (folder / "Annotations").is_dir()

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """The names that occur in this split, in alphabetical order (which is VOC's own).

        A picture whose annotation is broken names none: asking for its sample says why.
        """
        return tuple(sorted({target.concept for name in self.names for target in self._readable(name)}))

    def sample(self, name: str) -> Sample:
        """A picture and its objects, from its XML file."""
        objects, size = read_objects(self._annotation(name), first_pixel=FIRST_PIXEL)
        targets: dict[str, list[Instance]] = defaultdict(list)
        for category, instance, _ in objects:
            targets[category].append(instance)
        found = (Target(concept, tuple(targets[concept])) for concept in sorted(targets))
        return Sample(name, self._picture(name), tuple(found), size)

    def _annotation(self, name: str) -> Path:
        """The XML file of a picture."""
        return picture_in(self.folder / "Annotations", f"{name}.xml", f"{LISTS}/{self.split}.txt")

    def _picture(self, name: str) -> Path:
        """The file of a picture."""
        return picture_called(self.folder / "JPEGImages", name, f"{LISTS}/{self.split}.txt")

    def _readable(self, name: str) -> tuple[Target, ...]:
        try:
            return self.sample(name).targets
        except DataError:  # told to whoever asks for the sample itself
            return ()

    def concept(self, category: str, labels: Labels) -> Concept:
        """The concept of this name; VOC writes some words together that others write apart."""
        try:
            return super().concept(category, labels)
        except ConceptError:
            if category not in SPELLED_APART:
                raise
            return super().concept(SPELLED_APART[category], labels)


def _read_names(path: Path) -> list[str]:
    """The pictures of a split, one a line."""
    names = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        if len(words) > 1:
            raise DataError(f"{path}, line {number}: the name of one picture was expected, not {line[:80]!r}")
        names += words  # one, or none on a blank line
    return list(dict.fromkeys(names))
