"""From a picture and a classifier to attention maps: the question the package answers."""

from __future__ import annotations

import warnings
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, SupportsIndex

import torch

from excite.attention import AttentionMap
from excite.errors import ConceptError, LayerError, LostSignalWarning, ModelError
from excite.images import read_image
from excite.methods import METHODS, Method, find_method
from excite.models.layers import default_layer
from excite.propagation import Sweep, prior
from excite.vocabulary import Concept

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    import numpy as np
    from PIL import Image
    from torch import Tensor

    from excite.models import Classifier

    Cue = str | SupportsIndex | Concept
    ImageSource = str | os.PathLike[str] | Image.Image | np.ndarray[Any, Any] | Tensor

__all__ = ["Look", "attend", "attend_batch", "check_spatial"]

FINDINGS = 5  # how many of the classifier's own findings are explained when no concept is named
FAINT = 1e-4  # below this share of the signal a map says next to nothing


def attend(
    classifier: Classifier,
    image: ImageSource,
    concepts: Sequence[Cue] | Cue | None = None,
    *,
    layer: str | Sequence[str] | None = None,
    method: str = "c-mwp",
    against: Sequence[Cue] | Cue | None = None,
) -> list[AttentionMap]:
    """Where in this picture is the evidence for those concepts?

    The network looks at the picture once; each concept then costs one downward pass.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        image: a path, a PIL picture, an array [h, w, 3] or a tensor [3, h, w].
        concepts: labels, synonyms, everyday words for several labels, or indices of output units; None for the
            classifier's own five best findings. A concept that stands for several units cues them in proportion
            to the classifier's own probabilities.
        layer: where to read the map; several layers give a map for each; None for the classifier's own best.
        method: a name from `excite.METHODS`.
        against: concepts to contrast with, instead of the cued unit's own dual: "cat, not dog". Several are a group.

    Returns:
        one map for each concept and layer, the layers of one concept together.

    Example:
        >>> classifier = excite.load()                                    # doctest: +SKIP
        >>> (cat,) = excite.attend(classifier, "photo.jpg", "tabby")      # doctest: +SKIP
        >>> cat.point(), cat.box(), cat.mass                              # doctest: +SKIP
    """
    return attend_batch(classifier, [image], [concepts], layer=layer, method=method, against=against)[0]


def attend_batch(
    classifier: Classifier,
    images: Sequence[ImageSource],
    concepts: Sequence[Sequence[Cue] | Cue | None] | Cue | None = None,
    *,
    layer: str | Sequence[str] | None = None,
    method: str = "c-mwp",
    against: Sequence[Cue] | Cue | None = None,
) -> list[list[AttentionMap]]:
    """Maps for several pictures, each with its own concepts; pictures of one size go through the network together.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        images: the pictures, each as in `attend`.
        concepts: for each picture its concepts, or None for the classifier's own findings; a single concept is looked
            for in all pictures.
        layer: as in `attend`.
        method: as in `attend`.
        against: as in `attend`.

    Returns:
        for each picture what `attend` gives.

    Example:
        >>> classifier = excite.load()                                                      # doctest: +SKIP
        >>> photos = ["zoo.jpg", "street.jpg"]                                              # doctest: +SKIP
        >>> zoo, street = excite.attend_batch(classifier, photos, [["zebra", "dog"], None]) # doctest: +SKIP
        >>> [found.concept for found in zoo], len(street)                                   # doctest: +SKIP
        (['zebra', 'dog'], 5)
    """
    each: Any = [concepts] * len(images) if concepts is None or _is_cue(concepts) else concepts
    cues = [_listed(one) for one in each]
    if len(cues) != len(images):
        raise ConceptError(f"{len(images)} pictures but concepts for {len(cues)}: give one list for each picture")
    chosen = find_method(method)
    pictures = [read_image(image) for image in images]
    inputs = [classifier.preprocess(picture) for picture in pictures]
    answers: list[list[AttentionMap]] = [[] for _ in images]
    for group in _same_shape(inputs):
        batch = torch.stack([inputs[k] for k in group])
        layers = _layers(classifier, layer, batch)
        sweep = _sweep(classifier, batch, layers)
        check_spatial(sweep)
        look = Look(classifier, sweep, chosen, against)
        for k, maps in zip(group, look.answer([cues[k] for k in group], [pictures[k] for k in group]), strict=True):
            answers[k] = maps
    return answers


