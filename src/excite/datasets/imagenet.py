"""ImageNet (ILSVRC) validation pictures with boxes, in the format of the public localisation challenge."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

from excite.datasets.dataset import Dataset, picture_in, read_text
from excite.datasets.sample import Instance, Sample, Target, checked_box
from excite.errors import DataError
from excite.vocabulary import imagenet_labels, imagenet_wnids

if TYPE_CHECKING:
    from pathlib import Path

    from excite.vocabulary import Concept, Labels

__all__ = ["ImageNet"]

BOXES, WORDS = "LOC_val_solution.csv", "LOC_synset_mapping.txt"
PICTURES = ("val", "ILSVRC/Data/CLS-LOC/val")  # as unpacked by hand, or by the challenge's own archive
WNID = re.compile(r"n\d{8}")


class ImageNet(Dataset):
    """One kind of object a picture. Categories are WordNet numbers ("n01440764"): words are not unique ("crane")."""

    name = "imagenet"
    layout = f"{BOXES}, {WORDS}, val/*.JPEG"
    tolerance = 0
    one_main_object = True

    def _splits(self) -> list[str]:
        return ["val"]

    def _read(self) -> list[str]:
        self._words = _read_words(self.folder / WORDS)
        self._rows = _read_rows(self.folder / BOXES)
        places = [self.folder / name for name in PICTURES]
        self._pictures = next((place for place in places if place.is_dir()), places[0])
        return sorted(self._rows)  # the file is in the order of the classes: its first hundred would be fish and birds

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether the challenge's table of boxes is there."""
        return (folder / BOXES).is_file()

    @property
    def categories(self) -> tuple[str, ...]:
        """The WordNet numbers of the classes."""
        return tuple(self._words)

    def words(self, category: str) -> tuple[str, ...]:
        """What a class is called: its synonyms."""
        return self._words[category]

    def sample(self, name: str) -> Sample:
        """A picture and its boxes."""
        line, prediction = self._rows[name]
        where = f"{self.folder / BOXES}, line {line}"
        targets: dict[str, list[Instance]] = {}
        words = prediction.split()
        if not words or len(words) % 5:
            raise DataError(f"{where}: a class and four numbers for each box were expected, not {prediction[:80]!r}")
        for k in range(0, len(words), 5):
            targets.setdefault(self._known(words[k], where), []).append(_instance(words[k + 1 : k + 5], where))
        path = picture_in(self._pictures, f"{name}.JPEG", where)
        return Sample(name, path, tuple(Target(wnid, tuple(boxes)) for wnid, boxes in targets.items()))

    def concept(self, category: str, labels: Labels) -> Concept:
        """The output unit of a class: by its number where the classifier has ImageNet's own labels, else by words.

        A classifier may have more labels behind these.
        """
        if labels.begin_with(imagenet_labels()) and category in imagenet_wnids():
            return labels.find(imagenet_wnids().index(category))
        return super().concept(self.words(category)[0], labels)

    def _known(self, wnid: str, where: str) -> str:
        if wnid not in self._words:
            raise DataError(f"{where}: {wnid!r} is no class of {WORDS}")
        return wnid


def _read_words(path: Path) -> dict[str, tuple[str, ...]]:
    """For each class its synonyms, from lines like "n01440764 tench, Tinca tinca"."""
    answer = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        wnid, _, words = line.partition(" ")
        if not WNID.fullmatch(wnid) or not words.strip():
            raise DataError(f"{path}, line {number}: a WordNet number and words were expected, not {line[:80]!r}")
        answer[wnid] = tuple(word.strip() for word in words.split(","))
    return answer


def _read_rows(path: Path) -> dict[str, tuple[int, str]]:
    """For each picture its line number and its boxes as text."""
    lines = csv.reader(io.StringIO(read_text(path)))
    rows: dict[str, tuple[int, str]] = {}
    try:
        if next(lines, None) != ["ImageId", "PredictionString"]:
            raise DataError(f"{path}, line 1: the columns must be ImageId,PredictionString")
        for row in lines:
            if len(row) != 2 or row[0] in rows:
                raise DataError(f"{path}, line {lines.line_num}: two columns and a new picture were expected")
            rows[row[0]] = lines.line_num, row[1]
    except csv.Error as error:
        raise DataError(f"{path}, line {lines.line_num}: {error}") from None
    return rows


def _instance(words: list[str], where: str) -> Instance:
    """The challenge counts pixels from 0, the last one included."""
    try:
        x0, y0, x1, y1 = (float(word) for word in words)
    except ValueError:
        raise DataError(f"{where}: the corners of a box must be numbers, not {' '.join(words)!r}") from None
    return Instance(checked_box(x0, y0, x1 + 1, y1 + 1, where))
