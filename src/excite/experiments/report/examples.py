"""Example images of an experiment: the choice of best and worst cases, their drawing, and strips of HTML.

Objects are outlined by lines that are light and dark, so that they are visible without colour and on any background.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps

from excite.errors import DataError
from excite.experiments.base import method_layer
from excite.experiments.published import WORDS
from excite.experiments.report.figures import methods_of
from excite.experiments.report.html import Html, element, picture
from excite.readouts.overlay import DARK, LIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from excite.attention import AttentionMap
    from excite.datasets import Box, Instance
    from excite.experiments.base import ExperimentRun
    from excite.experiments.report.figures import AnyRow
    from excite.jobs import Entry

    Maps = Callable[[str, str], Sequence[AttentionMap]]

EXAMPLES = 12  # on a page
MOST_MAPS = 10  # for each example
WIDTH = 320  # pixels of an image: with as many as there may be, a page stays below 5 MB
WIDE, THIN, DASH = 3, 1, 9
"""Pixels of the lines of boxes: width, the dark edges of a solid one, and the pieces of a dashed one."""

Outline = tuple[Image.Image, Image.Image]  # stencils of its dark and its light line


@dataclass(frozen=True)
class Example:
    """The objects of one category in one image.

    Attributes:
        image: the image's name.
        size: its width and height.
        category: of the objects.
        share: of the image that they cover.
        maps: the record of each method, the main one first.
    """

    image: str
    size: tuple[int, int]
    category: str
    share: float
    maps: tuple[Entry, ...]


AnyExample = TypeVar("AnyExample", bound=Example)
Rating = Callable[[AnyExample, Sequence[bool]], float | None]
"""Rates an example as a case of some kind (the lowest is best); None if it is none.

The second argument are the successes: of the main method, and then of the others that use the image.
"""


@dataclass(frozen=True)
class DrawnExample(Generic[AnyExample]):
    """The images of an example.

    Attributes:
        example: what is drawn.
        photograph: the image with the objects outlined; None where it is not available any more.
        panels: the map of each method over it, in the example's order.
        trouble: why there is no photograph.
    """

    example: AnyExample
    photograph: Image.Image | None = None
    panels: tuple[Image.Image, ...] = ()
    trouble: str = ""


def best_of_each_kind(
    examples: Sequence[AnyExample],
    successes: Sequence[Sequence[bool]],
    kinds: Mapping[str, Rating[AnyExample]],
    each: int,
) -> dict[str, list[AnyExample]]:
    """The best examples of each kind: at most one of an image, and the categories take turns.

    Args:
        examples: those to choose from.
        successes: of the methods on each example, the main method first.
        kinds: ratings by heading.
        each: number of each kind.

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


def _in_turns(rated: Iterable[tuple[float, AnyExample]], taken: set[str], most: int) -> list[AnyExample]:
    """First the best of each category, then the second best: examples of one category alone would show little."""
    turns: Counter[str] = Counter()
    waiting = []
    for _, example in sorted(rated, key=lambda pair: pair[0]):
        waiting.append((turns[example.category], example))
        turns[example.category] += 1
    chosen: list[AnyExample] = []
    for _, example in sorted(waiting, key=lambda pair: pair[0]):
        if len(chosen) < most and example.image not in taken:
            chosen.append(example)
            taken.add(example.image)
    return chosen


def recomputed_maps(show: Maps, example: Example) -> tuple[Image.Image, list[AttentionMap]]:
    """The image of an example and its maps, computed again in the example's order.

    Args:
        show: computes all maps of an image's name and a category.
        example: from the records.

    Raises:
        DataError: the image has changed since it was measured.
        ImageError: the image cannot be read any more.
    """
    maps = {(found.method, found.layer): found for found in show(example.image, example.category)}
    shown = [maps[method_layer(found)] for found in example.maps]
    image = shown[0].image
    if image is None or image.size != example.size:
        raise DataError("the image has changed since it was measured")
    return image, shown


def outlined(image: Image.Image, outline: Outline) -> Image.Image:
    """A copy of the image with the outlines on it."""
    drawn = image.convert("RGB").copy()
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


