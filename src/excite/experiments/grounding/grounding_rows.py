"""The rows of grounding's tables: what one way to rank boxes is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from excite.experiments.grounding.grounding_marks import RANKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from excite.experiments.grounding.grounding_marks import Marks
    from excite.metrics.statistics import Estimate

__all__ = ["Chosen", "Lead", "Row"]


@dataclass(frozen=True)
class Chosen:
    """The gamma of a method.

    Attributes:
        gamma: the one that is used; None where nothing is scored by area.
        curve: for each of `GAMMAS` the mean of R@1, R@5 and R@10 on the held-out pictures, in percent; none where
            somebody said which gamma it is.
    """

    gamma: float | None
    curve: tuple[float, ...] = ()


@dataclass(frozen=True)
class Row:
    """What one way to rank boxes is worth, on the pictures that nothing was chosen on.

    Attributes:
        model: the network's name; blank for a ranking that needs none.
        method: the method's, "proposals" for the proposals' own scores, or that of another system.
        layer: where it was read; blank where there is nothing to read.
        chosen: its gamma.
        all: over all phrases.
        small: over those that refer to less than a quarter of the picture; None where there are none.
        groups: recall at 5 of each group, in percent; None for one without phrases.
        missing: how many phrases have no result (of another system's file): they count as missed.
    """

    model: str
    method: str
    layer: str
    chosen: Chosen
    all: Marks
    small: Marks | None
    groups: Mapping[str, float | None]
    missing: int = 0

    @property
    def group_mean(self) -> float | None:
        """The mean over groups of their recall at 5."""
        there = [recall for recall in self.groups.values() if recall is not None]
        return sum(there) / len(there) if there else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: percentages with two decimals."""
        return {
            "model": self.model,
            "method": self.method,
            "layer": self.layer,
            "gamma": self.chosen.gamma,
            **_plain(self.all, ""),
            **_plain(self.small, "_small"),
            "missing": self.missing,
        }


@dataclass(frozen=True)
class Lead:
    """How much better one row is than another, in points of recall, paired over pictures."""

    model: str
    method: str
    over: str
    r1: Estimate
    r1_small: Estimate | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        lead = {"model": self.model, "method": self.method, "over": self.over}
        for name, estimate in (("r1", self.r1), ("r1_small", self.r1_small)):
            lead |= _estimate(name, estimate)
        return lead


def _plain(marks: Marks | None, ending: str) -> dict[str, Any]:
    """The marks as plain values; those that there are none of are None."""
    line: dict[str, Any] = {f"phrases{ending}": 0 if marks is None else marks.phrases}
    for rank in RANKS:
        line |= _estimate(f"r{rank}{ending}", None if marks is None else marks.recalls[rank])
    line[f"map_group{ending}"] = _rounded(None if marks is None else marks.map_group)
    line[f"map_phrase{ending}"] = _rounded(None if marks is None else marks.map_phrase)
    return line | _estimate(f"pointing{ending}", None if marks is None else marks.pointing)


def _estimate(name: str, estimate: Estimate | None) -> dict[str, Any]:
    if estimate is None:
        return {name: None, f"{name}_interval": None}
    return {name: round(estimate.value, 2), f"{name}_interval": [round(estimate.low, 2), round(estimate.high, 2)]}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
