"""Pictures with the truth about them. A new format is one file here and one line in `DATASETS`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from excite.datasets.coco import Coco
from excite.datasets.dataset import Dataset
from excite.datasets.imagenet import ImageNet
from excite.datasets.masks import Mask
from excite.datasets.own import JsonFolder, XmlFolder
from excite.datasets.sample import Box, Instance, Sample, Target
from excite.datasets.voc import Voc
from excite.errors import DataError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = ["DATASETS", "Box", "Dataset", "Instance", "Mask", "Sample", "Target", "open_dataset"]

DATASETS: Mapping[str, type[Dataset]] = {kind.name: kind for kind in (ImageNet, Voc, Coco, XmlFolder, JsonFolder)}


def open_dataset(folder: str | os.PathLike[str], split: str | None = None) -> Dataset:
    """The data set that a folder holds, whichever of the known formats it has.

    Args:
        folder: The folder of the data set, or the one above it (``VOCdevkit`` for ``VOCdevkit/VOC2007``); or a
            folder of one's own pictures with annotations in VOC's or COCO's format.
        split: Which part of it; None for its validation pictures, or its only split.

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
        expected = "; ".join(f"{kind.name} ({kind.layout})" for kind in DATASETS.values())
        raise DataError(f"{str(folder)!r} holds no data set that is known: {expected}")
    if len(found) > 1:
        choices = ", ".join(repr(str(root)) for root, _ in found)
        raise DataError(f"{str(folder)!r} holds {len(found)} data sets: name one of {choices}")
    root, kind = found[0]
    return kind(root, split)


def _held_in(folder: Path) -> list[tuple[Path, type[Dataset]]]:
    """The data sets in this folder itself, or else in the folders just below it."""
    try:
        below = [*sorted(path for path in folder.iterdir() if path.is_dir()), *sorted(folder.glob("VOCdevkit/*"))]
        for places in ([folder], below):
            found = [(root, kind) for root in places for kind in DATASETS.values() if kind.is_in(root)]
            if found:
                return found
    except OSError as error:
        raise DataError(f"cannot read {str(folder)!r}: {error.strerror or error}") from None
    return []
