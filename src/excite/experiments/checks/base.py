"""The interface of a check (a measurement on each image, and a verdict on all), and the checks of the signal."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn

from excite.attention import AttentionMap
from excite.experiments.base import all_maps
from excite.metrics.ranking import rank_correlation
from excite.metrics.statistics import mean
from excite.models import Classifier
from excite.models.layers import passes_everything, spatial_layers
from excite.propagation import ExcitationPass, prior, verify
from excite.propagation.taps import main_output
from excite.propagation.verify import Response
from excite.vocabulary import Concept

Standing = Literal["holds", "doubtful", "fails"]
STANDINGS: tuple[Standing, ...] = ("holds", "doubtful", "fails")
Measured = Mapping[str, Any]
"""The measurement of a check on one image, as plain values for JSON."""
EXACT = 1e-4
MOST_POSITIONS = 0.9  # with fewer reached positions, it is mentioned
ENOUGH = 0.1  # of the signal: with less, nine tenths of the answer are not in the map
ROUNDING = 0.01  # of the map


@dataclass(frozen=True)
class Panel:
    """Curves to draw: title, axis labels, and by name the points (x, y) of each line."""

    title: str
    across: str
    up: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Verdict:
    """The result of a check for a method on a classifier."""

    standing: Standing  # whether the maps can be relied on in this respect
    sentences: tuple[str, ...]  # the result in words, with the figures
    rows: Sequence[Mapping[str, str]]  # a table of the figures, by column
    panels: tuple[Panel, ...] = ()  # curves to draw


@dataclass(frozen=True)
class Check:
    """A check, one line in `CHECKS`."""

    name: str  # on the command line
    question: str  # its heading
    measure: Callable[[CheckedImage], dict[str, Any]]  # the measurement on one image
    judge: Callable[[Sequence[Measured], str], Verdict]  # the verdict of all measurements for a method, given by name


def worst(standings: Sequence[Standing]) -> Standing:
    """The least reassuring of several."""
    return max(standings, key=STANDINGS.index)


def standing_of(value: float, holds: float, doubtful: float) -> Standing:
    """The standing of a value that should be small: below ``holds``, below ``doubtful``, or above both."""
    return "holds" if value < holds else "doubtful" if value < doubtful else "fails"


@dataclass(frozen=True, eq=False)
class CheckedImage:
    """An image, the classifier's most probable concept, and the maps that explain it: the input of every check."""

    classifier: Classifier
    layers: Mapping[str, tuple[str, ...]]  # for each method, by name, where it is read; the checked one first
    picture: Image.Image  # the image
    seed: int  # of all random draws

    @property
    def method(self) -> str:
        """The checked method; the others are there for comparison."""
        return next(iter(self.layers))

    @cached_property
    def inputs(self) -> Tensor:
        """The preprocessed image, [1, 3, H, W]."""
        return self.classifier.prepared(self.picture)[None]

    @cached_property
    def probabilities(self) -> Tensor:
        """The probabilities of all concepts, [C]."""
        return self.answer(self.inputs)[0]

    @cached_property
    def finding(self) -> Concept:
        """The most probable concept: the one that is explained."""
        return self.concept(int(self.probabilities.argmax()))

    @cached_property
    def maps(self) -> dict[str, AttentionMap]:
        """The map of the finding by each method."""
        return self.maps_of()

    @cached_property
    def reached(self) -> Tensor:
        """The positions of the layer of ``mwp`` on which the output depends at all, [h, w].

        A 1 x 1 convolution of stride 2 skips three of four positions, which can never win. That all maps are empty
        there would look like agreement.
        """
        return self.maps["mwp"].values > 0

    def likeness(self, method: str, other: AttentionMap) -> float:
        """The rank correlation of the method's map with another one of it, over the reached positions."""
        own = self.maps[method]
        if own.layer != self.maps["mwp"].layer or own.values.shape != self.reached.shape:
            return rank_correlation(own.values, other.values)
        return rank_correlation(own.values[self.reached], other.values[self.reached])

    def concept(self, unit: int) -> Concept:
        """The concept of an output unit."""
        return self.classifier.labels_for(len(self.probabilities)).find(unit)

    def answer(self, inputs: Tensor) -> Tensor:
        """Probabilities [N, C] of preprocessed images."""
        return self.classifier.probabilities(self.classifier.logits(inputs)).cpu()

    def maps_of(
        self, *, concept: Concept | None = None, picture: Image.Image | None = None, **changes: Any
    ) -> dict[str, AttentionMap]:
        """The map by each method with one change: another concept, image or ``module`` of the classifier."""
        classifier = replace(self.classifier, **changes)
        classifier.known.update(self.classifier.known)  # other weights, the same layers
        found = all_maps(classifier, picture or self.picture, [concept or self.finding], self.layers)
        return {one.method: one for _, one in found}


def mass_kept(seen: CheckedImage) -> dict[str, Any]:
    """The share of the signal that arrives at each layer through which all of it must pass, from the top down."""
    module, inputs = seen.classifier.module, seen.inputs
    names = [layer.name for layer in spatial_layers(module, inputs)]
    reading = seen.layers["mwp"][0]
    above = names[names.index(reading) :] if reading in names else [reading]
    layers = [name for name in above if passes_everything(module, inputs, name)]
    _, arrived = _explained(module, inputs, list(dict.fromkeys([*layers, reading])), seen.finding.units)
    return {
        "reading": reading,
        "layers": {name: float(arrived[name].sum()) for name in reversed(layers)},
        "read": float(arrived[reading].sum()),
        "heard": float(seen.reached.float().mean()),
        "negative": min(float(values.clamp(max=0).sum()) for values in arrived.values()),
        "finite": all(bool(torch.isfinite(values).all()) for values in arrived.values()),
    }


