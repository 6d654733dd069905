"""Examples of the Pointing Game to look at: which ones, as the records tell, and their maps, made anew."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps

from excite.benchmarks.pointing_table import place_of
from excite.errors import DataError, ImageError
from excite.readouts.overlay import DARK, LIGHT, overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from excite.benchmarks.pointing_table import Place
    from excite.benchmarks.pointing_tally import Run
    from excite.datasets import Instance
    from excite.ledger import Entry

    Hits = Sequence[bool]  # of the main method, and then of the others that can see

__all__ = ["KINDS", "Drawn", "Example", "choose", "draw"]


@dataclass(frozen=True)
class Example:
    """The objects of one category in one picture.

    Attributes:
        image: the picture's name.
        size: its width and height.
        category: what was to be pointed at.
        share: how much of the picture that covers.
        maps: what the record tells of each method, the main one first.
    """

    image: str
    size: tuple[int, int]
    category: str
    share: float
    maps: tuple[Entry, ...]


@dataclass(frozen=True)
class Drawn:
    """An example to look at.

    Attributes:
        example: what it is.
        photograph: the picture with the objects outlined; None where it could not be had any more,
        panels: the map of each method over it, in the example's order.
        trouble: and why not.
    """

    example: Example
    photograph: Image.Image | None = None
    panels: tuple[Image.Image, ...] = ()
    trouble: str = ""


SMALL = 0.25  # of the picture, as in the Difficult subset


def _all_hit(example: Example, hits: Hits) -> float | None:
    return example.share if all(hits) and example.share < SMALL else None


def _only_main_hits(example: Example, hits: Hits) -> float | None:
    """The more of the others miss, the better; of equals, the smaller object."""
    main, *others = hits
    return sum(others) + min(example.share, 0.99) if main and not all(others) else None


def _main_misses(example: Example, hits: Hits) -> float | None:
    """The farther, measured in diagonals of the picture, the worse. A map that points nowhere is not much to see."""
    return None if hits[0] else -(example.maps[0]["distance"] or 0.0) / math.hypot(*example.size)


KINDS: dict[str, Callable[[Example, Hits], float | None]] = {
    "Every method that looks hits a small object": _all_hit,
    "{main} hits where others miss": _only_main_hits,
    "{main} misses, by the most": _main_misses,
}
"""Best and worst cases: a heading, and a rating (the lowest first) or None for what is no such case."""


def choose(
    records: Iterable[Entry], places: Sequence[Place], is_hit: Callable[[Entry], bool], each: int
) -> dict[str, list[Example]]:
    """The best examples of each kind: of a picture at most one, and the categories take turns.

    Args:
        records: a record for each picture.
        places: the methods, each with the layer to show it at; the main one first.
        is_hit: whether a map of a record points at what it was asked for.
        each: how many of each kind.

    Example:
        >>> found = {"method": "c-mwp", "layer": "1", "point": [3, 4], "distance": 0.0}
        >>> target = {"category": "cat", "share": 0.1, "maps": [found]}
        >>> record = {"image": "7", "size": [90, 60], "targets": [target]}
        >>> examples = choose([record], [("c-mwp", "1")], lambda found: True, each=1)
        >>> [(kind, [example.image for example in found]) for kind, found in examples.items()][0]
        ('Every method that looks hits a small object', ['7'])
    """
    candidates = [_example(record, target, places) for record in records for target in record["targets"]]
    seeing = [k for k in range(len(places)) if k == 0 or _can_see(k, candidates)]
    hits = [[is_hit(example.maps[k]) for k in seeing] for example in candidates]
    taken: set[str] = set()
    chosen = {}
    for kind, rate in KINDS.items():
        ratings = [(rate(*both), both[0]) for both in zip(candidates, hits, strict=True)]
        rated = [(rating, example) for rating, example in ratings if rating is not None]
        chosen[kind] = _in_turns(rated, taken, each)
    return chosen


def _example(record: Entry, target: Entry, places: Sequence[Place]) -> Example:
    maps = {place_of(found): found for found in target["maps"]}
    width, height = record["size"]
    shown = tuple(maps[place] for place in places)
    return Example(record["image"], (width, height), target["category"], target["share"], shown)


def _can_see(place: int, examples: Iterable[Example]) -> bool:
    """The centre does not look at the picture, and maps that are all empty do not point."""
    return any(
        example.maps[place]["method"] != "center" and example.maps[place]["point"] is not None for example in examples
    )


def _in_turns(rated: Iterable[tuple[float, Example]], taken: set[str], most: int) -> list[Example]:
    """First the best of each category, then the second best: a page of buses would not tell much."""
    turns: Counter[str] = Counter()
    waiting = []
    for _, example in sorted(rated, key=lambda pair: pair[0]):
        waiting.append((turns[example.category], example))
        turns[example.category] += 1
    chosen: list[Example] = []
    for _, example in sorted(waiting, key=lambda pair: pair[0]):
        if len(chosen) < most and example.image not in taken:
            chosen.append(example)
            taken.add(example.image)
    return chosen


def draw(run: Run, example: Example) -> Drawn:
    """The photograph and each method's map over it, with the objects outlined and the points marked.

    A picture that vanished or changed since it was measured is no reason to have no page.
    """
    try:
        maps = {(found.method, found.layer): found for found in run.show(example.image, example.category)}
        outline = _outline(run.target(example.image, example.category).instances, example.size)
    except (ImageError, DataError) as error:
        return Drawn(example, trouble=str(error))
    shown = [maps[place_of(found)] for found in example.maps]
    picture = shown[0].image
    if picture is None or picture.size != example.size:
        return Drawn(example, trouble="the picture has changed since it was measured")
    points = [None if found["point"] is None else (found["point"][0], found["point"][1]) for found in example.maps]
    covered = [overlay(picture, found.values, point=point) for found, point in zip(shown, points, strict=True)]
    return Drawn(example, _outlined(picture, outline), tuple(_outlined(panel, outline) for panel in covered))


Outline = tuple[Image.Image, Image.Image]  # where its dark and where its light line goes


def _outlined(picture: Image.Image, outline: Outline) -> Image.Image:
    drawn = picture.convert("RGB").copy()
    for colour, stencil in zip((DARK, LIGHT), outline, strict=True):
        drawn.paste(colour, (0, 0), stencil)
    return drawn


def _outline(instances: Sequence[Instance], size: tuple[int, int]) -> Outline:
    """Lines along the edges of all instances: a light one inside, between two dark ones."""
    width = max(1, round(math.sqrt(size[0] * size[1]) / 200))
    dark, light = Image.new("L", size), Image.new("L", size)
    for instance in instances:
        area = ImageOps.expand(_area(instance, size), 3 * width)  # an object may reach to the picture's edge
        within, deeper = (area.filter(ImageFilter.MinFilter(2 * k * width + 1)) for k in (1, 2))
        beyond = area.filter(ImageFilter.MaxFilter(2 * width + 1))
        dark = ImageChops.lighter(dark, ImageOps.crop(ImageChops.subtract(beyond, deeper), 3 * width))
        light = ImageChops.lighter(light, ImageOps.crop(ImageChops.subtract(area, within), 3 * width))
    return dark, light


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
