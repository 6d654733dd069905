"""The lists by which MaxBoxAcc is measured on ImageNet: boxes, classes and sizes of pictures, each in a text file.

Their publisher (github.com/clovaai/wsolevaluation) has a folder of lists for each split: ``test`` are ImageNet's own
validation pictures, ``val`` the pictures of ImageNetV2.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from excite.datasets.base import picture_in
from excite.datasets.imagenet import OfImageNet, imagenet_picture
from excite.datasets.sample import Instance, Sample, Target, size_of, whole_number
from excite.datasets.tables import box_with_last_pixel, read_rows
from excite.errors import DataError
from excite.vocabulary import imagenet_wnids

if TYPE_CHECKING:
    from excite.datasets.tables import Row

__all__ = ["Wsol"]

LISTS = (".", "metadata/ILSVRC", "metadata")
PICTURES = (".", "dataset/ILSVRC")
BOXES, CLASSES, NAMES, SIZES = "localization.txt", "class_labels.txt", "image_ids.txt", "image_sizes.txt"
OF_IMAGENET = re.compile(r"(val/ILSVRC2012_val_\d+|val2/\d+/\w+)\.\w+")


class Wsol(OfImageNet):
    """Classes are numbers in these lists, which only ImageNet's are known to mean: other lists are not read."""

    name = "wsol"
    layout = f"MaxBoxAcc's lists of ImageNet (SPLIT/{BOXES}, SPLIT/{CLASSES}) and the pictures they name"

    def _splits(self) -> list[str]:
        return sorted(path.parent.name for path in _lists(self.folder))

    def _read(self) -> list[str]:
        self._read_words()
        self._lists = next(path.parent for path in _lists(self.folder) if path.parent.name == self.split)
        self._classes_of = self._by_name(CLASSES, 2)
        self._boxes_of = self._by_name(BOXES, 5)
        self._sizes_of = self._by_name(SIZES, 3) if (self._lists / SIZES).is_file() else {}
        names = self._by_name(NAMES, 1) if (self._lists / NAMES).is_file() else self._classes_of
        return sorted(names, key=_without_class)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether lists of boxes and classes are there."""
        return bool(_lists(folder))

    def sample(self, name: str) -> Sample:
        """A picture and its boxes."""
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
        places = [picture_in(self.folder / place, name, self._where(NAMES)) for place in PICTURES]
        found = next((path for path in places if path.is_file()), places[0])
        if found.is_file() or not name.startswith("val/"):  # ImageNetV2's "0.jpeg" are not to be looked for elsewhere
            return found
        return imagenet_picture(self.folder, "val", PurePosixPath(name).stem, [wnid])

    def _only(self, rows: dict[str, list[Row]], name: str, file: str) -> Row:
        """The one line about a picture in a list that has one for each."""
        found = rows.get(name, [])
        if len(found) != 1:
            raise DataError(f"{self._where(file)}: one line about {name!r} was expected, and there are {len(found)}")
        return found[0]

    def _by_name(self, file: str, columns: int) -> dict[str, list[Row]]:
        """The lines of a list for each picture, which is the first column."""
        answer: dict[str, list[Row]] = defaultdict(list)
        for line, (name, *words) in read_rows(self._lists / file):
            if not OF_IMAGENET.fullmatch(name):
                raise DataError(
                    f"{self._where(file, line)}: {name[:60]!r} is no picture of ImageNet, whose lists alone are read"
                )
            if len(words) != columns - 1:
                raise DataError(f"{self._where(file, line)}: {columns} columns were expected, not {1 + len(words)}")
            answer[name].append((line, words))
        return dict(answer)

    def _where(self, file: str, line: int | None = None) -> str:
        return f"{self._lists / file}" if line is None else f"{self._lists / file}, line {line}"


def _without_class(name: str) -> tuple[str, str]:
    """A key that mixes the classes of val2/CLASS/NUMBER.jpeg: the first hundred pictures would be fish and birds."""
    return PurePosixPath(name).name, name


def _lists(folder: Path) -> list[Path]:
    """The lists of boxes that have classes with them, of the first place that has any."""
    for place in LISTS:
        found = [path for path in sorted((folder / place).glob(f"*/{BOXES}")) if path.with_name(CLASSES).is_file()]
        if found:
            return found
    return []
