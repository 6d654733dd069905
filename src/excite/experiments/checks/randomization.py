"""Checks of the maps' dependence on the learned weights and on the concept.

A map that stays the same when the weights are random shows the image's edges, not the classifier's evidence
(Adebayo et al. 2018, "Sanity checks for saliency maps").
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import torch

from excite.errors import ModelError
from excite.experiments.checks.base import Check, Panel, Verdict, standing_of, worst
from excite.metrics.statistics import mean, mean_curve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

    from excite.experiments.checks.base import CheckedImage, Measured
    from excite.vocabulary import Concept


UNLIKE, LIKE = 0.2, 0.5  # rank correlations with the map of a random network
DIFFERENT, ALIKE = 0.5, 0.9  # rank correlations of the maps of two concepts
STOPS = 8  # of the randomisation: deep networks have a hundred layers
RANDOM_CONCEPTS = 2


def under_randomisation(seen: CheckedImage) -> dict[str, Any]:
    """The rank correlation of each method's map with its map of ever more random networks."""
    layers = learned_layers(seen.classifier.module)
    curves: dict[str, list[float]] = {method: [] for method in seen.layers}
    names = []
    for name, module in randomised_top_down(seen.classifier.module, seen.seed, stops(len(layers))):
        names.append(name)
        for method, found in seen.maps_of(module=module).items():
            curves[method].append(seen.likeness(method, found))
    shares = [count / len(layers) for count in stops(len(layers))]
    return {"down_to": names, "shares": shares, "curves": curves}


def learned_layers(module: nn.Module) -> list[str]:
    """The names of the modules with weights that can be reset, the top one first.

    Example:
        >>> from torch import nn
        >>> learned_layers(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Linear(2, 2)))
        ['2', '0']
    """
    names = [name for name, child in module.named_modules() if hasattr(child, "reset_parameters")]
    if not names:
        raise ModelError("none of the network's layers can be drawn anew: they have no `reset_parameters`")
    return names[::-1]


def stops(layers: int) -> list[int]:
    """The numbers of random layers at which maps are computed: the first, half, all, and evenly between.

    Example:
        >>> stops(3), stops(99)
        ([1, 2, 3], [1, 13, 25, 38, 50, 62, 75, 87, 99])
    """
    return sorted({max(1, math.ceil(layers * stop / STOPS)) for stop in range(STOPS + 1)})


def randomised_top_down(module: nn.Module, seed: int, after: list[int]) -> Iterator[tuple[str, nn.Module]]:
    """The name of the layer reset last, and a copy of the network whose top layers have random weights up to it.

    Example:
        >>> from torch import nn
        >>> network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        >>> [name for name, _ in randomised_top_down(network, 0, [1, 2])]
        ['1', '0']
    """
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
    left = {name: mean([_average(one["curves"][name][half:]) for one in measured]) for name in curves}
    standing = standing_of(left[method].value, UNLIKE, LIKE)
    words = {"holds": "come", "doubtful": "come only in part", "fails": "hardly come"}[standing]
    text = (
        f"The maps {words} from what the network has learned: once the top half of its layers is random, the rank "
        f"correlation of {method} with what it was is {left[method]}; below {UNLIKE} is wanted. With just that half "
        f"random it is {curves[method][half]:z.2f}, and the highest from there on {max(curves[method][half:]):z.2f}."
    )
    others = ", ".join(f"{name} {value}" for name, value in left.items() if name != method)
    after = (f"The others: {others}.",) if others else ()
    rows = [
        {
            "method": name,
            **{f"{100 * share:.0f} %": f"{value:z.2f}" for share, value in zip(shares, curve, strict=True)},
        }
        for name, curve in curves.items()
    ]
    lines = {name: [(0.0, 1.0), *zip(shares, curve, strict=True)] for name, curve in curves.items()}
    panel = Panel("Likeness to the map of a random network", "share of layers, from the top", "rank correlation", lines)
    return Verdict(standing, (text, *after), rows, (panel,))


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


RANDOMISATION = Check(
    "randomisation",
    "Do the maps depend on what the network has learned?",
    under_randomisation,
    judge_independence,
)


def between_classes(seen: CheckedImage) -> dict[str, Any]:
    """The rank correlation of the finding's map with those of the second best and of random concepts."""
    others = [other for other in _others(seen) if other.units != seen.finding.units]
    likeness: dict[str, list[float]] = {method: [] for method in seen.layers}
    for other in others:
        for method, found in seen.maps_of(concept=other).items():
            likeness[method].append(seen.likeness(method, found))
    return {"others": [other.name for other in others], "likeness": likeness}


def _others(seen: CheckedImage) -> Iterator[Concept]:
    order = seen.probabilities.argsort(descending=True).tolist()
    yield from (seen.concept(unit) for unit in order[1:2])
    generator = torch.Generator().manual_seed(seen.seed)
    drawn = torch.randperm(max(0, len(order) - 2), generator=generator)[:RANDOM_CONCEPTS].tolist()
    yield from (seen.concept(order[2 + k]) for k in drawn)


def judge_classes(measured: Sequence[Measured], method: str) -> Verdict:
    """Maps of different concepts must differ, those with contrast more than those without."""
    likeness = {name: [_average(one["likeness"][name]) for one in measured] for name in measured[0]["likeness"]}
    each = {name: mean(values) for name, values in likeness.items()}
    own = each[method]
    standing = standing_of(own.value, DIFFERENT, ALIKE)
    words = {"holds": "differ", "doubtful": "differ a little", "fails": "are nearly the same"}
    lines = [f"The maps of different concepts {words[standing]}: rank correlation {own} by {method}."]
    if method != "mwp":
        gap = mean([a - b for a, b in zip(likeness[method], likeness["mwp"], strict=True)])
        lines.append(f"Without contrast (mwp) it is {each['mwp']}; the difference is {gap}.")
        if gap.value >= 0:
            standing = worst([standing, "doubtful"])
            lines.append(f"So {method} tells concepts apart no better than maps without contrast.")
    rows = [{"method": name, "rank correlation": str(value)} for name, value in each.items()]
    return Verdict(standing, tuple(lines), rows)


CLASSES = Check("classes", "Do the maps of different concepts differ?", between_classes, judge_classes)
