"""Annotations of images, the base classes of all data sets, and what their readers share: checks, files, images."""

from __future__ import annotations

import csv
import io
import json
import os
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from excite.errors import ConceptError, DataError, ImageError, SplitError
from excite.images import PICTURE_SUFFIXES, find_images
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from excite.datasets.coco import Mask
    from excite.vocabulary import Concept, Labels

Item_co = TypeVar("Item_co", covariant=True)
Format = TypeVar("Format", bound="BaseDataset[object]")

Box = tuple[float, float, float, float]
"""``(x0, y0, x1, y1)`` in pixels of the image, counted from 0; half-open, so ``x1 - x0`` is the width."""

TableRow = tuple[int, list[str]]
"""The line number of a row, and its columns."""

FARTHEST = 1e6  # no image has so many pixels in a row
MOST_PIXELS = 2 * 10**8  # twice the limit of `excite.images`; a mask takes a byte for each
LONGEST_PART = 250  # bytes of a folder's or a file's name: most systems take 255, and another suffix may be tried
LONGEST_NAME = 1000  # letters


@dataclass(frozen=True)
class Instance:
    """One annotated object.

    Attributes:
        box: Around the object.
        difficult: Flagged as hard to recognise (VOC).
        crowd: A group annotated as one region (COCO).
        mask: Its pixels, where they are annotated.
        annotated_area: Its area in pixels, where that is annotated (COCO).
    """

    box: Box
    difficult: bool = False
    crowd: bool = False
    mask: Mask | None = None
    annotated_area: float | None = None

    def area(self, size: tuple[int, int]) -> float:
        """Its area in an image of that width and height: as annotated, or of its mask, or of its box."""
        if self.annotated_area is not None:
            return self.annotated_area
        if self.mask is not None:
            return float(self.mask.pixels(size).sum())
        return (self.box[2] - self.box[0]) * (self.box[3] - self.box[1])


