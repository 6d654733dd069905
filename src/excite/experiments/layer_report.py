"""What the records of a layer sweep say: chosen on one half of the pictures, told of the other half."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from excite.errors import DataError
from excite.metrics.measures import ALPHAS
from excite.metrics.statistics import Share, paired_test

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from excite.jobs.ledger_init import Entry

__all__ = ["By", "LayerReport", "Row", "report"]

By = Literal["pointing", "box"]
Place = tuple[str, str]  # a method and a layer

ENOUGH_OVERLAP = 0.5
SIGNIFICANT = 0.05
NO_BOXES = "boxes are measured where each picture has one main object, as in ImageNet: choose by pointing here"


@dataclass(frozen=True)
class Row:
    """What one method is worth at one layer, on the pictures that no choice was made on.

    Attributes:
        method: its name.
        layer: its name.
        size: height and width of the map of a square picture.
        pointing: how many targets the maximum point hit.
        box_error: how many boxes overlap by less than a half with the object; None where no box was asked for.
        alpha: the threshold of those boxes.
        mass: how much of the signal arrives, on average.
        standing: "recommended"; "tied" when these pictures cannot tell it from that; "better" or "worse" otherwise.
    """

    method: str
    layer: str
    size: tuple[int, int]
    pointing: Share
    box_error: Share | None
    alpha: float | None
    mass: float
    standing: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "method": self.method,
            "layer": self.layer,
            "size": list(self.size),
            "pointing": _plain(self.pointing),
            "box_error": None if self.box_error is None else _plain(self.box_error),
            "alpha": self.alpha,
            "mass": self.mass,
            "standing": self.standing,
        }


@dataclass(frozen=True)
class LayerReport:
    """The rows of the table, and which of them is recommended.

    Attributes:
        rows: for each method its layers, from the picture up.
        by: the measure it was chosen by.
        tolerance: how many pixels beside a box a point may lie.
        chosen_on: how many targets the choice was made on; the rows are about the others.
        best: for each method the layer that was best where the choice was made.
    """

    rows: tuple[Row, ...]
    by: By
    tolerance: float
    chosen_on: int
    best: Mapping[str, str]

    @property
    def recommended(self) -> Row:
        """The row of the method and layer that was best where the choice was made."""
        return next(row for row in self.rows if row.standing == "recommended")

    def measure(self, row: Row) -> Share:
        """The measure that rows are compared by."""
        return row.pointing if self.by == "pointing" or row.box_error is None else row.box_error

    def sentences(self) -> list[str]:
        """What there is to learn, in plain words."""
        row = self.recommended
        share = self.measure(row)
        what = "of the targets are hit" if self.by == "pointing" else "of the boxes miss the object"
        chosen = f"recommended: {row.layer} with {row.method}, best on {self.chosen_on} targets"
        said = [
            f"{chosen}; on {share.total} others, {100 * share.value:.1f} % {what} (95 % interval {_interval(share)})"
        ]
        tied, better = self._with("tied"), self._with("better")
        if tied:
            said.append(f"these pictures cannot tell it from: {tied} (paired test, 5 %)")
        if better:
            said.append(f"on the others, {better} did better than what was chosen: measure on more pictures")
        rest = [f"{layer} for {method}" for method, layer in self.best.items() if method != row.method]
        return [*said, f"chosen likewise: {', '.join(rest)}"] if rest else said

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        row = self.recommended
        return {
            "recommended": {"method": row.method, "layer": row.layer, "alpha": row.alpha},
            "by": self.by,
            "tolerance": self.tolerance,
            "chosen_on": self.chosen_on,
            "measured_on": row.pointing.total,
            "best": dict(self.best),
            "conclusions": self.sentences(),
            "rows": [row.to_dict() for row in self.rows],
        }

    def _with(self, standing: str) -> str:
        """The methods and layers of that standing, as words."""
        said = []
        for method in self.best:
            rows = [row for row in self.rows if row.method == method]
            layers = [row.layer for row in rows if row.standing == standing]
            every = len(layers) == len(rows) > 2
            said += [f"{method} at {'every layer' if every else ', '.join(layers)}"] if layers else []
        return "; ".join(said)


def report(
    records: Iterable[Entry],
    layers: Mapping[str, tuple[int, int]],
    *,
    tolerance: float,
    by: By = "pointing",
    seed: int = 0,
) -> LayerReport:
    """Choose method, layer and alpha on one half of the pictures, and tell what they are worth on the other half.

    Which half a picture is in depends on its name and the seed only. A figure told of the pictures it was chosen on
    would be too good: the best of many is partly the luckiest.

    Args:
        records: from `LayerSweep.records`.
        layers: their maps' sizes, as in `LayerSweep.layers`.
        tolerance: how many pixels beside a box a point may lie and still be a hit.
        by: "pointing", or "box" for data with one main object a picture.
        seed: another one shares the pictures out differently.

    Raises:
        DataError: there are too few pictures to share out, or boxes were not measured.
    """
    halves: tuple[list[Entry], list[Entry]] = ([], [])
    for record in records:
        halves[_half(record["image"], seed)].extend(record["targets"])
    if not all(halves):
        raise DataError("too few pictures to choose on one half and measure on the other: give more")
    chosen_on, measured_on = (_by_place(half, tolerance) for half in halves)
    alphas = {place: outcome.best_alpha() for place, outcome in chosen_on.items()}
    score = {place: sum(outcome.successes(by, alphas[place])) for place, outcome in chosen_on.items()}
    winner = _best(score)
    successes = {place: outcome.successes(by, alphas[place]) for place, outcome in measured_on.items()}
    rows = tuple(
        outcome.row(
            *place,
            size=layers[place[1]],
            alpha=alphas[place],
            standing="recommended" if place == winner else _standing(successes[place], successes[winner]),
        )
        for place, outcome in measured_on.items()
    )
    methods = dict.fromkeys(method for method, _ in score)
    best = {one: _best({place: hits for place, hits in score.items() if place[0] == one})[1] for one in methods}
    return LayerReport(rows, by, tolerance, len(halves[0]), best)


@dataclass(frozen=True)
class _Outcome:
    """What one method gave at one layer, on one half of the pictures."""

    maps: Sequence[Entry]
    tolerance: float

    def hits(self) -> list[bool]:
        return [found["distance"] is not None and found["distance"] <= self.tolerance for found in self.maps]

    def fits(self, alpha: int) -> list[bool]:
        return [found["overlaps"][alpha] >= ENOUGH_OVERLAP for found in self.maps]

    def successes(self, by: By, alpha: int | None) -> list[bool]:
        if by == "pointing":
            return self.hits()
        if alpha is None:
            raise DataError(NO_BOXES)
        return self.fits(alpha)

    def best_alpha(self) -> int | None:
        """Which of the thresholds fits most objects; of equals the first. None where no boxes were measured."""
        if "overlaps" not in self.maps[0]:
            return None
        return max(range(len(ALPHAS)), key=lambda alpha: sum(self.fits(alpha)))

    def row(self, method: str, layer: str, *, size: tuple[int, int], alpha: int | None, standing: str) -> Row:
        return Row(
            method=method,
            layer=layer,
            size=size,
            pointing=_share(self.hits()),
            box_error=None if alpha is None else _share([not fit for fit in self.fits(alpha)]),
            alpha=None if alpha is None else ALPHAS[alpha],
            mass=sum(found["mass"] for found in self.maps) / len(self.maps),
            standing=standing,
        )


def _half(name: str, seed: int) -> int:
    """0 or 1, as if by the toss of a coin, but the same each time."""
    return hashlib.sha256(f"{seed} {name}".encode()).digest()[0] % 2


def _by_place(targets: Iterable[Entry], tolerance: float) -> dict[Place, _Outcome]:
    """For each method and layer its maps, in the order of the targets."""
    maps: dict[Place, list[Entry]] = {}
    for target in targets:
        for found in target["maps"]:
            maps.setdefault((found["method"], found["layer"]), []).append(found)
    return {place: _Outcome(found, tolerance) for place, found in maps.items()}


def _best(score: Mapping[Place, int]) -> Place:
    """The place with the most successes; of equals the last, from where the way down is the shortest."""
    return max(reversed(list(score)), key=score.__getitem__)


def _standing(one: Sequence[bool], chosen: Sequence[bool]) -> str:
    if paired_test(one, chosen) >= SIGNIFICANT:
        return "tied"
    return "better" if sum(one) > sum(chosen) else "worse"


def _share(outcomes: Sequence[bool]) -> Share:
    return Share(sum(outcomes), len(outcomes))


def _interval(share: Share) -> str:
    low, high = share.interval
    return f"{100 * low:.1f} to {100 * high:.1f}"


def _plain(share: Share) -> dict[str, float]:
    low, high = share.interval
    return {"value": share.value, "low": low, "high": high, "count": share.count, "total": share.total}
