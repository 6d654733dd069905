"""The pictures that people have sent. They are kept in memory and nowhere else, and the oldest are forgotten first."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from excite.errors import ExciteError, ImageError
from excite.images import decode_image
from excite.shelf import Shelf

if TYPE_CHECKING:
    from excite.readouts.boxes_drawn import Box
    from excite.web.limits import Limits

__all__ = ["Desk", "GoneError", "Sheet"]

LONGEST = 100_000  # pixels of a side


class GoneError(ExciteError):
    """The picture is no longer kept."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """A picture on the desk.

    Attributes:
        key: by which it is asked for again; nobody can guess it who does not have the picture.
        picture: upright and RGB, made smaller if it was very large.
        size: width and height as it was sent: what points and boxes are told in.
    """

    key: str
    picture: Image.Image
    size: tuple[int, int]

    def point(self, point: tuple[int, int] | None) -> list[int] | None:
        """A point of the kept picture in pixels of the one that was sent."""
        if point is None:
            return None
        return [
            min(int((at + 0.5) * sent / kept), sent - 1)
            for at, sent, kept in zip(point, self.size, self.picture.size, strict=True)
        ]

    def box(self, box: Box | None) -> list[float] | None:
        """A box of the kept picture in pixels of the one that was sent."""
        if box is None:
            return None
        across, down = (sent / kept for sent, kept in zip(self.size, self.picture.size, strict=True))
        return [round(at * scale, 2) for at, scale in zip(box, (across, down, across, down), strict=True)]


class Desk:
    """Takes pictures, and finds them again.

    Args:
        limits: how large a picture may be, and how much is kept.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._shelf: Shelf[Sheet] = Shelf(limits.pictures)

    def take(self, content: bytes) -> Sheet:
        """Read a picture file that somebody sent.

        Raises:
            ImageError: it is too large, no picture, or broken.
        """
        if not content:
            raise ImageError("the file is empty: send a picture")
        if len(content) > self._limits.upload:
            raise ImageError(f"the file has more than {self._limits.upload:,} bytes: send a smaller picture")
        return self.put(decode_image(content, most_pixels=self._limits.pixels))

    def put(self, picture: Image.Image) -> Sheet:
        """Keep a picture in mode RGB.

        Raises:
            ImageError: it is a strip of which nothing could be seen.
        """
        size = picture.size
        if max(size) > LONGEST:  # made smaller, a strip of one pixel by millions would take all memory
            raise ImageError(f"the picture has {size[0]} x {size[1]} pixels: no side may have more than {LONGEST:,}")
        share = math.sqrt(self._limits.kept_pixels / (size[0] * size[1]))
        if share < 1:
            smaller = (max(1, round(size[0] * share)), max(1, round(size[1] * share)))
            picture = picture.resize(smaller, Image.Resampling.LANCZOS)
        key = hashlib.sha256(f"{size} {picture.size}".encode() + picture.tobytes()).hexdigest()[:32]
        sheet = Sheet(key, picture, size)
        self._shelf.put(key, sheet, picture.width * picture.height * 3)
        return sheet

    def find(self, key: str) -> Sheet:
        """The picture of that key.

        Raises:
            GoneError: it is no longer there, or never was.
        """
        sheet = self._shelf.get(key)
        if sheet is None:
            raise GoneError("this picture is no longer kept here: send it again")
        return sheet
