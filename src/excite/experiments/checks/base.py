"""The interface of a check: a measurement on each image, and a verdict on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch

from excite.experiments.base import all_maps
from excite.metrics.ranking import rank_correlation

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL import Image
    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.models import Classifier
    from excite.vocabulary import Concept

Standing = Literal["holds", "doubtful", "fails"]
STANDINGS: tuple[Standing, ...] = ("holds", "doubtful", "fails")
Measured = Mapping[str, Any]
"""The measurement of a check on one image, as plain values for JSON."""


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
        with torch.no_grad():
            return self.classifier.probabilities(self.classifier.module(inputs).float())

    def maps_of(
        self, *, concept: Concept | None = None, picture: Image.Image | None = None, **changes: Any
    ) -> dict[str, AttentionMap]:
        """The map by each method with one change: another concept, image or ``module`` of the classifier."""
        classifier = replace(self.classifier, **changes)
        found = all_maps(classifier, picture or self.picture, [concept or self.finding], self.layers)
        return {one.method: one for _, one in found}
