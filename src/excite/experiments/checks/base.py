"""What a check is: something measured on each image, and what all of it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch

from excite.experiments.readable_layers import all_maps
from excite.metrics.ranking import rank_correlation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from PIL import Image
    from torch import Tensor, nn

    from excite.attention import AttentionMap
    from excite.models import Classifier
    from excite.vocabulary import Concept


Standing = Literal["holds", "doubtful", "fails"]
STANDINGS: tuple[Standing, ...] = ("holds", "doubtful", "fails")
Measured = Mapping[str, Any]
"""What a check has measured on one image, as plain values for JSON."""


@dataclass(frozen=True)
class Panel:
    """Curves to draw.

    Attributes:
        title: what they show.
        across: the name of the axis across,
        up: and of the one up.
        lines: by name, pairs of a place and a value.
    """

    title: str
    across: str
    up: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Verdict:
    """What a check says of a method on a classifier.

    Attributes:
        standing: whether the maps can be relied on in this respect.
        sentences: that in plain words, with the figures.
        rows: a table of the figures, by the names of its columns.
        panels: curves to draw.
    """

    standing: Standing
    sentences: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    panels: tuple[Panel, ...] = ()


@dataclass(frozen=True)
class Check:
    """A check, one line in `CHECKS`.

    Attributes:
        name: what users type.
        question: what it asks.
        measure: what is found on one image.
        judge: what all images say of a method, given by name.
    """

    name: str
    question: str
    measure: Callable[[Seen], dict[str, Any]]
    judge: Callable[[Sequence[Measured], str], Verdict]


def worst(standings: Sequence[Standing]) -> Standing:
    """The least reassuring of several.

    Example:
        >>> worst(["holds", "doubtful"])
        'doubtful'
    """
    return max(standings, key=STANDINGS.index)


# An image, what the classifier found in it, and the maps that explain the finding.


@dataclass(frozen=True, eq=False)
class Seen:
    """What every check is given.

    Attributes:
        classifier: who is asked.
        layers: for each method, by name, the layer at which it is read; the checked method is the first.
        picture: about what.
        seed: whatever is drawn at random is drawn by it.
    """

    classifier: Classifier
    layers: Mapping[str, tuple[str, ...]]
    picture: Image.Image
    seed: int

    @property
    def method(self) -> str:
        """The method that is checked; the others are there to compare."""
        return next(iter(self.layers))

    @cached_property
    def inputs(self) -> Tensor:
        """The image as the network takes it, [1, 3, H, W]."""
        return self.classifier.prepared(self.picture)[None]

    @cached_property
    def probabilities(self) -> Tensor:
        """What the classifier says of all its concepts, [C]."""
        return self.answer(self.inputs)[0]

    @cached_property
    def finding(self) -> Concept:
        """The concept of which the classifier is surest: the one that is explained."""
        return self.concept(int(self.probabilities.argmax()))

    @cached_property
    def maps(self) -> dict[str, AttentionMap]:
        """The map of the finding by each method."""
        return self.maps_of()

    @cached_property
    def heard(self) -> Tensor:
        """The places of the layer of ``mwp`` from which the output hears at all, [h, w].

        A convolution of one place that steps by two passes over three of four places: they can never win. That all
        maps are empty there would look like agreement.
        """
        return self.maps["mwp"].values > 0

    def likeness(self, method: str, other: AttentionMap) -> float:
        """The rank correlation of the method's map with another one of it, among the places that are heard."""
        own = self.maps[method]
        if own.layer != self.maps["mwp"].layer or own.values.shape != self.heard.shape:
            return rank_correlation(own.values, other.values)
        return rank_correlation(own.values[self.heard], other.values[self.heard])

    def concept(self, unit: int) -> Concept:
        """An output of the classifier as something to look for."""
        return self.classifier.labels_for(len(self.probabilities)).find(unit)

    def answer(self, inputs: Tensor) -> Tensor:
        """Probabilities [N, C] of prepared images."""
        with torch.no_grad():
            return self.classifier.probabilities(self.classifier.module(inputs).float())

    def maps_of(
        self,
        *,
        concept: Concept | None = None,
        picture: Image.Image | None = None,
        module: nn.Module | None = None,
        methods: Sequence[str] | None = None,
    ) -> dict[str, AttentionMap]:
        """The map by each method where one thing is changed: another concept, image or network, or fewer methods."""
        classifier = self.classifier if module is None else replace(self.classifier, module=module)
        layers = {method: self.layers[method] for method in methods or self.layers}
        found = all_maps(classifier, picture or self.picture, [concept or self.finding], layers)
        return {one.method: one for _, one in found}
