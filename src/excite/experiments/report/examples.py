"""Example images of an experiment: the choice of best and worst cases, and their drawing."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps

from excite.attention import AttentionMap
from excite.datasets import Box, Instance
from excite.errors import DataError, ImageError
from excite.experiments.base import ExperimentRun, method_layer
from excite.experiments.published import WORDS
from excite.experiments.report.figures import AnyRow
from excite.experiments.report.tables import methods_of
from excite.jobs import Entry
from excite.readouts.overlay import DARK, LIGHT

EXAMPLES = 12  # on a page
MOST_MAPS = 10  # for each example
WIDTH = 320  # pixels of an image: with as many as there may be, a page stays below 5 MB
WIDE, THIN, DASH = 3, 1, 9  # pixels of a box's lines: width, dark edges of a solid one, pieces of a dashed one

Outline = tuple[Image.Image, Image.Image]  # stencils of its dark and its light line
Maps = Sequence["AttentionMap"]


@dataclass(frozen=True)
class Example:
    """The objects of one category in one image."""

    image: str
    size: tuple[int, int]  # its width and height
    category: str  # of the objects
    share: float  # of the image that they cover
    maps: tuple[Entry, ...]  # the record of each method, the main one first


AnyExample = TypeVar("AnyExample", bound=Example)
Rating = Callable[[AnyExample, Sequence[bool]], float | None]
"""Rates an example as a case of some kind (the lowest is best); None if it is none.

The second argument are the successes: of the main method, and then of the others that use the image.
"""
Kinds = Mapping[str, Rating[AnyExample]]  # ratings by heading, in which ``{main}`` is the main method


@dataclass(frozen=True)
class Panel:
    """An image of an example with its alternative text, and the caption: a name and further lines."""

    image: Image.Image
    alt: str
    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Strip:
    """An example as it is shown: the concept's name, the image and its facts, and the panels, or why there are none."""

    name: str
    about: str
    panels: tuple[Panel, ...] = ()
    trouble: str = ""


