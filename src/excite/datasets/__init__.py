"""Pictures with the truth about them. A new format is one file here and one name in `RANKS`."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from excite.datasets.base import Dataset, the_only
from excite.datasets.coco import Coco
from excite.datasets.imagenet import ImageNet, Wsol
from excite.datasets.own import CsvFolder, JsonFolder, XmlFolder
from excite.datasets.sample import Box, Instance, Mask, Sample, Target
from excite.datasets.voc import Voc
from excite.errors import DataError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

__all__ = ["DATASETS", "Box", "Dataset", "Instance", "Mask", "Sample", "Target", "open_dataset"]

RANKS: Sequence[Sequence[type[Dataset]]] = ((ImageNet, Voc, Coco), (XmlFolder, JsonFolder), (CsvFolder, Wsol))
"""A folder that looks like several formats has the one of the first rank: layouts that nobody makes by chance.

Those of the last rank are found only where no others are, nor beside these: ``excite boxes`` may write into any folder,
and what opened before must not open differently.
"""

DATASETS: Mapping[str, type[Dataset]] = {kind.name: kind for rank in RANKS for kind in rank}

WITHOUT_PICTURES = ("boxes.json", "boxes.csv")
"""What ``excite boxes`` writes, into a folder of its own."""


def open_dataset(folder: str | os.PathLike[str], split: str | None = None) -> Dataset:
    """The data set that a folder holds, whichever of the known formats it has.

    Args:
        folder: The folder of the data set, or the one above it (``VOCdevkit`` for ``VOCdevkit/VOC2007``); or a
            folder of one's own images with annotations in VOC's or COCO's format, or with a table of boxes.
        split: Which part of it; None for its validation images, or its only split.

    Raises:
        DataError: There is no such folder, no data set or several in it, no such split, or broken annotations.

    Example:
        >>> for sample in open_dataset("VOCdevkit", "val"):  # doctest: +SKIP
        ...     print(sample.path, [target.concept for target in sample.targets])
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"there is no folder {str(folder)!r}: name the folder of a data set")
    found = _held_in(folder)
    if not found:
        _check_pictures(folder)
    root, kind = the_only(folder, found, DATASETS, "data set")
    return kind(root, split)


def _held_in(folder: Path) -> list[tuple[Path, type[Dataset]]]:
    """The data sets in this folder itself, or else in the folders just below it."""
    try:
        below = [*sorted(path for path in folder.iterdir() if path.is_dir()), *sorted(folder.glob("VOCdevkit/*"))]
        for places, ranks in product(([folder], below), (RANKS[:-1], RANKS[-1:])):
            found = [(root, kind) for root in places for kind in _formats_of(root, ranks)]
            if found:
                return found
    except OSError as error:
        raise DataError(f"cannot read {str(folder)!r}: {error.strerror or error}") from None
    return []


def _formats_of(root: Path, ranks: Sequence[Sequence[type[Dataset]]]) -> list[type[Dataset]]:
    """The formats that a folder itself looks like, all of the first rank that it has."""
    found = ([kind for kind in rank if kind.is_in(root)] for rank in ranks)
    return next((kinds for kinds in found if kinds), [])


def _check_pictures(folder: Path) -> None:
    """Say so where nothing but images is missing."""
    for name in WITHOUT_PICTURES:
        if (folder / name).is_file():
            raise DataError(
                f"{str(folder / name)!r} has boxes, but no images are with it: "
                "put the file, or a link to it, into the folder of the images, and name that"
            )
