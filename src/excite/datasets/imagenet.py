"""ImageNet (ILSVRC) with boxes: the challenge's tables or XML files, and the lists of MaxBoxAcc (WSOL).

The boxes of the challenge are in the tables of the public version (``LOC_val_solution.csv``) or in the XML files of
the original one. The lists of MaxBoxAcc (github.com/clovaai/wsolevaluation) are text files of boxes, classes and image
sizes, in a folder for each split: ``test`` are ImageNet's own validation images, ``val`` the images of ImageNetV2.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from excite.datasets.base import Dataset, image_path, parse_box, read_names, read_rows, read_text
from excite.datasets.sample import Instance, Sample, Target, check_begin, group_targets, parse_int, parse_size
from excite.datasets.voc import AnnotatedObject, read_objects
from excite.errors import DataError
from excite.vocabulary import imagenet_labels, imagenet_wnids

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from excite.datasets.base import TableRow
    from excite.vocabulary import Concept, Labels

SPLITS = ("train", "val")
WNID = re.compile(r"n\d{8}")
WORDS = "LOC_synset_mapping.txt"
IMAGE_FOLDERS = ("{split}", "ILSVRC/Data/CLS-LOC/{split}", "Data/CLS-LOC/{split}", "ILSVRC2012_img_{split}")
"""As unpacked by hand, or from the challenge's own archive; or else the images are in the folder itself."""

SUFFIXES = (".JPEG", ".jpeg", ".jpg", ".png")
FIRST_PIXEL = 0  # not 1 as in VOC: an image 500 wide has boxes from 0 to 499, by the same numbers as in the tables
XML_NAMES = {"train": re.compile(r"n\d{8}_\d+\.xml"), "val": re.compile(r"ILSVRC\d{4}_val_\d+\.xml")}
LISTS = {"train": "ImageSets/CLS-LOC/train_loc.txt", "val": "ImageSets/CLS-LOC/val.txt"}

WSOL_LISTS = (".", "metadata/ILSVRC", "metadata")
WSOL_IMAGES = (".", "dataset/ILSVRC")
BOXES, CLASSES, NAMES, SIZES = "localization.txt", "class_labels.txt", "image_ids.txt", "image_sizes.txt"
WSOL_NAME = re.compile(r"(val/ILSVRC2012_val_\d+|val2/\d+/\w+)\.\w+")

Annotation = tuple[list[AnnotatedObject], tuple[int, int] | None]
"""The objects of an image, and its annotated size, if any."""

XmlFile = tuple[str, str]
"""The name of the image of an XML file, and the folder of its class, or nothing."""


class ImageNetCategories(Dataset):
    """Images of one kind of object. Categories are WordNet IDs ("n01440764"): words are not unique ("crane")."""

    tolerance = 0
    one_main_object = True

    def _read_words(self) -> None:
        """Read the synonyms of the classes from the data set's own file, or else take the usual ones."""
        path = self.folder / WORDS
        usual = {wnid: imagenet_labels().synonyms(unit) for unit, wnid in enumerate(imagenet_wnids())}
        self._words = _words_of(path) if path.is_file() else usual

    @property
    def categories(self) -> tuple[str, ...]:
        """The WordNet IDs of the classes."""
        return tuple(self._words)

    def words(self, category: str) -> tuple[str, ...]:
        """The synonyms of a class."""
        return self._words[category]

    def concept(self, category: str, labels: Labels) -> Concept:
        """The output unit of a class: by its index where the labels begin with ImageNet's own, else by its words."""
        if labels.begin_with(imagenet_labels()) and category in imagenet_wnids():
            return labels.find(imagenet_wnids().index(category))
        return super().concept(self.words(category)[0], labels)

    def _known(self, wnid: str, where: str) -> str:
        if wnid not in self._words:
            known = (
                WORDS if (self.folder / WORDS).is_file() else "ImageNet, which has WordNet numbers such as n01440764"
            )
            raise DataError(f"{where}: {wnid[:40]!r} is no class of {known}")
        return wnid


class ImageNet(ImageNetCategories):
    """The challenge's images; of the training set those that have boxes."""

    name = "imagenet"
    layout = "LOC_val_solution.csv or the challenge's XML files, val/*.JPEG"

    def _splits(self) -> list[str]:
        return [split for split in SPLITS if has_boxes(self.folder, split)]

    def _read(self) -> list[str]:
        """Sort the images by number: the files are in the order of the classes, their first hundred fish and birds."""
        self._read_words()
        self._boxes = read_boxes(self.folder, self.split)
        key = (lambda name: name.partition("_")[::-1]) if self.split == "train" else None
        return sorted(self._boxes.names, key=key)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there is one of the challenge's tables of boxes, or its XML files."""
        return any(has_boxes(folder, split) for split in reversed(SPLITS))

    def sample(self, name: str) -> Sample:
        """An image and its boxes."""
        objects, size = self._boxes.of(name)
        targets = group_targets((self._known(wnid, where), instance) for wnid, instance, where in objects)
        path = _imagenet_image(self.folder, self.split, name, [target.concept for target in targets])
        return Sample(name, path, targets, size)


