"""Which pictures are meant, and what each of them is called in the files."""

from __future__ import annotations

import glob
import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from excite.autolabel.album_init import split_arguments
from excite.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.autolabel.files import Files

__all__ = ["Picture", "find_pictures", "place"]

ANYWHERE = Path("/")  # wherever excite has drawn an overlay, it is no picture to make boxes for
LONGEST_STEM = 200  # bytes in a file name, which may have 255 in all


@dataclass(frozen=True)
class Picture:
    """A picture that boxes are asked for.

    Attributes:
        number: its place in the order of the names, from 1.
        path: the file, as the user would name it.
        name: where it is below the folder that holds all pictures, with forward slashes.
        stem: a name that no other picture has, without blanks, dots and slashes.
    """

    number: int
    path: Path
    name: str
    stem: str

    @property
    def folder(self) -> str:
        """The name of the folder that it lies in."""
        return Path(os.path.abspath(self.path)).parent.name  # noqa: PTH100 - Path's own would follow links


def find_pictures(arguments: Sequence[str], files: Files) -> tuple[Path, list[Picture]]:
    """The folder that holds all pictures, and the pictures in the order of their names below it.

    Args:
        arguments: folders, pictures and patterns.
        files: what an earlier run wrote: a link of its own is no picture, even if it lies in a folder that is named.

    Raises:
        ImageError: an argument stands for no picture.

    Example:
        >>> find_pictures(["photos"], Files(Path("boxes"), "coco"))  # doctest: +SKIP
        (PosixPath('/home/me/photos'), [Picture(1, PosixPath('photos/dog/1.jpg'), 'dog/1.jpg', 'dog-1')])
    """
    found: dict[str, Path] = {}
    folders: list[str | Path] = []
    for argument in arguments:
        paths = list(_found_by(argument, files))
        if not paths:
            raise ImageError(f"no pictures found for {argument!r} but those that excite itself has put there")
        for path in paths:  # two links to one picture are one picture, whatever is named first
            file = os.path.realpath(path)
            found[file] = min(found.get(file, path), path, key=place)
        folders += [argument] if os.path.isdir(argument) else [path.parent for path in paths]  # noqa: PTH112 - any name
    root = Path(os.path.commonpath([os.path.realpath(folder) for folder in folders]))
    names = {place(path).relative_to(root).as_posix(): path for path in found.values()}
    stems = _stems(sorted(names))
    return root, [Picture(k, names[name], name, stems[name]) for k, name in enumerate(sorted(names), 1)]


def place(path: Path) -> Path:
    """Where a file is, whatever links led to its folder; if it is a link itself, where that is.

    Example:
        >>> place(Path("/photos/../photos/1.jpg"))
        PosixPath('/photos/1.jpg')
    """
    return Path(os.path.realpath(path.parent), path.name)


def _found_by(argument: str, files: Files) -> Iterator[Path]:
    """The pictures of an argument. Of a picture and our link to it, only one is found: it may be the link."""
    paths = split_arguments([argument], ANYWHERE)[0]
    matches = [argument] if os.path.exists(argument) else glob.glob(argument, recursive=True)  # noqa: PTH110, PTH207 - any name
    places = {Path(os.path.realpath(match)) if os.path.isdir(match) else place(Path(match)) for match in matches}  # noqa: PTH112 - any name
    for path in paths:
        original = files.original(path)
        if original is None:
            yield path
        elif original != path and not places.isdisjoint((original, *original.parents)):
            yield original


def _stems(names: Sequence[str]) -> dict[str, str]:
    """A name without blanks for each, made of its words; on some disks capitals make no difference."""
    taken: set[str] = set()
    last: dict[str, int] = {}
    stems = {}
    for name in names:
        stem = words = _words(name.removesuffix(Path(name).suffix))
        while stem.casefold() in taken:
            last[words] = last.get(words, 1) + 1
            stem = f"{words}-{last[words]}"
        taken.add(stem.casefold())
        stems[name] = stem
    return stems


def _words(text: str) -> str:
    words = re.sub(r"\W+", "-", unicodedata.normalize("NFC", text)).strip("-")
    return words.encode()[:LONGEST_STEM].decode(errors="ignore").strip("-") or "picture"
