"""Ranked boxes on a picture: the first one springs to the eye, the others can be told apart by their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from excite.readouts.overlay import DARK, LIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Box = tuple[float, float, float, float]
    Pixels = tuple[int, int, int, int]

__all__ = ["MOST_BOXES", "draw_boxes"]

BEST, OTHERS = (255, 184, 28), (148, 210, 255)
"""Amber and sky blue: bright on any photograph, and different for people with any kind of colour blindness."""

THIN = 300
"""The longer side of a picture in widths of a thin line."""

MOST_BOXES = 9
"""More than this cannot be told apart."""


def draw_boxes(
    picture: Image.Image, boxes: Sequence[Box], *, scale: float = 1.0, true_boxes: Sequence[Box] = ()
) -> Image.Image:
    """A picture with boxes, best first, and dashed where the right answer is.

    Args:
        picture: in mode RGB; it is not changed.
        boxes: half-open ``(x0, y0, x1, y1)``, best first; those behind the ninth are left out.
        scale: how many pixels of this picture a pixel of the boxes is.
        true_boxes: the right answer, where it is known.

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
    """The first and last pixels of a box that lie in the picture; at least one."""
    (x0, x1), (y0, y1) = (
        (min(max(round(low * scale), 0), most - 1), min(max(round(high * scale), 1), most) - 1)
        for low, high, most in zip(box[:2], box[2:], size, strict=True)
    )
    return x0, y0, max(x0, x1), max(y0, y1)


def _outline(draw: ImageDraw.ImageDraw, box: Pixels, colour: tuple[int, int, int], width: int) -> None:
    """A bright line with a dark one on either side, all within the box: none is lost at the picture's edge."""
    draw.rectangle(box, outline=DARK, width=width + 2)
    draw.rectangle(_shrunk(box, 1), outline=colour, width=width)


def _shrunk(box: Pixels, by: int) -> Pixels:
    """The box without its outermost pixels, if anything is left."""
    x0, y0, x1, y1 = box
    across, down = min(by, (x1 - x0) // 2), min(by, (y1 - y0) // 2)
    return x0 + across, y0 + down, x1 - across, y1 - down


def _dashed(draw: ImageDraw.ImageDraw, box: Pixels, width: int) -> None:
    """Light dashes on a dark line: neither is lost, whatever is behind them."""
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
    """The rank of each box in a corner of it, where no better one has its own."""
    font = ImageFont.load_default(size=size)
    wide, high = round(1.1 * size), round(1.3 * size)
    taken: list[Pixels] = []
    for box in boxes:
        places = list(_places(box, wide, high, within))
        place = next((one for one in places if not any(_meet(one, other) for other in taken)), places[0])
        taken.append(place)
    for rank, place in reversed(list(enumerate(taken))):  # where there is no room for all, the best is on top
        draw.rectangle(place, fill=BEST if rank == 0 else OTHERS, outline=DARK)
        middle = (place[0] + place[2]) / 2 + 0.5, (place[1] + place[3]) / 2
        draw.text(middle, str(rank + 1), fill=DARK, font=font, anchor="mm")


def _places(box: Pixels, wide: int, high: int, within: tuple[int, int]) -> Iterator[Pixels]:
    """Where the number of a box may stand: in its corners, else along its upper edge and its left one."""
    x0, y0, x1, y1 = box
    right, low = max(x0, x1 - wide), max(y0, y1 - high)
    corners = [(x0, y0), (right, y0), (x0, low), (right, low)]
    along = [*((x, y0) for x in range(x0, right, wide + 2)), *((x0, y) for y in range(y0, low, high + 2))]
    for x, y in [*corners, *along]:
        left, top = max(0, min(x, within[0] - wide - 1)), max(0, min(y, within[1] - high - 1))
        yield left, top, left + wide, top + high


def _meet(one: Pixels, other: Pixels) -> bool:
    return one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]
