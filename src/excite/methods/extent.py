"""The extent of the main object, for boxes (docs/methods.md): winning probabilities are highest on a part of it.

So each is multiplied by how much more similar its position is, at a finer layer, to the winners than to the losers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from excite.methods.base import Maps, Method, Passes, largest_region, resized
from excite.methods.excitation import LARGER
from excite.propagation.excitation_pass import Units, signals_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

JOINT = "+"  # between layers: probabilities are read at all but the last, activations compared at the last
SHARPER = 2  # the winners' own activation is the mean with these powers of the map as weights: its strongest positions
LOSING = 0.3  # means of the map; what wins much less than that is background, all of it alike
SCALES = (1.0, LARGER)
BACKGROUND = 0.75  # how much being like the background takes away


def taps(layer: str) -> tuple[str, ...]:
    """The layers of a joint layer such as ``layer4.1+layer3``; activations are compared at the last."""
    return tuple(layer.split(JOINT))


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
    return {layer: torch.stack([_at(passes, [each], taps(layer)) for each in units]) for layer in layers}


def _at(passes: Passes, units: Units, layers: tuple[str, ...]) -> Tensor:
    """The map [images, h, w] of one signal."""
    scales = [_at_scale(passes, units, layers, scale) for scale in SCALES]
    grid = scales[-1][0].shape[-2:]
    evidence, alike = (_mean(resized(each[k], grid) for each in scales) for k in (0, 1))
    found = largest_region(evidence * alike)
    total = found.sum((1, 2), keepdim=True)
    return torch.where(total > 0, found / total, 0) * _mean(each[2] for each in scales)


def _mean(values: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean(dim=0)


def _at_scale(passes: Passes, units: Units, layers: tuple[str, ...], scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The evidence in means of the map, the likeness of each position, and how much of the signal arrived."""
    forward = passes.excitation(scale)
    arrived = forward.down(signals_at(forward.output, units)[0], layers=layers[:-1] or layers)
    won = [each.detach().sum(dim=1).clamp(min=0) for each in arrived.values()]
    activations = forward.readings[layers[-1]].activation.detach().to(won[0])
    evidence = _mean(_even(resized(each, activations.shape[-2:])) for each in won)
    return evidence, likeness(activations, evidence), won[0].sum((1, 2), keepdim=True)


def _even(maps: Tensor) -> Tensor:
    """Maps in their own means."""
    mean = maps.mean((1, 2), keepdim=True)
    return torch.where(mean > 0, maps / mean, 0)


_ABOUT = "for boxes: the extent of the main object, from winners and similar activations"
EXTENT = Method("extent", _ABOUT, _extent, place="joint", scales=SCALES, taps=taps, main=True)
