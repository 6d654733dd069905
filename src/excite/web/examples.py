"""Pictures that are ready to be looked at: the photographs of scikit-image, or a folder of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from PIL import Image

from excite.images import find_images, read_image
from excite.readouts.embedded import data_address, jpeg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Example", "find_examples"]

MOST = 12
THUMBNAIL = 128
PHOTOGRAPHS = {  # those with free licences that need no download
    "chelsea": "a cat",
    "coffee": "a cup of coffee",
    "astronaut": "an astronaut",
    "rocket": "a rocket",
}


@dataclass(frozen=True)
class Example:
    """A picture to try.

    Attributes:
        name: by which links know it.
        title: what it shows.
        read: gives the picture.
    """

    name: str
    title: str
    read: Callable[[], Image.Image]

    def thumbnail(self) -> str:
        """The picture, small, as a data: address."""
        picture = self.read()
        picture.thumbnail((THUMBNAIL * 2, THUMBNAIL))
        return data_address("image/jpeg", jpeg(picture, quality=80))


def find_examples(folder: Path | None = None) -> Mapping[str, Example]:
    """The examples by name: the pictures in a folder, or those of scikit-image if that is installed.

    Example:
        >>> list(find_examples())
        ['chelsea', 'coffee', 'astronaut', 'rocket']
    """
    if folder is not None:
        files = find_images(str(folder))[:MOST]
        return {name: Example(name, name, partial(read_image, file)) for name, file in _named(files).items()}
    if find_spec("skimage") is None:
        return {}
    return {name: Example(name, title, partial(_photograph, name)) for name, title in PHOTOGRAPHS.items()}


def _named(files: Sequence[Path]) -> dict[str, Path]:
    """Files by what they are called on the page; half a letter, as odd file names have, becomes a "?".

    Example:
        >>> from pathlib import Path
        >>> list(_named([Path("a/cat.jpg"), Path("b/cat.png")]))
        ['cat', 'cat (2)']
    """
    found: dict[str, Path] = {}
    for file in files:
        stem = name = file.stem.encode("utf-8", "replace").decode()
        number = 1
        while name in found:
            number += 1
            name = f"{stem} ({number})"
        found[name] = file
    return found


def _photograph(name: str) -> Image.Image:
    from skimage import data

    return Image.fromarray(getattr(data, name)())
