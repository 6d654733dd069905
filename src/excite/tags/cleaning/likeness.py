"""How alike two pictures are, by 64 bits each that survive another size, another JPEG quality, another brightness.

A picture is made 32 pixels wide and high, grey, and is taken apart into waves (the discrete cosine transform). Of each
of the 63 longest, all but the constant one, a bit says whether it is stronger than their median.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from excite.tags.images import Pictures

__all__ = ["Hashing", "likeness"]

SIDE = 32
WAVES = 8
TEXTURE = 8.0  # how far the waves lie from their median, typically; below that, JPEG decides some of the bits
VERSION = 1


def likeness(picture: Image.Image) -> int | None:
    """The picture's 64 bits; None for one without texture, such as a single colour, whose bits would mean nothing.

    The lowest bit stands for the constant wave and is always 0.

    Example:
        >>> print(likeness(Image.new("RGB", (64, 64), "red")))
        None
    """
    small = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS, reducing_gap=3)
    waves = _cosines() @ np.asarray(small, np.float64) @ _cosines().T
    strengths = waves.ravel()[1:]
    differences = strengths - np.median(strengths)
    if np.median(np.abs(differences)) < TEXTURE:
        return None
    return int(np.packbits(np.concatenate([[False], differences > 0]), bitorder="little").view("<u8")[0])


@cache
def _cosines() -> NDArray[np.float64]:
    """The longest waves along one side, one a row, each of length 1."""
    wave, place = np.arange(WAVES)[:, None], np.arange(SIDE)[None]
    cosines = np.cos(np.pi * wave * (2 * place + 1) / (2 * SIDE)) * np.sqrt(2 / SIDE)
    cosines[0] /= np.sqrt(2)
    return np.asarray(cosines)


@dataclass(frozen=True)
class Hashing:
    """The likeness of each picture as work for `excite.jobs.loop.run`, whose tasks are the names of pictures.

    Args:
        pictures: where they lie.

    Example:
        >>> Hashing(open_pictures("photos"))("cat.jpg")  # doctest: +SKIP
        {'picture': 'cat.jpg', 'hash': '3f1c0a9be2d47790'}
    """

    pictures: Pictures

    def key(self, task: str) -> str:
        """Changes when the picture does, or the way it is looked at."""
        facts = f"likeness {VERSION} {task} {self.pictures.state(task)}"
        return hashlib.sha256(facts.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def __call__(self, task: str) -> dict[str, Any]:
        """The hash in hexadecimal, or None for a picture without texture."""
        bits = likeness(self.pictures.read(task))
        return {"picture": task, "hash": None if bits is None else f"{bits:016x}"}
