"""Names for files, none of which is that of another."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from excite.attention import AttentionMap

__all__ = ["file_names", "map_names"]

LONGEST_PICTURE, LONGEST_CONCEPT, LONGEST_LAYER = 100, 80, 40  # bytes in a file name, which may have 255 in all


def file_names(photos: Sequence[Path]) -> dict[Path, str]:
    """A name for each picture's files: its own, with as much of its path as tells it from the others."""
    for describe in (lambda path: path.stem, lambda path: str(path.with_suffix("")), str):
        names = {photo: _slug(describe(photo), LONGEST_PICTURE) for photo in photos}
        if len({name.casefold() for name in names.values()}) == len(photos):
            return names
    return {photo: f"{_slug(photo.stem, LONGEST_PICTURE)}-{number}" for number, photo in enumerate(photos, 1)}


def map_names(name: str, maps: Sequence[AttentionMap]) -> list[str]:
    """A file name for each map: picture, concept, and whatever else tells it from the others, with dots between."""
    names = [f"{name}.{_slug(found.concept, LONGEST_CONCEPT)}" for found in maps]
    if len({found.layer for found in maps}) > 1:
        names = [f"{each}.{_slug(found.layer, LONGEST_LAYER)}" for each, found in zip(names, maps, strict=True)]
    units = [found.units[0] if len(found.units) == 1 else "all" for found in maps]
    for tell in (units, range(1, len(maps) + 1)):
        counts = Counter(each.casefold() for each in names)
        names = [
            each if counts[each.casefold()] == 1 else f"{each}.{more}" for each, more in zip(names, tell, strict=True)
        ]
    return names


def _slug(text: str, most: int) -> str:
    """The words of a text with - between them: no dots and no slashes, and at most so many bytes."""
    words = re.sub(r"\W+", "-", unicodedata.normalize("NFC", text)).strip("-")
    return words.encode()[:most].decode(errors="ignore").strip("-") or "picture"
