"""The main functions: from an image and a classifier to attention maps and boxes, from tensors to attributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from excite.attention import AttentionMaps
from excite.errors import ConceptError, SignalError
from excite.images import read_image
from excite.methods import find_method
from excite.models import Classifier, wrap
from excite.models.classifier import rescaled
from excite.session import Session, as_list, is_cue

if TYPE_CHECKING:
    from PIL import Image

    from excite.session import Cue, ImageSource, Layer, Layers


def attend(
    classifier: Classifier,
    image: ImageSource,
    concepts: Sequence[Cue] | Cue | None = None,
    *,
    layer: Layers | None = None,
    method: str = "c-mwp",
    against: Sequence[Cue] | Cue | None = None,
) -> AttentionMaps:
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
) -> list[AttentionMaps]:
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
    answers = [AttentionMaps() for _ in images]
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


METHOD, ALPHA = "c-extent", None  # the best in docs/boxes.md, with the main one of its regions


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
    alpha: float | None = ALPHA,
) -> list[Located]:
    """A box around the main object of each concept.

    For one object a concept and image: of several that lie apart, the one with the most evidence. `AttentionMap.boxes`
    has them all.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        image: an image, or the path of one, as in `excite.attend`.
        concepts: what to look for, as in `excite.attend`; None for its best findings.
        method: how to make the map.
        layer: where to read it; None: where it should be.
        alpha: instead of the main region of the map, box all that is above this many means of it.

    Example:
        >>> [(found.concept, found.box) for found in excite.locate(classifier, "cat.jpg", ["tabby"])]  # doctest: +SKIP
        [('tabby', (12, 30, 200, 180))]
    """
    maps = attend(classifier, image, concepts, method=method, layer=layer)
    return [Located(found.concept, found.probability or 0.0, found.box(alpha)) for found in maps]


# Tensors in, tensors out, as in captum, pytorch-grad-cam and Quantus (docs/attribution.md).

_verified: WeakKeyDictionary[nn.Module, set[tuple[str, ...]]] = WeakKeyDictionary()


def attribute(
    net: nn.Module | Classifier,
    x: Tensor,
    target: Any = None,
    method: str = "c-mwp",
    layer: Layers | None = None,
    *,
    upsample: bool = True,
) -> Tensor | list[Tensor]:
    """The maps of a batch of preprocessed images, by any method.

    Args:
        net: a network with outputs [N, C] or [N, C, H, W], or a classifier.
        x: the images [N, 3, H, W] as the network takes them.
        target: the output unit to explain; weights of several, ``{cat: 1, dog: -1}``; or a list or tensor with one for
            each image (also objects with a ``category``); None for the most probable of each image.
        method: a name from `excite.METHODS`.
        layer: a module of the network or its name; None for the recommended one. Several give a list of maps.
        upsample: stretch the maps over the images; otherwise they have the size of their layer.

    Returns:
        the positive part of the maps, [N, 1, H, W] on the device and in the type of ``x``; for several layers a list.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> attribute(net, torch.rand(2, 3, 4, 4), [0, 2], layer=net[1]).shape
        torch.Size([2, 1, 4, 4])
    """
    chosen, classifier = find_method(method), _as_classifier(net)
    session = Session(classifier, {scale: rescaled(x, scale) for scale in chosen.scales}, [chosen], layer=layer)
    each = _targets(target, session, len(x))
    maps = [values[0, :, None].detach().clamp(min=0) for values in session.maps(chosen, [each]).values()]
    if upsample:
        maps = [_stretched(values, tuple(x.shape[-2:])) for values in maps]
    maps = [values.to(x) for values in maps]
    return maps[0] if layer is None or isinstance(layer, str | nn.Module) else maps


def _as_classifier(net: nn.Module | Classifier) -> Classifier:
    """The network as a classifier, verified at its first images only (`excite.wrap`)."""
    return net if isinstance(net, Classifier) else replace(wrap(net), verified=_verified.setdefault(net, set()))


def _targets(target: Any, session: Session, images: int) -> list[dict[int, float]]:
    """The weights of the output units where the signal of each image starts."""
    if target is None:
        return [{unit: 1.0} for unit in session.probabilities.argmax(dim=1).tolist()]
    if isinstance(target, Tensor | np.ndarray):
        target = target.tolist()
    several = isinstance(target, Sequence) and not isinstance(target, str)
    given = list(target) if several else [target] * images
    if len(given) != images:
        raise SignalError(f"{len(given)} targets for {images} images: give one for each, or one for all")
    return [_weights(each) for each in given]


def _weights(target: Any) -> dict[int, float]:
    try:
        if isinstance(target, Mapping):
            return {index(unit): float(weight) for unit, weight in target.items()}
        return {index(getattr(target, "category", target)): 1.0}
    except (TypeError, ValueError):
        raise SignalError(
            f"{target!r} is no target: give the index of an output unit, weights of several as {{unit: weight}}, or a "
            "list with one for each image"
        ) from None


def _stretched(maps: Tensor, size: tuple[int, ...], mode: str = "bicubic") -> Tensor:
    """Maps [N, 1, h, w] at another size, without the negative values that cubic interpolation makes."""
    return functional.interpolate(maps.float(), size, mode=mode, align_corners=False).clamp(min=0)


class ExcitationBackprop:
    """`attribute` in the form of captum's ``LayerAttribution`` and of pytorch-grad-cam's classes.

    Args:
        net: a network, or a classifier.
        layer: a module of the network or its name, or several; None for the recommended one.
        method: a name from `excite.METHODS`.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> explainer = ExcitationBackprop(net, net[1])
        >>> explainer.attribute(torch.rand(2, 3, 4, 4), target=1).shape  # of the layer, as captum's
        torch.Size([2, 1, 2, 2])
        >>> explainer(input_tensor=torch.rand(2, 3, 4, 4), targets=[0, 2]).shape  # of the image, 0 to 1, as grad-cam's
        (2, 4, 4)
    """

    def __init__(self, net: nn.Module | Classifier, layer: Layers | None = None, method: str = "c-mwp") -> None:
        self.net, self.layer, self.method = _as_classifier(net), layer, method

    def attribute(self, inputs: Tensor | tuple[Tensor], target: Any = None) -> Any:
        """The maps [N, 1, h, w] at the size of the layer; for several layers a list; in a tuple for a batch in one."""
        if isinstance(inputs, tuple):
            return tuple(self.attribute(each, target) for each in inputs)
        return attribute(self.net, inputs, target, self.method, self.layer, upsample=False)

    @staticmethod
    def interpolate(
        layer_attribution: Tensor, interpolate_dims: tuple[int, int], interpolate_mode: str = "bicubic"
    ) -> Tensor:
        """Maps of a layer at the size of the images, with the arguments of captum's function of this name."""
        return _stretched(layer_attribution, interpolate_dims, interpolate_mode)

    def __call__(self, input_tensor: Tensor, targets: Any = None) -> np.ndarray[Any, Any]:
        """The maps [N, H, W] at the size of the images, each with the maximum 1; of several layers their mean."""
        maps = attribute(self.net, input_tensor, targets, self.method, self.layer)
        planes = torch.stack([each[:, 0].float() for each in (maps if isinstance(maps, list) else [maps])])
        planes = (planes / planes.amax((-2, -1), keepdim=True).clamp(min=1e-30)).mean(dim=0)
        return planes.cpu().numpy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to release: the network is left as it was found."""


def explain_func(
    model: nn.Module,
    inputs: np.ndarray[Any, Any] | Tensor,
    targets: Any,
    *,
    method: str = "c-mwp",
    layer: Layers | None = None,
    device: Any = None,
) -> np.ndarray[Any, Any]:
    """`attribute` as Quantus calls it: ``metric(..., explain_func=excite.explain_func)``.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> explain_func(net, np.ones((2, 3, 4, 4)), np.array([0, 2]), layer="1").shape
        (2, 1, 4, 4)
    """
    first = next(model.parameters(), torch.empty(0))
    batch = torch.as_tensor(inputs).to(device or first.device, first.dtype)
    return np.asarray(torch.as_tensor(attribute(model, batch, targets, method, layer)).cpu().float())
