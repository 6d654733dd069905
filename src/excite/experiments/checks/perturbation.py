"""Checks by changes: of the weights and the concept, and of the image (removal; noise, flips and shifts).

A map that stays the same when the weights are random shows the image's edges, not the classifier's evidence
(Adebayo et al. 2018, "Sanity checks for saliency maps"). Deletion turns the image into its mean colour, most important
pixels first; insertion turns a blurred image into the sharp one (Petsiuk et al. 2018, "RISE"). The smaller the area
under the deletion curve, and the larger that under the insertion curve, the better the map. Under noise maps must stay;
they must be equivariant to flips and shifts.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from excite.errors import ModelError
from excite.experiments.checks.base import Check, CheckedImage, Measured, Panel, Standing, Verdict, standing_of, worst
from excite.methods.base import blurred
from excite.metrics.ranking import rank_correlation
from excite.metrics.removal import area, shares, steps_between
from excite.metrics.statistics import Mean, mean, mean_curve
from excite.readouts.overlay import upsample

UNLIKE, LIKE = 0.2, 0.5  # rank correlations with the map of a random network
DIFFERENT, ALIKE = 0.5, 0.9  # rank correlations of the maps of two concepts
STEADY, SHAKY = 0.8, 0.5  # rank correlations with the map of an image that hardly changed
STOPS = 8  # of the randomisation: deep networks have a hundred layers
RANDOM_CONCEPTS = 2
RANDOM = "random"
STEPS = 20
BLUR = 0.05  # of the longer side: little is left to recognise
SIGNS = {"deletion": -1.0, "insertion": 1.0}  # of the wanted change of the area
NOISE = 5.0  # the standard deviation, of 255 levels
SHIFT = 1 / 32  # of the shorter side
GRID = 8  # cells along the shift at which maps are compared: photographs have millions of pixels


def under_randomisation(seen: CheckedImage) -> dict[str, Any]:
    """The rank correlation of each method's map with its map of ever more random networks."""
    layers = learned_layers(seen.classifier.module)
    after = sorted({max(1, math.ceil(len(layers) * stop / STOPS)) for stop in range(STOPS + 1)})
    curves: dict[str, list[float]] = {method: [] for method in seen.layers}
    names = []
    for name, module in randomised_top_down(seen.classifier.module, seen.seed, after):
        names.append(name)
        for method, found in seen.maps_of(module=module).items():
            curves[method].append(seen.likeness(method, found))
    return {"down_to": names, "shares": [count / len(layers) for count in after], "curves": curves}


def learned_layers(module: nn.Module) -> list[str]:
    """The names of the modules with weights that can be reset, the top one first."""
    names = [name for name, child in module.named_modules() if hasattr(child, "reset_parameters")]
    if not names:
        raise ModelError("none of the network's layers can be drawn anew: they have no `reset_parameters`")
    return names[::-1]


def randomised_top_down(module: nn.Module, seed: int, after: list[int]) -> Iterator[tuple[str, nn.Module]]:
    """The name of the layer reset last, and a copy of the network whose top layers have random weights up to it."""
    copied = copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for count, name in enumerate(learned_layers(module), 1):
            copied.get_submodule(name).reset_parameters()  # type: ignore[operator]
            if count in after:
                yield name, copied


def judge_independence(measured: Sequence[Measured], method: str) -> Verdict:
    """The map of the trained network must differ from that with the top half random."""
    shares = measured[0]["shares"]
    curves = {name: mean_curve([one["curves"][name] for one in measured]) for name in measured[0]["curves"]}
    half = next(k for k, share in enumerate(shares) if share >= 0.5)
    left = {name: mean([fmean(one["curves"][name][half:]) for one in measured]) for name in curves}
    standing = standing_of(left[method].value, UNLIKE, LIKE)
    words = {"holds": "come", "doubtful": "come only in part", "fails": "hardly come"}[standing]
    text = (
        f"The maps {words} from what the network has learned: once the top half of its layers is random, the rank "
        f"correlation of {method} with what it was is {left[method]}; below {UNLIKE} is wanted. With just that half "
        f"random it is {curves[method][half]:z.2f}, and the highest from there on {max(curves[method][half:]):z.2f}."
    )
    others = ", ".join(f"{name} {value}" for name, value in left.items() if name != method)
    columns = [f"{100 * share:.0f} %" for share in shares]
    rows = [
        {"method": name} | dict(zip(columns, (f"{value:z.2f}" for value in curve), strict=True))
        for name, curve in curves.items()
    ]
    lines = {name: [(0.0, 1.0), *zip(shares, curve, strict=True)] for name, curve in curves.items()}
    panel = Panel("Likeness to the map of a random network", "share of layers, from the top", "rank correlation", lines)
    return Verdict(standing, (text, *([f"The others: {others}."] if others else [])), rows, (panel,))


RANDOMISATION = Check(
    "randomisation", "Do the maps depend on what the network has learned?", under_randomisation, judge_independence
)


