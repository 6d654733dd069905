"""Checks by perturbed images: deletion and insertion, and robustness to noise, flips and shifts.

Deletion turns the image into its mean colour, most important pixels first; insertion turns a blurred image into the
sharp one (Petsiuk et al. 2018, "RISE"). The smaller the area under the deletion curve, and the larger that under the
insertion curve, the better the map. Under noise maps must stay; they must be equivariant to flips and shifts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image, ImageOps

from excite.experiments.checks.base import Check, Panel, Verdict, worst
from excite.methods.base import blurred
from excite.metrics.ranking import rank_correlation
from excite.metrics.removal import area, shares, steps_between
from excite.metrics.statistics import mean, mean_curve
from excite.readouts.overlay import upsample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from excite.experiments.checks.base import CheckedImage, Measured, Standing
    from excite.metrics.statistics import Mean

RANDOM = "random"
STEPS = 20
BLUR = 0.05  # of the longer side: little is left to recognise
SIGNS = {"deletion": -1.0, "insertion": 1.0}  # of the wanted change of the area
NOISE = 5.0  # the standard deviation, of 255 levels
SHIFT = 1 / 32  # of the shorter side
GRID = 8  # cells along the shift at which maps are compared: photographs have millions of pixels
STEADY, SHAKY = 0.8, 0.5  # rank correlations


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


def under_small_changes(seen: CheckedImage) -> dict[str, Any]:
    """The rank correlation of each method's map with that of the noisy, the mirrored and the shifted image.

    And the L2 distance of the map under noise, relative to the map's norm.
    """
    noisy = seen.maps_of(picture=_noisy(seen.picture, seen.seed))
    mirrored = seen.maps_of(picture=ImageOps.mirror(seen.picture))
    likeness, moved = {}, {}
    for method, found in seen.maps.items():
        likeness[method] = {
            "noise": seen.likeness(method, noisy[method]),
            "flip": rank_correlation(found.values, mirrored[method].values.flip(-1)),
        }
        moved[method] = relative_distance(found.values, noisy[method].values)
    for method, shifted in _shifted(seen).items():
        likeness[method]["shift"] = shifted
    return {"likeness": likeness, "moved": moved}


def relative_distance(one: Tensor, other: Tensor) -> float:
    """The L2 distance of another map to the first, relative to the norm of the first.

    Example:
        >>> import torch
        >>> relative_distance(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 0.0]]))
        0.8
    """
    length = float(one.double().norm())
    return float((other.double() - one.double()).norm()) / length if length else 0.0


def _noisy(picture: Image.Image, seed: int) -> Image.Image:
    levels = np.asarray(picture, dtype=np.float64)
    noise = np.random.default_rng(seed).normal(0.0, NOISE, levels.shape)
    return Image.fromarray((levels + noise).round().clip(0, 255).astype(np.uint8))


def _shifted(seen: CheckedImage) -> dict[str, float]:
    """Two crops of the image, without its right and lower and without its left and upper edge, where they overlap."""
    width, height = seen.picture.size
    step = max(1, round(SHIFT * min(width, height)))
    if step * 4 > min(width, height):
        return {}
    first = seen.maps_of(picture=seen.picture.crop((0, 0, width - step, height - step)))
    second = seen.maps_of(picture=seen.picture.crop((step, step, width, height)))
    size = GRID * (width - step) // step, GRID * (height - step) // step
    return {
        method: rank_correlation(
            first[method].upsample(size, "bilinear")[GRID:, GRID:],
            second[method].upsample(size, "bilinear")[:-GRID, :-GRID],
        )
        for method in seen.layers
    }


def judge_stability(measured: Sequence[Measured], method: str) -> Verdict:
    """The lowest of the rank correlations under noise, flip and shift."""
    names = list(measured[0]["likeness"])
    kinds = [kind for kind in ("noise", "flip", "shift") if all(kind in one["likeness"][method] for one in measured)]
    means = {name: {kind: mean([one["likeness"][name][kind] for one in measured]) for kind in kinds} for name in names}
    moved = {name: mean([one["moved"][name] for one in measured]) for name in names}
    least = min(kinds, key=lambda kind: means[method][kind].value)
    lowest = means[method][least].value
    standing: Standing = "holds" if lowest >= STEADY else "doubtful" if lowest >= SHAKY else "fails"
    words = {"holds": "stay", "doubtful": "mostly stay", "fails": "do not stay"}[standing]
    values = ", ".join(f"{kind} {value}" for kind, value in means[method].items())
    text = (
        f"The maps {words} where they belong when the image changes a little: rank correlation {values}; "
        f"noise of {NOISE:.0f} levels moves {moved[method]} of the map's length."
    )
    rows = [
        {
            "method": name,
            **{kind: str(value) for kind, value in means[name].items()},
            "moved by noise": str(moved[name]),
        }
        for name in names
    ]
    return Verdict(standing, (text,), rows)


STABILITY = Check("stability", "Do the maps stay when the image hardly changes?", under_small_changes, judge_stability)
