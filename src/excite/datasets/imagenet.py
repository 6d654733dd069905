"""ImageNet (ILSVRC) images with boxes: the public localisation challenge, and the original one with its XML files."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from excite.datasets.base import Dataset, box_with_last_pixel, picture_in, read_rows, read_text
from excite.datasets.sample import Instance, Sample, Target, check_begin, size_of, whole_number
from excite.datasets.voc import Found, read_objects
from excite.errors import DataError
from excite.vocabulary import imagenet_labels, imagenet_wnids

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from excite.datasets.base import Row
    from excite.vocabulary import Concept, Labels


# Where ImageNet's boxes are written: in the public challenge's tables, or in the original one's XML files.

SPLITS = ("train", "val")
WNID = re.compile(r"n\d{8}")
FIRST_PIXEL = 0  # not 1 as in VOC: an image 500 wide has boxes from 0 to 499, by the same numbers as in the tables
XML_NAMES = {"train": re.compile(r"n\d{8}_\d+\.xml"), "val": re.compile(r"ILSVRC\d{4}_val_\d+\.xml")}
LISTS = {"train": "ImageSets/CLS-LOC/train_loc.txt", "val": "ImageSets/CLS-LOC/val.txt"}

Annotation = tuple[list[Found], tuple[int, int] | None]
"""The objects of an image, and its size where that is written."""

File = tuple[str, str]
"""An XML file: the name of its image, and the folder of the class that it lies in, or nothing."""


def has_boxes(folder: Path, split: str) -> bool:
    """Whether there are boxes of a split, in whichever form."""
    return _table(folder, split).is_file() or _xml_place(folder, split) is not None


def boxes_of(folder: Path, split: str) -> TableOfBoxes | XmlBoxes:
    """The boxes of a split that is there: from the table where there is one, which is quicker to read."""
    table = _table(folder, split)
    place = None if table.is_file() else _xml_place(folder, split)
    if place is None:
        return TableOfBoxes(table)
    return XmlBoxes(place, _xml_files(place, split, in_classes=place != folder), _list(folder, split))


class TableOfBoxes:
    """Lines like "ILSVRC2012_val_00000001,n01751748 111 108 441 193", with five words more for each further box."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = _read_table(path)

    @property
    def names(self) -> Collection[str]:
        """The images, in the order of the file."""
        return self._rows.keys()

    def of(self, name: str) -> Annotation:
        """What is written about an image; never its size."""
        line, prediction = self._rows[name]
        where = f"{self._path}, line {line}"
        words = prediction.split()
        if not words or len(words) % 5:
            raise DataError(f"{where}: a class and four numbers for each box were expected, not {prediction[:80]!r}")
        groups = (words[k : k + 5] for k in range(0, len(words), 5))
        return [Found(wnid, Instance(box_with_last_pixel(box, where)), where) for wnid, *box in groups], None


class XmlBoxes:
    """A file for each image, in VOC's format but with ImageNet's way of counting pixels.

    The name inside of a file is not believed: in some of the training set's it is "%s".
    """

    def __init__(self, place: Path, files: Iterable[File], listed: Path | None) -> None:
        self._place = place
        self._listed = listed
        self._folders: dict[str, str] = {}
        for name, folder in files:
            if self._folders.setdefault(name, folder) != folder:
                raise DataError(f"{str(place)!r} has {name}.xml twice, once in {folder!r}: leave one of them there")

    @property
    def names(self) -> Collection[str]:
        """The images: those of the challenge's list where that is there, or else all that have a file."""
        return self._folders.keys() if self._listed is None else _read_list(self._listed)

    def of(self, name: str) -> Annotation:
        """What is written about an image."""
        if name not in self._folders:
            raise DataError(
                f"{self._listed}: it lists {name[:99]!r}, but there is no such .xml in {str(self._place)!r}"
            )
        objects, size = read_objects(self._place / self._folders[name] / f"{name}.xml", FIRST_PIXEL)
        for _, instance, where in objects:
            check_begin(instance.box, where)
        return objects, size


def _table(folder: Path, split: str) -> Path:
    """Where the public challenge has its table."""
    return folder / f"LOC_{split}_solution.csv"


def _read_table(path: Path) -> dict[str, tuple[int, str]]:
    """For each image its line number and its boxes as text."""
    lines = read_rows(path)
    if next(lines, (1, []))[1] != ["ImageId", "PredictionString"]:
        raise DataError(f"{path}, line 1: the columns must be ImageId,PredictionString")
    rows: dict[str, tuple[int, str]] = {}
    for line, columns in lines:
        if len(columns) != 2 or columns[0] in rows:
            raise DataError(f"{path}, line {line}: two columns and a new image were expected")
        rows[columns[0]] = line, columns[1]
    return rows


def _list(folder: Path, split: str) -> Path | None:
    places = (folder / above / LISTS[split] for above in ("ILSVRC", "."))
    return next((path for path in places if path.is_file()), None)


