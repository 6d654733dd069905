"""Figures: text in Pillow's own font, and images with captions in a grid or with headings in a row.

They need no extra: comparisons and grounded phrases are drawn where matplotlib is not installed.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from math import ceil
from operator import itemgetter
from typing import TYPE_CHECKING
from unicodedata import combining, normalize

from PIL import Image, ImageDraw, ImageFont, ImageOps

from excite.errors import ExciteError, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    Colour = tuple[int, int, int]
    Look = tuple[Colour, bool]  # of a letter: its colour, and whether it is underlined

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Cell = tuple[Image.Image, str]
"""An image and its caption, whose first line is darker than the others."""

PAPER, INK, GREY = (255, 255, 255), (24, 24, 28), (104, 104, 112)
ELLIPSIS = "…"
NO_LETTER = "\uffff"  # which no font has
INSTEAD = dict(zip("–—ßæÆœŒøØ", ("-", "-", "ss", "ae", "AE", "oe", "OE", "o", "O"), strict=True))  # noqa: RUF001
TALLEST = 1.5  # the largest ratio of a cell's height to its width
HEADED_TALLEST = 1.2  # the same in a row of headed images
CAPTION_LINES = 3  # longer captions end in an ellipsis


@cache
def drawable(letter: str) -> str:
    """A letter without an accent that the font lacks; one of another script stays, and is drawn as an empty box.

    Example:
        >>> "".join(map(drawable, "two jalapeños — 5 °C, a straße"))
        'two jalapenos - 5 °C, a strasse'
    """
    if not (letter.isprintable() or letter.isspace()):
        return visible(letter)
    if letter.isascii() or not _is_missing(letter):
        return letter
    plain = INSTEAD.get(letter) or "".join(part for part in normalize("NFKD", letter) if not combining(part))
    return plain if combining(letter) or not any(map(_is_missing, plain)) else letter


def _is_missing(letter: str) -> bool:
    """Whether the font draws its replacement glyph."""
    font = ImageFont.load_default(size=12)
    return bytes(font.getmask(letter)) == bytes(font.getmask(NO_LETTER))


@dataclass(frozen=True)
class Line:
    """The letters of one line, and the look of each."""

    text: str
    looks: tuple[Look, ...]


def lines_of(text: str, font: Font, width: int, *, most: int = 1, looks: Sequence[Look] | None = None) -> list[Line]:
    """A text in at most ``most`` lines no wider than ``width`` pixels; each run of blanks is drawn as one.

    A line ends at a blank, or within a word that is wider than a line. The last one ends in an ellipsis if text is
    left.

    Args:
        text: of any letters.
        font: in which it will be drawn.
        width: of a line.
        most: number of lines.
        looks: of each letter of the text; dark ink without them.

    Example:
        >>> [line.text for line in lines_of("a red hat of straw", ImageFont.load_default(size=20), 70, most=2)]
        ['a red', 'hat of…']
    """
    letters, styles = _single_blanks(text, looks or [(INK, False)] * len(text))
    lines: list[Line] = []
    start = 0
    while start < len(letters) and len(lines) < most:
        end, rest = max(_fitting(letters, start, font, width), start + 1), ""
        if end < len(letters):
            if len(lines) == most - 1:
                end, rest = _fitting(letters, start, font, width, ELLIPSIS), ELLIPSIS
            else:
                blank = letters.rfind(" ", start, end + 1)
                end = blank if blank > start else end
        shown = letters[start:end].rstrip() + rest
        lines.append(Line(shown, (*styles[start:end], (INK, False))[: len(shown)]))
        start = end + (letters[end : end + 1] == " ")
    return lines


def _single_blanks(text: str, looks: Sequence[Look]) -> tuple[str, list[Look]]:
    """The drawable letters and their looks, without blanks at the ends and with single ones between words."""
    letters, styles = "", []
    for letter, look in zip(text, looks, strict=True):
        drawn = " " if letter.isspace() else drawable(letter)
        if drawn != " " or letters[-1:] not in {"", " "}:
            letters += drawn
            styles += [look] * len(drawn)
    return letters.rstrip(), styles


def _fitting(letters: str, start: int, font: Font, width: int, after: str = "") -> int:
    """The last end of a line that begins at ``start`` and fits with the text ``after`` it."""
    ends = range(start, min(len(letters), start + max(width, 0)) + 1)  # no letter is narrower than a pixel
    fit = bisect_right(ends, width, key=lambda end: ceil(font.getlength(letters[start:end] + after)))
    return start + max(0, fit - 1)


def write(page: Image.Image, lines: Sequence[Line], corner: tuple[float, float], font: Font, step: int) -> None:
    """Draw lines below each other, ``step`` pixels apart, underlines clear of the letters."""
    draw, low = ImageDraw.Draw(page), font.getbbox("x")[3] + 3
    for number, line in enumerate(lines):
        x, y = corner[0], corner[1] + number * step
        for (colour, underlined), letters in groupby(zip(line.looks, line.text, strict=True), key=itemgetter(0)):
            text = "".join(letter for _, letter in letters)
            draw.text((x, y), text, fill=colour, font=font)
            wide = font.getlength(text)
            if underlined:
                draw.rectangle((x, y + low, x + wide, y + low + 1), fill=colour)
            x += wide


def stacked(strips: Sequence[Image.Image], gap: int = 0) -> Image.Image:
    """Images below each other on white."""
    height = sum(strip.height + gap for strip in strips) - gap
    page = Image.new("RGB", (max(strip.width for strip in strips), height), PAPER)
    top = 0
    for strip in strips:
        page.paste(strip, (0, top))
        top += strip.height + gap
    return page


def figure(cells: Sequence[Sequence[Cell | None]], *, cell_width: int = 320) -> Image.Image:
    r"""Set captioned images in a grid on white.

    All cells of a row have the same size; an image of another shape is centred in its cell, never distorted.

    Args:
        cells: the rows of the grid, of any length, each a sequence of ``(image, caption)`` or `None` (left empty).
        cell_width: the width of an image in the figure, in pixels; text and margins are in proportion.

    Raises:
        ExciteError: there is no image at all, or the width is too small to hold a caption.

    Example:
        >>> cat = Image.new("RGB", (64, 48))
        >>> figure([[(cat, "photograph"), (cat, "tabby cat\n87 %")]], cell_width=100).width
        224
    """
    rows = [row for row in cells if any(cell is not None for cell in row)]
    if not rows:
        raise ExciteError("a figure needs at least one image: pass rows of (image, caption).")
    if cell_width < 40:
        raise ExciteError(f"a cell {cell_width} pixels wide cannot hold a caption: use at least 40.")
    font = ImageFont.load_default(size=max(9, round(cell_width / 20)))
    gap = max(6, cell_width // 12)
    return ImageOps.expand(stacked([_strip(row, cell_width, gap, font) for row in rows]), (0, gap, 0, 0), PAPER)


def _strip(row: Sequence[Cell | None], width: int, gap: int, font: Font) -> Image.Image:
    """One row of the figure with the gaps between, beside and below its cells."""
    tallest = max(round(cell[0].height * width / cell[0].width) for cell in row if cell is not None)
    height = min(round(TALLEST * width), max(1, tallest))
    captions = [_caption(cell[1], font, width) if cell else [] for cell in row]
    _, top, _, bottom = font.getbbox("Åg")
    step, below = round(1.35 * (bottom - top)), height + gap // 2
    strip_height = below + step * max(map(len, captions)) + gap
    strip = Image.new("RGB", (gap + len(row) * (width + gap), strip_height), PAPER)
    for column, (cell, caption) in enumerate(zip(row, captions, strict=True)):
        left = gap + column * (width + gap)
        if cell is not None:
            scale = min(width / cell[0].width, height / cell[0].height)
            picture = at_size(cell[0], (round(cell[0].width * scale), round(cell[0].height * scale)))
            strip.paste(picture, (left + (width - picture.width) // 2, (height - picture.height) // 2))
            write(strip, caption, (left, below), font, step)
    return strip


def _caption(text: str, font: Font, width: int) -> list[Line]:
    """The lines of a caption, its first paragraph in dark ink; every paragraph keeps at least one line."""
    paragraphs = [paragraph for paragraph in text.splitlines() if paragraph.strip()][:CAPTION_LINES]
    lines: list[Line] = []
    for number, paragraph in enumerate(paragraphs):
        allowed = CAPTION_LINES - len(lines) - (len(paragraphs) - number - 1)
        looks = [(GREY if number else INK, False)] * len(paragraph)
        lines += lines_of(paragraph, font, width, most=allowed, looks=looks)
    return lines


def at_size(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The image in RGB at another size of at least one pixel."""
    smooth = Image.Resampling.LANCZOS if size[0] < picture.width else Image.Resampling.BICUBIC
    within = max(1, size[0]), max(1, size[1])
    return picture.convert("RGB").resize(within, smooth, reducing_gap=3.0)  # much faster for a large one


