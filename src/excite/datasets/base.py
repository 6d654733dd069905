"""Base classes of all data sets, and the helpers their readers share: splits, text and JSON files, tables, images."""

from __future__ import annotations

import csv
import io
import json
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from excite.datasets.sample import Box, Sample, check_begin, checked_box
from excite.errors import ConceptError, DataError, ImageError
from excite.images import PICTURE_SUFFIXES, find_images
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from excite.vocabulary import Concept, Labels

Item_co = TypeVar("Item_co", covariant=True)
Format = TypeVar("Format", bound="BaseDataset[object]")

LONGEST_PART = 250  # bytes of a folder's or a file's name: most systems take 255, and another suffix may be tried
LONGEST_NAME = 1000  # letters

TableRow = tuple[int, list[str]]
"""The line number of a row, and its columns."""


class BaseDataset(ABC, Generic[Item_co]):
    """Images of one split in a defined order: iterating gives the sample of each.

    Attributes:
        name: Of the format, for people to read.
        layout: The files of the format on disk, for people to read.
        names: The images, in order.
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
        """The available splits."""

    @abstractmethod
    def _read(self) -> list[str]:
        """Read the annotations of the split; return the names of its images, in order."""

    @abstractmethod
    def _nothing(self) -> str:
        """The predicate of the error about a split without a single image."""

    @classmethod
    @abstractmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether this folder looks like a data set of this format."""

    @abstractmethod
    def sample(self, name: str) -> Item_co:
        """The image of this name with its annotations."""

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Item_co]:
        return (self.sample(name) for name in self.names)


class Dataset(BaseDataset[Sample]):
    """Images annotated with categories: iterating gives a `Sample` for each.

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
        """The names of the categories, in the data set's own order."""

    def also_called(self, name: str) -> tuple[str, ...]:
        """Other names of an image, used by lists from elsewhere: its own without the suffix."""
        stem, _, suffix = name.rpartition(".")
        return (stem,) if f".{suffix.lower()}" in PICTURE_SUFFIXES else ()

    def concept(self, category: str, labels: Labels) -> Concept:
        """The concept of a classifier with these labels for a category of this data set.

        Unlike a word that a user types, a category is never completed: a "fork" is no "forklift".

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


def chosen_split(split: str | None, splits: Sequence[str], folder: Path) -> str:
    """The split of this name, or the only one that begins so ("val" for "val2017"); None for the validation split.

    Example:
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


def open_found(
    folder: str | os.PathLike[str],
    split: str | None,
    search: Callable[[Path], list[tuple[Path, type[Format]]]],
    formats: Mapping[str, type[Format]],
    what: str = "data set",
) -> Format:
    """Open the only data set that a search finds in a folder.

    Args:
        folder: The folder.
        split: Name of the split, or None.
        search: Gives the folders of data sets in a folder, with their formats.
        formats: All formats by name, for the error without any.
        what: What is searched for.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"there is no folder {str(folder)!r}: name the folder of a {what}")
    try:
        found = search(folder)
    except OSError as error:
        raise DataError(f"cannot read {str(folder)!r}: {error.strerror or error}") from None
    if not found:
        expected = "; ".join(f"{kind.name} ({kind.layout})" for kind in formats.values())
        raise DataError(f"{str(folder)!r} holds no {what} that is known: {expected}")
    if len(found) > 1:
        choices = ", ".join(f"{str(root)!r} ({kind.name})" for root, kind in found)
        several = what.replace("data set", "data sets")
        raise DataError(f"{str(folder)!r} holds {len(found)} {several}: name one of {choices}")
    ((root, kind),) = found
    return kind(root, split)


def folders_below(folder: Path) -> list[Path]:
    """The folders in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.is_dir())


# Files of annotations.


def read_text(path: Path) -> str:
    """The text of a file of annotations."""
    try:
        return path.read_bytes().decode("utf-8-sig")  # line breaks as they are: some are part of a quoted name
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"cannot read {str(path)!r}: it is no UTF-8 text (byte {error.start})") from None


def read_lines(path: Path) -> Iterator[str]:
    r"""The lines of a file without their ends, which may be those of any system.

    ``str.splitlines`` breaks also at rarer characters, such as U+2028, which JSON and captions may have in their words.
    """
    return (line.removesuffix("\n") for line in io.StringIO(read_text(path), newline=None))


