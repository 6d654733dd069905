"""The figure of a grounded phrase: ranked boxes, the map of the phrase, the map of each word, and the phrase."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont, ImageOps

from excite.errors import ExciteError
from excite.readouts.figure import GREY, INK, PAPER, Headed, draw_row, drawable, fitted
from excite.readouts.overlay import DARK, LIGHT, overlay
from excite.readouts.point import maximum_point

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor

    from excite.readouts.figure import Font

    Colour = tuple[int, int, int]
    Box = tuple[float, float, float, float]
    Pixels = tuple[int, int, int, int]
    Span = tuple[int, int]
    Shown = tuple["WordMap", tuple[int, int, int]]


# A sentence as an image: words in colours or underlined, wrapped to fit.

MOST_LINES = 12  # a longer text ends in an ellipsis
ELLIPSIS = "…"


@dataclass(frozen=True)
class Mark:
    """The style of the letters from ``start`` to ``end`` (exclusive) of a sentence; overlapping marks combine."""

    start: int
    end: int
    colour: Colour | None = None
    underlined: bool = False


@dataclass(frozen=True)
class Run:
    """Letters of one style."""

    text: str
    colour: Colour
    underlined: bool


def draw_sentence(text: str, marks: Iterable[Mark], width: int, size: int) -> Image.Image:
    """The sentence on white, wrapped to ``width``, in letters of ``size`` pixels; each run of blanks is drawn as one.

    Example:
        >>> draw_sentence("a red hat", [Mark(6, 9, (200, 80, 0))], 200, 20).width
        200
    """
    font = ImageFont.load_default(size=size)
    lines = _lines(_tokens(text, marks), font, width)
    step = round(1.5 * size)
    page = Image.new("RGB", (width, max(1, len(lines)) * step), PAPER)
    for number, line in enumerate(lines):
        _write(page, line, number * step, font)
    return page


def _tokens(text: str, marks: Iterable[Mark]) -> Iterator[list[Run]]:
    """The words between blanks, each as runs of letters of one style."""
    looks: list[tuple[Colour, bool]] = [(INK, False)] * len(text)
    for mark in marks:
        for at in range(max(0, mark.start), min(mark.end, len(text))):
            colour, underlined = looks[at]
            looks[at] = mark.colour or colour, underlined or mark.underlined
    for word in re.finditer(r"\S+", text):
        begins = [at for at in range(*word.span()) if at == word.start() or looks[at] != looks[at - 1]]
        ends = [*begins[1:], word.end()]
        yield [Run(drawable(text[begin:end]), *looks[begin]) for begin, end in zip(begins, ends, strict=True)]


def _lines(tokens: Iterable[list[Run]], font: Font, width: int) -> list[list[list[Run]]]:
    """The words in lines; a word that is wider than a line is cut into pieces."""
    lines: list[list[list[Run]]] = []
    blank, filled = font.getlength(" "), 0.0
    for piece in (piece for token in tokens for piece in _cut(token, font, width)):
        wide = _length(piece, font)
        if not lines or filled + blank + wide > width:
            if len(lines) == MOST_LINES:
                lines[-1].append([Run(ELLIPSIS, INK, underlined=False)])
                break
            lines.append([])
            filled = -blank
        lines[-1].append(piece)
        filled += blank + wide
    return lines


def _cut(token: list[Run], font: Font, width: int) -> Iterator[list[Run]]:
    """The word itself, or pieces of it that fit into a line."""
    if _length(token, font) <= width:
        yield token
        return
    line: list[Run] = []
    filled = 0.0
    for letter in (replace(run, text=letter) for run in token for letter in run.text):
        wide = _length([letter], font)
        if line and filled + wide > width:
            yield line
            line, filled = [], 0.0
        line.append(letter)
        filled += wide
    yield line


def _length(token: Sequence[Run], font: Font) -> float:
    return sum(font.getlength(run.text) for run in token)


def _write(page: Image.Image, line: Sequence[Sequence[Run]], top: int, font: Font) -> None:
    """Draw the words of a line, underlines clear of the letters."""
    draw, x, blank = ImageDraw.Draw(page), 0.0, font.getlength(" ")
    low = top + font.getbbox("x")[3] + 3
    for token in line:
        for run in token:
            draw.text((x, top), run.text, fill=run.colour, font=font)
            wide = font.getlength(run.text)
            if run.underlined:
                draw.rectangle((x, low, x + wide, low + 1), fill=run.colour)
            x += wide
        x += blank


# Ranked boxes on an image, with their numbers.

BEST, OTHERS = (255, 184, 28), (148, 210, 255)  # amber and sky blue, distinct with any colour blindness
THIN = 300  # the longer side of an image in widths of a thin line
MOST_BOXES = 9


def draw_boxes(
    picture: Image.Image, boxes: Sequence[Box], *, scale: float = 1.0, true_boxes: Sequence[Box] = ()
) -> Image.Image:
    """A copy of an RGB image with the first nine boxes, best first, and the true ones dashed.

    Args:
        picture: the image.
        boxes: half-open ``(x0, y0, x1, y1)``, best first.
        scale: from pixels of the boxes to those of this image.
        true_boxes: the ground truth, where it is known.

    Example:
        >>> drawn = draw_boxes(Image.new("RGB", (60, 40)), [(10, 5, 50, 35)])
        >>> drawn.size, drawn.getpixel((30, 6)) == BEST
        ((60, 40), True)
    """
    drawn = picture.copy()
    draw, thick = ImageDraw.Draw(drawn), max(1, round(max(drawn.size) / THIN))
    ranked = [_pixels(box, scale, drawn.size) for box in boxes[:MOST_BOXES]]
    for rank, box in reversed(list(enumerate(ranked))):
        _outline(draw, box, BEST if rank == 0 else OTHERS, 2 * thick if rank == 0 else thick)
    for true in true_boxes:
        _dashed(draw, _pixels(true, scale, drawn.size), thick + 1)
    _number(draw, ranked, max(11, 7 * thick), drawn.size)
    return drawn


def _pixels(box: Box, scale: float, size: tuple[int, int]) -> Pixels:
    """The first and last pixels of a box within the image; at least one."""
    (x0, x1), (y0, y1) = (
        (min(max(round(low * scale), 0), most - 1), min(max(round(high * scale), 1), most) - 1)
        for low, high, most in zip(box[:2], box[2:], size, strict=True)
    )
    return x0, y0, max(x0, x1), max(y0, y1)


def _outline(draw: ImageDraw.ImageDraw, box: Pixels, colour: tuple[int, int, int], width: int) -> None:
    """A bright line with a dark one on either side, all within the box."""
    draw.rectangle(box, outline=DARK, width=width + 2)
    draw.rectangle(_shrunk(box, 1), outline=colour, width=width)


def _shrunk(box: Pixels, by: int) -> Pixels:
    """The box without its outermost pixels, if anything is left."""
    x0, y0, x1, y1 = box
    across, down = min(by, (x1 - x0) // 2), min(by, (y1 - y0) // 2)
    return x0 + across, y0 + down, x1 - across, y1 - down


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
        place = next((one for one in positions if not any(_meet(one, other) for other in taken)), positions[0])
        taken.append(place)
    for rank, place in reversed(list(enumerate(taken))):  # the best on top where they overlap
        draw.rectangle(place, fill=BEST if rank == 0 else OTHERS, outline=DARK)
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


def _meet(one: Pixels, other: Pixels) -> bool:
    return one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]


# The figure.

WORD_COLOURS = ((0, 104, 178), (204, 82, 0), (0, 132, 96), (170, 52, 128), (150, 108, 0), (84, 76, 190), (120, 66, 46))
"""Blue, vermilion, green, purple, ochre, violet, brown: legible on white, and of different lightness."""

MOST_MAPS, IN_A_ROW, FEWEST_IN_A_ROW = 20, 5, 4
FRAME = 4  # pixels around the map of a word
NARROWEST = 400  # pixels
PALE = (150, 150, 158)  # for words that are skipped


@dataclass(frozen=True, eq=False)
class WordMap:
    """The map of a word.

    Attributes:
        title: the word.
        values: the map ``[h, w]``, of any size.
        note: for the heading, such as the probability.
        spans: the word in the phrase, each as start and end (exclusive).
    """

    title: str
    values: Tensor
    note: str = ""
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Told:
    """A phrase.

    Attributes:
        text: all of it.
        hints: spans that weigh the map, such as "left" and "red"; underlined.
        skipped: spans without influence on the map; grey.
    """

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

    Each word has the colour of the frame of its map.

    Args:
        picture: in mode RGB.
        told: the phrase.
        plane: its map ``[h, w]``, of any size.
        words: the maps of its words; the first twenty are drawn, the others counted.
        boxes: half-open ``(x0, y0, x1, y1)`` in pixels of the image, best first.
        true_boxes: the ground truth, where it is known.
        width: of the figure in pixels.

    Raises:
        ExciteError: the width is too small for text, or a map is no plane of finite numbers.

    Example:
        >>> import torch
        >>> hat = WordMap("hat", torch.eye(7), "87%", ((6, 9),))
        >>> told = Told("a red hat", hints=((2, 5),))
        >>> grounded_figure(Image.new("RGB", (64, 48)), told, torch.eye(7), [hat], [(0, 0, 9, 9)]).width
        1200
    """
    if width < NARROWEST:
        raise ExciteError(f"a figure {width} pixels wide cannot hold its text: use at least {NARROWEST}.")
    shown = [(word, WORD_COLOURS[k % len(WORD_COLOURS)]) for k, word in enumerate(words[:MOST_MAPS])]
    gap = width // 50
    inner = width - 2 * gap
    strips = [_overview(picture, plane, boxes, true_boxes, inner)]
    strips += _word_rows(picture, shown, inner)
    strips.append(_phrase(told, shown, len(words) - len(shown), inner))
    return ImageOps.expand(_below(strips, gap), gap, PAPER)


