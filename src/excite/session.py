"""A session: one batch of images, its forward passes and the attention maps made from them.

A network runs once for each kind of forward pass and each scale of the images; all methods, layers and concepts share
these passes. `excite.SessionCache` keeps sessions for images that are queried again.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

import torch

from excite.attention import AttentionMap, AttentionMaps
from excite.errors import ConceptError, LayerError, LostSignalWarning, UnverifiedWarning
from excite.methods.extent import JOINT, Extents
from excite.models.layers import (
    check_edges,
    classifier_edges,
    default_layer,
    layer_grids,
    layer_pair,
    lowest_edges,
    token_grid,
    token_stream,
    top_layer,
)
from excite.propagation import ExcitationPass, Gradients, TokenPass, held_bytes, verify
from excite.propagation.taps import is_edges, layer_names
from excite.vocabulary import Concept

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from PIL import Image
    from torch import Tensor, nn

    from excite.methods import Forward, Method, Units
    from excite.methods.extent import Opening
    from excite.models import Classifier
    from excite.propagation import taps
    from excite.propagation.token_pass import Stream
    from excite.propagation.tokens import TokenGrid
    from excite.vocabulary import Labels

    Cue = str | SupportsIndex | Concept
    Layer = taps.Layer
    Layers = taps.Layers
    Pass = TypeVar("Pass", ExcitationPass, Gradients, TokenPass)
    ImageSource = str | os.PathLike[str] | Image.Image | np.ndarray[Any, Any] | Tensor

FINDINGS = 5  # classes that are explained where no concept is named
FAINT = 1e-4  # a smaller share of the signal is too little for a map
ROUNDED = 1e-6  # what rounding can leave of two maps of mass 1 that are subtracted


class Session:
    """A batch of images of one size, with its forward passes.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        inputs: the preprocessed images [N, 3, H, W], for each scale that the methods use.
        methods: the methods that will be computed.
        layer: the layers to read, by name or as modules, for all methods or for each; None: the recommended layer of
            each method.
        against: concepts to contrast with; methods that are contrastive themselves then take their plain form.

    Attributes:
        layers: the layers at which each method is read.
        lock: to be held while maps are computed: a forward pass serves one thread at a time.
        renewals: how often its forward passes were made again, for phrases that had no output unit in them.

    Example:
        >>> from torch import nn, ones
        >>> net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> mwp = excite.METHODS["mwp"]
        >>> session = Session(excite.wrap(net), {1.0: ones(1, 3, 4, 4)}, [mwp], layer="1")
        >>> session.maps(mwp, [[{0: 1.0}], [{2: 1.0}]])["1"].shape  # two signals, one image
        torch.Size([2, 1, 2, 2])
    """

    def __init__(
        self,
        classifier: Classifier,
        inputs: Mapping[float, Tensor],
        methods: Sequence[Method],
        *,
        layer: Layers | Mapping[Method, Layers] | None = None,
        against: Sequence[Cue] | Cue | None = None,
    ) -> None:
        self.classifier = classifier
        self.inputs: Mapping[float, Tensor] = dict(zip(inputs, map(classifier.placed, inputs.values()), strict=True))
        self.lock = threading.Lock()
        self._against = as_list(against) or ()
        self._forms: dict[Method, Method] = {}
        self.layers: dict[Method, list[str]] = {}
        self._passes: dict[tuple[str, float], Any] = {}
        self._generation = self.renewals = 0
        self._module = classifier.module
        with classifier.running(*self.inputs.values()):
            for method in methods:
                form = self._forms[method] = (method.plain or method) if self._against else method
                named = layer[method] if isinstance(layer, Mapping) else layer
                self.layers[form] = (
                    recommended_layers(form, classifier, self.inputs[1.0])
                    if named is None
                    else named_layers(classifier, named)
                )
                if form.place == "attention":
                    check_edges(form.name, self.layers[form], self.attention)
                elif named is not None:
                    self.grids([tap for each in self.layers[form] for tap in (form.taps or _alone)(each)])

    def winning(self, layers: Sequence[str], scale: float = 1.0) -> ExcitationPass | TokenPass:
        """The forward pass for the winning probabilities of some layers; made when it is first needed.

        In the stream of tokens of a transformer the neurons are tokens (`TokenPass`), in all other layers channels.
        """
        if set(layers) <= set(self.stream):
            read = [layer for layer in chain(*self._layers_read("excitation", scale)) if layer in self.stream]
            return self._pass(TokenPass, "tokens", scale, self.stream, read)
        return self.excitation(scale)

    def excitation(self, scale: float = 1.0) -> ExcitationPass:
        """The forward pass for Excitation Backprop by channels; made when it is first needed."""
        read, compared = self._layers_read("excitation", scale)
        return self._pass(partial(ExcitationPass, compared=compared), "excitation", scale, read)

    def gradients(self, scale: float = 1.0) -> Gradients:
        """The forward pass for gradients; made when it is first needed."""
        return self._pass(Gradients, "gradients", scale, self._layers_read("gradients", scale)[0])

    @cached_property
    def stream(self) -> Stream:
        """The stream of tokens from the lowest layer that a method reads; empty for most networks."""
        read = {layer for scale in self.inputs for layer in chain(*self._layers_read("excitation", scale))}
        if not any(grid.tokens for grid in self.grids(list(read)).values()):
            return {}
        whole = token_stream(self.classifier, self.inputs[1.0])
        names = list(whole)
        lowest = min((k for k, name in enumerate(names) if name in read), default=len(names))
        return {name: whole[name] for name in names[lowest:]}

    def _pass(self, kind: Callable[..., Pass], name: str, scale: float, layers: Any, read: Sequence[str] = ()) -> Pass:
        forward: Pass | None = self._passes.get((name, scale))
        if forward is None:
            if not self._passes:
                self._generation = 0 if self.classifier.labels is None else self.classifier.labels.generation
                self._module = self.classifier.fixed()
            forward = kind(self._module, self.inputs[scale], layers)
            maps = [layer for layer in forward.activations if not is_edges(layer)]
            forward.grids = self.grids(maps, scale)
            for layer in maps:
                check_spatial(layer, forward.activations[layer])
            if self.classifier.verified is not None:
                found = read or [layer for layer in maps if layer in forward.readings]
                self._verify(tuple(found), scale, self.classifier.verified)
            self._passes[name, scale] = forward
        return forward

    def grids(self, layers: Sequence[str], scale: float = 1.0) -> dict[str, TokenGrid]:
        """Where the positions of the image lie in the outputs of layers, such as tokens; no maps are refused.

        Example:
            >>> from torch import nn, ones
            >>> net = nn.Sequential(nn.Conv2d(3, 2, 2, 2), nn.Flatten(2), nn.Linear(4, 3), nn.Flatten()).eval()
            >>> mwp = excite.METHODS["mwp"]
            >>> session = Session(excite.wrap(net), {1.0: ones(1, 3, 4, 4)}, [mwp], layer="1")
            >>> session.grids(["1"])["1"].tokens
            (0, 1, 2, 3)
        """
        maps = {"input", *self.classifier.known.get("maps", ())}  # as they are
        asked = [layer for layer in layers if layer not in maps]
        return layer_grids(self.classifier, asked, self.inputs[scale]) if asked else {}

    @property
    def attention(self) -> Sequence[str]:
        """The edges of the network's attention, in the order of computation."""
        return classifier_edges(self.classifier, self.inputs[1.0])

    def tokens(self, count: int) -> TokenGrid:
        """Where the positions of the image lie among so many tokens."""
        return token_grid(self.classifier, count, self.inputs[1.0])

    def _verify(self, layers: tuple[str, ...], scale: float, done: set[tuple[str, ...]]) -> None:
        """Compare the response of a wrapped network with the graph, on the first image that is read at these layers."""
        module = self._module
        if layers not in done:
            images = self.inputs[scale] if module.training else self.inputs[scale][:1]  # batch statistics need them all
            try:
                found = verify(module, images, layers, exact=False)
            except RuntimeError as error:  # the network takes no single image, or there is too little memory
                line = f"{self.classifier.name} cannot be verified: {str(error).partition(chr(10))[0]}"
                warnings.warn(f"{line}; leave this out with wrap(..., verify=False)", UnverifiedWarning, stacklevel=2)
                done.add(layers)
                return
            found.check(strict=False)
            if all(each.found or not each.clear for each in found.responses.values()):  # a blank image shows nothing
                done.add(layers)

    def _layers_read(self, forward: Forward, scale: float) -> tuple[list[str], list[str]]:
        """All layers that methods with this kind of forward pass read at this scale, and those that are compared."""
        read: dict[str, None] = {}
        compared: dict[str, None] = {}
        for method, layers in self.layers.items():
            if method.forward == forward and scale in method.scales:
                for layer in self.attention if method.place == "attention" else layers:
                    only = method.compared(layer) if method.compared else ()
                    for tap in (method.taps or _alone)(layer):
                        (compared if tap in only else read)[tap] = None
        return list(read), list(compared.keys() - read.keys())

    @property
    def output(self) -> Tensor:
        """The network's output for the images as they are."""
        for form, layers in self.layers.items():
            if form.forward == "excitation":
                return self.winning([tap for layer in layers for tap in (form.taps or _alone)(layer)]).output
        return self.gradients().output

    @cached_property
    def probabilities(self) -> Tensor:
        """The classifier's probabilities [N, units], on the CPU."""
        with self.classifier.running(*self.inputs.values()):
            return self.classifier.probabilities(self.output.float()).cpu()

    @cached_property
    def labels(self) -> Labels:
        """The words for the output units."""
        if self.classifier.labels is not None and self.classifier.labels.is_open:
            return self.classifier.labels  # known without a forward pass, which waits for the phrases
        return self.classifier.labels_for(self.probabilities.shape[1])

    def findings(self, k: int = 0, most: int = FINDINGS) -> list[int]:
        """The most probable units of an image, one for each name."""
        found: dict[str, int] = {}
        for unit in self.probabilities[k, : len(self.labels)].argsort(descending=True).tolist():
            if len(found) >= most:
                break
            found.setdefault(self.labels.name(unit), unit)
        return list(found.values())

    @property
    def size(self) -> int:
        """The bytes that the forward passes hold beside the network itself."""
        return held_bytes(self.classifier.module, self._passes.values())

    def maps(self, method: Method, units: Units) -> dict[str, Tensor]:
        """The maps [signals, N, h, w] of a method at each of its layers.

        Args:
            method: one of the session's.
            units: for each signal and each image, the weights of the output units where the signal starts.
        """
        form = self._forms[method]
        with self.classifier.running(*self.inputs.values()):
            return form.maps(self, units, self.layers[form])

    def attend(
        self,
        method: Method,
        concepts: Sequence[Sequence[Cue] | None],
        images: Sequence[Image.Image],
        again: Opening | None = None,
        likely: float = 0.0,
    ) -> list[AttentionMaps]:
        """The maps of each image's concepts; None: of the most probable classes. All signals share one top-down pass.

        Args:
            method: one of the session's.
            concepts: for each image.
            images: as they were before preprocessing.
            again: opens the session of an image for a method and some scales, for the boxes of maps; None: a new one.
            likely: boxes of concepts that are at least so probable are made together, without those of others.
        """
        rivals = [self.labels.find(rival) for rival in self._against]
        wanted = [
            [self.labels.find(cue) for cue in (self.findings(k) if cues is None else cues)]
            for k, cues in enumerate(concepts)
        ]
        answers = [AttentionMaps() for _ in wanted]
        signals = list(zip_longest(*wanted))  # the n-th concepts of all images are one signal
        if not signals:
            return answers
        units = [[self.start(k, one, rivals) for k, one in enumerate(each)] for each in signals]
        self._renew([*rivals, *chain.from_iterable(wanted)])  # none has lost its unit to a later one
        maps = self.maps(method, units)
        for layer in maps:
            maps[layer] = maps[layer].detach().float().cpu()  # once, not for each map
        opening = partial(_new_session, self.classifier, rivals) if again is None else again
        about = []
        for image, chances, found in zip(images, self.probabilities, wanted, strict=True):
            due = [self.classifier.chance(chances, concept.units) >= likely for concept in found]
            about.append(Extents(opening, image, found, rivals, due))
        for number, each in enumerate(signals):
            for k, concept in enumerate(each):
                for layer, values in maps.items() if concept is not None else ():
                    answers[k].append(self._map(values[number, k], concept, method, layer, k, about[k]))
        return answers

    @contextmanager
    def at_scales(self, image: Image.Image, _method: Method, scales: Sequence[float]) -> Iterator[Session]:
        """This session with its only image at exactly these scales: an `Opening` for the boxes of its maps."""
        prepare = self.classifier.prepared
        self.inputs = {k: self.inputs[k] if k in self.inputs else prepare(image, k)[None] for k in scales}
        yield self

    def _renew(self, concepts: Sequence[Concept]) -> None:
        """Drop the forward passes where a phrase was given its output unit after them (`OpenLabels`)."""
        if self.labels.written(concepts) > self._generation and self._passes:
            self._passes.clear()
            vars(self).pop("probabilities", None)
            self.renewals += 1

    def start(self, k: int, concept: Concept | None, rivals: Sequence[Concept]) -> dict[int, float]:
        """Where a signal starts: a prior over the units of the concept, minus one over those of its rivals."""
        if concept is None:  # this image has fewer concepts than another
            return {}
        concept, *rivals = map(self.labels.find, (concept, *rivals))  # a phrase may have another unit by now
        self._renew([concept, *rivals])
        units = self._prior(k, concept.units)
        if rivals:
            others = {unit for rival in rivals for unit in rival.units} - set(concept.units)
            if not others:
                reason = "cannot be contrasted with itself: name another concept to be against"
                raise ConceptError(f"{concept.name!r} {reason}")
            units |= {unit: -weight for unit, weight in self._prior(k, others).items()}
        return units

    def _prior(self, k: int, units: Iterable[int]) -> dict[int, float]:
        """The classifier's own probabilities of some units, with the sum 1; equal where they are all 0."""
        weights = {unit: float(self.probabilities[k, unit]) for unit in units}
        total = sum(weights.values())
        return {unit: weight / total if total else 1 / len(weights) for unit, weight in weights.items()}

    def _map(
        self,
        raw: Tensor,
        concept: Concept,
        method: Method,
        layer: str,
        k: int,
        about: Extents,
    ) -> AttentionMap:
        """The positive part of a map, with its facts; warns where nearly nothing of the signal arrived."""
        values = raw.clamp(min=0)
        mass = float(values.double().sum())  # gradients may be near the largest float
        excitation = method.forward == "excitation"  # the size of a gradient means nothing
        if excitation and mass < ROUNDED and (method.plain is not None or about.rivals):
            values, mass = torch.zeros_like(values), 0.0
        if excitation and mass < FAINT:
            warnings.warn(
                f"only {mass:.2g} of the signal for {concept.name!r} is left at layer {layer!r}: the map says next to "
                "nothing; choose another layer",
                LostSignalWarning,
                stacklevel=2,
            )
        return AttentionMap(
            values=values,
            concept=", not ".join([concept.name, *(rival.name for rival in about.rivals)]),
            layer=layer,
            method=method.name,
            mass=mass,
            image_size=about.image.size,
            probability=self.classifier.chance(self.probabilities[k], concept.units),
            image=about.image,
            units=concept.units,
            objects=about.objects(method, values, concept),
        )


