"""Do the maps of different concepts differ?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from excite.experiments.checks.base import Check, Verdict, worst
from excite.metrics.means import mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.experiments.checks.base import Measured, Standing
    from excite.experiments.checks.seen import Seen
    from excite.vocabulary import Concept

__all__ = ["CLASSES", "between_classes", "judge_classes"]

DIFFERENT, ALIKE = 0.5, 0.9  # rank correlations

STRANGERS = 2  # concepts drawn at random


def between_classes(seen: Seen) -> dict[str, Any]:
    """The rank correlation of the finding's map with those of the next finding and of concepts drawn at random."""
    others = [other for other in _others(seen) if other.units != seen.finding.units]
    likeness: dict[str, list[float]] = {method: [] for method in seen.layers}
    for other in others:
        for method, found in seen.maps_of(concept=other).items():
            likeness[method].append(seen.likeness(method, found))
    return {"others": [other.name for other in others], "likeness": likeness}


def _others(seen: Seen) -> Iterator[Concept]:
    order = seen.probabilities.argsort(descending=True).tolist()
    yield from (seen.concept(unit) for unit in order[1:2])
    generator = torch.Generator().manual_seed(seen.seed)
    drawn = torch.randperm(max(0, len(order) - 2), generator=generator)[:STRANGERS].tolist()
    yield from (seen.concept(order[2 + k]) for k in drawn)


def judge_classes(measured: Sequence[Measured], method: str) -> Verdict:
    """Maps of different concepts must differ, those with contrast more than those without."""
    names = list(measured[0]["likeness"])
    each = {name: mean([_of(one, name) for one in measured]) for name in names}
    own = each[method]
    standing: Standing = "holds" if own.value < DIFFERENT else "doubtful" if own.value < ALIKE else "fails"
    words = {"holds": "differ", "doubtful": "differ a little", "fails": "are nearly the same"}
    said = [f"The maps of different concepts {words[standing]}: rank correlation {own} by {method}."]
    if method != "mwp":
        gap = mean([_of(one, method) - _of(one, "mwp") for one in measured])
        said.append(f"Without contrast (mwp) it is {each['mwp']}; the difference is {gap}.")
        if gap.value >= 0:
            standing = worst([standing, "doubtful"])
            said.append(f"So {method} tells concepts apart no better than maps without contrast.")
    return Verdict(standing, tuple(said), [{"method": name, "rank correlation": str(each[name])} for name in names])


def _of(one: Measured, method: str) -> float:
    likeness: list[float] = one["likeness"][method]
    return sum(likeness) / len(likeness)


CLASSES = Check("classes", "Do the maps of different concepts differ?", between_classes, judge_classes)