def _imagenet_image(folder: Path, split: str, name: str, classes: Iterable[str]) -> Path:
    """The file of an image, also where all images were sorted into folders of their classes.

    Without any, its usual path, so that reading it reports it missing.
    """
    folders = [folder / pattern.format(split=split) for pattern in IMAGE_FOLDERS]
    wnid = name.partition("_")[0]  # of the training set
    below = [*([wnid] if WNID.fullmatch(wnid) else []), ".", *classes]
    usual = image_path(next((each for each in folders if each.is_dir()), folders[0]), f"{below[0]}/{name}.JPEG", split)
    found = (each / one / f"{name}{suffix}" for each in (*folders, folder) for one in below for suffix in SUFFIXES)
    return next((path for path in found if path.is_file()), usual)


def _words_of(path: Path) -> dict[str, tuple[str, ...]]:
    """For each class its synonyms, from lines like "n01440764 tench, Tinca tinca"."""
    found = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        wnid, _, words = line.partition(" ")
        if not WNID.fullmatch(wnid) or not words.strip():
            raise DataError(f"{path}, line {number}: a WordNet number and words were expected, not {line[:80]!r}")
        found[wnid] = tuple(word.strip() for word in words.split(","))
    return found


class Wsol(ImageNetCategories):
    """The lists of MaxBoxAcc for ImageNet. Classes are bare numbers, so the lists of other data sets are refused."""

    name = "wsol"
    layout = f"MaxBoxAcc's lists of ImageNet (SPLIT/{BOXES}, SPLIT/{CLASSES}) and the images they name"

    def _splits(self) -> list[str]:
        return sorted(path.parent.name for path in _lists(self.folder))

    def _read(self) -> list[str]:
        self._read_words()
        self._lists = next(path.parent for path in _lists(self.folder) if path.parent.name == self.split)
        self._classes_of = self._by_name(CLASSES, 2)
        self._boxes_of = self._by_name(BOXES, 5)
        self._sizes_of = self._by_name(SIZES, 3) if (self._lists / SIZES).is_file() else {}
        names = self._by_name(NAMES, 1) if (self._lists / NAMES).is_file() else self._classes_of
        return sorted(names, key=lambda name: (PurePosixPath(name).name, name))  # classes mixed, of val2/CLASS/N.jpeg

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are lists of boxes and classes."""
        return bool(_lists(folder))

    def sample(self, name: str) -> Sample:
        """An image and its boxes."""
        wnid = self._class(name)
        rows = self._boxes_of.get(name, ())
        boxes = [Instance(parse_box(row, self._where(BOXES, line), inclusive=True)) for line, row in rows]
        targets = (Target(wnid, tuple(boxes)),) if boxes else ()
        return Sample(name, self._picture(name, wnid), targets, self._size(name))

    def _class(self, name: str) -> str:
        line, words = self._only(self._classes_of, name, CLASSES)
        number = parse_int(words[0])
        if number is None or number >= len(imagenet_wnids()):
            last = len(imagenet_wnids()) - 1
            raise DataError(
                f"{self._where(CLASSES, line)}: the number of a class must be 0 to {last}, not {words[0][:40]!r}"
            )
        return self._known(imagenet_wnids()[number], self._where(CLASSES, line))

    def _size(self, name: str) -> tuple[int, int] | None:
        if name not in self._sizes_of:
            return None
        line, (width, height) = self._only(self._sizes_of, name, SIZES)
        return parse_size(width, height, self._where(SIZES, line))

    def _picture(self, name: str, wnid: str) -> Path:
        paths = [image_path(self.folder / below, name, self._where(NAMES)) for below in WSOL_IMAGES]
        found = next((path for path in paths if path.is_file()), paths[0])
        if found.is_file() or not name.startswith("val/"):  # ImageNetV2's "0.jpeg" are nowhere else
            return found
        return _imagenet_image(self.folder, "val", PurePosixPath(name).stem, [wnid])

    def _only(self, rows: dict[str, list[TableRow]], name: str, file: str) -> TableRow:
        """The row of an image in a list that has one for each."""
        found = rows.get(name, [])
        if len(found) != 1:
            raise DataError(f"{self._where(file)}: one line about {name!r} was expected, and there are {len(found)}")
        return found[0]

    def _by_name(self, file: str, columns: int) -> dict[str, list[TableRow]]:
        """The rows of a list by image, which is the first column."""
        found: dict[str, list[TableRow]] = defaultdict(list)
        for line, (name, *words) in read_rows(self._lists / file):
            if not WSOL_NAME.fullmatch(name):
                raise DataError(
                    f"{self._where(file, line)}: {name[:60]!r} is no image of ImageNet, whose lists alone are read"
                )
            if len(words) != columns - 1:
                raise DataError(f"{self._where(file, line)}: {columns} columns were expected, not {1 + len(words)}")
            found[name].append((line, words))
        return dict(found)

    def _where(self, file: str, line: int | None = None) -> str:
        return f"{self._lists / file}" if line is None else f"{self._lists / file}, line {line}"


def _lists(folder: Path) -> list[Path]:
    """The lists of boxes that have classes with them, of the first folder that has any."""
    for below in WSOL_LISTS:
        found = [path for path in sorted((folder / below).glob(f"*/{BOXES}")) if path.with_name(CLASSES).is_file()]
        if found:
            return found
    return []


# The boxes of the challenge.


def has_boxes(folder: Path, split: str) -> bool:
    """Whether there are boxes of a split, in either form."""
    return _table(folder, split).is_file() or _xml_folder(folder, split) is not None


def read_boxes(folder: Path, split: str) -> CsvBoxes | XmlBoxes:
    """The boxes of a split: from the table where there is one, which is quicker to read."""
    table = _table(folder, split)
    place = None if table.is_file() else _xml_folder(folder, split)
    if place is None:
        return CsvBoxes(table)
    lists = (folder / above / LISTS[split] for above in ("ILSVRC", "."))
    listed = next((path for path in lists if path.is_file()), None)
    return XmlBoxes(place, _xml_files(place, split, in_classes=place != folder), listed)


class CsvBoxes:
    """Rows like "ILSVRC2012_val_00000001,n01751748 111 108 441 193", with five words more for each further box."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, tuple[int, str]] = {}
        lines = read_rows(path)
        if next(lines, (1, []))[1] != ["ImageId", "PredictionString"]:
            raise DataError(f"{path}, line 1: the columns must be ImageId,PredictionString")
        for line, columns in lines:
            if len(columns) != 2 or columns[0] in self._rows:
                raise DataError(f"{path}, line {line}: two columns and a new image were expected")
            self._rows[columns[0]] = line, columns[1]

    @property
    def names(self) -> Collection[str]:
        """The images, in the order of the file."""
        return self._rows.keys()

    def of(self, name: str) -> Annotation:
        """The objects of an image; the table has no sizes."""
        line, prediction = self._rows[name]
        where = f"{self._path}, line {line}"
        words = prediction.split()
        if not words or len(words) % 5:
            raise DataError(f"{where}: a class and four numbers for each box were expected, not {prediction[:80]!r}")
        groups = (words[k : k + 5] for k in range(0, len(words), 5))
        boxes = ((wnid, parse_box(box, where, inclusive=True)) for wnid, *box in groups)
        return [AnnotatedObject(wnid, Instance(box), where) for wnid, box in boxes], None


