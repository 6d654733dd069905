"""A phrase and where it leads in a picture: boxes, its map, the map of each word, and the words in their colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image, ImageOps

from excite.errors import ExciteError
from excite.readouts.boxes_drawn import draw_boxes
from excite.readouts.figure import GREY, PAPER
from excite.readouts.headed import Headed, draw_row, fitted
from excite.readouts.overlay import overlay
from excite.readouts.point import maximum_point
from excite.readouts.sentence import Mark, draw_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from excite.readouts.boxes_drawn import Box

    Span = tuple[int, int]
    Shown = tuple["WordMap", tuple[int, int, int]]

__all__ = ["Told", "WordMap", "grounded_figure"]

WORD_COLOURS = ((0, 104, 178), (204, 82, 0), (0, 132, 96), (170, 52, 128), (150, 108, 0), (84, 76, 190), (120, 66, 46))
"""Blue, vermilion, green, purple, ochre, violet, brown: dark enough to be read on white, and of unlike lightness for
those who cannot tell red from green. The word itself stands above its map too, so none depends on its colour."""

MOST_MAPS, IN_A_ROW, FEWEST_IN_A_ROW = 20, 5, 4
FRAME = 4  # pixels around the map of a word
NARROWEST = 400  # pixels: text and margins need some room
PALE = (150, 150, 158)  # for words that are skipped


@dataclass(frozen=True, eq=False)
class WordMap:
    """The map of a word.

    Attributes:
        title: the word.
        values: the map ``[h, w]``, of any size.
        note: what else is to be said above it, such as how sure the classifier is.
        spans: where the word is written in the phrase, each as first letter and first letter behind it.
    """

    title: str
    values: Tensor
    note: str = ""
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Told:
    """A phrase, beside the words that have maps.

    Attributes:
        text: all of it.
        hints: where it says what weighs the map, such as "left" and "red"; these are underlined.
        skipped: where it says what had no say in the map; these are grey.
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
    """The picture with its ranked boxes and the map of the phrase, below them the map of each word, then the phrase.

    Each word has the colour of the frame of its map. All pictures are drawn at the size they have on the page, so
    that lines and letters look the same whatever the size of the picture.

    Args:
        picture: in mode RGB.
        told: the phrase.
        plane: its map ``[h, w]``, of any size.
        words: the maps of its words; those behind the twentieth are left out, and told.
        boxes: half-open ``(x0, y0, x1, y1)`` in pixels of the picture, best first.
        true_boxes: where it really is, if that is known.
        width: of the page in pixels.

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
    """The maps of the words in rows of one length: six are three and three, not five and one."""
    if not shown:
        return []
    gap = inner // 48
    columns = -(-len(shown) // -(-len(shown) // IN_A_ROW))
    width = (inner + gap) // max(columns, FEWEST_IN_A_ROW) - gap
    small = _at_size(picture, fitted(picture.size, width - 2 * FRAME))
    cells = [
        Headed(_framed(overlay(small, word.values), colour), word.title, word.note, colour) for word, colour in shown
    ]
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    return [draw_row(row, width, gap, _letters(inner)) for row in rows]


def _phrase(told: Told, shown: Sequence[Shown], more: int, inner: int) -> Image.Image:
    """The phrase with its words in their colours, and below what the styles mean that it makes use of."""
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
    return picture.resize(size, smooth, reducing_gap=3.0)  # many times quicker for a large one


def _framed(picture: Image.Image, colour: tuple[int, int, int]) -> Image.Image:
    return ImageOps.expand(picture, FRAME, colour)
