"""One look at images of one size: the forward passes that methods need, and the maps made from them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, SupportsIndex

import torch

from excite.attention import AttentionMap
from excite.errors import ConceptError, LayerError, LostSignalWarning, ModelError
from excite.methods import View
from excite.methods.extent import JOINT
from excite.models.layers import default_layer, layer_pair, top_layer
from excite.propagation import prior
from excite.vocabulary import Concept

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from PIL import Image
    from torch import Tensor

    from excite.methods import Method
    from excite.models import Classifier

    Cue = str | SupportsIndex | Concept

__all__ = ["Look", "is_cue", "layers_of", "listed"]

FINDINGS = 5  # how many of the classifier's own findings are explained when no concept is named
FAINT = 1e-4  # below this share of the signal a map says next to nothing
ROUNDED = 1e-6  # what rounding can leave of two maps of mass 1 that are subtracted


class Look:
    """Pictures of one size, from which the maps of their concepts are made by one method or several.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        inputs: the prepared images [N, 3, H, W], at each scale that the methods look at.
        methods: those that will be asked for.
        layer: where to read them, or for each method where to read it; None: where each should be read.
        against: concepts to contrast with.
        view: what was seen of the images already, at the layers that are asked for; None: the network looks.
    """

    def __init__(
        self,
        classifier: Classifier,
        inputs: Mapping[float, Tensor],
        methods: Sequence[Method],
        *,
        layer: str | Sequence[str] | Mapping[Method, Sequence[str]] | None = None,
        against: Sequence[Cue] | Cue | None = None,
        view: View | None = None,
    ) -> None:
        # A signal that already is a difference needs no dual units: the rivals are what it is contrasted with.
        rivals = listed(against) or []
        self.ways = {method: method.plain or method if rivals else method for method in methods}
        self._explained = partial(_explained, classifier, inputs)
        with self._explained():
            layers = {
                way: layers_of(way, classifier, inputs[1.0], layer[method] if isinstance(layer, Mapping) else layer)
                for method, way in self.ways.items()
            }
            self.view = view or View(classifier.module, inputs.__getitem__, layers)
            output = self.view.output
        self.probabilities = classifier.probabilities(output.float())
        self.labels = classifier.labels_for(self.probabilities.shape[1])
        self._chance = classifier.chance
        self.rivals = [self.labels.find(rival) for rival in rivals]

    def answer(
        self, method: Method, cues: Sequence[Sequence[Cue] | None], pictures: Sequence[Image.Image]
    ) -> list[list[AttentionMap]]:
        """The maps of each image. All concepts of all images go down together where the method can do that."""
        wanted = [
            self._findings(k) if cue is None else [self.labels.find(one) for one in cue] for k, cue in enumerate(cues)
        ]
        answers: list[list[AttentionMap]] = [[] for _ in wanted]
        rounds = list(zip_longest(*wanted))
        for concepts, maps in zip(rounds, self._maps(method, rounds), strict=True):
            for k, concept in enumerate(concepts):
                if concept is not None:
                    answers[k] += [self._map(k, concept, method, layer, maps[layer][k], pictures[k]) for layer in maps]
        return answers

    def _findings(self, k: int) -> list[Concept]:
        best = self.probabilities[k].topk(min(FINDINGS, len(self.labels))).indices
        return [self.labels.find(int(unit)) for unit in best]

    def _maps(self, method: Method, rounds: Sequence[Sequence[Concept | None]]) -> list[dict[str, Tensor]]:
        """For each round, of one concept an image, the maps at each layer."""
        cues = [partial(_signal, [self._cued(k, concept) for k, concept in enumerate(each)]) for each in rounds]
        with self._explained():
            return self.view.maps_of(self.ways[method], cues)

    def _cued(self, k: int, concept: Concept | None) -> dict[int, float]:
        """The output units that a signal starts from; none where an image has fewer concepts than another."""
        if concept is None:
            return {}
        weights = self._weights(k, concept.units)
        rivals = {unit for rival in self.rivals for unit in rival.units} - set(concept.units)
        if self.rivals and not rivals:
            raise ConceptError(f"{concept.name!r} cannot be contrasted with itself: name another concept to be against")
        return {**weights, **{unit: -weight for unit, weight in self._weights(k, rivals).items()}}

    def _weights(self, k: int, units: Iterable[int]) -> dict[int, float]:
        """A distribution over the units of a concept: the classifier's own probabilities among them."""
        weights = {unit: float(self.probabilities[k, unit]) for unit in units}
        total = sum(weights.values())
        return {unit: weight / total if total else 1 / len(weights) for unit, weight in weights.items()}

    def _map(
        self, k: int, concept: Concept, method: Method, layer: str, raw: Tensor, picture: Image.Image
    ) -> AttentionMap:
        values = raw.detach().float().clamp(min=0)
        mass = float(values.double().sum())  # gradients may be near the largest float
        if mass < ROUNDED and method.way == "winners" and (method.plain is not None or self.rivals):
            values, mass = torch.zeros_like(values), 0.0
        names = [concept.name, *(f"not {rival.name}" for rival in self.rivals)]
        if mass < (FAINT if method.way == "winners" else 0):  # the size of a gradient means nothing
            warnings.warn(
                f"only {mass:.2g} of the signal for {names[0]!r} is left at layer {layer!r}: the map says next to "
                "nothing; choose another layer",
                LostSignalWarning,
                stacklevel=2,
            )
        return AttentionMap(
            values=values,
            concept=", ".join(names),
            layer=layer,
            method=method.name,
            mass=mass,
            image_size=picture.size,
            probability=self._chance(self.probabilities[k], concept.units),
            image=picture,
            units=concept.units,
        )


