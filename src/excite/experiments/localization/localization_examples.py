"""Examples of localisation to look at: which ones, as the records tell, and their boxes over maps made anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from excite.errors import DataError, ImageError
from excite.experiments.localization.localization_page_fits import pairs_of
from excite.experiments.report.cases import Example, best_of_each_kind
from excite.experiments.report.examples import Drawn, dashed, framed, shown_again
from excite.experiments.report.page_strips import WIDTH
from excite.readouts.overlay import overlay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.datasets import Box
    from excite.experiments.localization.localization_page_fits import Pair
    from excite.experiments.localization.scores import Row, Run
    from excite.experiments.report.cases import Rating

    Fits = Sequence[bool]  # of the main method, and then of the others that look at the picture

__all__ = ["KINDS", "BoxExample", "choose", "draw"]


@dataclass(frozen=True)
class BoxExample(Example):
    """An example whose maps are the methods' boxes: each with ``method``, ``layer``, ``alpha``, and what it found.

    Attributes:
        truth: where the objects are.
    """

    truth: tuple[Box, ...]


def _all_fit(example: BoxExample, fits: Fits) -> float | None:
    """The smaller the object, the harder it was."""
    return example.share if all(fits) else None


def _only_main_fits(example: BoxExample, fits: Fits) -> float | None:
    """The more of the others do not fit, the better; of equals, the better fit."""
    main, *others = fits
    return sum(others) - min(example.maps[0]["overlap"], 0.99) if main and not all(others) else None


def _misses(manner: str) -> Rating[BoxExample]:
    """The less the box and the object have in common, the worse."""

    def rate(example: BoxExample, _: Fits) -> float | None:
        main = example.maps[0]
        return float(main["overlap"]) if main["manner"] == manner else None

    return rate


KINDS: dict[str, Rating[BoxExample]] = {
    "Every method that looks fits the object": _all_fit,
    "{main} fits where others do not": _only_main_fits,
    "{main} finds a part: its box is far too small": _misses("too small"),
    "{main} finds more than the object: its box is far too large": _misses("too large"),
    "{main} looks elsewhere": _misses("elsewhere"),
}
"""Best and worst cases: a heading, and a rating (the lowest first) or None for what is no such case."""


def choose(run: Run, rows: Sequence[Row], each: int) -> dict[str, list[BoxExample]]:
    """The best examples of each kind among the pictures that are reported on.

    Args:
        run: one network's experiment.
        rows: the methods, each with the layer to show it at; the main one first.
        each: how many of each kind.
    """
    examples = [_example(pair, rows) for pair in pairs_of(run, rows)]
    looking = [k for k, row in enumerate(rows) if k == 0 or row.method != "center"]
    fits = [[example.maps[k]["manner"] == "fits" for k in looking] for example in examples]
    return best_of_each_kind(examples, fits, KINDS, each)


def _example(pair: Pair, rows: Sequence[Row]) -> BoxExample:
    maps = tuple(
        {"method": row.method, "layer": row.layer, "alpha": row.alpha, **vars(found)}
        for row, found in zip(rows, pair.found, strict=True)
    )
    return BoxExample(pair.image, pair.size, pair.category, pair.share, maps, pair.truth)


def draw(run: Run, example: BoxExample) -> Drawn[BoxExample]:
    """The photograph and each method's map over it: the true boxes are dashed, and the one that was found is not.

    All are drawn at the width at which they are shown, so that lines look the same on large and on small pictures.
    A picture that vanished or changed since it was measured is no reason to have no page.
    """
    try:
        picture, shown = shown_again(run.show, example)
    except (ImageError, DataError) as error:
        return Drawn(example, trouble=str(error))
    scale = WIDTH / picture.width
    photograph = picture.resize((WIDTH, max(1, round(scale * picture.height))), Image.Resampling.LANCZOS)
    truth = [_scaled(box, scale) for box in example.truth]
    panels = []
    for one, found in zip(shown, example.maps, strict=True):
        panel = overlay(photograph, one.values)
        panels.append(dashed(panel if found["box"] is None else framed(panel, _scaled(found["box"], scale)), truth))
    return Drawn(example, dashed(photograph, truth), tuple(panels))


def _scaled(box: Box, scale: float) -> Box:
    x0, y0, x1, y1 = (scale * side for side in box)
    return x0, y0, x1, y1
