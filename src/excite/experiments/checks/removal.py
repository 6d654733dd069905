"""Check of deletion and insertion: the answer must depend on the pixels that the map calls important.

Deletion turns the image into its mean colour, most important pixels first; insertion turns a blurred image into the
sharp one (Petsiuk et al. 2018, "RISE"). The smaller the area under the deletion curve, and the larger that under the
insertion curve, the better the map.
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

    from excite.experiments.checks.base import CheckedImage, Measured, Standing
    from excite.metrics.statistics import Mean

RANDOM = "random"
STEPS = 20
BLUR = 0.05  # of the longer side: little is left to recognise
SIGNS = {"deletion": -1.0, "insertion": 1.0}  # of the wanted change of the area


def under_removal(seen: CheckedImage) -> dict[str, Any]:
    """The deletion and insertion curves of each method's map, and of a random map of the checked method's size."""
    sharp = seen.inputs[0]
    mean = sharp.mean(dim=(1, 2), keepdim=True).expand_as(sharp)
    soft = blurred(sharp, BLUR)

    def probability(pictures: Tensor) -> list[float]:
        chance, units = seen.classifier.chance, seen.finding.units
        return [chance(probabilities, units) for probabilities in seen.answer(pictures)]

    maps = {method: found.values for method, found in seen.maps.items()}
    generator = torch.Generator().manual_seed(seen.seed)
    maps[RANDOM] = torch.rand(maps[seen.method].shape, generator=generator)
    curves: dict[str, dict[str, list[float]]] = {"deletion": {}, "insertion": {}}
    for method, values in maps.items():
        importance = upsample(values, (sharp.shape[2], sharp.shape[1]), "bilinear")
        curves["deletion"][method] = steps_between(sharp, mean, importance, probability, steps=STEPS)
        curves["insertion"][method] = steps_between(soft, sharp, importance, probability, steps=STEPS)
    return curves


def judge_removal(measured: Sequence[Measured], method: str) -> Verdict:
    """Better than a random map in both; and which method is the best."""
    areas = {kind: {name: [area(one[kind][name]) for one in measured] for name in measured[0][kind]} for kind in SIGNS}
    judged = [_judged(kind, areas[kind], method) for kind in SIGNS]
    means = {kind: {name: mean(values) for name, values in areas[kind].items()} for kind in SIGNS}
    rows = [
        {"method": name, **{kind: f"{means[kind][name]:.3f}" for kind in SIGNS}} for name in measured[0]["deletion"]
    ]
    return Verdict(
        worst([standing for standing, _ in judged]),
        tuple(text for _, text in judged),
        rows,
        tuple(_panel(measured, kind) for kind in SIGNS),
    )


def _judged(kind: str, areas: Mapping[str, Sequence[float]], method: str) -> tuple[Standing, str]:
    def lead(one: str, other: str) -> Mean:
        return mean([SIGNS[kind] * (a - b) for a, b in zip(areas[one], areas[other], strict=True)])

    means = {name: mean(values) for name, values in areas.items()}
    best = max(means, key=lambda name: SIGNS[kind] * means[name].value)
    rank = "the best of all"
    if best != method:
        rank = f"not the best, which is {best} with {means[best]:.3f}, ahead by {lead(best, method):.3f}"
    gains = lead(method, RANDOM)
    standing: Standing = "holds" if gains.low > 0 else "doubtful" if gains.value > 0 else "fails"
    chance = {"holds": "better than", "doubtful": "hardly better than", "fails": "no better than"}[standing]
    return standing, (
        f"{kind.capitalize()}: {method} {means[method]:.3f}, {rank}; {chance} a random map, {means[RANDOM]:.3f} "
        f"({'less' if SIGNS[kind] < 0 else 'more'} is better)."
    )


def _panel(measured: Sequence[Measured], kind: str) -> Panel:
    lines = {
        name: list(zip(shares(STEPS), mean_curve([one[kind][name] for one in measured]), strict=True))
        for name in measured[0][kind]
    }
    return Panel(kind.capitalize(), "share of the image", "probability of the concept", lines)


REMOVAL = Check(
    "removal",
    "Does the answer fade with what the map calls evidence?",
    under_removal,
    judge_removal,
)