def _signal(weights: Sequence[Mapping[int, float]], output: Tensor) -> Tensor:
    """The signal that cues the units of each image."""
    return torch.cat([prior(output[k : k + 1], units) for k, units in enumerate(weights)])


def layers_of(
    method: Method, classifier: Classifier, batch: Tensor, asked: str | Sequence[str] | None = None
) -> list[str]:
    """The layers at which a method is read: those asked for, or the one where it should be."""
    if asked is not None:
        layers = [asked] if isinstance(asked, str) else list(asked)
        if not layers:
            raise LayerError("no layer was named: name one, or give None for the classifier's own best")
        return layers
    if method.place == "input":
        return ["input"]
    if method.place == "top":
        return [top_layer(classifier.module, batch[:1])]
    if method.place == "joint":
        return [classifier.extent or JOINT.join(layer_pair(classifier.module, batch[:1]))]
    return [classifier.layer or default_layer(classifier.module, batch[:1])]


def is_cue(concepts: object) -> bool:
    """Whether this is a single concept: a word, an index (also NumPy's) or a `Concept`."""
    return isinstance(concepts, (str, Concept, SupportsIndex)) and getattr(concepts, "ndim", 0) == 0


def listed(concepts: Any) -> Sequence[Cue] | None:
    """Concepts as a list, also a single one."""
    return [concepts] if is_cue(concepts) else concepts


@contextmanager
def _explained(classifier: Classifier, inputs: Mapping[float, Tensor]) -> Iterator[None]:
    """Errors of the network itself: torch says what, but not to whom nor what to do."""
    try:
        yield
    except RuntimeError as error:
        said = str(error).partition("\n")[0]
        sizes = " and ".join(" x ".join(map(str, batch.shape[1:])) for batch in inputs.values())
        once = ", and choose a method that looks once, such as c-mwp" if len(inputs) > 1 else ""
        raise ModelError(
            f"{classifier.name} fails on an image prepared as {sizes}: {said}. If it takes images of one size only, "
            f"load it with fully_convolutional=True, or prepare them with Preprocess(square=True){once}"
        ) from error
