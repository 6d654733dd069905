"""What all data sets have in common."""

from __future__ import annotations

import os
from abc import abstractmethod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from excite.datasets.collection import Collection
from excite.datasets.sample import Sample
from excite.errors import ConceptError, DataError
from excite.images import PICTURE_SUFFIXES
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.vocabulary import Concept, Labels

__all__ = ["LONGEST_PART", "Dataset", "picture_called", "picture_in", "read_text"]

LONGEST_PART = 250  # bytes of a folder's or a file's name: most systems take 255, and another suffix may be tried
LONGEST_NAME = 1000  # letters


class Dataset(Collection[Sample]):
    """Annotated pictures in a defined order: iterating gives a `Sample` for each.

    Attributes:
        tolerance: How many pixels beside a box a point may lie and still be a hit, by this data set's custom.
        one_main_object: Each picture was chosen for one kind of object, which it shows large: a box around the
            attention is expected to be that object's.
    """

    tolerance: ClassVar[int] = 15  # the Pointing Game's (paper, section 4.1)
    one_main_object: ClassVar[bool] = False

    def _nothing(self) -> str:
        return "lists no pictures"

    @property
    @abstractmethod
    def categories(self) -> tuple[str, ...]:
        """What its targets may be called, in the data set's own order."""

    def also_called(self, name: str) -> tuple[str, ...]:
        """Other names of a picture, under which a list from elsewhere may have it: its own without the suffix."""
        stem, _, suffix = name.rpartition(".")
        return (stem,) if f".{suffix.lower()}" in PICTURE_SUFFIXES else ()

    def concept(self, category: str, labels: Labels) -> Concept:
        """What a classifier with those labels calls a category of this data set.

        Unlike a word that somebody types, a category is never completed: a "fork" is no "forklift".

        Raises:
            ConceptError: The classifier has no word for it.
        """
        found = labels.find(category)
        wanted = fold(category)
        words = [fold(word) for unit in found.units for word in labels.synonyms(unit)]
        begun = any(word.startswith(wanted) for word in words)
        if begun and not any(f" {wanted} " in f" {word} " for word in words):
            raise ConceptError(f"No label is called {category!r}; {found.name!r} only begins so.")
        return found


def read_text(path: Path) -> str:
    """The text of a file of annotations."""
    try:
        return path.read_bytes().decode("utf-8-sig")  # line breaks as they are: some are part of a quoted name
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"cannot read {str(path)!r}: it is no UTF-8 text (byte {error.start})") from None


def picture_in(folder: Path, name: str, where: str) -> Path:
    """The file of a picture. Names come from annotations, which must not lead out of the data set."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or not _may_be_a_file(name, parts):
        raise DataError(f"{where}: {name[:100]!r} is no name of a picture in {str(folder)!r}")
    return folder / name


def _may_be_a_file(name: str, parts: Sequence[str]) -> bool:
    """Whether systems take such a name; asking them about any other raises errors of many kinds."""
    try:
        longest = max(len(os.fsencode(part)) for part in parts)
    except UnicodeEncodeError:  # half of a character, which JSON can write
        return False
    return "\0" not in name and longest <= LONGEST_PART and len(name) <= LONGEST_NAME


def picture_called(folder: Path, stem: str, where: str) -> Path:
    """The picture of this name without its suffix: a JPEG, or whatever else is there."""
    usual = picture_in(folder, f"{stem}.jpg", where)
    if usual.is_file():
        return usual
    others = (usual.with_name(f"{usual.stem}{suffix}") for suffix in sorted(PICTURE_SUFFIXES))
    return next((path for path in others if path.is_file()), usual)
