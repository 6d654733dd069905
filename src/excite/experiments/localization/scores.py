"""What the records of localisation say: thresholds chosen on some pictures, errors told of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.experiments.localization.localization_rules import RULES
from excite.experiments.localization.localization_sides import sides_of
from excite.experiments.records import ComparisonRun
from excite.metrics.statistics import Share, Z, paired_test

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from excite.experiments.localization.localization_sides import Sides
    from excite.experiments.records import Place
    from excite.jobs.ledger_init import Entry

__all__ = ["V2_OVERLAPS", "Difference", "Row", "RuleResult", "Run", "best_layers", "difference", "tally"]

V2_OVERLAPS = (0.3, 0.5, 0.7)
"""How much overlap is enough: MaxBoxAccV2 is the mean of all three."""


@dataclass(frozen=True)
class RuleResult:
    """What one rule is worth for one method.

    Attributes:
        rule: a name of `RULES`.
        threshold: the one with the smallest error on the held-out pictures; of equals the first.
        error: at that threshold, how many pairs on the other pictures have no box that overlaps by a half.
        curve: the error in percent on those other pictures, at each threshold.
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
    """What one method is worth at one layer of one network, on the pictures that nothing was chosen on.

    Attributes:
        model: the network's name.
        method: the method's.
        layer: where it was read.
        rules: the result of each rule, the paper's first.
        max_box_acc: MaxBoxAcc: how often, in percent, the largest region's box fits at the best threshold of all. It is
            chosen on the very pictures, so it is a little too good, as it is for everybody who tells it.
        max_box_acc_v2: the same for the best region's box, for each overlap of `V2_OVERLAPS`.
        empty: how many maps have no box at all.
        chosen: the error by the paper's rule on the held-out pictures, where the threshold was chosen.
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
    """One network's localisation; its records are also of the pictures that thresholds were chosen on.

    Attributes:
        rows: from `tally`.
        reported: the names of the pictures that the rows are about.
    """

    rows: Sequence[Row]
    reported: frozenset[str]

    @property
    def told(self) -> Sequence[Row]:
        """The rows to tell: of a method that was read at several layers the best, unless somebody named the layers."""
        return best_layers(self.rows) if self.about.get("layer_chosen") else self.rows


@dataclass(frozen=True)
class Difference:
    """How many points more error one method has than another on the same pictures: below 0, it is better.

    Attributes:
        value: in points, by the paper's rule, each at its own threshold,
        low: and where it lies by its spread over pictures,
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
        reported: the pictures to report on; thresholds are chosen on all others.

    Raises:
        DataError: the records are of different methods or layers, or all pictures are on one side.

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
    """For each method of a network the layer with the smallest error on the pictures that thresholds were chosen on.

    The best of many layers on the very pictures that are reported on would be partly the luckiest.
    """
    methods = dict.fromkeys(row.method for row in rows)
    return [min((row for row in rows if row.method == one), key=lambda row: row.chosen.value) for one in methods]


def difference(records: Sequence[Entry], reported: Collection[str], one: Place, other: Place) -> Difference:
    """How much more error ``one`` has than ``other`` (each a method and a layer), on the pictures that are reported on.

    Pictures that are easy or hard for both leave the difference as it is, so it is surer than both errors.

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
    """Of the mean of these, the number of whose picture is given: pairs of one picture are no independent draws."""
    strays = np.bincount(pictures, weights=gaps - gaps.mean())
    count = len(strays)
    return math.sqrt((strays**2).sum() * count / max(count - 1, 1)) / len(gaps)


def _percent(share: Share) -> dict[str, Any]:
    return {
        "error": round(100 * share.value, 2),
        "error_interval": [round(100 * side, 2) for side in share.interval],
    }
