"""The images that people have sent. They are kept in memory and nowhere else, and the oldest are forgotten first."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from PIL import Image

from excite.errors import ExciteError, ImageError
from excite.images import decode_image, find_images, read_image
from excite.readouts.notebook import data_address, jpeg
from excite.session import ByteCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from excite.readouts.grounded_figure import Box


LONGEST = 100_000  # pixels of a side


class GoneError(ExciteError):
    """The image is no longer kept."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """An image on the desk.

    Attributes:
        key: by which it is asked for again; nobody can guess it who does not have the image.
        picture: upright and RGB, made smaller if it was very large.
        size: width and height as it was sent: what points and boxes are told in.
    """

    key: str
    picture: Image.Image
    size: tuple[int, int]

    def point(self, point: tuple[int, int] | None) -> list[int] | None:
        """A point of the kept image in pixels of the one that was sent."""
        if point is None:
            return None
        return [
            min(int((at + 0.5) * sent / kept), sent - 1)
            for at, sent, kept in zip(point, self.size, self.picture.size, strict=True)
        ]

    def box(self, box: Box | None) -> list[float] | None:
        """A box of the kept image in pixels of the one that was sent."""
        if box is None:
            return None
        across, down = (sent / kept for sent, kept in zip(self.size, self.picture.size, strict=True))
        return [round(at * scale, 2) for at, scale in zip(box, (across, down, across, down), strict=True)]


class Desk:
    """Takes images, and finds them again.

    Args:
        limits: how large an image may be, and how much is kept.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._shelf: ByteCache[Sheet] = ByteCache(limits.pictures)

    def take(self, content: bytes) -> Sheet:
        """Read an image file that somebody sent.

        Raises:
            ImageError: it is too large, no image, or broken.
        """
        if not content:
            raise ImageError("the file is empty: send an image")
        if len(content) > self._limits.upload:
            raise ImageError(f"the file has more than {self._limits.upload:,} bytes: send a smaller image")
        return self.put(decode_image(content, most_pixels=self._limits.pixels))

    def put(self, picture: Image.Image) -> Sheet:
        """Keep an image in mode RGB.

        Raises:
            ImageError: it is a strip of which nothing could be seen.
        """
        size = picture.size
        if max(size) > LONGEST:  # made smaller, a strip of one pixel by millions would take all memory
            raise ImageError(f"the image has {size[0]} x {size[1]} pixels: no side may have more than {LONGEST:,}")
        share = math.sqrt(self._limits.kept_pixels / (size[0] * size[1]))
        if share < 1:
            smaller = (max(1, round(size[0] * share)), max(1, round(size[1] * share)))
            picture = picture.resize(smaller, Image.Resampling.LANCZOS)
        key = hashlib.sha256(f"{size} {picture.size}".encode() + picture.tobytes()).hexdigest()[:32]
        sheet = Sheet(key, picture, size)
        self._shelf.put(key, sheet, picture.width * picture.height * 3)
        return sheet

    def find(self, key: str) -> Sheet:
        """The image of that key.

        Raises:
            GoneError: it is no longer there, or never was.
        """
        sheet = self._shelf.get(key)
        if sheet is None:
            raise GoneError("this image is no longer kept here: send it again")
        return sheet


# How much anybody may ask of the server, so that it can answer the next person too.

MB = 2**20


@dataclass(frozen=True)
class Limits:
    """What is refused, and how much is kept.

    Attributes:
        upload: bytes of a request, the image included.
        pixels: of an image, before it is decoded.
        kept_pixels: of an image as it is kept: a larger one is made smaller, since no classifier sees more.
        pictures: bytes of all images that are kept.
        passes: bytes of all forward passes that are kept, for each classifier.
        at_once: how many questions are answered at the same time.
        waiting: how many more may wait for their turn; whoever comes then is told to come again.
        concepts: of one question.
        letters: of a concept or a phrase.
    """

    upload: int = 25 * MB
    pixels: int = 60_000_000
    kept_pixels: int = 2_000_000
    pictures: int = 128 * MB
    passes: int = 128 * MB
    at_once: int = 3
    waiting: int = 32
    concepts: int = 50
    letters: int = 1000


# Images that are ready to be looked at: the photographs of scikit-image, or a folder of one's own.

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
    """An image to try.

    Attributes:
        name: by which links know it.
        title: what it shows.
        read: gives the image.
    """

    name: str
    title: str
    read: Callable[[], Image.Image]

    def thumbnail(self) -> str:
        """The image, small, as a data: address."""
        picture = self.read()
        picture.thumbnail((THUMBNAIL * 2, THUMBNAIL))
        return data_address("image/jpeg", jpeg(picture, quality=80))


def find_examples(folder: Path | None = None) -> Mapping[str, Example]:
    """The examples by name: the images in a folder, or those of scikit-image if that is installed.

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
