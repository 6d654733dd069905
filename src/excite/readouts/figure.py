"""Figures: text in Pillow's own font, images with captions in a grid, and the figure of a grounded phrase.

They need no extra: comparisons and grounded phrases are drawn where matplotlib is not installed.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from math import ceil
from operator import itemgetter
from typing import NamedTuple
from unicodedata import combining, normalize

from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from excite.errors import ExciteError, visible
from excite.readouts.box import maximum_point
from excite.readouts.overlay import DARK, LIGHT, overlay

Look = tuple["Colour", bool]  # of a letter: its colour, and whether it is underlined
Pixels = tuple[int, int, int, int]
Span = tuple[int, int]
Shown = tuple["WordMap", "Colour"]

Box = tuple[float, float, float, float]
Cell = tuple[Image.Image, str]  # an image and its caption, whose first line is darker than the others
Colour = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

PAPER, INK, GREY = (255, 255, 255), (24, 24, 28), (104, 104, 112)
PALE = (150, 150, 158)  # for words that are skipped
BEST, OTHERS = (255, 184, 28), (148, 210, 255)  # amber and sky blue, distinct with any colour blindness
WORD_COLOURS = ((0, 104, 178), (204, 82, 0), (0, 132, 96), (170, 52, 128), (150, 108, 0), (84, 76, 190), (120, 66, 46))
"""Blue, vermilion, green, purple, ochre, violet, brown: legible on white, and of different lightness."""

ELLIPSIS, NO_LETTER = "…", "\uffff"  # which no font has
INSTEAD = dict(zip("–—ßæÆœŒøØ", ("-", "-", "ss", "ae", "AE", "oe", "OE", "o", "O"), strict=True))  # noqa: RUF001
TALLEST, HEADED_TALLEST = 1.5, 1.2  # the largest ratio of a cell's height to its width, in a grid and in a headed row
CAPTION_LINES, MOST_LINES = 3, 12  # longer captions and phrases end in an ellipsis
THIN = 300  # the longer side of an image in widths of a thin line
MOST_MAPS, IN_A_ROW, FEWEST_IN_A_ROW = 20, 5, 4
FRAME = 4  # pixels around the map of a word
NARROWEST = 400  # pixels


# Text.


@cache
def drawable(letter: str) -> str:
    """A letter without an accent that the font lacks; one of another script stays, and is drawn as an empty box."""
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


class Line(NamedTuple):
    """The letters of one line, and the look of each."""

    text: str
    looks: tuple[Look, ...]


def lines_of(text: str, font: Font, width: int, *, most: int = 1, looks: Sequence[Look] | None = None) -> list[Line]:
    """A text in at most ``most`` lines no wider than ``width`` pixels; each run of blanks is drawn as one.

    A line ends at a blank, or within a word that is wider than a line. The last ends in an ellipsis if text is left.
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


def percent(probability: float | None) -> str:
    """A probability with significant digits ("87%", "2.4%", "<0.1%"); an empty text for None."""
    if probability is None:
        return ""
    if probability < 0.001:
        return "<0.1%"
    return f"{probability:.0%}" if probability >= 0.1 else f"{probability:.1%}"


# Images with captions in a grid, and with headings in a row.


