"""Drawing the examples of an experiment: the maps made anew, and where the objects are, told without colour."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps

from excite.errors import DataError
from excite.experiments.base import place_of
from excite.readouts.overlay import DARK, LIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from excite.attention import AttentionMap
    from excite.datasets import Box, Instance
    from excite.jobs import Entry

    Maps = Callable[[str, str], Sequence[AttentionMap]]


# Examples of an experiment to look at: which of its images, as the records tell.


@dataclass(frozen=True)
class Example:
    """The objects of one category in one image.

    Attributes:
        image: the image's name.
        size: its width and height.
        category: what was to be found.
        share: how much of the image that covers.
        maps: what the record tells of each method, the main one first.
    """

    image: str
    size: tuple[int, int]
    category: str
    share: float
    maps: tuple[Entry, ...]


Case = TypeVar("Case", bound=Example)
Rating = Callable[[Case, Sequence[bool]], float | None]
"""How good a case of its kind an example is (the lowest first), or None for what is no such case.

It also gets the successes: of the main method, and then of the others that can see.
"""


def best_of_each_kind(
    examples: Sequence[Case], successes: Sequence[Sequence[bool]], kinds: Mapping[str, Rating[Case]], each: int
) -> dict[str, list[Case]]:
    """The best examples of each kind: of an image at most one, and the categories take turns.

    Args:
        examples: those to choose from.
        successes: for each of them, who succeeded: the main method first.
        kinds: for each heading what makes a good case.
        each: how many of each kind.

    Example:
        >>> examples = [Example(name, (90, 60), "cat", share, ()) for name, share in (("1", 0.5), ("2", 0.1))]
        >>> kinds = {"Small": lambda example, hits: example.share}
        >>> [example.image for example in best_of_each_kind(examples, [[], []], kinds, each=1)["Small"]]
        ['2']
    """
    taken: set[str] = set()
    chosen = {}
    for kind, rate in kinds.items():
        ratings = [(rate(*both), both[0]) for both in zip(examples, successes, strict=True)]
        rated = [(rating, example) for rating, example in ratings if rating is not None]
        chosen[kind] = _in_turns(rated, taken, each)
    return chosen


def _in_turns(rated: Iterable[tuple[float, Case]], taken: set[str], most: int) -> list[Case]:
    """First the best of each category, then the second best: a page of buses would not tell much."""
    turns: Counter[str] = Counter()
    waiting = []
    for _, example in sorted(rated, key=lambda pair: pair[0]):
        waiting.append((turns[example.category], example))
        turns[example.category] += 1
    chosen: list[Case] = []
    for _, example in sorted(waiting, key=lambda pair: pair[0]):
        if len(chosen) < most and example.image not in taken:
            chosen.append(example)
            taken.add(example.image)
    return chosen


# Drawing the examples of an experiment: the maps made anew, and where the objects are, told without colour.

Outline = tuple[Image.Image, Image.Image]  # where its dark and where its light line goes
WIDE, THIN, DASH = 3, 1, 9
"""Pixels of the lines of boxes: how wide, the dark edges of a solid one, and how long the pieces of a dashed one."""


@dataclass(frozen=True)
class Drawn(Generic[Case]):
    """An example to look at.

    Attributes:
        example: what it is.
        photograph: the image with the objects outlined; None where it could not be had any more,
        panels: the map of each method over it, in the example's order.
        trouble: and why not.
    """

    example: Case
    photograph: Image.Image | None = None
    panels: tuple[Image.Image, ...] = ()
    trouble: str = ""


def shown_again(show: Maps, example: Example) -> tuple[Image.Image, list[AttentionMap]]:
    """The image of an example and its maps, made anew in the example's order.

    Args:
        show: makes all maps of an image's name and a category.
        example: from the records.

    Raises:
        DataError: the image has changed since it was measured,
        ImageError: or cannot be read any more.
    """
    maps = {(found.method, found.layer): found for found in show(example.image, example.category)}
    shown = [maps[place_of(found)] for found in example.maps]
    picture = shown[0].image
    if picture is None or picture.size != example.size:
        raise DataError("the image has changed since it was measured")
    return picture, shown


def outlined(picture: Image.Image, outline: Outline) -> Image.Image:
    """A copy of the image with the outlines on it."""
    drawn = picture.convert("RGB").copy()
    for colour, stencil in zip((DARK, LIGHT), outline, strict=True):
        drawn.paste(colour, (0, 0), stencil)
    return drawn


def outline(instances: Sequence[Instance], size: tuple[int, int]) -> Outline:
    """Lines along the edges of all instances: a light one inside, between two dark ones."""
    width = max(1, round(math.sqrt(size[0] * size[1]) / 200))  # it grows with the image
    dark, light = Image.new("L", size), Image.new("L", size)
    for instance in instances:
        area = ImageOps.expand(_area(instance, size), 3 * width)  # an object may reach to the image's edge
        within, deeper = (area.filter(ImageFilter.MinFilter(2 * k * width + 1)) for k in (1, 2))
        beyond = area.filter(ImageFilter.MaxFilter(2 * width + 1))
        dark = ImageChops.lighter(dark, ImageOps.crop(ImageChops.subtract(beyond, deeper), 3 * width))
        light = ImageChops.lighter(light, ImageOps.crop(ImageChops.subtract(area, within), 3 * width))
    return dark, light


def dashed(picture: Image.Image, boxes: Sequence[Box]) -> Image.Image:
    """A copy of the image with boxes on it whose lines are light and dark in turns: seen on any ground.

    Example:
        >>> dashed(Image.new("RGB", (40, 30)), [(5, 5, 35, 25)]).getpixel((8, 5))
        (255, 255, 255)
    """
    drawn = picture.convert("RGB").copy()
    for box in boxes:
        for k, pixels in enumerate(_dashes(box, picture.size)):
            drawn.paste(DARK if k % 2 else LIGHT, pixels)
    return drawn


def framed(picture: Image.Image, box: Box) -> Image.Image:
    """A copy of the image with a box on it whose line is solid, light between dark, and all inside the box.

    Example:
        >>> frame = framed(Image.new("RGB", (40, 30), (9, 99, 9)), (5, 5, 35, 25))
        >>> [frame.getpixel((x, 15)) for x in (4, 5, 6, 20)]
        [(9, 99, 9), (12, 12, 20), (255, 255, 255), (9, 99, 9)]
    """
    drawn = picture.convert("RGB").copy()
    x0, y0, x1, y1 = _inside(box, picture.size)
    draw = ImageDraw.Draw(drawn)
    for inset, width, colour in ((0, WIDE + 2 * THIN, DARK), (THIN, WIDE, LIGHT)):
        if x1 - x0 > 2 * inset and y1 - y0 > 2 * inset:
            edges = x0 + inset, y0 + inset, x1 - 1 - inset, y1 - 1 - inset
            draw.rectangle(edges, outline=colour, width=width)
    return drawn


def _inside(box: Box, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The whole pixels that a box touches, within the image."""
    x0, y0 = (max(0, math.floor(side)) for side in box[:2])
    x1, y1 = (min(most, math.ceil(side)) for side, most in zip(box[2:], size, strict=True))
    return x0, y0, x1, y1


