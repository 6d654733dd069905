"""The extent of the main object, for boxes (docs/reference/methods.md): winning probabilities are highest on a part.

So they are averaged with class activations, where those are known, and multiplied by how much more similar a position
is, at a finer layer, to the winners than to the losers. `extent` compares once more at a still finer layer, leaves out
what is weak, and keeps the largest region. `c-extent`, for photographs of several things, adds contrastive evidence, as
that tells the concept from what is beside it; relies more on similarity; and keeps all regions, one for each object.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from excite.errors import ModelError
from excite.methods.base import Maps, Method, Passes, largest_region, resized
from excite.methods.excitation import LARGER
from excite.propagation.excitation_pass import Units, position_sums, signals_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from PIL import Image

    from excite.propagation import ExcitationPass, TokenPass

    Concept = Any  # of a vocabulary
    Opening = Callable[[Image.Image, Method, Sequence[float]], AbstractContextManager[Any]]  # of a session

JOINT = "+"  # between layers: probabilities are read at all but the last, activations compared at the last
TOP, FINER = "@", "^"  # behind the layer of class activations; before the layer at which `extent` compares once more
SHARPER = 2  # the winners' own activation is the mean with these powers of the map as weights: its strongest positions
LOSING = 0.3  # means of the map; what wins much less than that is background, all of it alike
SCALES = (1.0, LARGER)
BACKGROUND = 0.75  # how much being like the background takes away
CONTRAST, SIMILAR = 0.3, 2.0  # of c-extent: the part of contrastive evidence, and the exponent of likeness
CLASS = 0.5  # the part of class activations
PART, STEEP = 0.23, 1.2  # of `without_the_weak`, learnt from boxes: docs/localization.md


def taps(layer: str) -> tuple[str, ...]:
    """The layers of a joint layer such as ``head@layer4.1+layer3^layer2``."""
    return tuple(re.split("[@+^]", layer))


def _coarse_taps(layer: str) -> tuple[str, ...]:
    return taps(layer.partition(FINER)[0])


def compared(layer: str) -> tuple[str, ...]:
    """The layers of which only activations are used: all but those of class activations and of probabilities."""
    top, _, lower = layer.partition(FINER)[0].rpartition(TOP)
    *read, last = lower.split(JOINT)
    return tuple(tap for tap in taps(layer) if tap not in (top, *(read or [last])))


def likeness(activations: Tensor, evidence: Tensor) -> Tensor:
    """How much more similar each position is to the winners than to the losers (``evidence`` in means), 0 to 1."""
    directions = functional.normalize(activations.flatten(2), dim=1)
    weights = evidence.flatten(1)[:, None]
    winner = functional.normalize((directions * weights**SHARPER).sum(2, keepdim=True), dim=1)
    loser = functional.normalize((directions / (weights + LOSING)).sum(2, keepdim=True), dim=1)
    alike = (directions * (winner - BACKGROUND * loser)).sum(1)
    alike = alike - alike.amin(1, keepdim=True)
    top = alike.amax(1, keepdim=True)
    return torch.where(top > 0, alike / top, 1.0).view_as(evidence)  # where all are alike, none is left out


def without_the_weak(maps: Tensor) -> Tensor:
    """Maps [n, h, w] without what is below a threshold, which is lower the more of the image lies above the mean.

    In means of the map it is ``(PART / part above the mean) ** STEEP``, at most half of the maximum: a map of a small
    object has a high peak, and a wide foot that is not the object; one of a large object is flat, and all of it counts.
    """
    mean, highest = maps.mean((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    part = (maps > mean).to(maps).mean((1, 2), keepdim=True)
    threshold = mean * (PART / part) ** STEEP
    return torch.where(maps > threshold.minimum(highest / 2), maps, 0)


def _extent(passes: Passes, units: Units, layers: Sequence[str]) -> Maps:
    return {layer: torch.stack([_at(passes, [each], layer)[0] for each in units]) for layer in layers}


def _contrastive(passes: Passes, units: Units, layers: Sequence[str]) -> Maps:
    return {layer: _at(passes, units, layer, CONTRAST) for layer in layers}


def _at(passes: Passes, units: Units, layer: str, contrast: float = 0.0) -> Tensor:
    """The maps [signals, images, h, w]; without contrast only the largest region of each."""
    joint, _, finest = layer.partition(FINER)
    usable = [scale for scale in SCALES if scale in passes.inputs]
    scales = [_at_scale(passes, units, joint, scale, contrast) for scale in usable]
    grid = scales[-1][0].shape[-2:]
    evidence, alike = (_mean(resized(each[k], grid) for each in scales) for k in (0, 1))
    found = evidence * (alike**SIMILAR if contrast else alike)
    if finest and not contrast:
        activations = passes.winning(taps(layer), usable[-1]).activations[finest].detach().to(found)
        found = _even(resized(found, activations.shape[-2:]))
        found = found * likeness(activations.repeat(len(units), 1, 1, 1), found)
    found = found if contrast else largest_region(without_the_weak(found))
    total = found.sum((1, 2), keepdim=True)
    maps = torch.where(total > 0, found / total, 0) * _mean(each[2] for each in scales)
    return maps.view(len(units), -1, *found.shape[-2:])


def _mean(values: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean(dim=0)


def _at_scale(passes: Passes, units: Units, joint: str, scale: float, contrast: float) -> tuple[Tensor, Tensor, Tensor]:
    """The evidence in means of the map, the likeness of each position, and how much of the signal arrived."""
    top, at, lower = joint.rpartition(TOP)
    *read, compared = lower.split(JOINT)
    read = read or [compared]
    forward = passes.winning(taps(joint), scale)
    won = _won(forward, units, read)
    activations = forward.activations[compared].detach().to(won[0])
    stretched = partial(resized, size=activations.shape[-2:])
    evidence = _mean(_even(stretched(each)) for each in won)
    if contrast:
        more = _mean(_even(stretched(each)) for each in _won(forward, units, read, dual=-1.0))
        evidence = (1 - contrast) * evidence + contrast * more
    if at:
        evidence = (1 - CLASS) * evidence + CLASS * _even(stretched(_class_activations(forward, units, top)))
    activations = activations.repeat(len(units), 1, 1, 1)
    return evidence, likeness(activations, evidence), won[0].sum((1, 2), keepdim=True)


def _won(forward: ExcitationPass | TokenPass, units: Units, layers: Sequence[str], **options: Any) -> list[Tensor]:
    """The maps [signals x images, h, w] of the layers at which probabilities are read."""
    arrived = position_sums(forward, signals_at(forward.output, units), layers, **options)
    return [each.detach().clamp(min=0).flatten(0, 1) for each in arrived.values()]


def _class_activations(forward: ExcitationPass | TokenPass, units: Units, top: str) -> Tensor:
    """The positive part of sum_c w_c A_c at the layer below average pooling and one linear layer.

    Without normalisers, what a unit and its dual hand to a channel is w_c (mean of A_c) A_c, in some unit.
    """
    arrived = forward.down(signals_at(forward.output, units), dual=-1.0, normalised=False, layers=[top])[top].detach()
    means = forward.activations[top].detach().mean((2, 3), keepdim=True).to(arrived)
    return torch.where(means != 0, arrived / means, 0).sum(2).clamp(min=0).flatten(0, 1)


def _even(maps: Tensor) -> Tensor:
    """Maps in their own means."""
    mean = maps.mean((1, 2), keepdim=True)
    return torch.where(mean > 0, maps / mean, 0)


_ABOUT = "for boxes: the extent of the main object, from winners and similar activations"
EXTENT = Method("extent", _ABOUT, _extent, place="joint", scales=SCALES, taps=taps, compared=compared, main=True)
_ALL = "for boxes: the extent of every object of the concept, with contrast (the boxes that are shown)"
C_EXTENT = replace(
    EXTENT, name="c-extent", description=_ALL, maps=_contrastive, taps=_coarse_taps, plain=EXTENT, main=False
)


class Extents:
    """The extent of the objects of some concepts in one image, made when one is first asked for.

    It needs a second, larger scale of the image and takes several times as long as the maps themselves; so it waits
    until a box is asked for, and is made for all likely concepts together, or for all others. A network that takes
    images of one size only is run at that size alone.

    Attributes:
        image: as it was before preprocessing.
        rivals: the concepts to contrast with.

    Args:
        likely: of which concepts boxes will be asked for.
    """

    def __init__(
        self,
        opening: Opening,
        image: Image.Image,
        concepts: Sequence[Concept],
        rivals: Sequence[Concept],
        likely: Sequence[bool],
    ) -> None:
        self.image, self.rivals = image, rivals
        self._opening, self._concepts, self._likely = opening, concepts, likely
        self._numbers = {concept: number for number, concept in reversed([*enumerate(concepts)])}
        self._lock, self._maps = threading.Lock(), dict[int, Tensor]()

    def objects(self, method: Method, values: Tensor, concept: Concept) -> Callable[[], Tensor] | None:
        """How to make the map whose regions are the objects of a map by a method; None for methods of another kind."""
        if method.place == "joint":
            return lambda: values
        winners = method.forward == "excitation" and method.place == "layer"
        return partial(self.of, self._numbers[concept]) if winners else None

    def of(self, number: int) -> Tensor:
        """The map [h, w] of one of the concepts."""
        with self._lock:
            if number not in self._maps:
                alike = [k for k, likely in enumerate(self._likely) if likely == self._likely[number]]
                try:
                    self._maps.update(self._made(SCALES, alike))
                except ModelError:  # of the larger image
                    self._maps.update(self._made((1.0,), alike))
            return self._maps[number]

    def _made(self, scales: Sequence[float], numbers: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
        with self._opening(self.image, C_EXTENT, scales) as session:
            units = [[session.start(0, self._concepts[number], self.rivals)] for number in numbers]
            (maps,) = session.maps(C_EXTENT, units).values()
        return zip(numbers, maps[:, 0].detach().float().clamp(min=0), strict=True)
