"""The pictures of a check: a few of those that somebody has, or photographs that are there without asking anybody."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from excite.errors import ImageError
from excite.images import find_images

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["pictures_of"]

PHOTOGRAPHS = ("chelsea.png", "coffee.png", "astronaut.png", "rocket.jpg")  # inside scikit-image, with free licences


def pictures_of(patterns: Sequence[str], limit: int) -> list[Path]:
    """The files of pictures, folders and patterns, each once; of more than ``limit`` some, evenly among them.

    Example:
        >>> [file.name for file in pictures_of([], 2)]
        ['chelsea.png', 'astronaut.png']
    """
    if not patterns:
        return _evenly(_photographs(), limit)
    return _evenly(find_images(patterns), limit)


def _photographs() -> list[Path]:
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        raise ImageError("name some pictures, or install photographs to check on: pip install 'excite[demo]'")
    return [Path(spec.origin).parent / "data" / name for name in PHOTOGRAPHS]


def _evenly(files: list[Path], limit: int) -> list[Path]:
    """Some of the files, from all parts of the list: those of one folder are often all alike."""
    if len(files) <= limit:
        return files
    return [files[k * len(files) // limit] for k in range(limit)]