def _read_list(path: Path) -> list[str]:
    """Pictures from lines like "n01440764/n01440764_10040 1": a name, below a class's folder or not, and a number."""
    names = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        if len(words) > 2:
            raise DataError(f"{path}, line {number}: an image and its number were expected, not {line[:80]!r}")
        names += [PurePosixPath(word).name for word in words[:1]]  # one, or none on a blank line
    return list(dict.fromkeys(names))


def _xml_place(folder: Path, split: str) -> Path | None:
    """The folder that has the XML files of a split, or folders of classes with them."""
    for place in _possible_places(folder, split):
        if place.is_dir() and any(_xml_files(place, split, in_classes=place != folder)):
            return place
    return None


def _possible_places(folder: Path, split: str) -> Iterator[Path]:
    """Where the challenge's archive has XML files, and where people unpack the archives of boxes."""
    yield from (folder / above / "Annotations/CLS-LOC" / split for above in ("ILSVRC", "."))
    with os.scandir(folder) as entries:
        unpacked = sorted(entry.name for entry in entries if f"bbox_{split}" in entry.name)
    yield from (folder / name / below for name in unpacked for below in (".", split))
    if split == "val":  # or beside the images; a million of train is not looked through
        yield from (folder / "val", folder)


def _xml_files(place: Path, split: str, *, in_classes: bool) -> Iterator[File]:
    """The XML files of a split in a folder, and in the folders of classes that it has."""
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


# ImageNet (ILSVRC) images with boxes: the public localisation challenge, and the original one with its XML files.

WORDS = "LOC_synset_mapping.txt"
PICTURES = ("{split}", "ILSVRC/Data/CLS-LOC/{split}", "Data/CLS-LOC/{split}", "ILSVRC2012_img_{split}")
"""Where images may be: as unpacked by hand, or by the challenge's own archive. Or else in the folder itself."""

SUFFIXES = (".JPEG", ".jpeg", ".jpg", ".png")


class OfImageNet(Dataset):
    """One kind of object an image. Categories are WordNet numbers ("n01440764"): words are not unique ("crane")."""

    tolerance = 0
    one_main_object = True

    def _read_words(self) -> None:
        """Read what the classes are called: as a file there says, or else as everybody calls them."""
        path = self.folder / WORDS
        usual = {wnid: imagenet_labels().synonyms(unit) for unit, wnid in enumerate(imagenet_wnids())}
        self._words = _words_of(path) if path.is_file() else usual

    @property
    def categories(self) -> tuple[str, ...]:
        """The WordNet numbers of the classes."""
        return tuple(self._words)

    def words(self, category: str) -> tuple[str, ...]:
        """What a class is called: its synonyms."""
        return self._words[category]

    def concept(self, category: str, labels: Labels) -> Concept:
        """The output unit of a class: by its number where the classifier has ImageNet's own labels, else by words.

        A classifier may have more labels behind these.
        """
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


class ImageNet(OfImageNet):
    """The challenge's images; of the training set those that have boxes."""

    name = "imagenet"
    layout = "LOC_val_solution.csv or the challenge's XML files, val/*.JPEG"

    def _splits(self) -> list[str]:
        return [split for split in SPLITS if has_boxes(self.folder, split)]

    def _read(self) -> list[str]:
        """The files are in the order of the classes: their first hundred would be fish and birds."""
        self._read_words()
        self._boxes = boxes_of(self.folder, self.split)
        return sorted(self._boxes.names, key=_without_class if self.split == "train" else None)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether one of the challenge's tables of boxes is there, or its XML files."""
        return any(has_boxes(folder, split) for split in reversed(SPLITS))

    def sample(self, name: str) -> Sample:
        """An image and its boxes."""
        objects, size = self._boxes.of(name)
        targets: dict[str, list[Instance]] = {}
        for wnid, instance, where in objects:
            targets.setdefault(self._known(wnid, where), []).append(instance)
        path = imagenet_picture(self.folder, self.split, name, targets)
        return Sample(name, path, tuple(Target(wnid, tuple(boxes)) for wnid, boxes in targets.items()), size)


def imagenet_picture(folder: Path, split: str, name: str, classes: Iterable[str]) -> Path:
    """The file of an image, also where all images were sorted into folders of their classes.

    Without any, where it would usually be: reading it says that it is missing.

    Example:
        >>> imagenet_picture(Path("imagenet"), "val", "ILSVRC2012_val_00000001", ["n01751748"])  # doctest: +SKIP
        PosixPath('imagenet/val/n01751748/ILSVRC2012_val_00000001.JPEG')
    """
    places = [folder / pattern.format(split=split) for pattern in PICTURES]
    wnid = name.partition("_")[0]  # which begins the names of the training set
    below = [*([wnid] if WNID.fullmatch(wnid) else []), ".", *classes]
    usual = picture_in(next((place for place in places if place.is_dir()), places[0]), f"{below[0]}/{name}.JPEG", split)
    found = (place / one / f"{name}{suffix}" for place in (*places, folder) for one in below for suffix in SUFFIXES)
    return next((path for path in found if path.is_file()), usual)


