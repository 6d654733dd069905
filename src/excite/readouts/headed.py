"""A row of pictures of one size, each with a line of text above it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from excite.readouts.figure import GREY, INK, PAPER, shortened
from excite.readouts.letters import drawable

if TYPE_CHECKING:
    from collections.abc import Sequence

    Colour = tuple[int, int, int]

__all__ = ["Headed", "draw_row", "fitted"]

TALLEST = 1.2
"""No picture is taller than this many times the width of its place: a tower is drawn narrower instead."""


@dataclass(frozen=True, eq=False)
class Headed:
    """A picture and the line above it.

    Attributes:
        picture: as large as it is to be drawn.
        title: the line's beginning.
        note: the rest of it, in grey; a long title is shortened, a note only when it fills the line alone.
        colour: of the title.
    """

    picture: Image.Image
    title: str
    note: str = ""
    colour: Colour = INK


def fitted(size: tuple[int, int], width: int) -> tuple[int, int]:
    """The size at which a picture fills a place of that width.

    Example:
        >>> fitted((640, 480), 320), fitted((100, 1000), 100)
        ((320, 240), (12, 120))
    """
    scale = min(width / size[0], TALLEST * width / size[1])
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def draw_row(row: Sequence[Headed], width: int, gap: int, size: int) -> Image.Image:
    """The pictures side by side on white.

    Args:
        row: the pictures.
        width: of the place of each.
        gap: between two places.
        size: of the letters in pixels.

    Example:
        >>> draw_row([Headed(Image.new("RGB", (80, 60)), "cat", "87%")] * 2, 80, 10, 12).width
        170
    """
    above = round(1.6 * size)
    height = above + max(cell.picture.height for cell in row)
    strip = Image.new("RGB", (len(row) * (width + gap) - gap, height), PAPER)
    for column, cell in enumerate(row):
        left = column * (width + gap)
        strip.paste(cell.picture, (left, above))
        _write(strip, cell, left, width, size)
    return strip


def _write(strip: Image.Image, cell: Headed, left: int, width: int, size: int) -> None:
    """The line above a picture; when it is long, what is said last is kept before what can be read elsewhere."""
    font = ImageFont.load_default(size=size)
    note = shortened(_in_a_line(cell.note), font, width)
    blank = font.getlength("  ") if note else 0
    title = shortened(_in_a_line(cell.title), font, int(width - font.getlength(note) - blank))
    draw = ImageDraw.Draw(strip)
    draw.text((left, 0), title, fill=cell.colour, font=font)
    draw.text((left + font.getlength(title) + blank, 0), note, fill=GREY, font=font)


def _in_a_line(text: str) -> str:
    return " ".join(drawable(text).split())