class XmlBoxes:
    """A file for each image, in VOC's format but with pixels counted from 0.

    The name inside of a file is ignored: in some of the training set's it is "%s".
    """

    def __init__(self, place: Path, files: Iterable[XmlFile], listed: Path | None) -> None:
        self._place = place
        self._listed = listed
        self._folders: dict[str, str] = {}
        for name, folder in files:
            if self._folders.setdefault(name, folder) != folder:
                raise DataError(f"{str(place)!r} has {name}.xml twice, once in {folder!r}: leave one of them there")

    @property
    def names(self) -> Collection[str]:
        """The images: those of the challenge's list if there is one, or else all that have a file."""
        if self._listed is None:
            return self._folders.keys()
        lines = read_names(self._listed, 2, "an image with its number")  # such as n01440764/n01440764_10040 1
        return [PurePosixPath(name).name for name in lines]

    def of(self, name: str) -> Annotation:
        """The objects and the size of an image."""
        if name not in self._folders:
            raise DataError(
                f"{self._listed}: it lists {name[:99]!r}, but there is no such .xml in {str(self._place)!r}"
            )
        objects, size = read_objects(self._place / self._folders[name] / f"{name}.xml", FIRST_PIXEL)
        for _, instance, where in objects:
            check_begin(instance.box, where)
        return objects, size


def _table(folder: Path, split: str) -> Path:
    return folder / f"LOC_{split}_solution.csv"


def _xml_folder(folder: Path, split: str) -> Path | None:
    """The folder that has the XML files of a split, or folders of classes with them."""
    for place in _xml_folders(folder, split):
        if place.is_dir() and any(_xml_files(place, split, in_classes=place != folder)):
            return place
    return None


def _xml_folders(folder: Path, split: str) -> Iterator[Path]:
    """The folders of the XML files in the challenge's archive, and in unpacked archives of boxes."""
    yield from (folder / above / "Annotations/CLS-LOC" / split for above in ("ILSVRC", "."))
    with os.scandir(folder) as entries:
        unpacked = sorted(entry.name for entry in entries if f"bbox_{split}" in entry.name)
    yield from (folder / name / below for name in unpacked for below in (".", split))
    if split == "val":  # or beside the images; the million of train is not searched
        yield from (folder / "val", folder)


def _xml_files(place: Path, split: str, *, in_classes: bool) -> Iterator[XmlFile]:
    """The XML files of a split in a folder and in its folders of classes."""
    classes = []
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if XML_NAMES[split].fullmatch(entry.name):
                    yield entry.name.removesuffix(".xml"), ""
                elif in_classes and WNID.fullmatch(entry.name) and entry.is_dir():
                    classes.append(entry.name)
    except OSError as error:
        raise DataError(f"cannot read {str(place)!r}: {error.strerror}") from None
    for name in sorted(classes):
        yield from ((file, name) for file, _ in _xml_files(place / name, split, in_classes=False))
