"""Which words of a command are pictures."""

from __future__ import annotations

import glob
import os
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from excite.autolabel.drawing import is_drawn
from excite.errors import ConceptError, ImageError
from excite.images import PICTURE_SUFFIXES, find_images, is_picture_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["split_arguments"]


def split_arguments(arguments: Sequence[str], out: Path) -> tuple[list[Path], list[str]]:
    """Which arguments are pictures and which are concepts: pictures come first.

    The first one is a picture (a file, a folder, a pattern). Those behind it are pictures as long as they look like
    pictures, as when the shell has expanded a pattern; the rest are concepts. In folders, what excite itself has drawn
    into ``out`` is no picture.

    Example:
        >>> split_arguments(["holiday/", "more/*.jpg", "cat", "dog"], Path("maps"))  # doctest: +SKIP
        ([PosixPath('holiday/beach.jpg'), PosixPath('more/zoo.jpg')], ['cat', 'dog'])
    """
    patterns = [arguments[0], *takewhile(is_picture_argument, arguments[1:])]
    concepts = list(arguments[len(patterns) :])
    for concept in concepts:
        if Path(concept).suffix.lower() in PICTURE_SUFFIXES:
            raise ConceptError(f"{concept!r} looks like a picture behind a concept: name all pictures first")
    photos = {os.path.realpath(photo): photo for pattern in patterns for photo in _photos(pattern, patterns, out)}
    return list(photos.values()), concepts


def _photos(pattern: str, patterns: Sequence[str], out: Path) -> list[Path]:
    """The pictures of one argument. One that is missing among others fails when its turn comes, and alone."""
    if not pattern.strip():
        raise ImageError("the name of a picture is blank: name a file, a folder or a pattern")
    named = Path(pattern).suffix.lower() in PICTURE_SUFFIXES and not glob.has_magic(pattern)
    missing = named and len(patterns) > 1 and not os.path.exists(pattern)  # noqa: PTH110 - Path's fails at long names
    if missing or os.path.isfile(pattern):  # noqa: PTH113
        return [Path(pattern)]
    try:
        found = find_images(pattern)
    except OSError as error:
        raise ImageError(f"no pictures found for {pattern!r}: {error.strerror or error}") from None
    inside = out.resolve()
    photos = [photo for photo in found if inside not in photo.resolve().parents or not is_drawn(photo)]
    if not photos:
        raise ImageError(f"no pictures found for {pattern!r} but those that excite itself has drawn")
    return photos
