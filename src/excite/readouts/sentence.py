"""A sentence as a picture, with words in colours and underlined, wrapped to fit."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from excite.readouts.figure import INK, PAPER
from excite.readouts.letters import drawable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from excite.readouts.figure import Font

    Colour = tuple[int, int, int]

__all__ = ["Mark", "draw_sentence"]

MOST_LINES = 12
"""A text of more lines ends in an ellipsis: a page of words must not become a picture of any height."""

ELLIPSIS = "…"


@dataclass(frozen=True)
class Mark:
    """How some letters of a sentence are drawn; where marks meet, what each says is done.

    Attributes:
        start: the first letter.
        end: the first letter behind them.
        colour: their colour; None leaves it.
        underlined: whether there is a line below them.
    """

    start: int
    end: int
    colour: Colour | None = None
    underlined: bool = False


@dataclass(frozen=True)
class Run:
    """Letters that look the same."""

    text: str
    colour: Colour
    underlined: bool


def draw_sentence(text: str, marks: Iterable[Mark], width: int, size: int) -> Image.Image:
    """The sentence on white, in as many lines as it needs.

    Args:
        text: any text; each run of blanks is drawn as one.
        marks: what is special about some of its letters.
        width: of the picture, in pixels.
        size: of the letters, in pixels.

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
    """The words between blanks, each as runs of letters that look the same."""
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
    """As many words in each line as fit; a word that is wider than a line is cut into pieces."""
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
    """The word itself, or letter by letter as much of it as fits into a line at a time."""
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
    """The words of a line; the line below one stands clear of its letters."""
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
