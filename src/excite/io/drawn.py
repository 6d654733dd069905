"""Files that excite draws: unique names, and marks in each PNG so that neither others' nor other drawings are lost."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from excite.errors import ExciteError
from excite.io.cache import fingerprint
from excite.io.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LONGEST_PICTURE, LONGEST_CONCEPT, LONGEST_LAYER = 100, 80, 40  # bytes in a file name, which may have 255 in all


def draw(picture: Image.Image, path: Path, question: object = None) -> Path:
    """Write an image as a PNG that is marked as drawn by excite; level 3 is quicker than the default 6 and as small.

    Where a drawing for another question (all that it depends on, as plain values) has this name, the new one gets a
    hash of its question at the end of its name; without a question it replaces the old one.
    """
    mark = fingerprint(question, digits=10)
    if question is not None and is_drawn(path) and _marks(path).get("Question") != mark:
        path = path.with_stem(f"{path.stem}-{mark}")
    if path.exists() and not is_drawn(path):
        raise ExciteError(f"{str(path)!r} is there already and was not drawn by excite: choose another --out")
    about = PngInfo()
    about.add_text("Software", "excite")
    about.add_text("Question", mark)
    return atomic_write(path, lambda file: picture.save(file, format="PNG", pnginfo=about, compress_level=3))


def is_drawn(photo: Path) -> bool:
    """Whether a file is a PNG drawn by excite."""
    return _marks(photo).get("Software") == "excite"


def _marks(photo: Path) -> dict[Any, Any]:
    """The texts in a PNG; none in any other file."""
    try:
        with Image.open(photo, formats=["PNG"]) as picture:
            return picture.info
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return {}


def file_names(photos: Sequence[Path]) -> dict[Path, str]:
    """A unique stem for each image's files: its own, with as much of its path as is needed."""
    for describe in (lambda path: path.stem, lambda path: str(path.with_suffix("")), str):
        names = {photo: slug(describe(photo), LONGEST_PICTURE) for photo in photos}
        if len({name.casefold() for name in names.values()}) == len(photos):
            return names
    return {photo: f"{slug(photo.stem, LONGEST_PICTURE)}-{number}" for number, photo in enumerate(photos, 1)}


def map_names(name: str, maps: Sequence[Any]) -> list[str]:
    """A unique file name for each `AttentionMap`: image, concept, and layer, unit or number where needed."""
    names = [f"{name}.{slug(found.concept, LONGEST_CONCEPT)}" for found in maps]
    if len({found.layer for found in maps}) > 1:
        names = [f"{each}.{slug(found.layer, LONGEST_LAYER)}" for each, found in zip(names, maps, strict=True)]
    units = [found.units[0] if len(found.units) == 1 else "all" for found in maps]
    for suffixes in (units, range(1, len(maps) + 1)):
        counts = Counter(each.casefold() for each in names)
        names = [
            each if counts[each.casefold()] == 1 else f"{each}.{suffix}"
            for each, suffix in zip(names, suffixes, strict=True)
        ]
    return names


def slug(text: str, most: int) -> str:
    """The words of a text with - between them, at most ``most`` bytes: photos-a-b-jpg for "photos/a b.jpg"."""
    words = re.sub(r"\W+", "-", unicodedata.normalize("NFC", text)).strip("-")
    return words.encode()[:most].decode(errors="ignore").strip("-") or "picture"