def percent(probability: float | None) -> str:
    """A probability with significant digits; an empty text for None.

    Example:
        >>> [percent(value) for value in (0.874, 0.024, 0.0001, None)]
        ['87%', '2.4%', '<0.1%', '']
    """
    if probability is None:
        return ""
    if probability < 0.001:
        return "<0.1%"
    return f"{probability:.0%}" if probability >= 0.1 else f"{probability:.1%}"


@dataclass(frozen=True, eq=False)
class Headed:
    """An image at its final size, with a heading: the title in a colour, the note in grey."""

    picture: Image.Image
    title: str
    note: str = ""
    colour: Colour = INK


def fitted(size: tuple[int, int], width: int) -> tuple[int, int]:
    """The size of an image in a column of that width; a tall one is narrower.

    Example:
        >>> fitted((640, 480), 320), fitted((100, 1000), 100)
        ((320, 240), (12, 120))
    """
    scale = min(width / size[0], HEADED_TALLEST * width / size[1])
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def draw_row(row: Sequence[Headed], width: int, gap: int, size: int) -> Image.Image:
    """The images side by side on white, in columns of ``width`` with a ``gap`` between, letters of ``size`` pixels.

    A long title is shortened before its note.

    Example:
        >>> draw_row([Headed(Image.new("RGB", (80, 60)), "cat", "87%")] * 2, 80, 10, 12).width
        170
    """
    font, above = ImageFont.load_default(size=size), round(1.6 * size)
    height = above + max(cell.picture.height for cell in row)
    strip = Image.new("RGB", (len(row) * (width + gap) - gap, height), PAPER)
    for column, cell in enumerate(row):
        left = column * (width + gap)
        strip.paste(cell.picture, (left, above))
        note = lines_of(cell.note, font, width, looks=[(GREY, False)] * len(cell.note))
        beside = font.getlength("  " + note[0].text) if note else 0
        looks = [(cell.colour, False)] * len(cell.title)
        title = lines_of(cell.title, font, int(width - beside), looks=looks)
        write(strip, title, (left, 0), font, above)
        after = font.getlength(title[0].text + "  ") if title else 0
        write(strip, note, (left + after, 0), font, above)
    return strip