def _dashes(box: Box, size: tuple[int, int]) -> Iterator[tuple[int, int, int, int]]:
    """Pieces of the line just inside a box, once around it; of a box beyond the image's edge, along that edge."""
    x0, y0, x1, y1 = _inside(box, size)
    across, down = range(x0, x1, DASH), range(y0, y1, DASH)
    yield from ((x, y0, min(x + DASH, x1), y0 + WIDE) for x in across)
    yield from ((x1 - WIDE, y, x1, min(y + DASH, y1)) for y in down)
    yield from ((x, y1 - WIDE, min(x + DASH, x1), y1) for x in reversed(across))
    yield from ((x0, y, x0 + WIDE, min(y + DASH, y1)) for y in reversed(down))


def _area(instance: Instance, size: tuple[int, int]) -> Image.Image:
    """Which pixels are its own: of its mask, or of its box where it has none."""
    if instance.mask is not None and (pixels := instance.mask.pixels(size)).any():
        return Image.fromarray(pixels.astype(np.uint8) * 255)
    x0, y0, x1, y1 = instance.box
    area = Image.new("L", size)
    ImageDraw.Draw(area).rectangle(
        (
            math.floor(x0),
            math.floor(y0),
            max(math.ceil(x1) - 1, math.floor(x0)),
            max(math.ceil(y1) - 1, math.floor(y0)),
        ),
        fill=255,
    )
    return area
