"""Finding image files by name, folder or pattern."""

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from excite.errors import ImageError

PICTURE_SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"}
    | {".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
"""The suffixes that `find_images` takes from a folder, in any case."""


def find_images(patterns: str | Sequence[str]) -> list[Path]:
    """The images of file names, folders and patterns, each once, in the order of the patterns and then by name.

    A named file is taken whatever its suffix. A folder means all images in it and below, by their suffix (see
    `PICTURE_SUFFIXES`), without hidden ones and without following links to other folders. A pattern may hold ``*``,
    ``?``, ``[...]`` and ``**`` (any number of folders); of its matches, images and folders are taken.

    Raises:
        ImageError: a pattern matches no image, or a folder cannot be read.

    Example:
        >>> find_images(["photos", "more/*.jpg"])  # doctest: +SKIP
        [PosixPath('photos/cat.jpg'), PosixPath('more/dog.jpg')]
    """
    names = [patterns] if isinstance(patterns, str | os.PathLike) else list(patterns)
    if not names:
        raise ImageError("no images were named: give at least one file, folder or pattern such as 'photos/*.jpg'.")
    found: dict[str, Path] = {}
    for name in names:
        matches = list(_matches(os.fspath(name)))
        if not matches:
            raise ImageError(f"no images found for {name!r}: check the name, or that the folder holds images.")
        for path in matches:
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def file_state(path: Path) -> tuple[str, int, int]:
    """Identifies the content of a file: its resolved path, modification time and size."""
    try:
        state = path.stat()
    except OSError as error:
        raise ImageError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    return str(path.resolve()), state.st_mtime_ns, state.st_size


def is_picture_argument(argument: str) -> bool:
    """Whether an argument means images rather than a concept: by its suffix, or as a path (``cat/``) or pattern.

    Example:
        >>> [is_picture_argument(word) for word in ("dog.jpg", "holiday/", "*.png", "cat", "2")]
        [True, True, True, False, False]
    """
    return Path(argument).suffix.lower() in PICTURE_SUFFIXES or "/" in argument or glob.has_magic(argument)


def _matches(name: str) -> Iterator[Path]:
    """The images of one name, folder or pattern, in order."""
    path = Path(name)
    if path.is_dir():
        yield from _pictures_below(path)
    elif path.exists():
        yield path
    else:
        for match in map(Path, sorted(glob.glob(name, recursive=True))):  # noqa: PTH207 - takes absolute patterns too
            if match.is_dir():
                yield from _pictures_below(match)
            elif match.suffix.lower() in PICTURE_SUFFIXES:
                yield match


def _pictures_below(folder: Path) -> Iterator[Path]:
    """All images in a folder and below by name, without hidden files and folders."""
    for parent, folders, files in os.walk(folder, onerror=_refuse_folder):
        folders[:] = sorted(inner for inner in folders if not inner.startswith("."))
        for file in sorted(files):
            if not file.startswith(".") and Path(file).suffix.lower() in PICTURE_SUFFIXES:
                yield Path(parent, file)


def _refuse_folder(error: OSError) -> None:
    raise ImageError(
        f"the folder {error.filename!r} cannot be read: {error.strerror}; check its permissions."
    ) from error
