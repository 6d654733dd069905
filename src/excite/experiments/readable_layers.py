"""The maps of one image for an experiment, and the layers at which each method can be read (tried on a blank image)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from PIL import Image

from excite.errors import LayerError, LostSignalWarning, MethodError, NoRuleError, SignalError
from excite.methods import find_method
from excite.session import Session, recommended_layers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from excite.attention import AttentionMap
    from excite.errors import ExciteError
    from excite.methods import Method
    from excite.models import Classifier
    from excite.session import Cue
    from excite.vocabulary import Concept


def open_session(
    classifier: Classifier,
    image: Image.Image,
    methods: Sequence[Method],
    layers: Sequence[str] | Mapping[Method, Sequence[str]],
) -> Session:
    """The session of one image at all scales and layers that these methods need."""
    scales = dict.fromkeys([1.0, *(scale for method in methods for scale in method.scales)])
    inputs = {scale: classifier.prepared(image, scale)[None] for scale in scales}
    return Session(classifier, inputs, methods, layer=layers)


def maps_of(session: Session, method: Method, concepts: Sequence[Cue], image: Image.Image) -> list[AttentionMap]:
    """The maps of these concepts, the layers of one concept together; without warnings about lost signals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LostSignalWarning)
        (maps,) = session.attend(method, [concepts], [image])
    return maps


def all_maps(
    classifier: Classifier, image: Image.Image, concepts: Sequence[Concept], layers: Mapping[str, Sequence[str]]
) -> Iterator[tuple[int, AttentionMap]]:
    """All maps, each with the number of its concept; those of one concept in the order of methods and layers."""
    methods = {find_method(name): named for name, named in layers.items()}
    session = open_session(classifier, image, list(methods), methods)
    for method, named in methods.items():
        for k, found in enumerate(maps_of(session, method, concepts, image)):  # the layers of one concept together
            yield k // len(named), found


BLANK = (256, 256)
SAME_EVERYWHERE = {"center"}  # reads nothing of the network, so one row will do
UNREADABLE = (LayerError, MethodError, NoRuleError, SignalError)


class ReadableLayers:
    """The layers at which each method is read on a network: those that were named, or its recommended one.

    A method that cannot be read at any of the named layers (CAM has one layer only) is read at its recommended one. One
    that cannot be read at all is left out, with the reason.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        methods: the methods of the experiment.
        named: names of layers; None for each method's recommended layer.
        known: without names, methods that can be read anywhere are read at all of these.

    Attributes:
        layers: for each method that can be read, its layers.
        unreadable: why a method cannot be read at a layer, by "method at layer".
        spatial: whether the network has an output for each position of the image.

    Raises:
        ExciteError: no method can be read, or none at a layer that was named.
    """

    def __init__(
        self,
        classifier: Classifier,
        methods: Sequence[Method],
        named: Sequence[str] | None = None,
        *,
        known: Sequence[str] = (),
    ) -> None:
        self._classifier = classifier
        self._known = tuple(known)
        self._image = Image.new("RGB", BLANK)
        self._refused: dict[tuple[str, str], ExciteError] = {}
        self.spatial = False
        self.layers: dict[str, tuple[str, ...]] = {}
        for method in methods:
            asked = () if method.name in SAME_EVERYWHERE else dict.fromkeys(named or ())
            readable = self._readable(method, asked) or self._readable(method, self._own_place(method))
            if readable:
                self.layers[method.name] = readable
        self._check(named or ())
        self.unreadable = {f"{method} at {layer}": str(error) for (method, layer), error in self._refused.items()}

    def _readable(self, method: Method, layers: Iterable[str]) -> tuple[str, ...]:
        return tuple(layer for layer in layers if self._reads(method, layer))

    def _reads(self, method: Method, layer: str) -> bool:
        try:
            session = open_session(self._classifier, self._image, [method], [layer])
            maps_of(session, method, [0], self._image)
        except UNREADABLE as error:
            self._refused[method.name, layer] = error
            return False
        self.spatial = session.output.dim() == 4
        return True

    def _own_place(self, method: Method) -> Sequence[str]:
        if self._known and method.place == "layer" and method.name not in SAME_EVERYWHERE:
            return self._known
        try:
            return recommended_layers(method, self._classifier, self._classifier.prepared(self._image)[None])
        except LayerError as error:
            self._refused[method.name, "its own place"] = error
            return ()

    def _check(self, named: Iterable[str]) -> None:
        """Refuse a named layer at which no method can be read."""
        read = {layer for layers in self.layers.values() for layer in layers}
        for (_, layer), error in self._refused.items():
            if not self.layers or (layer in named and layer not in read):
                raise error
