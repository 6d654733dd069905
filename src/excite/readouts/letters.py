"""Text in the letters that the font of our pictures has: the one inside Pillow, which is the same everywhere."""

from __future__ import annotations

from functools import cache
from unicodedata import combining, normalize

from PIL import ImageFont

__all__ = ["drawable"]

NO_LETTER = "\uffff"
"""What no font has."""

INSTEAD = {
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "ß": "ss",
    "æ": "ae",
    "Æ": "AE",
    "œ": "oe",
    "Œ": "OE",
    "ø": "o",
    "Ø": "O",
}
"""Letters that are no plain letter with an accent."""


def drawable(text: str) -> str:
    """The text without accents where the font has none; letters of other scripts stay, and are drawn as empty boxes.

    Example:
        >>> drawable("two jalapeños — 5 °C, a straße")
        'two jalapenos - 5 °C, a strasse'
    """
    whole = text.encode("utf-8", "replace").decode()  # half a letter, as odd file names have, becomes a "?"
    return "".join(map(_drawable, whole))


@cache
def _drawable(letter: str) -> str:
    """The letter, or its plain form."""
    if letter.isascii() or not _is_missing(letter):
        return letter
    plain = INSTEAD.get(letter) or "".join(part for part in normalize("NFKD", letter) if not combining(part))
    return plain if combining(letter) or not any(map(_is_missing, plain)) else letter


def _is_missing(letter: str) -> bool:
    """Whether the font draws what it draws for anything that it does not have."""
    font = ImageFont.load_default(size=12)
    return bytes(font.getmask(letter)) == bytes(font.getmask(NO_LETTER))