def read_names(path: Path, columns: int, expected: str) -> list[str]:
    """The first word of each line that is not blank, each once; an error for a line of more than ``columns`` words."""
    names = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        if len(words) > columns:
            raise DataError(f"{path}, line {number}: {expected} was expected, not {line[:80]!r}")
        names += words[:1]
    return list(dict.fromkeys(names))


def parse_json(text: str, path: Path, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(text, object_hook=object_hook)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise DataError(f"{path}: broken JSON ({error})") from None


def read_rows(path: Path) -> Iterator[TableRow]:
    """The rows of a CSV table that are not blank, including the header."""
    lines = csv.reader(io.StringIO(read_text(path)))
    try:
        for columns in lines:
            if columns:
                yield lines.line_num, columns
    except csv.Error as error:
        raise DataError(f"{path}, line {lines.line_num}: {error}") from None


def parse_box(corners: Sequence[str], where: str, *, inclusive: bool = False) -> Box:
    """A half-open box from four numbers as text, whose pixels are counted from 0.

    Args:
        corners: x0, y0, x1, y1.
        where: The place in the file, for errors.
        inclusive: The corners name the last pixel of the box, as ImageNet's do.

    Example:
        >>> parse_box(["0", "0", "499", "374"], "LOC_val_solution.csv, line 2", inclusive=True)
        (0.0, 0.0, 500.0, 375.0)
    """
    try:
        x0, y0, x1, y1 = (float(corner) for corner in corners)
    except ValueError:
        raise DataError(f"{where}: the corners of a box must be numbers, not {' '.join(corners)[:80]!r}") from None
    return check_begin(checked_box(x0, y0, x1 + inclusive, y1 + inclusive, where), where)


# Files of images.


def image_path(folder: Path, name: str, where: str) -> Path:
    """The file of an image. Names come from annotations, which must not lead out of the data set."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or not _is_file_name(name, parts):
        raise DataError(f"{where}: {name[:100]!r} is no name of an image in {str(folder)!r}")
    return folder / name


def _is_file_name(name: str, parts: Sequence[str]) -> bool:
    """Whether file systems accept such a name; a query for any other raises errors of many kinds."""
    try:
        longest = max(len(os.fsencode(part)) for part in parts)
    except UnicodeEncodeError:  # half of a character, which JSON can write
        return False
    return "\0" not in name and longest <= LONGEST_PART and len(name) <= LONGEST_NAME


def image_with_stem(folder: Path, stem: str, where: str) -> Path:
    """The image of this name without its suffix: a JPEG, or else any other format."""
    usual = image_path(folder, f"{stem}.jpg", where)
    if usual.is_file():
        return usual
    others = (usual.with_name(f"{usual.stem}{suffix}") for suffix in sorted(PICTURE_SUFFIXES))
    return next((path for path in others if path.is_file()), usual)


def has_images(folder: Path) -> bool:
    """Whether there are images below a folder."""
    return any(path.suffix.lower() in PICTURE_SUFFIXES for path in folder.rglob("*"))


def images_by(key: Callable[[Path], str], folder: Path) -> dict[str, list[Path]]:
    """All images below a folder, grouped by a key, such as their name."""
    found: dict[str, list[Path]] = defaultdict(list)
    try:
        for path in find_images(str(folder)):
            found[key(path)].append(path)
    except ImageError as error:
        raise DataError(f"{str(folder)!r} has annotations but no images to them: {error}") from None
    return dict(found)


def single_image(found: Sequence[Path], usual: Path, annotation: Path) -> Path:
    """The only image found; without any, its usual path, so that reading it reports it missing."""
    if len(found) > 1:
        raise DataError(f"{annotation}: {str(found[0])!r} and {str(found[1])!r} both have the name of its image")
    return found[0] if found else usual


def named_image(folder: Path, name: str, found: Mapping[str, Sequence[Path]], annotation: Path) -> Path:
    """The image that an annotation names: at that path below the folder, or else the only one of that name."""
    path = image_path(folder, name, str(annotation))
    return path if path.is_file() else single_image(found.get(PurePosixPath(name).name, []), path, annotation)
