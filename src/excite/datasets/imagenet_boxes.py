"""Where ImageNet's boxes are written: in the public challenge's tables, or in the original one's XML files."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from excite.datasets.base import read_text
from excite.datasets.objects_xml import Found, read_objects
from excite.datasets.sample import Instance, check_begin
from excite.datasets.tables import box_with_last_pixel, read_rows
from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

__all__ = ["SPLITS", "WNID", "TableOfBoxes", "XmlBoxes", "boxes_of", "has_boxes"]

SPLITS = ("train", "val")
WNID = re.compile(r"n\d{8}")
FIRST_PIXEL = 0  # not 1 as in VOC: a picture 500 wide has boxes from 0 to 499, by the same numbers as in the tables
XML_NAMES = {"train": re.compile(r"n\d{8}_\d+\.xml"), "val": re.compile(r"ILSVRC\d{4}_val_\d+\.xml")}
LISTS = {"train": "ImageSets/CLS-LOC/train_loc.txt", "val": "ImageSets/CLS-LOC/val.txt"}

Annotation = tuple[list[Found], tuple[int, int] | None]
"""The objects of a picture, and its size where that is written."""

File = tuple[str, str]
"""An XML file: the name of its picture, and the folder of the class that it lies in, or nothing."""


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
        """The pictures, in the order of the file."""
        return self._rows.keys()

    def of(self, name: str) -> Annotation:
        """What is written about a picture; never its size."""
        line, prediction = self._rows[name]
        where = f"{self._path}, line {line}"
        words = prediction.split()
        if not words or len(words) % 5:
            raise DataError(f"{where}: a class and four numbers for each box were expected, not {prediction[:80]!r}")
        groups = (words[k : k + 5] for k in range(0, len(words), 5))
        return [Found(wnid, Instance(box_with_last_pixel(box, where)), where) for wnid, *box in groups], None


class XmlBoxes:
    """A file for each picture, in VOC's format but with ImageNet's way of counting pixels.

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
        """The pictures: those of the challenge's list where that is there, or else all that have a file."""
        return self._folders.keys() if self._listed is None else _read_list(self._listed)

    def of(self, name: str) -> Annotation:
        """What is written about a picture."""
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
    """For each picture its line number and its boxes as text."""
    lines = read_rows(path)
    if next(lines, (1, []))[1] != ["ImageId", "PredictionString"]:
        raise DataError(f"{path}, line 1: the columns must be ImageId,PredictionString")
    rows: dict[str, tuple[int, str]] = {}
    for line, columns in lines:
        if len(columns) != 2 or columns[0] in rows:
            raise DataError(f"{path}, line {line}: two columns and a new picture were expected")
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
            raise DataError(f"{path}, line {number}: a picture and its number were expected, not {line[:80]!r}")
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
    if split == "val":  # or beside the pictures; a million of train is not looked through
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
