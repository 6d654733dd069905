"""Contact sheets: images of a corpus in rows, each with its first tags below."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from excite.errors import DataError, ImageError
from excite.tags.figures import FAINT, INK, ORANGE, PAPER, can_draw, font_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from excite.tags.corpus import Corpus
    from excite.tags.images import ImageSource

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""

WIDTH, HEIGHT = 320, 240  # of the box of an image
GAP, TITLE = 24, 64
LETTERS, LINES = 19, 3  # the size of the text below an image, and how many lines of it
LINE = round(1.35 * LETTERS)
TEXT = LINES * LINE + 10
MOST_TAGS = 5
FITTING = 200  # characters: nothing longer fits, and a tag may have a million
CUT = " ,…"  # not in front of an ellipsis
BACKGROUND = "#F2F2F2"  # beside images of another shape


@dataclass(frozen=True)
class TaggedImage:
    """An image and its tags as listed."""

    picture: Image.Image
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """The boxes of an image and of its text on a sheet."""

    picture: Box
    text: Box


def is_alphabetical(tags: Sequence[str]) -> bool:
    """Whether two or more tags are in alphabetical order, so that the most telling ones are not first."""
    return len(tags) > 1 and all(one <= other for one, other in pairwise(tags))


def sample_rows(corpus: Corpus, number: int) -> list[tuple[str | None, list[str | None] | None]]:
    """Random images of a corpus with their tags: always the same ones, in the same order."""
    lots = np.random.default_rng(0).choice(corpus.rows, min(number, corpus.rows), replace=False)
    found = {}
    for group in corpus.row_groups:
        first, inside = group.first, lots[(lots >= group.first) & (lots < group.first + group.rows)]
        for batch in corpus.batches([group]) if len(inside) else ():
            for lot in inside[(inside >= first) & (inside < first + batch.num_rows)].tolist():
                row = batch.slice(lot - first, 1).to_pylist()[0]
                found[lot] = row["image"], row["tags"]
            first += batch.num_rows
    return [found[lot] for lot in lots.tolist()]


def read_images(
    wanted: Iterable[tuple[str | None, Sequence[str | None] | None]], images: ImageSource, most: int
) -> tuple[list[TaggedImage], list[str]]:
    """Read images until there are ``most``.

    Args:
        wanted: names and tags, more than needed: images of a corpus are often gone.
        images: the image source.
        most: the number of images to read.

    Returns:
        The images, and the reasons why others cannot be read.

    Raises:
        ImageError: none can be read; the message is that of the first.
    """
    found: list[TaggedImage] = []
    failures: list[str] = []
    for name, tags in wanted:
        if len(found) == most:
            break
        try:
            picture = images.read(name or "")
        except ImageError as error:
            failures.append(str(error))
        else:
            picture.thumbnail((2 * WIDTH, 2 * HEIGHT))  # to save memory
            found.append(TaggedImage(picture, tuple(tag for tag in tags or () if tag and tag.strip())))
    if failures and not found:
        raise ImageError(f"none of {len(failures)} images can be read: {failures[0]}")
    return found, failures


def grid(number: int) -> tuple[list[Cell], tuple[int, int]]:
    """The cells of so many images, and the size of the sheet: about as wide as a screen for its height."""
    columns = min(number, 8, math.ceil(math.sqrt(1.3 * number)))
    found = []
    for one in range(number):
        row, column = divmod(one, columns)
        left, top = GAP + column * (WIDTH + GAP), TITLE + row * (HEIGHT + TEXT + GAP)
        below = top + HEIGHT
        found.append(Cell((left, top, left + WIDTH, below), (left, below + 8, left + WIDTH, below + TEXT)))
    rows = math.ceil(number / columns)
    return found, (GAP + columns * (WIDTH + GAP), TITLE + rows * (HEIGHT + TEXT + GAP))


def contact_sheet(tagged: Sequence[TaggedImage], title: str) -> Image.Image:
    """Draw images in rows, each with its first five tags; alphabetical lists are marked.

    Args:
        tagged: the images.
        title: of the sheet.

    Raises:
        DataError: there are no images.

    Example:
        >>> contact_sheet([TaggedImage(Image.new("RGB", (40, 30)), ("cat", "sofa"))], "one picture").size
        (368, 416)
    """
    if not tagged:
        raise DataError("there are no images to show")
    cells, size = grid(len(tagged))
    sheet = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(sheet)
    heading = ImageFont.truetype(font_file(), 24)
    draw.text((GAP, 18), _fitted(title, heading, size[0] - 2 * GAP), fill=INK, font=heading)
    font = ImageFont.truetype(font_file(), LETTERS)
    for cell, one in zip(cells, tagged, strict=True):
        _paste(sheet, one.picture, cell.picture)
        if is_alphabetical(one.tags):
            _flag(draw, cell.picture, font)
        for left, top, text in words(one.tags, cell.text, font):
            draw.text((left, top), text, fill=INK, font=font)
    return sheet


def words(tags: Sequence[str], box: Box, font: ImageFont.FreeTypeFont) -> list[tuple[float, int, str]]:
    """The layout of the first tags of an image: left, top and text of each.

    Tags with characters that the font lacks are not drawn but counted at the end.
    """
    first = [tag[:FITTING] for tag in tags[:MOST_TAGS]]
    shown = [tag for tag in first if can_draw(tag)]
    more = [f"({len(first) - len(shown)} not in the font)"] if len(shown) < len(first) else []
    parts = [f"{tag}," if number < len(shown) - 1 else tag for number, tag in enumerate(shown)] + more
    if not tags:
        parts = ["(no tags)"]
    left, top = float(box[0]), box[1]
    found: list[tuple[float, int, str]] = []
    for part in parts:
        text = _fitted(part, font, box[2] - box[0])
        length = font.getlength(text)
        if left > box[0] and left + length > box[2]:
            left, top = float(box[0]), top + LINE
        if top + LINE > box[3]:
            last_left, last_top, last = found[-1]
            found[-1] = last_left, last_top, _fitted(f"{last} …", font, box[2] - last_left)
            break
        found.append((left, top, text))
        left += length + font.getlength(" ")
    return found


def _fitted(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """The text, or the beginning that fits before an ellipsis."""
    kept = text[:FITTING]
    if kept == text and font.getlength(text) <= width:
        return text
    while kept and font.getlength(kept.rstrip(CUT) + "…") > width:
        kept = kept[:-1]
    return kept.rstrip(CUT) + "…"


def _paste(sheet: Image.Image, picture: Image.Image, box: Box) -> None:
    """Draw an image as large as it fits, centred."""
    draw = ImageDraw.Draw(sheet)
    draw.rectangle((box[0], box[1], box[2] - 1, box[3] - 1), fill=BACKGROUND)
    scale = min((box[2] - box[0]) / picture.width, (box[3] - box[1]) / picture.height)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    left, top = box[0] + (WIDTH - size[0]) // 2, box[1] + (HEIGHT - size[1]) // 2
    sheet.paste(picture.convert("RGB").resize(size, Image.Resampling.LANCZOS), (left, top))
    draw.rectangle((box[0], box[1], box[2] - 1, box[3] - 1), outline=FAINT)


def _flag(draw: ImageDraw.ImageDraw, box: Box, font: ImageFont.FreeTypeFont) -> None:
    """Mark an alphabetical list in a corner of the image."""
    text = "alphabetical"
    right = box[0] + round(font.getlength(text)) + 16
    draw.rectangle((box[0], box[1], right, box[1] + LINE + 4), fill=ORANGE)
    draw.text((box[0] + 8, box[1] + 3), text, fill=PAPER, font=font)