def between_classes(seen: CheckedImage) -> dict[str, Any]:
    """The rank correlation of the finding's map with those of the second best and of random concepts."""
    order = seen.probabilities.argsort(descending=True).tolist()
    generator = torch.Generator().manual_seed(seen.seed)
    drawn = torch.randperm(max(0, len(order) - 2), generator=generator)[:RANDOM_CONCEPTS].tolist()
    concepts = [seen.concept(unit) for unit in [*order[1:2], *(order[2 + k] for k in drawn)]]
    others = [other for other in concepts if other.units != seen.finding.units]
    likeness: dict[str, list[float]] = {method: [] for method in seen.layers}
    for other in others:
        for method, found in seen.maps_of(concept=other).items():
            likeness[method].append(seen.likeness(method, found))
    return {"others": [other.name for other in others], "likeness": likeness}


def judge_classes(measured: Sequence[Measured], method: str) -> Verdict:
    """Maps of different concepts must differ, those with contrast more than those without."""
    likeness = {name: [fmean(one["likeness"][name]) for one in measured] for name in measured[0]["likeness"]}
    each = {name: mean(values) for name, values in likeness.items()}
    standing = standing_of(each[method].value, DIFFERENT, ALIKE)
    words = {"holds": "differ", "doubtful": "differ a little", "fails": "are nearly the same"}
    lines = [f"The maps of different concepts {words[standing]}: rank correlation {each[method]} by {method}."]
    if method != "mwp":
        gap = mean([a - b for a, b in zip(likeness[method], likeness["mwp"], strict=True)])
        lines.append(f"Without contrast (mwp) it is {each['mwp']}; the difference is {gap}.")
        if gap.value >= 0:
            standing = worst([standing, "doubtful"])
            lines.append(f"So {method} tells concepts apart no better than maps without contrast.")
    rows = [{"method": name, "rank correlation": str(value)} for name, value in each.items()]
    return Verdict(standing, tuple(lines), rows)


CLASSES = Check("classes", "Do the maps of different concepts differ?", between_classes, judge_classes)


def under_removal(seen: CheckedImage) -> dict[str, Any]:
    """The deletion and insertion curves of each method's map, and of a random map of the checked method's size."""
    sharp = seen.inputs[0]
    ends = {
        "deletion": (sharp, sharp.mean(dim=(1, 2), keepdim=True).expand_as(sharp)),
        "insertion": (blurred(sharp, BLUR), sharp),
    }

    def probability(pictures: Tensor) -> list[float]:
        chance, units = seen.classifier.chance, seen.finding.units
        return [chance(probabilities, units) for probabilities in seen.answer(pictures)]

    maps = {method: found.values for method, found in seen.maps.items()}
    maps[RANDOM] = torch.rand(maps[seen.method].shape, generator=torch.Generator().manual_seed(seen.seed))
    shown = {method: upsample(values, (sharp.shape[2], sharp.shape[1]), "bilinear") for method, values in maps.items()}
    return {
        kind: {method: steps_between(*both, order, probability, steps=STEPS) for method, order in shown.items()}
        for kind, both in ends.items()
    }


def judge_removal(measured: Sequence[Measured], method: str) -> Verdict:
    """Better than a random map in both; and which method is the best."""
    areas = {kind: {name: [area(one[kind][name]) for one in measured] for name in measured[0][kind]} for kind in SIGNS}
    standings, sentences = zip(*(_judged(kind, areas[kind], method) for kind in SIGNS), strict=True)
    rows = [
        {"method": name, **{kind: f"{mean(areas[kind][name]):.3f}" for kind in SIGNS}} for name in areas["deletion"]
    ]
    return Verdict(worst(standings), sentences, rows, tuple(_panel(measured, kind) for kind in SIGNS))


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
    curves = {name: mean_curve([one[kind][name] for one in measured]) for name in measured[0][kind]}
    lines = {name: list(zip(shares(STEPS), curve, strict=True)) for name, curve in curves.items()}
    return Panel(kind.capitalize(), "share of the image", "probability of the concept", lines)


REMOVAL = Check("removal", "Does the answer fade with what the map calls evidence?", under_removal, judge_removal)


def under_small_changes(seen: CheckedImage) -> dict[str, Any]:
    """The rank correlation of each method's map with that of the noisy, the mirrored and the shifted image."""
    levels = np.asarray(seen.picture, dtype=np.float64)
    levels = levels + np.random.default_rng(seen.seed).normal(0.0, NOISE, levels.shape)
    noisy = seen.maps_of(picture=Image.fromarray(levels.round().clip(0, 255).astype(np.uint8)))
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
    """The L2 distance of another map to the first, relative to the norm of the first."""
    length = float(one.double().norm())
    return float((other.double() - one.double()).norm()) / length if length else 0.0


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
    lowest = min(value.value for value in means[method].values())
    standing: Standing = "holds" if lowest >= STEADY else "doubtful" if lowest >= SHAKY else "fails"
    words = {"holds": "stay", "doubtful": "mostly stay", "fails": "do not stay"}[standing]
    values = ", ".join(f"{kind} {value}" for kind, value in means[method].items())
    text = (
        f"The maps {words} where they belong when the image changes a little: rank correlation {values}; "
        f"noise of {NOISE:.0f} levels moves {moved[method]} of the map's length."
    )
    columns = {name: means[name] | {"moved by noise": moved[name]} for name in names}
    rows = [{"method": name} | {kind: str(value) for kind, value in columns[name].items()} for name in names]
    return Verdict(standing, (text,), rows)


STABILITY = Check("stability", "Do the maps stay when the image hardly changes?", under_small_changes, judge_stability)
