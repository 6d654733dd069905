"""Uploaded images, kept in memory only with the oldest dropped first; the limits of the server; example images."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from excite.errors import ExciteError, ImageError, visible
from excite.images import decode_image, find_images, read_image
from excite.io.cache import ByteCache
from excite.readouts.notebook import data_address, jpeg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from excite.readouts.figure import Box


LONGEST = 100_000  # pixels of a side
MB = 2**20
MOST = 12  # examples
THUMBNAIL = 128
PHOTOGRAPHS = {  # of scikit-image: those with free licences that need no download
    "chelsea.png": "a cat",
    "coffee.png": "a cup of coffee",
    "astronaut.png": "an astronaut",
    "rocket.jpg": "a rocket",
}


class GoneError(ExciteError):
    """The image is no longer kept."""


@dataclass(frozen=True, eq=False)
class Upload:
    """An uploaded image.

    Attributes:
        key: a hash of its pixels, which cannot be guessed without the image.
        picture: upright and RGB, made smaller if it was very large.
        size: width and height as it was sent: the coordinates of points and boxes in answers.
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


class UploadStore:
    """Keeps uploaded images by their keys."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._uploads: ByteCache[Upload] = ByteCache(limits.pictures)

    def take(self, content: bytes) -> Upload:
        """Decode and keep an image file.

        Raises:
            ImageError: it is too large, no image, or broken.
        """
        if not content:
            raise ImageError("the file is empty: send an image")
        if len(content) > self._limits.upload:
            raise ImageError(f"the file has more than {self._limits.upload:,} bytes: send a smaller image")
        return self.put(decode_image(content, most_pixels=self._limits.pixels))

    def put(self, picture: Image.Image) -> Upload:
        """Keep an image in mode RGB.

        Raises:
            ImageError: a side is too long.
        """
        size = picture.size
        if max(size) > LONGEST:  # a resized strip of one pixel by millions would take all memory
            raise ImageError(f"the image has {size[0]} x {size[1]} pixels: no side may have more than {LONGEST:,}")
        share = math.sqrt(self._limits.kept_pixels / (size[0] * size[1]))
        if share < 1:
            smaller = (max(1, round(size[0] * share)), max(1, round(size[1] * share)))
            picture = picture.resize(smaller, Image.Resampling.LANCZOS)
        key = hashlib.sha256(f"{size} {picture.size}".encode() + picture.tobytes()).hexdigest()[:32]
        upload = Upload(key, picture, size)
        self._uploads.put(key, upload, picture.width * picture.height * 3)
        return upload

    def find(self, key: str) -> Upload:
        """The image of a key.

        Raises:
            GoneError: it is no longer there, or never was.
        """
        upload = self._uploads.get(key)
        if upload is None:
            raise GoneError("this image is no longer kept here: send it again")
        return upload


@dataclass(frozen=True)
class Limits:
    """The limits of a request and of the caches.

    Attributes:
        upload: bytes of a request, the image included.
        pixels: of an image, before it is decoded.
        kept_pixels: of an image as it is kept: a larger one is made smaller, since no classifier sees more.
        pictures: bytes of all images that are kept.
        passes: bytes of all forward passes that are kept, for each classifier.
        at_once: requests that are answered at the same time.
        waiting: requests that may wait; further ones are refused.
        concepts: of one request.
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


@dataclass(frozen=True)
class Example:
    """An image to try, with its name in links and its title."""

    name: str
    title: str
    read: Callable[[], Image.Image]

    def thumbnail(self) -> str:
        """The image, small, as a data: URL."""
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
    package = find_spec("skimage")
    if package is None or package.origin is None:
        return {}
    shipped = Path(package.origin).parent / "data"  # read as files: importing the package takes a second
    return {
        Path(name).stem: Example(Path(name).stem, title, partial(read_image, shipped / name))
        for name, title in PHOTOGRAPHS.items()
    }


def _named(files: Sequence[Path]) -> dict[str, Path]:
    """Files by unique, visible names for the page.

    Example:
        >>> from pathlib import Path
        >>> list(_named([Path("a/cat.jpg"), Path("b/cat.png")]))
        ['cat', 'cat (2)']
    """
    found: dict[str, Path] = {}
    for file in files:
        stem = name = visible(file.stem)
        number = 1
        while name in found:
            number += 1
            name = f"{stem} ({number})"
        found[name] = file
    return found
