"""ImageNet (ILSVRC) with boxes: the challenge's tables or XML files, and the lists of MaxBoxAcc (WSOL).

Those are of github.com/clovaai/wsolevaluation: ``test`` are ImageNet's validation images, ``val`` those of ImageNetV2.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from excite.datasets import base
from excite.datasets.base import Dataset, Instance, Sample, TableRow, Target
from excite.datasets.voc import AnnotatedObject, read_objects
from excite.errors import DataError
from excite.vocabulary import Concept, Labels, imagenet_labels, imagenet_wnids

WNID = re.compile(r"n\d{8}")
WORDS = "LOC_synset_mapping.txt"
IMAGE_FOLDERS = ("{split}", "ILSVRC/Data/CLS-LOC/{split}", "Data/CLS-LOC/{split}", "ILSVRC2012_img_{split}")
"""As unpacked by hand, or from the challenge's own archive; or else the images are in the folder itself."""

SUFFIXES = (".JPEG", ".jpeg", ".jpg", ".png")
FIRST_PIXEL = 0  # not 1 as in VOC: an image 500 wide has boxes from 0 to 499, by the same numbers as in the tables
XML_NAMES = {"train": re.compile(r"n\d{8}_\d+\.xml"), "val": re.compile(r"ILSVRC\d{4}_val_\d+\.xml")}
LISTS = {"train": "ImageSets/CLS-LOC/train_loc.txt", "val": "ImageSets/CLS-LOC/val.txt"}

BOXES, CLASSES, NAMES, SIZES = "localization.txt", "class_labels.txt", "image_ids.txt", "image_sizes.txt"
WSOL_NAME = re.compile(r"(val/ILSVRC2012_val_\d+|val2/\d+/\w+)\.\w+")

Annotation = tuple[list[AnnotatedObject], tuple[int, int] | None]
"""The objects of an image, and its annotated size, if any."""


class ImageNetCategories(Dataset):
    """Images of one kind of object. Categories are WordNet IDs ("n01440764"): words are not unique ("crane")."""

    tolerance = 0
    one_main_object = True

    def _read_words(self) -> None:
        """Read the synonyms of the classes from the data set's own file, or else take the usual ones."""
        path = self.folder / WORDS
        if not path.is_file():
            self._words = {wnid: imagenet_labels().synonyms(unit) for unit, wnid in enumerate(imagenet_wnids())}
            return
        self._words = {}
        for number, line in enumerate(base.read_text(path).splitlines(), 1):  # "n01440764 tench, Tinca tinca"
            wnid, _, words = line.partition(" ")
            if not WNID.fullmatch(wnid) or not words.strip():
                raise DataError(f"{path}, line {number}: a WordNet number and words were expected, not {line[:80]!r}")
            self._words[wnid] = tuple(word.strip() for word in words.split(","))

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
            usual = "ImageNet, which has WordNet numbers such as n01440764"
            known = WORDS if (self.folder / WORDS).is_file() else usual
            raise DataError(f"{where}: {wnid[:40]!r} is no class of {known}")
        return wnid


class ImageNet(ImageNetCategories):
    """The challenge's images; of the training set those that have boxes."""

    name = "imagenet"
    layout = "LOC_val_solution.csv or the challenge's XML files, val/*.JPEG"

    @classmethod
    def _splits_in(cls, folder: Path) -> list[str]:
        return [split for split in LISTS if _table(folder, split).is_file() or _xml_folder(folder, split) is not None]

    def _read(self) -> list[str]:
        """Sort the images by number: the files are in the order of the classes, their first hundred fish and birds."""
        self._read_words()
        table = _table(self.folder, self.split)
        place = None if table.is_file() else _xml_folder(self.folder, self.split)
        # the table where there is one: it is quicker to read
        names, self._boxes = _table_boxes(table) if place is None else _xml_boxes(self.folder, place, self.split)
        key = (lambda name: name.partition("_")[::-1]) if self.split == "train" else None
        return sorted(names, key=key)

    def sample(self, name: str) -> Sample:
        """An image and its boxes."""
        objects, size = self._boxes(name)
        targets = base.group_targets((self._known(wnid, where), instance) for wnid, instance, where in objects)
        path = _imagenet_image(self.folder, self.split, name, [target.concept for target in targets])
        return Sample(name, path, targets, size)