def _below(strips: Sequence[Image.Image], gap: int = 0) -> Image.Image:
    """Strips below each other on white."""
    height = sum(strip.height + gap for strip in strips) - gap
    page = Image.new("RGB", (max(strip.width for strip in strips), height), PAPER)
    top = 0
    for strip in strips:
        page.paste(strip, (0, top))
        top += strip.height + gap
    return page


def _overview(
    picture: Image.Image, plane: Tensor, boxes: Sequence[Box], true_boxes: Sequence[Box], inner: int
) -> Image.Image:
    """The boxes and the map of the phrase side by side."""
    gap = inner // 48
    width = (inner - gap) // 2
    shown = _at_size(picture, fitted(picture.size, width))
    drawn = draw_boxes(shown, boxes, scale=shown.width / picture.width, true_boxes=true_boxes)
    mapped = overlay(shown, plane, point=maximum_point(plane, shown.size))
    found = "regions, best first" if boxes else "no region"
    right = "dashed: the right one" if true_boxes else ""
    return draw_row([Headed(drawn, found, right), Headed(mapped, "the whole phrase")], width, gap, _letters(inner))


def _word_rows(picture: Image.Image, shown: Sequence[Shown], inner: int) -> list[Image.Image]:
    """The maps of the words in rows of equal length."""
    if not shown:
        return []
    gap = inner // 48
    columns = -(-len(shown) // -(-len(shown) // IN_A_ROW))
    width = (inner + gap) // max(columns, FEWEST_IN_A_ROW) - gap
    small = _at_size(picture, fitted(picture.size, width - 2 * FRAME))
    cells = []
    for word, colour in shown:
        framed = ImageOps.expand(overlay(small, word.values), FRAME, colour)
        cells.append(Headed(framed, word.title, word.note, colour))
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    return [draw_row(row, width, gap, _letters(inner)) for row in rows]


def _phrase(told: Told, shown: Sequence[Shown], more: int, inner: int) -> Image.Image:
    """The phrase with its words in their colours, and below it the key of its styles."""
    marks = [Mark(*span, colour=PALE) for span in told.skipped]
    marks += [Mark(*span, colour=colour) for word, colour in shown for span in word.spans]
    marks += [Mark(*span, underlined=True) for span in told.hints]
    keys = [
        "underlined: weighs the map" if told.hints else "",
        "grey: skipped" if told.skipped else "",
        f"{more} more words have maps" if more else "",
    ]
    key = " · ".join(filter(None, keys))
    sentence = draw_sentence(told.text, marks, inner, round(1.5 * _letters(inner)))
    whole = Mark(0, len(key), colour=GREY)
    return _below([sentence, draw_sentence(key, [whole], inner, _letters(inner))]) if key else sentence


def _letters(inner: int) -> int:
    return max(10, inner // 64)


def _at_size(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    smooth = Image.Resampling.LANCZOS if size[0] < picture.width else Image.Resampling.BICUBIC
    return picture.resize(size, smooth, reducing_gap=3.0)  # much faster for a large one