def _area(instance: Instance, size: tuple[int, int]) -> Image.Image:
    """The pixels of an instance: of its mask, or of its box where it has none."""
    if instance.mask is not None and (pixels := instance.mask.pixels(size)).any():
        return Image.fromarray(pixels.astype(np.uint8) * 255)
    x0, y0 = map(math.floor, instance.box[:2])
    x1, y1 = (max(math.ceil(end) - 1, start) for end, start in zip(instance.box[2:], (x0, y0), strict=True))
    area = Image.new("L", size)
    ImageDraw.Draw(area).rectangle((x0, y0, x1, y1), fill=255)
    return area


def dashed(image: Image.Image, boxes: Sequence[Box]) -> Image.Image:
    """A copy of the image with boxes whose lines are light and dark in turns.

    Example:
        >>> dashed(Image.new("RGB", (40, 30)), [(5, 5, 35, 25)]).getpixel((8, 5))
        (255, 255, 255)
    """
    drawn = image.convert("RGB").copy()
    for box in boxes:
        for k, pixels in enumerate(_dashes(box, image.size)):
            drawn.paste(DARK if k % 2 else LIGHT, pixels)
    return drawn


def framed(image: Image.Image, box: Box) -> Image.Image:
    """A copy of the image with a box whose line is solid, light between dark, and all inside the box.

    Example:
        >>> frame = framed(Image.new("RGB", (40, 30), (9, 99, 9)), (5, 5, 35, 25))
        >>> [frame.getpixel((x, 15)) for x in (4, 5, 6, 20)]
        [(9, 99, 9), (12, 12, 20), (255, 255, 255), (9, 99, 9)]
    """
    drawn = image.convert("RGB").copy()
    x0, y0, x1, y1 = _inside(box, image.size)
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


def example_strips(
    runs: Sequence[ExperimentRun],
    rows: Sequence[AnyRow],
    main: str,
    cases: Callable[[Any, Sequence[AnyRow]], Mapping[str, Sequence[Html]]],
    *,
    named: bool,
) -> list[Html]:
    """Best and worst cases of each network.

    Args:
        runs: of the networks.
        rows: of each network and method the one to show; those without any map (``all_empty``) are left out.
        main: the method whose cases they are.
        cases: of a run and its rows, the main one first, the strips by heading.
        named: whether headings name the network.
    """
    names = [run.classifier_name for run in runs]
    shown = {
        name: _shown_rows([row for row in rows if row.model == name and not getattr(row, "all_empty", False)], main)
        for name in names
    }
    missing = methods_of(row for row in rows if row.model in shown and row not in shown[row.model])
    parts = [element("p", f"Without the maps of {', '.join(missing)}.", class_="soft")] if missing else []
    for run in runs:
        of = f"{run.classifier_name}: " if named else ""
        if shown[run.classifier_name]:
            method = shown[run.classifier_name][0].method
            for kind, strips in cases(run, shown[run.classifier_name]).items():
                parts += headed_strips(of + kind.format(main=method), strips)
    return parts


def _shown_rows(rows: Sequence[AnyRow], main: str) -> list[AnyRow]:
    """The rows whose maps are shown, the main method first; of many, those with published numbers."""
    shown = sorted(rows, key=lambda row: row.method != main)
    if len(shown) <= MOST_MAPS:
        return shown
    return [shown[0], *(row for row in shown[1:] if row.method in WORDS)][:MOST_MAPS]


def headed_strips(heading: str, strips: Sequence[Html]) -> list[Html]:
    """A heading and the examples of a kind, or that there is none."""
    none = [element("p", "There is no such case among these images.", class_="soft")]
    return [element("h3", heading), *(strips or none)]


def strip(drawn: DrawnExample[AnyExample], name: str, about: str, verdict: Callable[[Entry], str]) -> Html:
    """An example: the photograph, and the map of each method.

    Args:
        drawn: its images.
        name: of the concept.
        about: the image, and its facts.
        verdict: on the record of a map: a sign and words, not a colour.
    """
    if drawn.photograph is None:
        return element("p", f"{name} in {about}: cannot be shown ({drawn.trouble})", class_="soft")
    figures = [_figure(drawn.photograph, "photograph with outlines", name, about)]
    for found, panel in zip(drawn.example.maps, drawn.panels, strict=True):
        figures.append(_figure(panel, f"map for {name}", found["method"], verdict(found)))
    return element("div", *figures, class_="strip")


def _figure(image: Image.Image, what: str, name: str, text: str) -> Html:
    caption = element("figcaption", element("strong", name), Html("<br>"), text)
    return element("figure", picture(image, f"{what}; {name}: {text}", width=WIDTH), caption)