@dataclass(frozen=True)
class Target:
    """All instances of one category in an image.

    Attributes:
        concept: The data set's name of the category; `Dataset.concept` finds the classifier's concept for it.
        instances: At least one, or none where only the label is known.
    """

    concept: str
    instances: tuple[Instance, ...]

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The box of each instance."""
        return tuple(instance.box for instance in self.instances)

    @property
    def difficult(self) -> bool:
        """Whether every instance is difficult: such a target is not evaluated (the rule of VOC)."""
        return bool(self.instances) and all(instance.difficult for instance in self.instances)

    def area(self, size: tuple[int, int]) -> float:
        """The sum of the areas of the instances; where they overlap, a pixel counts for each."""
        return sum(instance.area(size) for instance in self.instances)


@dataclass(frozen=True)
class Sample:
    """An image and its annotated objects.

    Attributes:
        name: Its name within the data set.
        path: The file.
        targets: One for each category that was annotated, in the order of the data set's categories.
        size: Its annotated width and height, if any.
    """

    name: str
    path: Path
    targets: tuple[Target, ...]
    size: tuple[int, int] | None = None

    def check_size(self, size: tuple[int, int]) -> None:
        """Raise a `DataError` if the image was scaled or turned after its annotation: its boxes are wrong then."""
        if self.size not in {None, size}:
            raise DataError(
                f"{str(self.path)!r} is {size[0]} x {size[1]} pixels, but annotated for "
                f"{self.size[0]} x {self.size[1]}: its boxes lie elsewhere; annotate it again"
            )


@dataclass(frozen=True)
class Phrase:
    """A phrase with the boxes it refers to."""

    text: str  # as in the data set
    boxes: tuple[Box, ...]  # all regions it refers to, at least one
    group: str = ""  # the kind of object, such as "people"; blank where the data set has no kinds
    sentence: str = ""  # the sentence that contains it; blank without one
    also: tuple[str, ...] = ()  # further kinds, which it counts for as well (Flickr30k Entities)

    @property
    def groups(self) -> tuple[str, ...]:
        """All kinds that it counts for."""
        return (self.group, *self.also) if self.group else ()


@dataclass(frozen=True)
class PhraseSample:
    """An image and its phrases, at least one, in the order of the data set; the rest as in `Sample`."""

    name: str
    path: Path
    phrases: tuple[Phrase, ...]
    size: tuple[int, int] | None = None


class BaseDataset(ABC, Generic[Item_co]):
    """Images of one split in a defined order: iterating gives the sample of each."""

    name: ClassVar[str]  # of the format, for people to read
    layout: ClassVar[str]  # the files of the format on disk, for people to read
    _split_file: ClassVar[str] = ""  # that of a split, with {} for its name; blank where all images are one split

    def __init__(self, folder: Path, split: str | None = None) -> None:
        self.folder = folder
        self.split = chosen_split(split, self._splits(), folder)
        self.names = tuple(self._read())  # the images, in order
        if not self.names:
            raise DataError(f"the split {self.split!r} of {str(folder)!r} {self._nothing()}")

    def _splits(self) -> list[str]:
        """The available splits."""
        return self._splits_in(self.folder)

    @classmethod
    def _splits_in(cls, folder: Path) -> list[str]:
        if not cls._split_file:
            return ["all"]
        before = PurePosixPath(cls._split_file).name.partition("{")[0]
        return sorted(path.stem.removeprefix(before) for path in folder.glob(cls._split_file.format("*")))

    def _split_path(self) -> Path:
        """The file of the chosen split."""
        return self.folder / self._split_file.format(self.split)

    @abstractmethod
    def _read(self) -> list[str]:
        """Read the annotations of the split; return the names of its images, in order."""

    def _nothing(self) -> str:
        """The predicate of the error about a split without a single image."""
        return "lists no images"

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether this folder looks like a data set of this format; by default, whether it has a split."""
        return bool(cls._splits_in(folder))

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
        has_boxes: Objects have boxes; otherwise only the labels of each image are known.
    """

    tolerance: ClassVar[int] = 15  # the Pointing Game's (paper, section 4.1)
    one_main_object: ClassVar[bool] = False
    has_boxes: ClassVar[bool] = True

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


class PhraseDataset(BaseDataset[PhraseSample]):
    """Images with phrases: iterating gives a `PhraseSample` for each."""

    groups: tuple[str, ...] = ()  # the kinds of objects that phrases may refer to, in the data set's own order

    def __init__(self, folder: Path, split: str | None = None) -> None:
        self.left_out: Counter[str] = Counter()  # reasons ("phrases without a box") and numbers of unusable entries
        self._samples: dict[str, PhraseSample] = {}
        super().__init__(folder, split)

    def _read(self) -> list[str]:
        self._read_samples()
        return list(self._samples)

    @abstractmethod
    def _read_samples(self) -> None:
        """Read the images of the split that have phrases, and count what cannot be used."""

    def sample(self, name: str) -> PhraseSample:
        """An image and its phrases."""
        return self._samples[name]

    def _nothing(self) -> str:
        reasons = "; ".join(f"{why}: {count}" for why, count in self.left_out.items())
        return f"has no phrases{f' ({reasons})' if reasons else ''}"


# Opening.


def chosen_split(split: str | None, splits: Sequence[str], folder: Path) -> str:
    """The split of this name, or the only one that begins so ("val" for "val2017"); None for the validation split."""
    wanted = "val" if split is None else split
    begun = [one for one in splits if wanted and one.startswith(wanted)]
    for found in ([one for one in splits if one == wanted], begun, splits if split is None else ()):
        if len(found) == 1:
            return found[0]
    near = get_close_matches(wanted, splits, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    known = ", ".join(splits) or "none"
    raise SplitError(f"{str(folder)!r} has no split {wanted!r}{hint}: its splits are {known}")


def open_found(
    folder: str | os.PathLike[str],
    split: str | None,
    ranks: Sequence[Sequence[type[Format]]],
    what: str = "data set",
    box_files: Sequence[str] = (),
    otherwise: Sequence[type[Format]] = (),
) -> Format:
    """Open the only data set in a folder itself, or else in those just below it, in the formats of these ranks.

    ``box_files`` are those that ``excite boxes`` writes, into a folder without the images. ``otherwise``: formats that
    count only where no other is found at all, and in the folder itself.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"there is no folder {str(folder)!r}: name the folder of a {what}")
    try:
        found = _search(folder, ranks) or [(folder, kind) for kind in otherwise if kind.is_in(folder)]
    except OSError as error:
        raise DataError(f"cannot read {str(folder)!r}: {error.strerror or error}") from None
    if not found:
        for path in (folder / name for name in box_files):
            if path.is_file():
                raise DataError(
                    f"{str(path)!r} has boxes, but no images are with it: "
                    "put the file, or a link to it, into the folder of the images, and name that"
                )
        expected = "; ".join(f"{kind.name} ({kind.layout})" for rank in (*ranks, otherwise) for kind in rank)
        raise DataError(f"{str(folder)!r} holds no {what} that is known: {expected}")
    if len(found) > 1:
        choices = ", ".join(f"{str(root)!r} ({kind.name})" for root, kind in found)
        several = what.replace("data set", "data sets")
        raise DataError(f"{str(folder)!r} holds {len(found)} {several}: name one of {choices}")
    ((root, kind),) = found
    return kind(root, split)


