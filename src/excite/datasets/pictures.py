"""Pictures anywhere below a folder, found by their names."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from excite.datasets.base import picture_in
from excite.errors import DataError, ImageError
from excite.images import PICTURE_SUFFIXES, find_images

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["holds_pictures", "named_picture", "only_picture", "pictures_by"]


def pictures_by(key: Callable[[Path], str], folder: Path) -> dict[str, list[Path]]:
    """All pictures below a folder, by their names."""
    answer: dict[str, list[Path]] = defaultdict(list)
    try:
        for path in find_images(str(folder)):
            answer[key(path)].append(path)
    except ImageError as error:
        raise DataError(f"{str(folder)!r} has annotations but no pictures to them: {error}") from None
    return dict(answer)


def only_picture(found: Sequence[Path], usual: Path, annotation: Path) -> Path:
    """The one picture that was found; without any, where it would usually be: reading it says that it is missing."""
    if len(found) > 1:
        raise DataError(f"{annotation}: {str(found[0])!r} and {str(found[1])!r} both have the name of its picture")
    return found[0] if found else usual


def named_picture(folder: Path, name: str, found: Mapping[str, Sequence[Path]], annotation: Path) -> Path:
    """The picture that an annotation names: there, below the folder; or the only one of that name, wherever it is."""
    path = picture_in(folder, name, str(annotation))
    return path if path.is_file() else only_picture(found.get(PurePosixPath(name).name, []), path, annotation)


def holds_pictures(folder: Path) -> bool:
    """Whether there are pictures below a folder."""
    return any(path.suffix.lower() in PICTURE_SUFFIXES for path in folder.rglob("*"))
