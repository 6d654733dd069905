"""Does the answer fade when what the map calls evidence is taken away, and come when it is put back?

Deletion turns the image into its mean colour, most important pixels first; insertion turns a blurred image into the
sharp one (Petsiuk et al. 2018, "RISE"). The less an answer lasts under deletion and the sooner it comes by insertion,
the better the map knew where the evidence is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from excite.experiments.checks.base import Check, Panel, Verdict, worst
from excite.methods.base import blurred
from excite.metrics.removal import area, shares, steps_between
from excite.metrics.statistics import mean, mean_curve
from excite.readouts.upsample import upsample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from excite.experiments.checks.base import Measured, Seen, Standing

__all__ = ["RANDOM", "REMOVAL", "judge_removal", "under_removal"]

RANDOM = "random"
STEPS = 20
BLUR = 0.05  # of the longer side: little is left to recognise
SIGNS = {"deletion": -1.0, "insertion": 1.0}  # the answer shall fade under deletion, and come by insertion


def under_removal(seen: Seen) -> dict[str, Any]:
    """The deletion and insertion curves of each method's map, and of one drawn at random on the same places."""
    sharp = seen.inputs[0]
    mean = sharp.mean(dim=(1, 2), keepdim=True).expand_as(sharp)
    soft = blurred(sharp, BLUR)

    def probability(pictures: Tensor) -> list[float]:
        chance, units = seen.classifier.chance, seen.finding.units
        return [chance(probabilities, units) for probabilities in seen.answer(pictures)]

    curves: dict[str, dict[str, list[float]]] = {"deletion": {}, "insertion": {}}
    for method, values in {**_values(seen), RANDOM: _drawn(seen)}.items():
        importance = upsample(values, (sharp.shape[2], sharp.shape[1]), "bilinear")
        curves["deletion"][method] = steps_between(sharp, mean, importance, probability, steps=STEPS)
        curves["insertion"][method] = steps_between(soft, sharp, importance, probability, steps=STEPS)
    return curves


def _values(seen: Seen) -> dict[str, Tensor]:
    return {method: found.values for method, found in seen.maps.items()}


def _drawn(seen: Seen) -> Tensor:
    """A map that knows nothing, as coarse as that of the checked method."""
    shape = seen.maps[seen.method].values.shape
    return torch.rand(shape, generator=torch.Generator().manual_seed(seen.seed))


def judge_removal(measured: Sequence[Measured], method: str) -> Verdict:
    """Better than chance both ways; and plainly, which method is best at what."""
    judged = [_judged(kind, _areas(measured, kind), method) for kind in SIGNS]
    names = list(measured[0]["deletion"])
    means = {kind: {name: mean(values) for name, values in _areas(measured, kind).items()} for kind in SIGNS}
    rows = [{"method": name, **{kind: f"{means[kind][name]:.3f}" for kind in SIGNS}} for name in names]
    return Verdict(
        worst([standing for standing, _ in judged]),
        tuple(said for _, said in judged),
        rows,
        tuple(_panel(measured, kind) for kind in SIGNS),
    )


def _areas(measured: Sequence[Measured], kind: str) -> dict[str, list[float]]:
    """For each method and image the mean answer on the way."""
    return {name: [area(one[kind][name]) for one in measured] for name in measured[0][kind]}


def _judged(kind: str, areas: Mapping[str, Sequence[float]], method: str) -> tuple[Standing, str]:
    means = {name: mean(values) for name, values in areas.items()}
    best = max(means, key=lambda name: SIGNS[kind] * means[name].value)
    place = "the best of all"
    if best != method:
        behind = mean([SIGNS[kind] * (a - b) for a, b in zip(areas[best], areas[method], strict=True)])
        place = f"not the best, which is {best} with {means[best]:.3f}, ahead by {behind:.3f}"
    gains = mean([SIGNS[kind] * (a - b) for a, b in zip(areas[method], areas[RANDOM], strict=True)])
    standing: Standing = "holds" if gains.low > 0 else "doubtful" if gains.value > 0 else "fails"
    chance = {"holds": "better than", "doubtful": "hardly better than", "fails": "no better than"}[standing]
    return standing, (
        f"{kind.capitalize()}: {method} {means[method]:.3f}, {place}; {chance} a random map, {means[RANDOM]:.3f} "
        f"({'less' if SIGNS[kind] < 0 else 'more'} is better)."
    )


def _panel(measured: Sequence[Measured], kind: str) -> Panel:
    places = shares(STEPS)
    lines = {
        name: list(zip(places, mean_curve([one[kind][name] for one in measured]), strict=True))
        for name in measured[0][kind]
    }
    return Panel(kind.capitalize(), "share of the image", "probability of the concept", lines)


REMOVAL = Check(
    "removal",
    "Does the answer fade with what the map calls evidence?",
    under_removal,
    judge_removal,
)