def figure(cells: Sequence[Sequence[Cell | None]], *, cell_width: int = 320) -> Image.Image:
    """Set captioned images in a grid on white; None leaves a cell empty.

    All cells of a row have the same size; an image of another shape is centred in its cell, never distorted. Text and
    margins are in proportion to the width of a cell.
    """
    rows = [row for row in cells if any(cell is not None for cell in row)]
    if not rows:
        raise ExciteError("a figure needs at least one image: pass rows of (image, caption).")
    if cell_width < 40:
        raise ExciteError(f"a cell {cell_width} pixels wide cannot hold a caption: use at least 40.")
    font = ImageFont.load_default(size=max(9, round(cell_width / 20)))
    gap = max(6, cell_width // 12)
    return ImageOps.expand(_stacked([_strip(row, cell_width, gap, font) for row in rows]), (0, gap, 0, 0), PAPER)


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


def _stacked(strips: Sequence[Image.Image], gap: int = 0) -> Image.Image:
    """Images below each other on white."""
    height = sum(strip.height + gap for strip in strips) - gap
    page = Image.new("RGB", (max(strip.width for strip in strips), height), PAPER)
    top = 0
    for strip in strips:
        page.paste(strip, (0, top))
        top += strip.height + gap
    return page


def at_size(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The image in RGB at another size of at least one pixel."""
    smooth = Image.Resampling.LANCZOS if size[0] < picture.width else Image.Resampling.BICUBIC
    within = max(1, size[0]), max(1, size[1])
    return picture.convert("RGB").resize(within, smooth, reducing_gap=3.0)  # much faster for a large one


class Headed(NamedTuple):
    """An image at its final size, with a heading: the title in a colour, the note in grey."""

    picture: Image.Image
    title: str
    note: str = ""
    colour: Colour = INK


def draw_row(row: Sequence[Headed], width: int, gap: int, size: int) -> Image.Image:
    """Images side by side in columns with a ``gap`` between, letters of ``size`` pixels; titles shrink before notes."""
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


# Ranked boxes on an image, with their numbers.


def draw_boxes(
    picture: Image.Image, boxes: Sequence[Box], *, scale: float = 1.0, true_boxes: Sequence[Box] = ()
) -> Image.Image:
    """A copy of an RGB image with the first nine half-open boxes times ``scale``, best first; true ones are dashed."""
    drawn = picture.copy()
    draw, thick = ImageDraw.Draw(drawn), max(1, round(max(drawn.size) / THIN))
    ranked = [_pixels(box, scale, drawn.size) for box in boxes[:9]]
    for rank, (x0, y0, x1, y1) in reversed(list(enumerate(ranked))):  # a bright line between dark ones
        colour, width = (OTHERS, thick) if rank else (BEST, 2 * thick)
        across, down = min(1, (x1 - x0) // 2), min(1, (y1 - y0) // 2)
        draw.rectangle((x0, y0, x1, y1), outline=DARK, width=width + 2)
        draw.rectangle((x0 + across, y0 + down, x1 - across, y1 - down), outline=colour, width=width)
    for true in true_boxes:
        _dashed(draw, _pixels(true, scale, drawn.size), thick + 1)
    _number(draw, ranked, max(11, 7 * thick), drawn.size)
    return drawn


def name_boxes(
    picture: Image.Image, boxes: Sequence[tuple[str, Box]], names: Sequence[str] = (), *, scale: float = 1.0
) -> Image.Image:
    """A copy of an RGB image with named half-open boxes times ``scale``; the position in ``names`` gives the colour.

    Example:
        >>> name_boxes(Image.new("RGB", (64, 48)), [("dog", (8, 8, 40, 40))], ["cat", "dog"]).size
        (64, 48)
    """
    drawn = picture.copy()
    draw, thick = ImageDraw.Draw(drawn), max(2, round(max(drawn.size) / THIN))
    order = list(dict.fromkeys((*names, *(name for name, _ in boxes))))
    colours = {name: WORD_COLOURS[k % len(WORD_COLOURS)] for k, name in enumerate(order)}
    placed = [(name, _pixels(box, scale, drawn.size)) for name, box in boxes]
    for name, box in reversed(placed):  # a light line beside it shows on dark photographs
        draw.rectangle(box, outline=LIGHT, width=thick + 1)
        draw.rectangle(box, outline=colours[name], width=thick)
    taken: list[Pixels] = []
    for name, box in placed:
        taken.append(_name(drawn, name, box, taken, colours[name], thick))
    return drawn


def _name(drawn: Image.Image, name: str, box: Pixels, taken: Sequence[Pixels], colour: Colour, thick: int) -> Pixels:
    """Write a name above a box, or below the names that are there already; the rectangle behind it."""
    font, high = ImageFont.load_default(size=max(12, 7 * thick)), max(16, 10 * thick)
    lines = lines_of(name, font, drawn.width - 2 * thick, looks=[(LIGHT, False)] * len(name))
    wide = ceil(max((font.getlength(line.text) for line in lines), default=0)) + 2 * thick
    left, top = max(0, min(box[0], drawn.width - wide)), max(0, box[1] - high)
    while any(left <= x1 and x0 <= left + wide and top < y1 and y0 < top + high for x0, y0, x1, y1 in taken):
        top += 1
    ImageDraw.Draw(drawn).rectangle((left, top, left + wide, top + high), fill=colour)
    write(drawn, lines, (left + thick, top), font, high)
    return left, top, left + wide, top + high


def _pixels(box: Box, scale: float, size: tuple[int, int]) -> Pixels:
    """The first and last pixels of a box within the image; at least one."""
    (x0, x1), (y0, y1) = (
        (min(max(round(low * scale), 0), most - 1), min(max(round(high * scale), 1), most) - 1)
        for low, high, most in zip(box[:2], box[2:], size, strict=True)
    )
    return x0, y0, max(x0, x1), max(y0, y1)


def _dashed(draw: ImageDraw.ImageDraw, box: Pixels, width: int) -> None:
    """Light dashes on a dark line."""
    draw.rectangle(box, outline=DARK, width=width)
    x0, y0, x1, y1 = box
    dash, inside = 5 * width, width - 1
    for x in range(x0, x1 + 1, 2 * dash):
        for y in (y0, y1 - inside):
            draw.rectangle((x, y, min(x + dash, x1), max(y, y + inside)), fill=LIGHT)
    for y in range(y0, y1 + 1, 2 * dash):
        for x in (x0, x1 - inside):
            draw.rectangle((x, y, max(x, x + inside), min(y + dash, y1)), fill=LIGHT)


def _number(draw: ImageDraw.ImageDraw, boxes: Iterable[Pixels], size: int, within: tuple[int, int]) -> None:
    """The rank of each box in a corner of it that no better box has taken."""
    font = ImageFont.load_default(size=size)
    wide, high = round(1.1 * size), round(1.3 * size)
    taken: list[Pixels] = []
    for box in boxes:
        positions = list(_positions(box, wide, high, within))
        free = (
            (x0, y0, x1, y1)
            for x0, y0, x1, y1 in positions
            if not any(x0 <= right and left <= x1 and y0 <= low and top <= y1 for left, top, right, low in taken)
        )
        taken.append(next(free, positions[0]))
    for rank, place in reversed(list(enumerate(taken))):  # the best on top where they overlap
        draw.rectangle(place, fill=OTHERS if rank else BEST, outline=DARK)
        middle = (place[0] + place[2]) / 2 + 0.5, (place[1] + place[3]) / 2
        draw.text(middle, str(rank + 1), fill=DARK, font=font, anchor="mm")


def _positions(box: Pixels, wide: int, high: int, within: tuple[int, int]) -> Iterator[Pixels]:
    """Candidates for the position of a box's number: its corners, else along its upper and left edges."""
    x0, y0, x1, y1 = box
    right, low = max(x0, x1 - wide), max(y0, y1 - high)
    corners = [(x0, y0), (right, y0), (x0, low), (right, low)]
    along = [*((x, y0) for x in range(x0, right, wide + 2)), *((x0, y) for y in range(y0, low, high + 2))]
    for x, y in [*corners, *along]:
        left, top = max(0, min(x, within[0] - wide - 1)), max(0, min(y, within[1] - high - 1))
        yield left, top, left + wide, top + high


# The figure of a grounded phrase: ranked boxes, the map of the phrase, the map of each word, and the phrase.


class WordMap(NamedTuple):
    """The map of a word, ``[h, w]`` of any size, a note for its heading, and the word's places in the phrase."""

    title: str
    values: Tensor
    note: str = ""
    spans: tuple[Span, ...] = ()


class Told(NamedTuple):
    """A phrase: spans that weigh the map ("left", "red") are underlined, those without influence on it are grey."""

    text: str
    hints: tuple[Span, ...] = ()
    skipped: tuple[Span, ...] = ()


def grounded_figure(
    picture: Image.Image,
    told: Told,
    plane: Tensor,
    words: Sequence[WordMap],
    boxes: Sequence[Box],
    *,
    true_boxes: Sequence[Box] = (),
    width: int = 1200,
) -> Image.Image:
    """The image with its ranked boxes and the map of the phrase, below them the map of each word, then the phrase.

    Each word has the colour of the frame of its map; the first twenty maps are drawn, the others counted. Boxes are
    half-open, in pixels of the image, best first.
    """
    if width < NARROWEST:
        raise ExciteError(f"a figure {width} pixels wide cannot hold its text: use at least {NARROWEST}.")
    shown = [(word, WORD_COLOURS[k % len(WORD_COLOURS)]) for k, word in enumerate(words[:MOST_MAPS])]
    margin = width // 50
    inner = width - 2 * margin
    gap, letters = inner // 48, max(10, inner // 64)
    half = (inner - gap) // 2
    large = at_size(picture, _fitted(picture.size, half))
    overview = [
        Headed(
            draw_boxes(large, boxes, scale=large.width / picture.width, true_boxes=true_boxes),
            "regions, best first" if boxes else "no region",
            "dashed: the right one" if true_boxes else "",
        ),
        Headed(overlay(large, plane, point=maximum_point(plane, large.size)), "the whole phrase"),
    ]
    rows = [draw_row(overview, half, gap, letters), *_word_rows(picture, shown, inner, gap, letters)]
    rows.append(_phrase(told, shown, len(words) - len(shown), inner, letters))
    return ImageOps.expand(_stacked(rows, margin), margin, PAPER)


def _fitted(size: tuple[int, int], width: int) -> tuple[int, int]:
    """The size of an image in a column of that width; a tall one is narrower."""
    scale = min(width / size[0], HEADED_TALLEST * width / size[1])
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _word_rows(
    picture: Image.Image, shown: Sequence[Shown], inner: int, gap: int, letters: int
) -> Iterator[Image.Image]:
    """The maps of the words in rows of equal length."""
    columns = -(-len(shown) // max(1, -(-len(shown) // IN_A_ROW)))
    width = (inner + gap) // max(columns, FEWEST_IN_A_ROW) - gap
    small = at_size(picture, _fitted(picture.size, width - 2 * FRAME))
    cells = [
        Headed(ImageOps.expand(overlay(small, word.values), FRAME, colour), word.title, word.note, colour)
        for word, colour in shown
    ]
    for start in range(0, len(cells), max(1, columns)):
        yield draw_row(cells[start : start + columns], width, gap, letters)


def _phrase(told: Told, shown: Sequence[Shown], more: int, inner: int, letters: int) -> Image.Image:
    """The phrase with its words in their colours, and below it the key of its styles."""
    colours = [INK] * len(told.text)
    spans = [(span, PALE) for span in told.skipped] + [(span, colour) for word, colour in shown for span in word.spans]
    for (start, end), colour in spans:
        colours[start:end] = [colour] * len(colours[start:end])
    underlined = {at for span in told.hints for at in range(*span)}
    keys = [
        "underlined: weighs the map" if told.hints else "",
        "grey: skipped" if told.skipped else "",
        f"{more} more words have maps" if more else "",
    ]
    key = " · ".join(filter(None, keys))
    looks = [(colour, at in underlined) for at, colour in enumerate(colours)]
    sentence = _sentence(told.text, looks, inner, round(1.5 * letters))
    return _stacked([sentence, _sentence(key, [(GREY, False)] * len(key), inner, letters)]) if key else sentence


def _sentence(text: str, looks: Sequence[Look], width: int, size: int) -> Image.Image:
    """The text on white, in letters of ``size`` pixels."""
    font, step = ImageFont.load_default(size=size), round(1.5 * size)
    lines = lines_of(text, font, width, most=MOST_LINES, looks=looks)
    page = Image.new("RGB", (width, max(1, len(lines)) * step), PAPER)
    write(page, lines, (0, 0), font, step)
    return page