def _without_class(name: str) -> tuple[str, str]:
    """A key by which images of the training set, such as n01440764_10040, are not sorted by their classes."""
    wnid, _, number = name.partition("_")
    return number, wnid


def _words_of(path: Path) -> dict[str, tuple[str, ...]]:
    """For each class its synonyms, from lines like "n01440764 tench, Tinca tinca"."""
    answer = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        wnid, _, words = line.partition(" ")
        if not WNID.fullmatch(wnid) or not words.strip():
            raise DataError(f"{path}, line {number}: a WordNet number and words were expected, not {line[:80]!r}")
        answer[wnid] = tuple(word.strip() for word in words.split(","))
    return answer


# The lists by which MaxBoxAcc is measured on ImageNet: boxes, classes and sizes of images, each in a text file.
#
# Their publisher (github.com/clovaai/wsolevaluation) has a folder of lists for each split: ``test`` are ImageNet's
# own validation images, ``val`` the images of ImageNetV2.

WSOL_LISTS = (".", "metadata/ILSVRC", "metadata")
WSOL_IMAGES = (".", "dataset/ILSVRC")
BOXES, CLASSES, NAMES, SIZES = "localization.txt", "class_labels.txt", "image_ids.txt", "image_sizes.txt"
OF_IMAGENET = re.compile(r"(val/ILSVRC2012_val_\d+|val2/\d+/\w+)\.\w+")


class Wsol(OfImageNet):
    """Classes are numbers in these lists, which only ImageNet's are known to mean: other lists are not read."""

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
        return sorted(names, key=_mixed_classes)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether lists of boxes and classes are there."""
        return bool(_lists(folder))

    def sample(self, name: str) -> Sample:
        """An image and its boxes."""
        wnid = self._class(name)
        boxes = [self._box(row) for row in self._boxes_of.get(name, ())]
        targets = (Target(wnid, tuple(boxes)),) if boxes else ()
        return Sample(name, self._picture(name, wnid), targets, self._size(name))

    def _class(self, name: str) -> str:
        line, words = self._only(self._classes_of, name, CLASSES)
        number = whole_number(words[0])
        if number is None or number >= len(imagenet_wnids()):
            last = len(imagenet_wnids()) - 1
            raise DataError(
                f"{self._where(CLASSES, line)}: the number of a class must be 0 to {last}, not {words[0][:40]!r}"
            )
        return self._known(imagenet_wnids()[number], self._where(CLASSES, line))

    def _box(self, row: Row) -> Instance:
        return Instance(box_with_last_pixel(row[1], self._where(BOXES, row[0])))

    def _size(self, name: str) -> tuple[int, int] | None:
        if name not in self._sizes_of:
            return None
        line, (width, height) = self._only(self._sizes_of, name, SIZES)
        return size_of(width, height, self._where(SIZES, line))

    def _picture(self, name: str, wnid: str) -> Path:
        places = [picture_in(self.folder / place, name, self._where(NAMES)) for place in WSOL_IMAGES]
        found = next((path for path in places if path.is_file()), places[0])
        if found.is_file() or not name.startswith("val/"):  # ImageNetV2's "0.jpeg" are not to be looked for elsewhere
            return found
        return imagenet_picture(self.folder, "val", PurePosixPath(name).stem, [wnid])

    def _only(self, rows: dict[str, list[Row]], name: str, file: str) -> Row:
        """The one line about an image in a list that has one for each."""
        found = rows.get(name, [])
        if len(found) != 1:
            raise DataError(f"{self._where(file)}: one line about {name!r} was expected, and there are {len(found)}")
        return found[0]

    def _by_name(self, file: str, columns: int) -> dict[str, list[Row]]:
        """The lines of a list for each image, which is the first column."""
        answer: dict[str, list[Row]] = defaultdict(list)
        for line, (name, *words) in read_rows(self._lists / file):
            if not OF_IMAGENET.fullmatch(name):
                raise DataError(
                    f"{self._where(file, line)}: {name[:60]!r} is no image of ImageNet, whose lists alone are read"
                )
            if len(words) != columns - 1:
                raise DataError(f"{self._where(file, line)}: {columns} columns were expected, not {1 + len(words)}")
            answer[name].append((line, words))
        return dict(answer)

    def _where(self, file: str, line: int | None = None) -> str:
        return f"{self._lists / file}" if line is None else f"{self._lists / file}, line {line}"


def _mixed_classes(name: str) -> tuple[str, str]:
    """A key that mixes the classes of val2/CLASS/NUMBER.jpeg: the first hundred images would be fish and birds."""
    return PurePosixPath(name).name, name


def _lists(folder: Path) -> list[Path]:
    """The lists of boxes that have classes with them, of the first place that has any."""
    for place in WSOL_LISTS:
        found = [path for path in sorted((folder / place).glob(f"*/{BOXES}")) if path.with_name(CLASSES).is_file()]
        if found:
            return found
    return []
