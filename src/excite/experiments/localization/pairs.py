"""Pairs of an image and a category, and how the box that a method found lies beside the true ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from excite.experiments.base import method_layer
from excite.experiments.report.examples import Example
from excite.metrics.boxes import ALPHAS, MATCH, box_iou
from excite.metrics.statistics import Share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.datasets import Box
    from excite.experiments.localization.scores import LocalizationRow, LocalizationRun
    from excite.jobs import Entry

MANNERS = ("fits", "too small", "too large", "elsewhere", "no box")
MOSTLY = 0.7  # of a box within another
GROUPS = 5  # of pairs by size


@dataclass(frozen=True)
class BoxExample(Example):
    """A pair; its share is that of the largest object, by its box.

    Its maps are what each method found at its own threshold: ``method``, ``layer``, ``box`` (None where nothing is
    above it), ``overlap`` (the IoU with the best true box) and ``manner``, one of `MANNERS`.
    """

    truth: tuple[Box, ...]  # the true boxes


def pairs_of(run: LocalizationRun, rows: Sequence[LocalizationRow]) -> list[BoxExample]:
    """The reported pairs, with the boxes of these rows at their thresholds."""
    keys = [((row.method, row.layer), ALPHAS.index(row.alpha)) for row in rows]
    pairs = []
    for record in run.records:
        for target in record["targets"] if record["image"] in run.reported else ():
            maps = {method_layer(found): found for found in target["maps"]}
            truth = tuple(_box(box) for box in target["truth"])
            width, height = record["size"]
            found = tuple(_found(maps[key], at, truth) for key, at in keys)
            share = max(map(_area, truth)) / (width * height)
            pairs.append(BoxExample(record["image"], (width, height), target["category"], share, found, truth))
    return pairs


def _found(one: Entry, at: int, truth: Sequence[Box]) -> Entry:
    """Whether it fits is as measured: at the limit, rounding must not turn a fit into an error here."""
    box = None if one["boxes"][at] is None else _box(one["boxes"][at])
    overlap = one["overlaps"]["paper"][at]
    how = "fits" if box is not None and overlap >= MATCH else manner(box, truth, enough=2.0)
    return {"method": one["method"], "layer": one["layer"], "box": box, "overlap": overlap, "manner": how}


def manner(box: Box | None, truth: Sequence[Box], enough: float = MATCH) -> str:
    """How a box lies relative to the true box that it overlaps most: one of `MANNERS`.

    A box that does not fit is too small where most of it lies within the object, too large where most of the object
    lies within it, and elsewhere otherwise.

    Example:
        >>> [manner(box, [(0, 0, 10, 10)]) for box in ((0, 0, 9, 9), (0, 0, 3, 3), (0, 0, 30, 9), (8, 8, 20, 20), None)]
        ['fits', 'too small', 'too large', 'elsewhere', 'no box']
    """
    if box is None:
        return "no box"
    overlaps = box_iou([box], truth)[0]
    if overlaps.max() >= enough:
        return "fits"
    true = truth[int(overlaps.argmax())]
    width, height = (max(min(box[k + 2], true[k + 2]) - max(box[k], true[k]), 0.0) for k in (0, 1))
    if width * height >= MOSTLY * _area(box):
        return "too small"
    return "too large" if width * height >= MOSTLY * _area(true) else "elsewhere"


def _box(values: Sequence[float]) -> Box:
    x0, y0, x1, y1 = values
    return x0, y0, x1, y1


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def whole_picture(pairs: Sequence[BoxExample]) -> Share:
    """The error of the whole image as the box: a baseline.

    Example:
        >>> whole_picture([BoxExample("1", (10, 10), "cat", 1, (), ((0, 0, 10, side),)) for side in (9, 5, 2)])
        Share(count=1, total=3)
    """
    misses = [manner((0, 0, *pair.size), pair.truth) != "fits" for pair in pairs]
    return Share(sum(misses), len(misses))


def size_groups(pairs: Sequence[BoxExample]) -> list[tuple[str, Sequence[BoxExample]]]:
    """Fifths of the pairs, from the smallest objects to the largest, each with its range of sizes in percent."""
    ordered = sorted(pairs, key=lambda pair: pair.share)
    ends = [round(k * len(ordered) / GROUPS) for k in range(GROUPS + 1)]
    parts = [ordered[start:end] for start, end in pairwise(ends) if end > start]
    return [(f"{100 * part[0].share:.0f}\N{EN DASH}{100 * part[-1].share:.0f}", part) for part in parts]