class Look:
    """One forward pass over pictures of one size, from which the maps of their concepts are made."""

    def __init__(
        self, classifier: Classifier, sweep: Sweep, method: Method, against: Sequence[Cue] | Cue | None
    ) -> None:
        self.sweep = sweep
        self.method = method
        self.probabilities = classifier.probabilities(sweep.output.float())
        self.labels = classifier.labels_for(self.probabilities.shape[1])
        self.multilabel = classifier.multilabel
        self.rivals = [self.labels.find(rival) for rival in _listed(against) or []]

    def answer(self, cues: Sequence[Sequence[Cue] | None], pictures: Sequence[Image.Image]) -> list[list[AttentionMap]]:
        """The maps of each picture. The n-th concepts of all pictures go down together."""
        wanted = [
            self._findings(k) if cue is None else [self.labels.find(one) for one in cue] for k, cue in enumerate(cues)
        ]
        answers: list[list[AttentionMap]] = [[] for _ in wanted]
        for concepts in zip_longest(*wanted):
            signal = torch.cat([self._signal(k, concept) for k, concept in enumerate(concepts)])
            maps = self._maps(signal)
            for k, concept in enumerate(concepts):
                if concept is not None:
                    answers[k] += [self._map(k, concept, layer, maps[layer][k], pictures[k]) for layer in maps]
        return answers

    def _findings(self, k: int) -> list[Concept]:
        best = self.probabilities[k].topk(min(FINDINGS, len(self.labels))).indices
        return [self.labels.find(int(unit)) for unit in best]

    def _maps(self, signal: Tensor) -> dict[str, Tensor]:
        # A signal that already is a difference needs no dual units: the rivals are what it is contrasted with.
        contrasted = self.rivals and self.method.name == "c-mwp"
        return (METHODS["mwp"] if contrasted else self.method).maps(self.sweep, signal)

    def _signal(self, k: int, concept: Concept | None) -> Tensor:
        output = self.sweep.output[k : k + 1]
        if concept is None:  # this picture has fewer concepts than another one of the batch
            return torch.zeros_like(output)
        weights = self._weights(k, concept.units)
        rivals = {unit for rival in self.rivals for unit in rival.units} - set(concept.units)
        if self.rivals and not rivals:
            raise ConceptError(f"{concept.name!r} cannot be contrasted with itself: name another concept to be against")
        for unit, weight in self._weights(k, rivals).items():
            weights[unit] = -weight
        return prior(output, weights)

    def _weights(self, k: int, units: Iterable[int]) -> dict[int, float]:
        """A distribution over the units of a concept: the classifier's own probabilities among them."""
        weights = {unit: float(self.probabilities[k, unit]) for unit in units}
        total = sum(weights.values())
        return {unit: weight / total if total else 1 / len(weights) for unit, weight in weights.items()}

    def _map(self, k: int, concept: Concept, layer: str, raw: Tensor, picture: Image.Image) -> AttentionMap:
        values = raw.detach().float().clamp(min=0)
        mass = float(values.sum())
        names = [concept.name, *(f"not {rival.name}" for rival in self.rivals)]
        if mass < FAINT:
            warnings.warn(
                f"only {mass:.2g} of the signal for {names[0]!r} is left at layer {layer!r}: the map says next to "
                "nothing; choose another layer",
                LostSignalWarning,
                stacklevel=2,
            )
        found = self.probabilities[k, list(concept.units)]
        return AttentionMap(
            values=values,
            concept=", ".join(names),
            layer=layer,
            method=self.method.name,
            mass=mass,
            image_size=picture.size,
            probability=float(found.max() if self.multilabel else found.sum()),
            image=picture,
            units=concept.units,
        )


def _is_cue(concepts: object) -> bool:
    """Whether this is a single concept: a word, an index (also NumPy's) or a `Concept`."""
    return isinstance(concepts, (str, Concept, SupportsIndex)) and getattr(concepts, "ndim", 0) == 0


def _listed(concepts: Any) -> Sequence[Cue] | None:
    return [concepts] if _is_cue(concepts) else concepts


def _layers(classifier: Classifier, layer: str | Sequence[str] | None, batch: Tensor) -> list[str]:
    if layer is None:
        return [classifier.layer or default_layer(classifier.module, batch[:1])]
    layers = [layer] if isinstance(layer, str) else list(layer)
    if not layers:
        raise LayerError("no layer was named: name one, or give None for the classifier's own best")
    return layers


def _sweep(classifier: Classifier, batch: Tensor, layers: Sequence[str]) -> Sweep:
    try:
        return Sweep(classifier.module, batch, layers)
    except RuntimeError as error:  # the network's own: torch says what, but not to whom nor what to do
        said = str(error).partition("\n")[0]
        size = " x ".join(map(str, batch.shape[1:]))
        raise ModelError(
            f"{classifier.name} fails on a picture prepared as {size}: {said}. If it takes pictures of one size only, "
            "load it with fully_convolutional=True, or prepare them with Preprocess(square=True)"
        ) from error


def _same_shape(inputs: Sequence[Tensor]) -> list[list[int]]:
    groups: dict[torch.Size, list[int]] = {}
    for k, tensor in enumerate(inputs):
        groups.setdefault(tensor.shape, []).append(k)
    return list(groups.values())


def check_spatial(sweep: Sweep) -> None:
    """Refuse layers whose output has no places to draw."""
    for layer, reading in sweep.readings.items():
        shape = tuple(reading.probe.shape)
        if len(shape) != 4:
            raise LayerError(
                f"layer {layer!r} has no places: its output has shape {shape}, not [N, C, H, W]; "
                "choose a convolutional layer (`excite ls layers` lists them), or use excite.mwp for its neurons"
            )
