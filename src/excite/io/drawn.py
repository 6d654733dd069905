"""Files that excite draws: unique names, and marks in each so that neither others' nor other drawings are lost."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from excite.errors import ExciteError
from excite.io.cache import fingerprint
from excite.io.files import PICTURE_KINDS, atomic_write

LONGEST_PICTURE, LONGEST_CONCEPT, LONGEST_LAYER = 100, 80, 40  # bytes in a file name, which may have 255 in all
QUALITY = 80  # of a JPEG
COMMENT = "drawn by excite, question "  # of a JPEG, before its mark


def draw(picture: Image.Image, path: Path, question: object = None, *, replace: bool = False) -> Path:
    """Write an image, as PNG or JPEG by the suffix of its name, that is marked as drawn by excite.

    Where a drawing for another question (all that it depends on, as plain values) has this name, the new one gets a
    hash of its question at the end of its name; with ``replace``, or without a question, it replaces the old one.
    """
    mark = fingerprint(question, digits=10)
    if question is not None and not replace and is_drawn(path) and not is_drawn(path, question):
        path = path.with_stem(f"{path.stem}-{mark}")
    check_drawn(path)
    if path.suffix.lower() == ".png":
        about = PngInfo()
        about.add_text("Software", "excite")
        about.add_text("Question", mark)
        settings = PICTURE_KINDS[".png"]
        return atomic_write(path, lambda file: picture.save(file, pnginfo=about, **settings))
    comment = f"{COMMENT}{mark}".encode()
    return atomic_write(path, lambda file: picture.save(file, format="JPEG", quality=QUALITY, comment=comment))


def check_drawn(path: Path) -> None:
    """Raise an `ExciteError` if there is a file that excite has not drawn."""
    if path.exists() and not is_drawn(path):
        raise ExciteError(f"{str(path)!r} is there already and was not drawn by excite: choose another --out")


def is_drawn(photo: Path, question: object = None) -> bool:
    """Whether a file is a PNG or JPEG drawn by excite, and for this question if there is one."""
    mark = _mark(photo)
    return mark is not None and (question is None or mark == fingerprint(question, digits=10))


def _mark(photo: Path) -> str | None:
    """The mark of a drawing; None for any other file."""
    try:
        with Image.open(photo, formats=["PNG", "JPEG"]) as picture:
            info: dict[Any, Any] = picture.info
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return None
    comment = info.get("comment")
    if isinstance(comment, bytes) and comment.startswith(COMMENT.encode()):
        return comment.decode(errors="replace").removeprefix(COMMENT)
    return str(info.get("Question", "")) if info.get("Software") == "excite" else None


def shrunk(picture: Image.Image, longest: int | None) -> Image.Image:
    """The image with at most so many pixels along its longer side; None leaves it as it is.

    Example:
        >>> shrunk(Image.new("RGB", (4000, 3000)), 1600).size, shrunk(Image.new("RGB", (40, 30)), 1600).size
        ((1600, 1200), (40, 30))
    """
    if longest is None or max(picture.size) <= longest:
        return picture
    small = picture.copy()
    small.thumbnail((longest, longest), Image.Resampling.HAMMING)
    return small


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