def _imagenet_image(folder: Path, split: str, name: str, classes: Iterable[str]) -> Path:
    """The file of an image, perhaps in a folder of its class; else its usual path: reading it reports it missing."""
    folders = [folder / pattern.format(split=split) for pattern in IMAGE_FOLDERS]
    wnid = name.partition("_")[0]  # of the training set
    below = [*([wnid] if WNID.fullmatch(wnid) else []), ".", *classes]
    there = next((each for each in folders if each.is_dir()), folders[0])
    usual = base.image_path(there, f"{below[0]}/{name}.JPEG", split)
    found = (each / one / f"{name}{suffix}" for each in (*folders, folder) for one in below for suffix in SUFFIXES)
    return next((path for path in found if path.is_file()), usual)


# The boxes of the challenge.


def _table(folder: Path, split: str) -> Path:
    return folder / f"LOC_{split}_solution.csv"


def _table_boxes(path: Path) -> tuple[Collection[str], Callable[[str], Annotation]]:
    """The images of a table, and the objects of each: it has no sizes.

    Its rows are like "ILSVRC2012_val_00000001,n01751748 111 108 441 193", with five words more for each further box.
    """
    rows: dict[str, tuple[int, str]] = {}
    lines = base.read_rows(path)
    if next(lines, (1, []))[1] != ["ImageId", "PredictionString"]:
        raise DataError(f"{path}, line 1: the columns must be ImageId,PredictionString")
    for line, columns in lines:
        if len(columns) != 2 or columns[0] in rows:
            raise DataError(f"{path}, line {line}: two columns and a new image were expected")
        rows[columns[0]] = line, columns[1]

    def boxes(name: str) -> Annotation:
        line, prediction = rows[name]
        where, words = f"{path}, line {line}", prediction.split()
        if not words or len(words) % 5:
            raise DataError(f"{where}: a class and four numbers for each box were expected, not {prediction[:80]!r}")
        groups = (words[k : k + 5] for k in range(0, len(words), 5))
        found = ((wnid, base.parse_box(box, where, inclusive=True)) for wnid, *box in groups)
        return [AnnotatedObject(wnid, Instance(box), where) for wnid, box in found], None

    return rows.keys(), boxes


def _xml_boxes(folder: Path, place: Path, split: str) -> tuple[Collection[str], Callable[[str], Annotation]]:
    """The images of the challenge's list, or else all that have an XML file, and the objects of each.

    The name inside of a file is ignored: in some of the training set's it is "%s".
    """
    folders: dict[str, str] = {}
    for name, below in _xml_files(place, split, in_classes=place != folder):
        if folders.setdefault(name, below) != below:
            raise DataError(f"{str(place)!r} has {name}.xml twice, once in {below!r}: leave one of them there")
    lists = (folder / above / LISTS[split] for above in ("ILSVRC", "."))
    listed = next((path for path in lists if path.is_file()), None)

    def boxes(name: str) -> Annotation:
        if name not in folders:
            raise DataError(f"{listed}: it lists {name[:99]!r}, but there is no such .xml in {str(place)!r}")
        return read_objects(place / folders[name] / f"{name}.xml", FIRST_PIXEL)

    if listed is None:
        return folders.keys(), boxes
    lines = base.read_names(listed, 2, "an image with its number")  # such as n01440764/n01440764_10040 1
    return [PurePosixPath(name).name for name in lines], boxes


def _xml_folder(folder: Path, split: str) -> Path | None:
    """The folder with the XML files of a split, or with folders of classes: the challenge's, or unpacked archives."""
    places = [folder / above / "Annotations/CLS-LOC" / split for above in ("ILSVRC", ".")]
    with os.scandir(folder) as entries:
        unpacked = sorted(entry.name for entry in entries if f"bbox_{split}" in entry.name)
    places += [folder / name / below for name in unpacked for below in (".", split)]
    if split == "val":  # or beside the images; the million of train is not searched
        places += [folder / "val", folder]
    found = (place for place in places if place.is_dir())
    return next((place for place in found if any(_xml_files(place, split, in_classes=place != folder))), None)


