"""What every place of pictures can do, and how its errors name them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from excite.errors import ImageError
from excite.images import decode_image

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["MOST_BYTES", "WEB", "Pictures", "read_at", "shown", "too_large"]

MOST_BYTES = 256 << 20  # of one encoded picture: more is no photo, and a few of them at once would fill the memory
WEB = ("http://", "https://")
LONGEST = 120  # letters of a name in an error: a corpus may hold names of a megabyte


class Pictures(Protocol):
    """The pictures a corpus names, wherever they lie. Can be pickled: each worker opens its own files.

    Nothing in a name is trusted: whatever it is, reading gives that picture of this place, or an `ImageError` in one
    line.
    """

    @property
    def groups(self) -> int:
        """How many groups there are; their numbers begin at 0."""

    def group(self, name: str) -> int:
        """Pictures with the same number lie together and are best read one after the other: those of one shard."""

    def encoded(self, name: str) -> bytes:
        """The picture as it is stored."""

    def state(self, name: str) -> str:
        """Changes when the picture does, and costs much less than to read it."""

    def read(self, name: str) -> Image.Image:
        """The picture as a person would see it: upright, RGB.

        Raises:
            ImageError: it is missing, damaged, too large, or lies elsewhere.
        """
        return decode_image(self.encoded(name), shown(name))


def shown(name: str) -> str:
    """A name for one line of an error.

    Example:
        >>> shown("cat.jpg")
        "'cat.jpg'"
        >>> len(shown("x" * 1_000_000))
        125
    """
    return repr(name if len(name) <= LONGEST else name[:LONGEST] + "...")


def too_large(name: str) -> ImageError:
    """The refusal of a picture that would fill the memory."""
    return ImageError(f"{shown(name)} has more than {MOST_BYTES >> 20} MB: make it smaller")


def read_at(file: int, offset: int, size: int) -> bytes:
    """Some bytes of an opened file, without a position that several readers would share; fewer where it ends."""
    parts = []
    while size and (part := os.pread(file, size, offset)):
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)
