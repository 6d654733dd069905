"""The formats of data sets with phrases. A new one is one file and one name in `PHRASE_DATASETS`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from excite.datasets.base import single_dataset
from excite.datasets.captions import CaptionPhrases
from excite.datasets.flickr30k import Flickr30kEntities
from excite.datasets.refcoco import ReferringExpressions
from excite.errors import DataError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from excite.datasets.phrases import PhraseDataset

PHRASE_DATASETS: Mapping[str, type[PhraseDataset]] = {
    kind.name: kind for kind in (Flickr30kEntities, CaptionPhrases, ReferringExpressions)
}


def open_phrases(folder: str | os.PathLike[str], split: str | None = None) -> PhraseDataset:
    """Open the data set with phrases in a folder, in any of the known formats.

    Args:
        folder: The folder of the data set, or the one above it.
        split: Name of the split; None for the usual one: test of Flickr30k Entities, the validation part of others, or
            the only one.

    Raises:
        DataError: There is no such folder, no data set with phrases or several in it, no such split, or nothing usable
            in it.

    Example:
        >>> for sample in open_phrases("refcoco", "val"):  # doctest: +SKIP
        ...     print(sample.path, [phrase.text for phrase in sample.phrases])
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"there is no folder {str(folder)!r}: name the folder of a data set with phrases")
    found: list[tuple[Path, type[PhraseDataset]]] = []
    try:
        for roots in ([folder], sorted(path for path in folder.iterdir() if path.is_dir())):
            found = found or [(root, kind) for root in roots for kind in PHRASE_DATASETS.values() if kind.is_in(root)]
    except OSError as error:
        raise DataError(f"cannot read {str(folder)!r}: {error.strerror or error}") from None
    root, kind = single_dataset(folder, found, PHRASE_DATASETS, "data set with phrases")
    return kind(root, split)
