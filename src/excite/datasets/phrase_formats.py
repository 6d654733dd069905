"""The formats of data sets with phrases. A new one is one file and one name in `PHRASE_DATASETS`."""

from __future__ import annotations

import os

from excite.datasets.base import PhraseDataset, open_found
from excite.datasets.captions import CaptionPhrases
from excite.datasets.flickr30k import Flickr30kEntities
from excite.datasets.refcoco import ReferringExpressions

PHRASE_DATASETS: tuple[type[PhraseDataset], ...] = (Flickr30kEntities, CaptionPhrases, ReferringExpressions)


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
    return open_found(folder, split, [PHRASE_DATASETS], "data set with phrases")
