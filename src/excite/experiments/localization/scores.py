"""What the records of localisation say: thresholds chosen on some images, errors told of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from excite.errors import DataError
from excite.experiments.base import ComparisonRun, asked_places, place_of
from excite.experiments.layer_sweep import ENOUGH_OVERLAP
from excite.metrics.boxes import ALPHAS, best_overlaps, boxes_over, mean_levels
from excite.metrics.statistics import Share, Z, paired_test
from excite.readouts.box import component_boxes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from excite.experiments.base import Place
    from excite.jobs import Entry

    Boxes = NDArray[np.float64]


# The maps of one method on both sides: images that thresholds are chosen on, and images that are reported on.


@dataclass(frozen=True)
class Sides:
    """What one method gave at one layer.

    Attributes:
        place: the method and the layer.
        held_out: its maps of the images to choose on.
        reported: its maps of the images to report on,
        pictures: and for each the number of its image among these.
    """

    place: Place
    held_out: Sequence[Entry]
    reported: Sequence[Entry]
    pictures: Sequence[int]

    @property
    def empty(self) -> int:
        """How many of the maps that are reported on have no box, since nothing is above zero."""
        return sum(found["boxes"][0] is None for found in self.reported)

    def chosen(self, rule: str) -> int:
        """Which threshold has the smallest error where one is chosen; of equals the first."""
        return int(_errors(self.held_out, rule, ENOUGH_OVERLAP).argmin())

    @property
    def share_chosen(self) -> Share:
        """By the paper's rule, how many are missed where the threshold is chosen."""
        at = self.chosen("paper")
        missed = [found["overlaps"]["paper"][at] < ENOUGH_OVERLAP for found in self.held_out]
        return Share(sum(missed), len(missed))

    def misses(self, rule: str) -> NDArray[np.bool_]:
        """Which pairs that are reported on are missed, at the threshold that was chosen."""
        at = self.chosen(rule)
        return np.array([found["overlaps"][rule][at] < ENOUGH_OVERLAP for found in self.reported])

    def curve(self, rule: str, enough: float = ENOUGH_OVERLAP) -> tuple[float, ...]:
        """The error in percent on what is reported, at each threshold, if so much overlap is enough."""
        return tuple((100 * _errors(self.reported, rule, enough)).tolist())


def sides_of(records: Sequence[Entry], reported: Collection[str]) -> list[Sides]:
    """For each method and layer its maps on both sides, in the order of the pairs.

    Raises:
        DataError: the records are of different methods or layers, or all images are on one side.

    Example:
        >>> found = {"method": "mwp", "layer": "conv5"}
        >>> records = [{"image": name, "targets": [{"maps": [found]}]} for name in "abc"]
        >>> [(sides.place, len(sides.held_out), sides.pictures) for sides in sides_of(records, {"b", "c"})]
        [(('mwp', 'conv5'), 1, [0, 1])]
    """
    places = asked_places(target for record in records for target in record["targets"])
    choose, tell = ([one for one in records if (one["image"] in reported) is told] for told in (False, True))
    if not choose or not tell:
        raise DataError("thresholds are chosen on some images and told of others: there are none on one of the sides")
    held_out, told = _by_place(choose), _by_place(tell)
    pictures = [k for k, record in enumerate(tell) for _ in record["targets"]]
    return [Sides(place, held_out[place], told[place], pictures) for place in places]


def _by_place(records: Iterable[Entry]) -> dict[Place, list[Entry]]:
    maps: dict[Place, list[Entry]] = {}
    for record in records:
        for target in record["targets"]:
            for found in target["maps"]:
                maps.setdefault(place_of(found), []).append(found)
    return maps


def _errors(maps: Iterable[Entry], rule: str, enough: float) -> NDArray[np.float64]:
    """The share that is missed, at each threshold."""
    errors: NDArray[np.float64] = (np.array([found["overlaps"][rule] for found in maps]) < enough).mean(axis=0)
    return errors


# How a map becomes boxes: what its pixels are compared with, and which region is boxed.

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


# What the records of localisation say: thresholds chosen on some images, errors told of the others.

V2_OVERLAPS = (0.3, 0.5, 0.7)
"""How much overlap is enough: MaxBoxAccV2 is the mean of all three."""


