"""The main functions: from an image and a classifier to attention maps, points and boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from excite.errors import ConceptError
from excite.images import read_image
from excite.methods import find_method
from excite.session import Session, as_list, is_cue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image
    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.models import Classifier
    from excite.session import Cue, ImageSource, Layer, Layers


def attend(
    classifier: Classifier,
    image: ImageSource,
    concepts: Sequence[Cue] | Cue | None = None,
    *,
    layer: Layers | None = None,
    method: str = "c-mwp",
    against: Sequence[Cue] | Cue | None = None,
) -> list[AttentionMap]:
    """Where in this image is the evidence for those concepts?

    The network runs once; each concept then costs one top-down pass.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        image: a path, a PIL image, an array [h, w, 3] or a tensor [3, h, w].
        concepts: labels, synonyms, everyday words for several labels, or indices of output units; None for the
            classifier's own five best findings. A concept that stands for several units cues them in proportion
            to the classifier's own probabilities.
        layer: where to read the map: the name of a layer or the module itself (``net.layer3``); several give a map for
            each; None for the classifier's own best.
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
    layer: Layers | None = None,
    method: str = "c-mwp",
    against: Sequence[Cue] | Cue | None = None,
) -> list[list[AttentionMap]]:
    """Maps for several images, each with its own concepts; images of one size go through the network together.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        images: the images, each as in `attend`.
        concepts: for each image its concepts, or None for the classifier's own findings; a single concept is
            used for all images.
        layer: as in `attend`.
        method: as in `attend`.
        against: as in `attend`.

    Returns:
        for each image what `attend` gives.

    Example:
        >>> classifier = excite.load()                                                      # doctest: +SKIP
        >>> photos = ["zoo.jpg", "street.jpg"]                                              # doctest: +SKIP
        >>> zoo, street = excite.attend_batch(classifier, photos, [["zebra", "dog"], None]) # doctest: +SKIP
        >>> [found.concept for found in zoo], len(street)                                   # doctest: +SKIP
        (['zebra', 'dog'], 5)
    """
    each: Any = [concepts] * len(images) if concepts is None or is_cue(concepts) else concepts
    cues = [as_list(one) for one in each]
    if len(cues) != len(images):
        raise ConceptError(f"{len(images)} images but concepts for {len(cues)}: give one list for each image")
    chosen = find_method(method)
    pictures = [read_image(image) for image in images]
    answers: list[list[AttentionMap]] = [[] for _ in images]
    for group, inputs in _same_shapes(classifier, pictures, chosen.scales):
        session = Session(classifier, inputs, [chosen], layer=layer, against=against)
        maps = session.attend(chosen, [cues[k] for k in group], [pictures[k] for k in group])
        for k, each in zip(group, maps, strict=True):
            answers[k] = each
    return answers


def _same_shapes(
    classifier: Classifier, images: Sequence[Image.Image], scales: Sequence[float]
) -> list[tuple[list[int], dict[float, Tensor]]]:
    """The images in groups of one preprocessed size, each with its batch at every scale."""
    groups: dict[tuple[torch.Size, ...], list[int]] = {}
    inputs = []
    for k, image in enumerate(images):
        prepared = [classifier.prepared(image, scale) for scale in scales]
        groups.setdefault(tuple([each.shape for each in prepared]), []).append(k)
        inputs.append(prepared)
    return [
        (group, {scale: torch.stack([inputs[k][n] for k in group]) for n, scale in enumerate(scales)})
        for group in groups.values()
    ]


METHOD, ALPHA = "extent", 0.5  # the best in docs/localization.md, and what held-out images chose there


@dataclass(frozen=True)
class Located:
    """Where a concept is in an image.

    Attributes:
        concept: what was asked for.
        probability: the classifier's own confidence that it is there at all.
        box: half-open ``(x0, y0, x1, y1)`` in pixels; None where there is no evidence.
    """

    concept: str
    probability: float
    box: tuple[int, int, int, int] | None


def locate(
    classifier: Classifier,
    image: ImageSource,
    concepts: Cue | Sequence[Cue] | None = None,
    *,
    method: str = METHOD,
    layer: Layer | None = None,
    alpha: float = ALPHA,
) -> list[Located]:
    """A box around the main object of each concept.

    For one object a concept and image: of several that lie apart, the one with the largest region.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        image: an image, or the path of one, as in `excite.attend`.
        concepts: what to look for, as in `excite.attend`; None for its best findings.
        method: how to make the map.
        layer: where to read it; None: where it should be.
        alpha: the threshold of the box, in means of the map.

    Example:
        >>> [(found.concept, found.box) for found in excite.locate(classifier, "cat.jpg", ["tabby"])]  # doctest: +SKIP
        [('tabby', (12, 30, 200, 180))]
    """
    maps = attend(classifier, image, concepts, method=method, layer=layer)
    return [Located(found.concept, found.probability or 0.0, found.box(alpha)) for found in maps]