@contextmanager
def _new_session(
    classifier: Classifier, against: Sequence[Cue], image: Image.Image, method: Method, scales: Sequence[float]
) -> Iterator[Session]:
    inputs = {scale: classifier.prepared(image, scale)[None] for scale in scales}
    yield Session(classifier, inputs, [method], against=against)


def recommended_layers(method: Method, classifier: Classifier, batch: Tensor) -> list[str]:
    """The layers at which a method is read if none is named; they are looked for once for each size of the images."""
    if method.place == "input":
        return ["input"]
    if method.place == "attention":
        return lowest_edges(method.name, classifier_edges(classifier, batch))
    if method.place == "joint" and classifier.extent:
        return [classifier.extent]
    if method.place == "layer" and classifier.layer:
        return [classifier.layer]
    find = {"top": top_layer, "joint": _joint, "layer": default_layer}[method.place]
    key = (method.place, batch.shape[1:])
    if key not in classifier.known:
        classifier.known[key] = find(classifier.module, batch[:1])
    return [classifier.known[key]]


def _joint(module: nn.Module, inputs: Tensor) -> str:
    return JOINT.join(layer_pair(module, inputs))


def _alone(layer: str) -> tuple[str, ...]:
    return (layer,)


def named_layers(classifier: Classifier, layer: Layers) -> list[str]:
    """The names of the layers that a user gave, at least one."""
    layers = layer_names(classifier.module, layer)
    if not layers:
        raise LayerError("no layer was named: name one, or give None for the classifier's own best")
    return layers


def check_spatial(layer: str, values: Tensor) -> None:
    """Refuse a layer whose output is no map [N, C, H, W]."""
    if values.dim() != 4:
        raise LayerError(
            f"layer {layer!r} has no places: its output has shape {tuple(values.shape)}, not [N, C, H, W]; "
            "choose a convolutional layer (`excite ls layers` lists them), or use excite.mwp for its neurons"
        )


def is_cue(concepts: object) -> bool:
    """Whether this is a single concept: a word, an index (also NumPy's) or a `Concept`."""
    return isinstance(concepts, (str, Concept, SupportsIndex)) and getattr(concepts, "ndim", 0) == 0


def as_list(concepts: Any) -> Sequence[Cue] | None:
    """Concepts as a list, also a single one."""
    return [concepts] if is_cue(concepts) else concepts