def _xml_files(place: Path, split: str, *, in_classes: bool) -> Iterator[tuple[str, str]]:
    """The XML files of a split in a folder and in its folders of classes: the image's name, and that of its class."""
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


class Wsol(ImageNetCategories):
    """The lists of MaxBoxAcc for ImageNet. Classes are bare numbers, so the lists of other data sets are refused."""

    name = "wsol"
    layout = f"MaxBoxAcc's lists of ImageNet (SPLIT/{BOXES}, SPLIT/{CLASSES}) and the images they name"

    @classmethod
    def _splits_in(cls, folder: Path) -> list[str]:
        return sorted(path.parent.name for path in _lists(folder))

    def _read(self) -> list[str]:
        self._read_words()
        self._lists = next(path.parent for path in _lists(self.folder) if path.parent.name == self.split)
        self._rows = {CLASSES: self._by_name(CLASSES, 2), BOXES: self._by_name(BOXES, 5)}
        for file, columns in ((SIZES, 3), (NAMES, 1)):
            if (self._lists / file).is_file():
                self._rows[file] = self._by_name(file, columns)
        names = self._rows.get(NAMES, self._rows[CLASSES])
        return sorted(names, key=lambda name: (PurePosixPath(name).name, name))  # classes mixed, of val2/CLASS/N.jpeg

    def sample(self, name: str) -> Sample:
        """An image and its boxes."""
        (text,), where = self._only(CLASSES, name)
        number, last = base.parse_int(text), len(imagenet_wnids()) - 1
        if number is None or number > last:
            raise DataError(f"{where}: the number of a class must be 0 to {last}, not {text[:40]!r}")
        wnid = self._known(imagenet_wnids()[number], where)
        rows = ((row, f"{self._lists / BOXES}, line {line}") for line, row in self._rows[BOXES].get(name, ()))
        boxes = tuple(Instance(base.parse_box(row, where, inclusive=True)) for row, where in rows)
        size = None
        if name in self._rows.get(SIZES, ()):
            (width, height), where = self._only(SIZES, name)
            size = base.parse_size(width, height, where)
        return Sample(name, self._picture(name, wnid), (Target(wnid, boxes),) if boxes else (), size)

    def _picture(self, name: str, wnid: str) -> Path:
        paths = [
            base.image_path(self.folder / below, name, f"{self._lists / NAMES}") for below in (".", "dataset/ILSVRC")
        ]
        found = next((path for path in paths if path.is_file()), paths[0])
        if found.is_file() or not name.startswith("val/"):  # ImageNetV2's "0.jpeg" are nowhere else
            return found
        return _imagenet_image(self.folder, "val", PurePosixPath(name).stem, [wnid])

    def _only(self, file: str, name: str) -> tuple[list[str], str]:
        """The row of an image in a list that has one for each, and its place."""
        found = self._rows[file].get(name, [])
        if len(found) != 1:
            raise DataError(f"{self._lists / file}: one line about {name!r} was expected, and there are {len(found)}")
        ((line, words),) = found
        return words, f"{self._lists / file}, line {line}"

    def _by_name(self, file: str, columns: int) -> dict[str, list[TableRow]]:
        """The rows of a list by image, which is the first column."""
        found: dict[str, list[TableRow]] = defaultdict(list)
        for line, (name, *words) in base.read_rows(self._lists / file):
            where = f"{self._lists / file}, line {line}"
            if not WSOL_NAME.fullmatch(name):
                raise DataError(f"{where}: {name[:60]!r} is no image of ImageNet, whose lists alone are read")
            if len(words) != columns - 1:
                raise DataError(f"{where}: {columns} columns were expected, not {1 + len(words)}")
            found[name].append((line, words))
        return dict(found)


def _lists(folder: Path) -> list[Path]:
    """The lists of boxes that have classes with them, of the first folder that has any."""
    for below in (".", "metadata/ILSVRC", "metadata"):
        found = [path for path in sorted((folder / below).glob(f"*/{BOXES}")) if path.with_name(CLASSES).is_file()]
        if found:
            return found
    return []