@dataclass(frozen=True)
class RuleResult:
    """What one rule is worth for one method.

    Attributes:
        rule: a name of `RULES`.
        threshold: the one with the smallest error on the held-out images; of equals the first.
        error: at that threshold, how many pairs on the other images have no box that overlaps by a half.
        curve: the error in percent on those other images, at each threshold.
    """

    rule: str
    threshold: float
    error: Share
    curve: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the curve."""
        return {"threshold": self.threshold, **_percent(self.error)}


@dataclass(frozen=True)
class Row:
    """What one method is worth at one layer of one network, on the images that nothing was chosen on.

    Attributes:
        model: the network's name.
        method: the method's.
        layer: where it was read.
        rules: the result of each rule, the paper's first.
        max_box_acc: MaxBoxAcc: how often, in percent, the largest region's box fits at the best threshold of all. It is
            chosen on the very images, so it is a little too good, as it is for everybody who tells it.
        max_box_acc_v2: the same for the best region's box, for each overlap of `V2_OVERLAPS`.
        empty: how many maps have no box at all.
        chosen: the error by the paper's rule on the held-out images, where the threshold was chosen.
    """

    model: str
    method: str
    layer: str
    rules: Mapping[str, RuleResult]
    max_box_acc: float
    max_box_acc_v2: Mapping[float, float]
    empty: int
    chosen: Share

    @property
    def alpha(self) -> float:
        """The threshold of the paper's rule, in means of the map."""
        return self.rules["paper"].threshold

    @property
    def error(self) -> Share:
        """The error by the paper's rule."""
        return self.rules["paper"].error

    @property
    def v2_mean(self) -> float:
        """MaxBoxAccV2, in percent."""
        return sum(self.max_box_acc_v2.values()) / len(self.max_box_acc_v2)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: percentages with two decimals."""
        return {
            "model": self.model,
            "method": self.method,
            "layer": self.layer,
            "alpha": self.alpha,
            **_percent(self.error),
            "pairs": self.error.total,
            "rules": {name: result.to_dict() for name, result in self.rules.items()},
            "max_box_acc": round(self.max_box_acc, 2),
            "max_box_acc_v2": {
                "mean": round(self.v2_mean, 2),
                **{f"{overlap}": round(value, 2) for overlap, value in self.max_box_acc_v2.items()},
            },
            "empty": self.empty,
        }


@dataclass(frozen=True)
class Run(ComparisonRun):
    """One network's localisation; its records are also of the images that thresholds were chosen on.

    Attributes:
        rows: from `tally`.
        reported: the names of the images that the rows are about.
    """

    rows: Sequence[Row]
    reported: frozenset[str]

    @property
    def told(self) -> Sequence[Row]:
        """The rows to tell: of a method that was read at several layers the best, unless somebody named the layers."""
        return best_layers(self.rows) if self.about.get("layer_chosen") else self.rows


@dataclass(frozen=True)
class Difference:
    """How many points more error one method has than another on the same images: below 0, it is better.

    Attributes:
        value: in points, by the paper's rule, each at its own threshold,
        low: and where it lies by its spread over images,
        high: in 95 of 100 such samples.
        p: how likely they would differ at least so much if neither were better (see `statistics.paired_test`).
    """

    value: float
    low: float
    high: float
    p: float


def tally(records: Sequence[Entry], model: str, reported: Collection[str]) -> list[Row]:
    """A row for each method and layer, in the order in which they were asked.

    Args:
        records: from `Localization.records`.
        model: the network's name.
        reported: the images to report on; thresholds are chosen on all others.

    Raises:
        DataError: the records are of different methods or layers, or all images are on one side.

    Example:
        >>> overlaps = {rule.name: [0.6] * len(rule.thresholds) for rule in RULES.values()}
        >>> found = {"method": "mwp", "layer": "conv5", "boxes": [[0, 0, 9, 9]], "overlaps": overlaps}
        >>> records = [{"image": name, "targets": [{"maps": [found]}]} for name in "ab"]
        >>> (row,) = tally(records, "vgg16", reported={"b"})
        >>> row.alpha, row.error, row.max_box_acc, row.max_box_acc_v2[0.7]
        (0.0, Share(count=0, total=1), 100.0, 0.0)
    """
    return [_row(model, sides) for sides in sides_of(records, reported)]


def best_layers(rows: Sequence[Row]) -> list[Row]:
    """For each method of a network the layer with the smallest error on the images that thresholds were chosen on.

    The best of many layers on the very images that are reported on would be partly the luckiest.
    """
    methods = dict.fromkeys(row.method for row in rows)
    return [min((row for row in rows if row.method == one), key=lambda row: row.chosen.value) for one in methods]


def difference(records: Sequence[Entry], reported: Collection[str], one: Place, other: Place) -> Difference:
    """How much more error ``one`` has than ``other`` (each a method and a layer), on the images that are reported on.

    Images that are easy or hard for both leave the difference as it is, so it is surer than both errors.

    Raises:
        DataError: as in `tally`.

    Example:
        >>> difference(run.records, run.reported, ("mwp", "conv5"), ("grad", "input")).p  # doctest: +SKIP
        0.04
    """
    sides = {each.place: each for each in sides_of(records, reported)}
    misses = [sides[place].misses("paper") for place in (one, other)]
    gaps = misses[0].astype(int) - misses[1]
    value, half = float(gaps.mean()), Z * _standard_error(gaps, sides[one].pictures)
    p = paired_test(*(each.tolist() for each in misses))
    return Difference(100 * value, 100 * (value - half), 100 * (value + half), p)


def _row(model: str, sides: Sides) -> Row:
    rules = {rule: _result(rule, sides) for rule in RULES}
    v2 = {enough: 100 - min(sides.curve("any", enough)) for enough in V2_OVERLAPS}
    return Row(model, *sides.place, rules, 100 - min(rules["max-largest"].curve), v2, sides.empty, sides.share_chosen)


def _result(rule: str, sides: Sides) -> RuleResult:
    misses, threshold = sides.misses(rule), RULES[rule].thresholds[sides.chosen(rule)]
    return RuleResult(rule, threshold, Share(int(misses.sum()), len(misses)), sides.curve(rule))


def _standard_error(gaps: NDArray[np.int64], pictures: Sequence[int]) -> float:
    """Of the mean of these, the number of whose image is given: pairs of one image are no independent draws."""
    strays = np.bincount(pictures, weights=gaps - gaps.mean())
    count = len(strays)
    return math.sqrt((strays**2).sum() * count / max(count - 1, 1)) / len(gaps)


def _percent(share: Share) -> dict[str, Any]:
    return {
        "error": round(100 * share.value, 2),
        "error_interval": [round(100 * side, 2) for side in share.interval],
    }
