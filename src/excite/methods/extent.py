"""The extent of the main object, for boxes (docs/reference/methods.md): winning probabilities are highest on a part.

So each is multiplied by how much more similar its position is, at a finer layer, to the winners than to the losers.
`extent` keeps the largest region of that. `c-extent`, for photographs of several things, adds contrastive evidence, as
that tells the concept from what is beside it; relies more on similarity; and keeps all regions, one for each object.
"""

from __future__ import annotations

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
SHARPER = 2  # the winners' own activation is the mean with these powers of the map as weights: its strongest positions
LOSING = 0.3  # means of the map; what wins much less than that is background, all of it alike
SCALES = (1.0, LARGER)
BACKGROUND = 0.75  # how much being like the background takes away
CONTRAST, SIMILAR = 0.3, 2.0  # of c-extent: the part of contrastive evidence, and the exponent of likeness


def taps(layer: str) -> tuple[str, ...]:
    """The layers of a joint layer such as ``layer4.1+layer3``; activations are compared at the last."""
    return tuple(layer.split(JOINT))


def compared(layer: str) -> tuple[str, ...]:
    """The last of several layers, unless probabilities are read there, too."""
    *read, last = taps(layer)
    return (last,) if read and last not in read else ()


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


def _extent(passes: Passes, units: Units, layers: Sequence[str]) -> Maps:
    return {layer: torch.stack([_at(passes, [each], taps(layer))[0] for each in units]) for layer in layers}


def _contrastive(passes: Passes, units: Units, layers: Sequence[str]) -> Maps:
    return {layer: _at(passes, units, taps(layer), CONTRAST) for layer in layers}


def _at(passes: Passes, units: Units, layers: tuple[str, ...], contrast: float = 0.0) -> Tensor:
    """The maps [signals, images, h, w]; without contrast only the largest region of each."""
    scales = [_at_scale(passes, units, layers, scale, contrast) for scale in SCALES if scale in passes.inputs]
    grid = scales[-1][0].shape[-2:]
    evidence, alike = (_mean(resized(each[k], grid) for each in scales) for k in (0, 1))
    found = evidence * alike**SIMILAR if contrast else largest_region(evidence * alike)
    total = found.sum((1, 2), keepdim=True)
    maps = torch.where(total > 0, found / total, 0) * _mean(each[2] for each in scales)
    return maps.view(len(units), -1, *grid)


def _mean(values: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean(dim=0)


def _at_scale(
    passes: Passes, units: Units, layers: tuple[str, ...], scale: float, contrast: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The evidence in means of the map, the likeness of each position, and how much of the signal arrived."""
    forward = passes.winning(layers, scale)
    won = _won(forward, units, layers)
    activations = forward.activations[layers[-1]].detach().to(won[0])
    stretched = partial(resized, size=activations.shape[-2:])
    evidence = _mean(_even(stretched(each)) for each in won)
    if contrast:
        more = _mean(_even(stretched(each)) for each in _won(forward, units, layers, dual=-1.0))
        evidence = (1 - contrast) * evidence + contrast * more
    activations = activations.repeat(len(units), 1, 1, 1)
    return evidence, likeness(activations, evidence), won[0].sum((1, 2), keepdim=True)


def _won(forward: ExcitationPass | TokenPass, units: Units, layers: tuple[str, ...], dual: float = 0.0) -> list[Tensor]:
    """The maps [signals x images, h, w] of the layers at which probabilities are read."""
    arrived = position_sums(forward, signals_at(forward.output, units), layers[:-1] or layers, dual=dual)
    return [each.detach().clamp(min=0).flatten(0, 1) for each in arrived.values()]


def _even(maps: Tensor) -> Tensor:
    """Maps in their own means."""
    mean = maps.mean((1, 2), keepdim=True)
    return torch.where(mean > 0, maps / mean, 0)


_ABOUT = "for boxes: the extent of the main object, from winners and similar activations"
EXTENT = Method("extent", _ABOUT, _extent, place="joint", scales=SCALES, taps=taps, compared=compared, main=True)
_ALL = "for boxes: the extent of every object of the concept, with contrast (the boxes that are shown)"
C_EXTENT = replace(EXTENT, name="c-extent", description=_ALL, maps=_contrastive, plain=EXTENT, main=False)


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
