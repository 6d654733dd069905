"""Figures: images with captions in a grid, or with a heading in a row, in Pillow's own font."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from unicodedata import combining, normalize

from PIL import Image, ImageDraw, ImageFont

from excite.errors import ExciteError, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    Colour = tuple[int, int, int]


NO_LETTER = "\uffff"
"""A letter that no font has."""

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
"""Replacements of letters that are no plain letter with an accent."""


def drawable(text: str) -> str:
    """The text without accents that the font lacks; letters of other scripts stay, and are drawn as empty boxes.

    Example:
        >>> drawable("two jalapeños — 5 °C, a straße")
        'two jalapenos - 5 °C, a strasse'
    """
    return "".join(map(_drawable, text))


@cache
def _drawable(letter: str) -> str:
    """The letter, or its plain form."""
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


Cell = tuple[Image.Image, str]
"""An image and its caption, whose first line is darker than the others."""

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

PAPER, INK, GREY = (255, 255, 255), (24, 24, 28), (104, 104, 112)

TALLEST = 1.5
"""The largest ratio of a cell's height to its width."""

CAPTION_LINES = 3
"""Longer captions end in an ellipsis."""


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
    pictures = [cell[0] for row in cells for cell in row if cell is not None]
    if not pictures:
        raise ExciteError("a figure needs at least one image: pass rows of (image, caption).")
    if cell_width < 40:
        raise ExciteError(f"a cell {cell_width} pixels wide cannot hold a caption: use at least 40.")
    font = ImageFont.load_default(size=max(9, round(cell_width / 20)))
    gap = max(6, cell_width // 12)
    strips = [_strip(row, cell_width, gap, font) for row in cells if any(cell is not None for cell in row)]
    width, height = max(strip.width for strip in strips), gap + sum(strip.height for strip in strips)
    page = Image.new("RGB", (width, height), PAPER)
    top = gap
    for strip in strips:
        page.paste(strip, (0, top))
        top += strip.height
    return page


def _strip(row: Sequence[Cell | None], width: int, gap: int, font: Font) -> Image.Image:
    """One row of the figure with the gaps between, beside and below its cells."""
    pictures = [cell[0] for cell in row if cell is not None]
    tallest = max(round(picture.height * width / picture.width) for picture in pictures)
    height = min(round(TALLEST * width), max(1, tallest))
    captions = [_caption_lines(cell[1], font, width) if cell else [] for cell in row]
    line, below = _line_height(font), height + gap // 2
    strip_height = below + line * max(len(lines) for lines in captions) + gap
    strip = Image.new("RGB", (gap + len(row) * (width + gap), strip_height), PAPER)
    for column, (cell, lines) in enumerate(zip(row, captions, strict=True)):
        left = gap + column * (width + gap)
        if cell is not None:
            _place(strip, cell[0], (left, 0, left + width, height))
            _write(strip, lines, (left, below), font)
    return strip


def _place(page: Image.Image, picture: Image.Image, cell: tuple[int, int, int, int]) -> None:
    """Paste the image at the largest size that fits, centred in its cell."""
    x0, y0, x1, y1 = cell
    scale = min((x1 - x0) / picture.width, (y1 - y0) / picture.height)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    smooth = Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.BICUBIC
    left, top = x0 + (x1 - x0 - size[0]) // 2, y0 + (y1 - y0 - size[1]) // 2
    page.paste(picture.convert("RGB").resize(size, smooth), (left, top))


def _line_height(font: Font) -> int:
    _, top, _, bottom = font.getbbox("Åg")
    return round(1.35 * (bottom - top))


def _write(page: Image.Image, lines: list[tuple[str, bool]], corner: tuple[int, int], font: Font) -> None:
    """Write the lines of a caption; those of its first paragraph in dark ink."""
    draw, line = ImageDraw.Draw(page), _line_height(font)
    for number, (text, first) in enumerate(lines):
        draw.text((corner[0], corner[1] + number * line), text, fill=INK if first else GREY, font=font)


def _caption_lines(caption: str, font: Font, width: int) -> list[tuple[str, bool]]:
    """The lines of a caption, each with whether it is of the first paragraph; every paragraph keeps at least one."""
    paragraphs = [paragraph for paragraph in drawable(caption).splitlines() if paragraph.strip()][:CAPTION_LINES]
    lines: list[tuple[str, bool]] = []
    for number, paragraph in enumerate(paragraphs):
        allowed = CAPTION_LINES - len(lines) - (len(paragraphs) - number - 1)
        lines += [(text, number == 0) for text in _wrapped(paragraph.split(), font, width, allowed)]
    return lines


def _wrapped(words: list[str], font: Font, width: int, allowed: int) -> list[str]:
    """Words in at most ``allowed`` lines, the last with an ellipsis where they do not fit."""
    lines: list[str] = []
    while words and len(lines) < allowed - 1:
        count = min(len(words), width)
        while count > 1 and font.getlength(" ".join(words[:count])) > width:
            count -= 1
        lines.append(shortened(" ".join(words[:count]), font, width))
        words = words[count:]
    return [*lines, shortened(" ".join(words), font, width)] if words else lines


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


def shortened(text: str, font: Font, width: int) -> str:
    """The text, or as much of its beginning as fits before an ellipsis."""
    if len(text) <= width and font.getlength(text) <= width:  # a letter is a pixel wide, and a label may have thousands
        return text
    kept = min(len(text), max(width, 0))
    while kept > 0 and font.getlength(text[:kept].rstrip() + "…") > width:
        kept -= 1
    return text[:kept].rstrip() + "…"


# A row of images of one size, each with a heading.

HEADED_TALLEST = 1.2
"""The largest ratio of an image's height to the width of its column; a taller one is drawn narrower."""


@dataclass(frozen=True, eq=False)
class Headed:
    """An image at its final size, with a heading: the title in a colour, the note in grey."""

    picture: Image.Image
    title: str
    note: str = ""
    colour: Colour = INK


def fitted(size: tuple[int, int], width: int) -> tuple[int, int]:
    """The size of an image in a column of that width.

    Example:
        >>> fitted((640, 480), 320), fitted((100, 1000), 100)
        ((320, 240), (12, 120))
    """
    scale = min(width / size[0], HEADED_TALLEST * width / size[1])
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def draw_row(row: Sequence[Headed], width: int, gap: int, size: int) -> Image.Image:
    """The images side by side on white, in columns of ``width`` with a ``gap`` between, letters of ``size`` pixels.

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
        _write_heading(strip, cell, left, width, size)
    return strip


def _write_heading(strip: Image.Image, cell: Headed, left: int, width: int, size: int) -> None:
    """The heading of an image; a long title is shortened before its note."""
    font = ImageFont.load_default(size=size)
    note = shortened(_in_a_line(cell.note), font, width)
    blank = font.getlength("  ") if note else 0
    title = shortened(_in_a_line(cell.title), font, int(width - font.getlength(note) - blank))
    draw = ImageDraw.Draw(strip)
    draw.text((left, 0), title, fill=cell.colour, font=font)
    draw.text((left + font.getlength(title) + blank, 0), note, fill=GREY, font=font)


def _in_a_line(text: str) -> str:
    return " ".join(drawable(text).split())