class Cases(ABC, Generic[AnyExample]):
    """The best and worst cases of an experiment."""

    kinds: ClassVar[Kinds[Any]]

    @abstractmethod
    def candidates(self, run: Any, rows: Sequence[Any]) -> tuple[Sequence[AnyExample], Sequence[Sequence[bool]]]:
        """All examples of a run with the successes of the methods; the main row is the first."""

    @abstractmethod
    def words(self, run: Any, example: AnyExample) -> tuple[str, str]:
        """The concept's name, and the image with its facts."""

    @abstractmethod
    def panels(self, run: Any, example: AnyExample) -> Iterator[Panel]:
        """The images of an example, computed again."""

    def strips(self, runs: Sequence[ExperimentRun], shown: Mapping[str, Sequence[AnyRow]]) -> dict[str, list[Strip]]:
        """By heading the best cases of each kind, at least one for each network; the main row of each is the first."""
        each = max(1, EXAMPLES // len(self.kinds) // len(runs))
        found = {}
        for run in runs:
            rows = shown[run.classifier_name]
            if rows:
                of = f"{run.classifier_name}: " if len(runs) > 1 else ""
                for kind, chosen in best_of_each_kind(*self.candidates(run, rows), self.kinds, each).items():
                    found[of + kind.format(main=rows[0].method)] = [self._strip(run, example) for example in chosen]
        return found

    def _strip(self, run: ExperimentRun, example: AnyExample) -> Strip:
        """An image that vanished or changed since it was measured does not prevent the page."""
        words = self.words(run, example)
        try:
            return Strip(*words, tuple(self.panels(run, example)))
        except (ImageError, DataError) as error:
            return Strip(*words, trouble=str(error))


class MapCases(Cases[AnyExample]):
    """Cases that are shown as the photograph with outlines and the map of each method."""

    @abstractmethod
    def drawn(self, run: Any, example: AnyExample, picture: Image.Image, maps: Maps) -> list[Image.Image]:
        """The photograph, and the map of each method over it."""

    @abstractmethod
    def verdict(self, found: Entry) -> str:
        """On the record of a map: a sign and words, not a colour."""

    def panels(self, run: Any, example: AnyExample) -> Iterator[Panel]:
        """The photograph and the maps, computed again in the example's order."""
        maps = {(found.method, found.layer): found for found in run.show(example.image, example.category)}
        shown = [maps[method_layer(found)] for found in example.maps]
        picture = shown[0].image
        if picture is None or picture.size != example.size:
            raise DataError("the image has changed since it was measured")
        images = self.drawn(run, example, picture, shown)
        name, about = self.words(run, example)
        yield Panel(images[0], f"photograph with outlines; {name}: {about}", name, (about,))
        for found, image in zip(example.maps, images[1:], strict=True):
            method, text = found["method"], self.verdict(found)
            yield Panel(image, f"map for {name}; {method}: {text}", method, (text,))


def rows_to_show(rows: Sequence[AnyRow], main: str) -> tuple[dict[str, list[AnyRow]], list[str]]:
    """For each network the rows whose maps are shown, the main method first, and the methods that are left out.

    Those without any map (``all_empty``) are left out; of too many, those without published numbers.
    """
    shown: dict[str, list[AnyRow]] = {row.model: [] for row in rows}
    for row in sorted(rows, key=lambda row: row.method != main):
        if not getattr(row, "all_empty", False):
            shown[row.model].append(row)
    for model, several in shown.items():
        if len(several) > MOST_MAPS:
            shown[model] = [several[0], *(row for row in several[1:] if row.method in WORDS)][:MOST_MAPS]
    return shown, methods_of(row for row in rows if row not in shown[row.model])


def best_of_each_kind(
    examples: Sequence[AnyExample], successes: Sequence[Sequence[bool]], kinds: Kinds[AnyExample], each: int
) -> dict[str, list[AnyExample]]:
    """The best examples of each kind: at most one of an image, and the categories take turns."""
    taken: set[str] = set()
    found: dict[str, list[AnyExample]] = {}
    for kind, rate in kinds.items():
        ratings = [(rate(*both), both[0]) for both in zip(examples, successes, strict=True)]
        rated = [(rating, example) for rating, example in ratings if rating is not None]
        turns: Counter[str] = Counter()
        waiting = []
        for _, example in sorted(rated, key=lambda pair: pair[0]):
            waiting.append((turns[example.category], example))
            turns[example.category] += 1
        chosen = found[kind] = []
        for _, example in sorted(waiting, key=lambda pair: pair[0]):
            if len(chosen) < each and example.image not in taken:
                chosen.append(example)
                taken.add(example.image)
    return found


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
    """A copy of the image with boxes whose lines are light and dark in turns."""
    drawn = image.convert("RGB").copy()
    for box in boxes:
        x0, y0, x1, y1 = _inside(box, image.size)  # of a box beyond the image's edge, along that edge
        across, down = range(x0, x1, DASH), range(y0, y1, DASH)
        pieces = [  # once around
            *((x, y0, min(x + DASH, x1), y0 + WIDE) for x in across),
            *((x1 - WIDE, y, x1, min(y + DASH, y1)) for y in down),
            *((x, y1 - WIDE, min(x + DASH, x1), y1) for x in reversed(across)),
            *((x0, y, x0 + WIDE, min(y + DASH, y1)) for y in reversed(down)),
        ]
        for k, pixels in enumerate(pieces):
            drawn.paste(DARK if k % 2 else LIGHT, pixels)
    return drawn


def framed(image: Image.Image, box: Box) -> Image.Image:
    """A copy of the image with a box whose line is solid, light between dark, and all inside the box."""
    drawn = image.convert("RGB").copy()
    x0, y0, x1, y1 = _inside(box, image.size)
    draw = ImageDraw.Draw(drawn)
    for inset, width, colour in ((0, WIDE + 2 * THIN, DARK), (THIN, WIDE, LIGHT)):
        if x1 - x0 > 2 * inset and y1 - y0 > 2 * inset:
            draw.rectangle((x0 + inset, y0 + inset, x1 - 1 - inset, y1 - 1 - inset), outline=colour, width=width)
    return drawn


def _inside(box: Box, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The whole pixels that a box touches, within the image."""
    x0, y0 = (max(0, math.floor(side)) for side in box[:2])
    x1, y1 = (min(most, math.ceil(side)) for side, most in zip(box[2:], size, strict=True))
    return x0, y0, x1, y1
