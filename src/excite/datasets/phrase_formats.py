"""Which kinds of data sets with phrases there are. A new one is one file and one name in `PHRASE_DATASETS`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from excite.datasets.base import the_only
from excite.datasets.captions import CaptionPhrases
from excite.datasets.flickr30k import Flickr30kEntities
from excite.datasets.refcoco import RecLines
from excite.errors import DataError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from excite.datasets.phrases import PhraseDataset

__all__ = ["PHRASE_DATASETS", "open_phrases"]

PHRASE_DATASETS: Mapping[str, type[PhraseDataset]] = {
    kind.name: kind for kind in (Flickr30kEntities, CaptionPhrases, RecLines)
}


def open_phrases(folder: str | os.PathLike[str], split: str | None = None) -> PhraseDataset:
    """The data set with phrases that a folder holds, whichever of the known formats it has.

    Args:
        folder: the folder of the data set, or the one above it.
        split: which part of it; None for the usual one: test of Flickr30k Entities, the validation part of others, or
            the only one that is there.

    Raises:
        DataError: There is no such folder, no data set with phrases or several in it, no such split, or nothing in it
            that can be used.

    Example:
        >>> for described in open_phrases("refcoco", "val"):  # doctest: +SKIP
        ...     print(described.path, [phrase.text for phrase in described.phrases])
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"there is no folder {str(folder)!r}: name the folder of a data set with phrases")
    root, kind = the_only(folder, _held_in(folder), PHRASE_DATASETS, "data set with phrases")
    return kind(root, split)


def _held_in(folder: Path) -> list[tuple[Path, type[PhraseDataset]]]:
    """The data sets in this folder itself, or else in the folders just below it."""
    try:
        for roots in ([folder], sorted(path for path in folder.iterdir() if path.is_dir())):
            found = [(root, kind) for root in roots for kind in PHRASE_DATASETS.values() if kind.is_in(root)]
            if found:
                return found
    except OSError as error:
        raise DataError(f"cannot read {str(folder)!r}: {error.strerror or error}") from None
    return []