def _search(folder: Path, ranks: Sequence[Sequence[type[Format]]]) -> list[tuple[Path, type[Format]]]:
    """The data sets of the first rank that each folder matches; the last rank counts only without any other found."""
    below = [*sorted(path for path in folder.iterdir() if path.is_dir()), *sorted(folder.glob("VOCdevkit/*"))]
    for roots, some in product(([folder], below), (ranks[:-1], ranks[-1:])):
        matching = ((root, ([kind for kind in rank if kind.is_in(root)] for rank in some)) for root in roots)
        found = [(root, kind) for root, kinds in matching for kind in next(filter(None, kinds), [])]
        if found:
            return found
    return []


# Values of annotations; an error names their place.


def group_targets(objects: Iterable[tuple[str, Instance]]) -> tuple[Target, ...]:
    """One target for each category, in the order of their first objects."""
    found: dict[str, list[Instance]] = {}
    for category, instance in objects:
        found.setdefault(category, []).append(instance)
    return tuple(Target(category, tuple(instances)) for category, instances in found.items())


def union(boxes: tuple[Box, ...]) -> Box:
    """The smallest box around all of these."""
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)


def checked_box(x0: float, y0: float, x1: float, y1: float, where: str, *, inside: bool = False) -> Box:
    """The corners as a box; ``inside``: its first pixel must not lie left of its image or above it."""
    # it may reach beyond its image or have no width (both occur in the official COCO files), but not be inside out
    if not all(abs(side) <= FARTHEST for side in (x0, y0, x1, y1)) or x1 < x0 or y1 < y0:  # NaN is not below either
        said = ", ".join(str(side)[:30] for side in (x0, y0, x1, y1))
        raise DataError(f"{where}: ({said}) is no box: give its left top and its right bottom corner, in pixels")
    box = float(x0), float(y0), float(x1), float(y1)
    if inside and min(box[:2]) < 0:
        raise DataError(f"{where}: {box} begins outside of the image: its first pixel is 0")
    return box


def parse_box(corners: Sequence[str], where: str, *, inclusive: bool = False) -> Box:
    """A half-open box from text, counted from 0; ``inclusive``: the corners name its last pixel, as ImageNet's do."""
    try:
        x0, y0, x1, y1 = (float(corner) for corner in corners)
    except ValueError:
        raise DataError(f"{where}: the corners of a box must be numbers, not {' '.join(corners)[:80]!r}") from None
    return checked_box(x0, y0, x1 + inclusive, y1 + inclusive, where, inside=True)


def is_coordinate(value: object) -> bool:
    """Whether a JSON value is a number of pixels that an image can have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= FARTHEST  # NaN is not


def is_outside(box: Box, size: tuple[int, int] | None) -> bool:
    """Whether no part of a box is in an image of this width and height; some reach beyond it by rounding."""
    return box[2] <= 0 or box[3] <= 0 or (size is not None and (box[0] >= size[0] or box[1] >= size[1]))


def checked_size(width: object, height: object, where: str) -> tuple[int, int]:
    """Width and height of an image."""
    if isinstance(width, int) and isinstance(height, int) and min(width, height) > 0 and width * height <= MOST_PIXELS:
        return width, height
    said = " x ".join(repr(side)[:40] for side in (width, height))
    raise DataError(f"{where}: {said} is no size of an image: give its width and height in pixels")


def parse_size(width: str, height: str, where: str) -> tuple[int, int]:
    """Width and height of an image from text."""
    return checked_size(parse_int(width) or width[:20], parse_int(height) or height[:20], where)


def parse_int(text: str) -> int | None:
    """The number written in up to nine decimal digits; None for any other text."""
    return int(text) if text.isdecimal() and len(text) <= 9 else None


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
    """The lines of a file, ended as on any system; ``str.splitlines`` breaks also at U+2028, as in captions."""
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


def parse_json(text: str, path: Path | str, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
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


# Files of images.


def image_path(folder: Path, name: str, where: str) -> Path:
    """The file of an image. Names come from annotations, which must not lead out of the data set."""
    parts = PurePosixPath(name).parts
    try:  # a query for a name that file systems do not accept raises errors of many kinds
        longest = max((len(os.fsencode(part)) for part in parts), default=LONGEST_NAME)
    except UnicodeEncodeError:  # half of a character, which JSON can write
        longest = LONGEST_NAME
    is_name = "\0" not in name and longest <= LONGEST_PART and len(name) <= LONGEST_NAME
    if PurePosixPath(name).is_absolute() or ".." in parts or not is_name:
        raise DataError(f"{where}: {name[:100]!r} is no name of an image in {str(folder)!r}")
    return folder / name


def image_with_stem(folder: Path, stem: str, where: str) -> Path:
    """The image of this name without its suffix: a JPEG, or else any other format."""
    usual = image_path(folder, f"{stem}.jpg", where)
    others = (usual.with_name(f"{usual.stem}{suffix}") for suffix in sorted(PICTURE_SUFFIXES))
    return next((path for path in (usual, *others) if path.is_file()), usual)


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
