"""What all data sets have in common."""

from __future__ import annotations

import csv
import io
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from excite.datasets.sample import Box, Sample, check_begin, checked_box
from excite.errors import ConceptError, DataError, ImageError
from excite.images import PICTURE_SUFFIXES, find_images
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.vocabulary import Concept, Labels


# Parts of a data set, by name.


def chosen_split(split: str | None, splits: Sequence[str], folder: Path) -> str:
    """The split of this name, or the only one that begins so ("val" for "val2017"); None for the validation split.

    Example:
        >>> from pathlib import Path
        >>> chosen_split("val", ["train2017", "val2017"], Path("coco"))
        'val2017'
    """
    wanted = "val" if split is None else split
    begun = [one for one in splits if wanted and one.startswith(wanted)]
    if wanted in splits:
        return wanted
    if len(begun) == 1:
        return begun[0]
    if split is None and len(splits) == 1:
        return splits[0]
    near = get_close_matches(wanted, splits, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    known = ", ".join(splits) or "none"
    raise DataError(f"{str(folder)!r} has no split {wanted!r}{hint}: its splits are {known}")


# Images on disk that come in splits and in a defined order, whatever is told about each.

Item_co = TypeVar("Item_co", covariant=True)
Kind = TypeVar("Kind", bound="Collection[object]")


class Collection(ABC, Generic[Item_co]):
    """Pictures in a defined order: iterating gives what is known about each.

    Attributes:
        name: Of the format, for people to read.
        layout: What the format looks like on disk, for people to read.
        names: The images, in the order in which they come.
    """

    name: ClassVar[str]
    layout: ClassVar[str]

    def __init__(self, folder: Path, split: str | None = None) -> None:
        self.folder = folder
        self.split = chosen_split(split, self._splits(), folder)
        self.names = tuple(self._read())
        if not self.names:
            raise DataError(f"the split {self.split!r} of {str(folder)!r} {self._nothing()}")

    @abstractmethod
    def _splits(self) -> list[str]:
        """The splits that are there."""

    @abstractmethod
    def _read(self) -> list[str]:
        """Read what is needed to tell about the images of the split; their names, in order."""

    @abstractmethod
    def _nothing(self) -> str:
        """What is to be said of a split without a single image."""

    @classmethod
    @abstractmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether this folder looks like a data set of this format."""

    @abstractmethod
    def sample(self, name: str) -> Item_co:
        """What is known about the image of this name."""

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Item_co]:
        return (self.sample(name) for name in self.names)


def the_only(
    folder: Path, found: Sequence[tuple[Path, type[Kind]]], kinds: Mapping[str, type[Kind]], what: str
) -> tuple[Path, type[Kind]]:
    """The one data set that was found in a folder, with its format; or an error that says which there might be.

    Args:
        folder: that was looked into.
        found: the data sets in it, each with its format.
        kinds: all formats, by name.
        what: is looked for, such as "data set".
    """
    if not found:
        expected = "; ".join(f"{kind.name} ({kind.layout})" for kind in kinds.values())
        raise DataError(f"{str(folder)!r} holds no {what} that is known: {expected}")
    if len(found) > 1:
        choices = ", ".join(f"{str(root)!r} ({kind.name})" for root, kind in found)
        several = what.replace("data set", "data sets")
        raise DataError(f"{str(folder)!r} holds {len(found)} {several}: name one of {choices}")
    return found[0]


# What all data sets have in common.

LONGEST_PART = 250  # bytes of a folder's or a file's name: most systems take 255, and another suffix may be tried
LONGEST_NAME = 1000  # letters


class Dataset(Collection[Sample]):
    """Annotated images in a defined order: iterating gives a `Sample` for each.

    Attributes:
        tolerance: How many pixels beside a box a point may lie and still be a hit, by this data set's custom.
        one_main_object: Each image was chosen for one kind of object, which it shows large: a box around the
            attention is expected to be that object's.
    """

    tolerance: ClassVar[int] = 15  # the Pointing Game's (paper, section 4.1)
    one_main_object: ClassVar[bool] = False

    def _nothing(self) -> str:
        return "lists no images"

    @property
    @abstractmethod
    def categories(self) -> tuple[str, ...]:
        """What its targets may be called, in the data set's own order."""

    def also_called(self, name: str) -> tuple[str, ...]:
        """Other names of an image, under which a list from elsewhere may have it: its own without the suffix."""
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
    """The file of an image. Names come from annotations, which must not lead out of the data set."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or not _may_be_a_file(name, parts):
        raise DataError(f"{where}: {name[:100]!r} is no name of an image in {str(folder)!r}")
    return folder / name


def _may_be_a_file(name: str, parts: Sequence[str]) -> bool:
    """Whether systems take such a name; asking them about any other raises errors of many kinds."""
    try:
        longest = max(len(os.fsencode(part)) for part in parts)
    except UnicodeEncodeError:  # half of a character, which JSON can write
        return False
    return "\0" not in name and longest <= LONGEST_PART and len(name) <= LONGEST_NAME


def picture_called(folder: Path, stem: str, where: str) -> Path:
    """The image of this name without its suffix: a JPEG, or whatever else is there."""
    usual = picture_in(folder, f"{stem}.jpg", where)
    if usual.is_file():
        return usual
    others = (usual.with_name(f"{usual.stem}{suffix}") for suffix in sorted(PICTURE_SUFFIXES))
    return next((path for path in others if path.is_file()), usual)


# Lines of files of annotations.


def read_lines(path: Path) -> Iterator[str]:
    r"""The lines of a file, without their ends, which may be those of any system.

    ``str.splitlines`` breaks also at rarer characters, such as U+2028, which JSON and captions may have in their words.

    Raises:
        DataError: the file cannot be read, or is no UTF-8 text.

    Example:
        >>> Path("said.txt").write_bytes("a dog\r\na\u2028cat".encode())  # doctest: +SKIP
        >>> list(read_lines(Path("said.txt")))  # doctest: +SKIP
        ['a dog', 'a\u2028cat']
    """
    return (line.removesuffix("\n") for line in io.StringIO(read_text(path), newline=None))


# Images anywhere below a folder, found by their names.


def pictures_by(key: Callable[[Path], str], folder: Path) -> dict[str, list[Path]]:
    """All images below a folder, by their names."""
    answer: dict[str, list[Path]] = defaultdict(list)
    try:
        for path in find_images(str(folder)):
            answer[key(path)].append(path)
    except ImageError as error:
        raise DataError(f"{str(folder)!r} has annotations but no images to them: {error}") from None
    return dict(answer)


def only_picture(found: Sequence[Path], usual: Path, annotation: Path) -> Path:
    """The one image that was found; without any, where it would usually be: reading it says that it is missing."""
    if len(found) > 1:
        raise DataError(f"{annotation}: {str(found[0])!r} and {str(found[1])!r} both have the name of its image")
    return found[0] if found else usual


def named_picture(folder: Path, name: str, found: Mapping[str, Sequence[Path]], annotation: Path) -> Path:
    """The image that an annotation names: there, below the folder; or the only one of that name, wherever it is."""
    path = picture_in(folder, name, str(annotation))
    return path if path.is_file() else only_picture(found.get(PurePosixPath(name).name, []), path, annotation)


def holds_pictures(folder: Path) -> bool:
    """Whether there are images below a folder."""
    return any(path.suffix.lower() in PICTURE_SUFFIXES for path in folder.rglob("*"))


# Tables of boxes: lines of text with commas between the columns.

Row = tuple[int, list[str]]
"""The number of a line, and its columns."""


def read_rows(path: Path) -> Iterator[Row]:
    """The lines of a table that are not blank, the header too where it has one.

    Raises:
        DataError: the file cannot be read, or is no such table.

    Example:
        >>> next(read_rows(Path("LOC_val_solution.csv")))  # doctest: +SKIP
        (1, ['ImageId', 'PredictionString'])
    """
    lines = csv.reader(io.StringIO(read_text(path)))
    try:
        for columns in lines:
            if columns:
                yield lines.line_num, columns
    except csv.Error as error:
        raise DataError(f"{path}, line {lines.line_num}: {error}") from None


def box_of(corners: Sequence[str], where: str) -> Box:
    """A half-open box whose pixels are counted from 0.

    Example:
        >>> box_of(["1", "2", "3", "4"], "boxes.csv, line 2")
        (1.0, 2.0, 3.0, 4.0)
    """
    x0, y0, x1, y1 = _numbers(corners, where)
    return check_begin(checked_box(x0, y0, x1, y1, where), where)


def box_with_last_pixel(corners: Sequence[str], where: str) -> Box:
    """A box as ImageNet has it: pixels are counted from 0, and the last one is included.

    Example:
        >>> box_with_last_pixel(["0", "0", "499", "374"], "LOC_val_solution.csv, line 2")
        (0.0, 0.0, 500.0, 375.0)
    """
    x0, y0, x1, y1 = _numbers(corners, where)
    return check_begin(checked_box(x0, y0, x1 + 1, y1 + 1, where), where)


def _numbers(corners: Sequence[str], where: str) -> tuple[float, float, float, float]:
    try:
        x0, y0, x1, y1 = (float(corner) for corner in corners)
    except ValueError:
        raise DataError(f"{where}: the corners of a box must be numbers, not {' '.join(corners)[:80]!r}") from None
    return x0, y0, x1, y1
