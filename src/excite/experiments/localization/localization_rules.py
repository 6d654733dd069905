"""How a map becomes boxes: what its pixels are compared with, and which region is boxed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from excite.metrics.measures import ALPHAS, best_overlaps, boxes_over, mean_levels
from excite.readouts.components import component_boxes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    Boxes = NDArray[np.float64]

__all__ = ["RULES", "SHARES", "Rule", "boxes_of", "overlaps_of"]

Measure = Literal["mean", "max", "range"]
Region = Literal["all", "largest", "any"]

SHARES = tuple(k / 50 for k in range(50))
"""The thresholds that are tried in maxima of the map: 0:0.02:0.98."""

DECIMALS = 10**4
NOISE = 1e-6  # of a last decimal: what is exactly a half must not become less by arithmetic


@dataclass(frozen=True)
class Rule:
    """A way from a map to boxes.

    Attributes:
        name: in records and tables.
        thresholds: what is tried.
        of: what a threshold is a multiple of: the map's mean; its maximum; or the way from its minimum to its maximum,
            as if it were stretched to 0..1 first.
        region: what is boxed: all pixels above the threshold together; only the largest region that hangs together; or
            each such region, and of these boxes the best one counts.
    """

    name: str
    thresholds: tuple[float, ...]
    of: Measure
    region: Region


RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("paper", ALPHAS, "mean", "all"),
        Rule("largest", ALPHAS, "mean", "largest"),
        Rule("max", SHARES, "max", "all"),
        Rule("max-largest", SHARES, "range", "largest"),
        Rule("any", SHARES, "range", "any"),
    )
}
"""The paper's rule first. The last two are those of the public evaluation of weakly supervised localisation: MaxBoxAcc,
and MaxBoxAccV2."""


def _max_levels(stretched: Tensor, thresholds: Sequence[float]) -> Tensor:
    return torch.tensor(thresholds, dtype=stretched.dtype) * stretched.max()


def _range_levels(stretched: Tensor, thresholds: Sequence[float]) -> Tensor:
    low, high = stretched.aminmax()
    return low + torch.tensor(thresholds, dtype=stretched.dtype) * (high - low)


LEVELS: Mapping[Measure, Callable[[Tensor, Sequence[float]], Tensor]] = {
    "mean": mean_levels,
    "max": _max_levels,
    "range": _range_levels,
}


def boxes_of(stretched: Tensor) -> dict[str, list[Boxes]]:
    """By each rule, for each of its thresholds, the boxes ``[boxes, 4]`` that may count; none where nothing is above.

    Args:
        stretched: the map ``[height, width]`` at the size at which boxes are made.

    Example:
        >>> found = boxes_of(torch.tensor([[3.0, 0.0, 1.0, 1.0]]))
        >>> {rule: boxes[0].tolist() for rule, boxes in found.items() if rule in ("paper", "largest")}
        {'paper': [[0.0, 0.0, 4.0, 1.0]], 'largest': [[2.0, 0.0, 4.0, 1.0]]}
    """
    regions: dict[tuple[Measure, tuple[float, ...]], list[Boxes]] = {}  # rules may share them
    found: dict[str, list[Boxes]] = {}
    for rule in RULES.values():
        levels = LEVELS[rule.of](stretched, rule.thresholds)
        if rule.region == "all":
            found[rule.name] = [_rows([] if box is None else [box]) for box in boxes_over(stretched, levels)]
            continue
        same = rule.of, rule.thresholds
        if same not in regions:
            regions[same] = _regions(stretched, levels)
        most = 1 if rule.region == "largest" else None
        found[rule.name] = [boxes[:most] for boxes in regions[same]]
    return found


def overlaps_of(boxes: Sequence[Boxes], truth: Boxes) -> list[float]:
    """For each threshold the overlap of its best box with the true box that it fits best; 0 where there is no box.

    Four decimals, rounded down: so much overlap or more is still as much or more when it is read again.

    Example:
        >>> overlaps_of([np.array([[0, 0, 3, 2.0], [0, 0, 1, 1]]), np.empty((0, 4))], np.array([[0, 0, 2, 2.0]]))
        [0.6666, 0.0]
    """
    best = np.zeros(len(boxes))
    owners = np.repeat(np.arange(len(boxes)), [len(each) for each in boxes])
    np.maximum.at(best, owners, best_overlaps(np.concatenate(boxes), truth))
    rounded: list[float] = (np.floor(best * DECIMALS + NOISE) / DECIMALS).tolist()
    return rounded


def _regions(stretched: Tensor, levels: Tensor) -> list[Boxes]:
    """For each level the boxes of all regions above it, that of the largest region first."""
    plane = stretched.numpy()
    return [component_boxes(plane > level)[0].astype(np.float64) for level in levels.numpy()]


def _rows(boxes: Sequence[Sequence[float]]) -> Boxes:
    return np.array(boxes, dtype=np.float64).reshape(-1, 4)