def _explained(
    module: nn.Module, inputs: Tensor, layers: list[str], units: tuple[int, ...]
) -> tuple[Tensor, dict[str, Tensor]]:
    """The output, and the winning probabilities at each layer."""
    sweep = ExcitationPass(module, inputs, layers)
    return sweep.output.detach(), sweep.down(prior(sweep.output, dict.fromkeys(units, 1.0)))


def judge_mass(measured: Sequence[Measured], _method: str) -> Verdict:
    """Nothing gained, nothing negative, and enough of the signal kept."""
    layers = [name for name in measured[0]["layers"] if all(name in one["layers"] for one in measured)]
    kept = {layer: [one["layers"][layer] for one in measured] for layer in layers}
    reads = [one["read"] for one in measured]
    most = max([*reads, *(value for values in kept.values() for value in values)])
    negative = min(one["negative"] for one in measured) < -EXACT
    read, where = mean(reads), measured[0]["reading"]
    standing: Standing = "holds" if read.value >= ENOUGH else "doubtful"
    text = f"Of the signal {read} arrives at {where}, at least {min(reads):.2f}; the rest ends in biases."
    if most > 1 + EXACT or negative or not all(one["finite"] for one in measured):
        standing = "fails"
        text = f"The signal is not conserved: up to {most:.4f} of it arrives. This is a fault, please report it."
    elif standing == "doubtful":
        text += " The map speaks for that share only: read a layer nearer to the output."
    reached = mean([one["heard"] for one in measured]).value
    if standing != "fails" and reached < MOST_POSITIONS:
        text += f" Only {reached:.0%} of its places are heard by the layers above, which step over the others."
    means = {layer: float(mean(values).value) for layer, values in kept.items()}
    rows = [{"layer": layer, "mean": f"{means[layer]:.3f}", "least": f"{min(kept[layer]):.3f}"} for layer in layers]
    curve = [(float(k), value) for k, value in enumerate(means.values())]
    panel = Panel("Signal kept", "layers that all of it must pass, from the top", "share of the signal", {"mwp": curve})
    return Verdict(standing, (text,), rows, (panel,))


MASS = Check("mass", "How much of the signal is kept on its way down?", mass_kept, judge_mass)


def values_agree(seen: CheckedImage) -> dict[str, Any]:
    """Changes of the outputs during and after the explanation, and the map's distance to double precision."""
    module, inputs, units = seen.classifier.module, seen.inputs, seen.finding.units
    layer = seen.layers["mwp"][0]
    with torch.no_grad():
        before = main_output(module(inputs))
    output, single = _explained(module, inputs, [layer], units)
    with torch.no_grad():
        after = main_output(module(inputs))
    _, double = _explained(copy.deepcopy(module).double(), inputs.double(), [layer], units)
    return {
        "while": float((output - before).abs().max()),
        "after": float((after - before).abs().max()),
        "rounding": float((single[layer].double() - double[layer]).abs().sum() / double[layer].sum()),
    }


def judge_values(measured: Sequence[Measured], _method: str) -> Verdict:
    """The same outputs to the last bit, and maps of sufficient precision."""
    gaps = {"while it is explained": "while", "afterwards": "after"}
    largest = {words: max(one[name] for one in measured) for words, name in gaps.items()}
    rounding = max(one["rounding"] for one in measured)
    changed = [words for words, gap in largest.items() if gap != 0]
    standing: Standing = "fails" if changed else "holds" if rounding < ROUNDING else "doubtful"
    text = (
        f"The network answers otherwise {' and '.join(changed)}: this is a fault, please report it."
        if changed
        else "The network answers the same, to the last bit, before, while and after it is explained. By rounding at "
        f"most {rounding:.1g} of a map is elsewhere than in double precision."
    )
    rows = [{"": f"answers {words} differ by", "at most": f"{gap:.1g}"} for words, gap in largest.items()]
    rows.append({"": "of the map lies elsewhere than in double precision", "at most": f"{rounding:.1g}"})
    return Verdict(standing, (text,), rows)


VALUES = Check("values", "Are the values right?", values_agree, judge_values)


def response_seen(seen: CheckedImage) -> dict[str, Any]:
    """The response of the output to the layer, and what of it the graph accounts for."""
    layer = seen.layers["mwp"][0]
    found = verify(seen.classifier.module, seen.inputs, [layer])
    response = asdict(found.responses[layer])
    return {"reading": layer, "repeats": found.repeats} | response | {"bend": min(response["bend"], 1e6)}  # no infinity


def judge_response(measured: Sequence[Measured], _method: str) -> Verdict:
    """On each image the response is that of the graph."""
    found: dict[Response, Standing] = {}
    for one in measured:
        response = Response(one["expected"], one["found"], one["step"], one["bend"])
        clear = one["repeats"] and response.clear
        found[response] = "doubtful" if not clear else "fails" if response.differs else "holds"
    standing = worst(list(found.values()))
    least = max((each for each, its in found.items() if its == standing), key=lambda each: each.missing)
    layer, share = measured[0]["reading"], f"{1 - least.missing:.4%}"
    said = {
        "holds": f"When {layer} changes, at least {share} of the output's response passes through operations seen.",
        "doubtful": f"The output's response to {layer} cannot be verified: it is too weak, abrupt, or never the same.",
        "fails": f"Of the output's response to {layer} only {share} passes through operations seen: values leave the "
        "graph (.item(), NumPy, a buffer, a thread, compiled code) or jump, and the maps miss what they carry.",
    }
    row = {"layer": layer, "seen": share, "may be missing": f"{min(1.0, least.tolerance):.1%}"}
    return Verdict(standing, (said[standing],), [row | {"step": f"{least.step:g}"}])


RESPONSE = Check("response", "Is all of the response seen?", response_seen, judge_response)
