"""Annotated images. A new format is one file here and one name in `RANKS`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from excite.datasets.base import Box, Dataset, Instance, Sample, Target, chosen_split, open_found
from excite.datasets.coco import Coco, Mask
from excite.datasets.imagenet import ImageNet, Wsol
from excite.datasets.labelled import LabelFolders, LabelLines
from excite.datasets.own import CsvFolder, JsonFolder, XmlFolder
from excite.datasets.voc import Voc

__all__ = ["DATASETS", "Box", "Dataset", "Instance", "Mask", "Sample", "Target", "open_dataset"]

RANKS: Sequence[Sequence[type[Dataset]]] = ((ImageNet, Voc, Coco), (XmlFolder, JsonFolder), (CsvFolder, Wsol))
"""Of a folder that matches several formats, those of the first matching rank count: layouts that are no accident.

The last rank counts only where no other format is found in the folder nor just below it: ``excite boxes`` may write
into any folder, which must not change how it opens.
"""

LABELLED: Sequence[type[Dataset]] = (LabelFolders, LabelLines)
"""Formats without boxes, for those who need only labels; they count where no other format is found."""

DATASETS: Mapping[str, type[Dataset]] = {kind.name: kind for rank in (*RANKS, LABELLED) for kind in rank}


def open_dataset(folder: str | os.PathLike[str], split: str | None = None, *, boxes: bool = True) -> Dataset:
    """Open the data set in a folder, in any of the known formats.

    Args:
        folder: The folder of the data set, or the one above it (``VOCdevkit`` for ``VOCdevkit/VOC2007``); or a
            folder of one's own images with annotations in VOC's or COCO's format, or with a table of boxes.
        split: Name of the split; None for its validation images, or its only split.
        boxes: Whether objects must have boxes; without, folders named after labels are a data set too.

    Raises:
        DataError: There is no such folder, no data set or several in it, no such split, or broken annotations.

    Example:
        >>> for sample in open_dataset("VOCdevkit", "val"):  # doctest: +SKIP
        ...     print(sample.path, [target.concept for target in sample.targets])
    """
    folder = Path(folder)
    if not boxes and LabelLines.is_in(folder):  # COCO's folder may have boxes for other splits
        with_boxes = Coco._splits_in(folder)  # noqa: SLF001 - of this package, for once
        name = chosen_split(split, sorted({*LabelLines._splits_in(folder), *with_boxes}), folder)  # noqa: SLF001
        if name not in with_boxes:
            return LabelLines(folder, name)
    otherwise = () if boxes else LABELLED
    return open_found(folder, split, RANKS, box_files=("boxes.json", "boxes.csv"), otherwise=otherwise)
