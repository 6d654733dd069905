"""The figure of a grounded phrase: ranked boxes, the map of the phrase, the map of each word, and the phrase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont, ImageOps

from excite.errors import ExciteError
from excite.readouts.figure import GREY, INK, PAPER, Headed, at_size, draw_row, fitted, lines_of, stacked, write
from excite.readouts.overlay import DARK, LIGHT, overlay
from excite.readouts.point import maximum_point

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor

    from excite.readouts.figure import Look

    Colour = tuple[int, int, int]
    Box = tuple[float, float, float, float]
    Pixels = tuple[int, int, int, int]
    Span = tuple[int, int]
    Shown = tuple["WordMap", Colour]


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

MOST_LINES = 12  # of the phrase; a longer one ends in an ellipsis
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
    return ImageOps.expand(stacked(strips, gap), gap, PAPER)


def _overview(
    picture: Image.Image, plane: Tensor, boxes: Sequence[Box], true_boxes: Sequence[Box], inner: int
) -> Image.Image:
    """The boxes and the map of the phrase side by side."""
    gap = inner // 48
    width = (inner - gap) // 2
    shown = at_size(picture, fitted(picture.size, width))
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
    small = at_size(picture, fitted(picture.size, width - 2 * FRAME))
    cells = []
    for word, colour in shown:
        framed = ImageOps.expand(overlay(small, word.values), FRAME, colour)
        cells.append(Headed(framed, word.title, word.note, colour))
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    return [draw_row(row, width, gap, _letters(inner)) for row in rows]


def _phrase(told: Told, shown: Sequence[Shown], more: int, inner: int) -> Image.Image:
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
    sentence = _sentence(told.text, looks, inner, round(1.5 * _letters(inner)))
    return stacked([sentence, _sentence(key, [(GREY, False)] * len(key), inner, _letters(inner))]) if key else sentence


def _sentence(text: str, looks: Sequence[Look], width: int, size: int) -> Image.Image:
    """The text on white, in letters of ``size`` pixels."""
    font, step = ImageFont.load_default(size=size), round(1.5 * size)
    lines = lines_of(text, font, width, most=MOST_LINES, looks=looks)
    page = Image.new("RGB", (width, max(1, len(lines)) * step), PAPER)
    write(page, lines, (0, 0), font, step)
    return page


def _letters(inner: int) -> int:
    return max(10, inner // 64)
