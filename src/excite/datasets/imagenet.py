"""ImageNet (ILSVRC) pictures with boxes: the public localisation challenge, and the original one with its XML files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.datasets.base import Dataset, picture_in, read_text
from excite.datasets.imagenet_boxes import SPLITS, WNID, boxes_of, has_boxes
from excite.datasets.sample import Instance, Sample, Target
from excite.errors import DataError
from excite.vocabulary import imagenet_labels, imagenet_wnids

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from excite.vocabulary import Concept, Labels

__all__ = ["ImageNet", "OfImageNet", "imagenet_picture"]

WORDS = "LOC_synset_mapping.txt"
PICTURES = ("{split}", "ILSVRC/Data/CLS-LOC/{split}", "Data/CLS-LOC/{split}", "ILSVRC2012_img_{split}")
"""Where pictures may be: as unpacked by hand, or by the challenge's own archive. Or else in the folder itself."""

SUFFIXES = (".JPEG", ".jpeg", ".jpg", ".png")


class OfImageNet(Dataset):
    """One kind of object a picture. Categories are WordNet numbers ("n01440764"): words are not unique ("crane")."""

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
    """The challenge's pictures; of the training set those that have boxes."""

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
        """A picture and its boxes."""
        objects, size = self._boxes.of(name)
        targets: dict[str, list[Instance]] = {}
        for wnid, instance, where in objects:
            targets.setdefault(self._known(wnid, where), []).append(instance)
        path = imagenet_picture(self.folder, self.split, name, targets)
        return Sample(name, path, tuple(Target(wnid, tuple(boxes)) for wnid, boxes in targets.items()), size)


def imagenet_picture(folder: Path, split: str, name: str, classes: Iterable[str]) -> Path:
    """The file of a picture, also where all pictures were sorted into folders of their classes.

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
    """A key by which pictures of the training set, such as n01440764_10040, are not sorted by their classes."""
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
