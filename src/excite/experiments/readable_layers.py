"""Where each method of an experiment is read: found out once, on a blank image, before any work."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from PIL import Image

from excite.errors import LayerError, LostSignalWarning, MethodError, NoRuleError, SignalError
from excite.methods import find_method
from excite.session import Look, layers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from excite.attention import AttentionMap
    from excite.errors import ExciteError
    from excite.methods import Method
    from excite.models import Classifier
    from excite.session import Cue
    from excite.vocabulary import Concept


# One look at one image, as experiments take it.


def look_at(
    classifier: Classifier,
    picture: Image.Image,
    methods: Sequence[Method],
    layers: Sequence[str] | Mapping[Method, Sequence[str]],
) -> Look:
    """The image as the classifier sees it, at all sizes and layers that these methods need."""
    scales = dict.fromkeys([1.0, *(scale for method in methods for scale in method.scales)])
    inputs = {scale: classifier.prepared(picture, scale)[None] for scale in scales}
    return Look(classifier, inputs, methods, layer=layers)


def maps_of(look: Look, method: Method, concepts: Sequence[Cue], picture: Image.Image) -> list[AttentionMap]:
    """The maps of these concepts, the layers of one concept together. Nobody is told one by one that little arrived."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LostSignalWarning)
        (maps,) = look.answer(method, [concepts], [picture])
    return maps


def all_maps(
    classifier: Classifier, picture: Image.Image, concepts: Sequence[Concept], layers: Mapping[str, Sequence[str]]
) -> Iterator[tuple[int, AttentionMap]]:
    """All maps, each with the number of its concept; those of one concept in the order of methods and layers.

    Args:
        classifier: who is asked.
        picture: about what.
        concepts: what is looked for.
        layers: for each method, by name, the layers at which it is read.
    """
    methods = {find_method(name): places for name, places in layers.items()}
    look = look_at(classifier, picture, list(methods), methods)
    for method, places in methods.items():
        for k, found in enumerate(maps_of(look, method, concepts, picture)):  # the layers of one concept together
            yield k // len(places), found


# Where each method of an experiment is read: found out once, on a blank image, before any work.

BLANK = (256, 256)
SAME_EVERYWHERE = {"center"}  # reads nothing of the network, so one row will do
UNREADABLE = (LayerError, MethodError, NoRuleError, SignalError)


class Places:
    """Where each method is read on a network: at the layers that were named, or where it should be.

    A method that cannot be read at any of the named layers (CAM has one place only) is read where it should be. One
    that cannot be read at all is left out, and it is said why.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        methods: those to be compared.
        named: names of layers; None for each method's own place.
        known: without names, read methods that may be read anywhere at all of these.

    Attributes:
        layers: for each method that can be read, its layers.
        unreadable: why a method cannot be read at a layer, by "method at layer".
        spatial: whether the network answers for each place of the image, and not for the whole of it.

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
        self._picture = Image.new("RGB", BLANK)
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
            look = look_at(self._classifier, self._picture, [method], [layer])
            maps_of(look, method, [0], self._picture)
        except UNREADABLE as error:
            self._refused[method.name, layer] = error
            return False
        self.spatial = look.view.output.dim() == 4
        return True

    def _own_place(self, method: Method) -> Sequence[str]:
        if self._known and method.place == "layer" and method.name not in SAME_EVERYWHERE:
            return self._known
        try:
            return layers_of(method, self._classifier, self._classifier.prepared(self._picture)[None])
        except LayerError as error:
            self._refused[method.name, "its own place"] = error
            return ()

    def _check(self, named: Iterable[str]) -> None:
        """A layer at which nothing can be read is most often a slip of the pen."""
        read = {layer for layers in self.layers.values() for layer in layers}
        for (_, layer), error in self._refused.items():
            if not self.layers or (layer in named and layer not in read):
                raise error
