"""One look at one picture, as experiments take it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from excite.errors import LostSignalWarning
from excite.methods import find_method
from excite.session import Look

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from PIL import Image

    from excite.attention import AttentionMap
    from excite.methods import Method
    from excite.models import Classifier
    from excite.session import Cue
    from excite.vocabulary import Concept

__all__ = ["all_maps", "look_at", "maps_of"]


def look_at(
    classifier: Classifier,
    picture: Image.Image,
    methods: Sequence[Method],
    layers: Sequence[str] | Mapping[Method, Sequence[str]],
) -> Look:
    """The picture as the classifier sees it, at all sizes and layers that these methods need."""
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
