"""How found boxes lie beside what they should fit, pair by pair: what an error alone does not tell."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.experiments.layer_report import ENOUGH_OVERLAP
from excite.experiments.records import place_of
from excite.experiments.report.html import Html, element, table
from excite.metrics.measures import ALPHAS, overlap
from excite.metrics.statistics import Share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.datasets import Box
    from excite.experiments.localization.scores import Row, Run
    from excite.jobs.ledger_init import Entry

__all__ = ["MANNERS", "Found", "Pair", "manner", "manners_table", "pairs_of", "whole_picture"]

MANNERS = ("fits", "too small", "too large", "elsewhere", "no box")
MOSTLY = 0.7  # of a box within another: two boxes that hold as much of each other fit


@dataclass(frozen=True)
class Found:
    """What one method found in a pair, at the threshold that was chosen for it.

    Attributes:
        box: None where nothing is above the threshold.
        overlap: with the true box that it fits best.
        manner: one of `MANNERS`.
    """

    box: Box | None
    overlap: float
    manner: str


@dataclass(frozen=True)
class Pair:
    """A picture and a category in it, with what some methods found there.

    Attributes:
        image: the picture's name.
        size: its width and height.
        category: what was to be found,
        truth: and where it is.
        found: for each row that was asked for, in its order.
    """

    image: str
    size: tuple[int, int]
    category: str
    truth: tuple[Box, ...]
    found: tuple[Found, ...]

    @property
    def share(self) -> float:
        """How much of the picture the object covers by its box; of several, the largest.

        Example:
            >>> Pair("1", (10, 10), "cat", ((0, 0, 5, 5), (0, 0, 1, 1)), ()).share
            0.25
        """
        return max(map(_area, self.truth)) / (self.size[0] * self.size[1])


def pairs_of(run: Run, rows: Sequence[Row]) -> list[Pair]:
    """The pairs that are reported on, with what these rows found at their thresholds."""
    places = [((row.method, row.layer), ALPHAS.index(row.alpha)) for row in rows]
    return [_pair(record, target, places) for record in reported(run) for target in record["targets"]]


def reported(run: Run) -> Iterator[Entry]:
    """The records of the pictures on which nothing was chosen."""
    return (record for record in run.records if record["image"] in run.reported)


def manner(box: Box | None, truth: Sequence[Box]) -> str:
    """In which way a box fits, or does not fit, the true box that it overlaps most.

    A box that does not fit is too small where it lies within the object and too large where the object lies within it,
    for the most part; elsewhere is all the rest.

    Example:
        >>> [manner(box, [(0, 0, 10, 10)]) for box in ((0, 0, 9, 9), (0, 0, 3, 3), (0, 0, 30, 9), (8, 8, 20, 20), None)]
        ['fits', 'too small', 'too large', 'elsewhere', 'no box']
    """
    if box is None:
        return "no box"
    true = max(truth, key=lambda one: overlap(box, one))
    return "fits" if overlap(box, true) >= ENOUGH_OVERLAP else _miss(box, true)


def whole_picture(pairs: Sequence[Pair]) -> Share:
    """How often the whole picture, taken for the box, does not fit: what a method has to be better than.

    Example:
        >>> whole_picture([Pair("1", (10, 10), "cat", ((0, 0, 10, side),), ()) for side in (9, 5, 2)])
        Share(count=1, total=3)
    """
    misses = [manner((0, 0, *pair.size), pair.truth) != "fits" for pair in pairs]
    return Share(sum(misses), len(misses))


def manners_table(pairs: Sequence[Pair], rows: Sequence[Row]) -> Html:
    """In which way the boxes of each method fit or do not fit, in percent of the pairs; of one network."""
    body = []
    for k, row in enumerate(rows):
        counts = Counter(pair.found[k].manner for pair in pairs)
        body.append([row.method, *(_heat(100 * counts[each] / len(pairs)) for each in MANNERS)])
    return table(
        f"{rows[0].model}: how the boxes lie, in percent of {len(pairs)} pairs. Too small: most of the box is on "
        "the object. Too large: most of the object is in the box. Elsewhere: neither.",
        ["method", *MANNERS],
        body,
    )


def _pair(record: Entry, target: Entry, places: Sequence[tuple[tuple[str, str], int]]) -> Pair:
    maps = {place_of(found): found for found in target["maps"]}
    truth = tuple(_box(box) for box in target["truth"])
    width, height = record["size"]
    found = tuple(_found(maps[place], at, truth) for place, at in places)
    return Pair(record["image"], (width, height), target["category"], truth, found)


def _found(one: Entry, at: int, truth: Sequence[Box]) -> Found:
    """Whether it fits is as it was measured: at the edge of it, rounding must not make another error of it here."""
    box = None if one["boxes"][at] is None else _box(one["boxes"][at])
    measured = one["overlaps"]["paper"][at]
    if box is None or measured >= ENOUGH_OVERLAP:
        return Found(box, measured, "no box" if box is None else "fits")
    return Found(box, measured, _miss(box, max(truth, key=lambda true: overlap(box, true))))


def _miss(box: Box, true: Box) -> str:
    both = _shared(box, true)
    if both >= MOSTLY * _area(box):
        return "too small"
    return "too large" if both >= MOSTLY * _area(true) else "elsewhere"


def _box(values: Sequence[float]) -> Box:
    x0, y0, x1, y1 = values
    return x0, y0, x1, y1


def _shared(one: Box, other: Box) -> float:
    """The area that two boxes have in common."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    return max(width, 0.0) * max(min(one[3], other[3]) - max(one[1], other[1]), 0.0)


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _heat(value: float) -> Html:
    return element("span", f"{value:.1f}", class_="heat", style=f"--share: {0.7 * value:.0f}%")
