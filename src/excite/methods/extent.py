"""The whole of the main object, for boxes: what wins, and whatever looks like it and not like the rest.

Winning probabilities show what convinced the network, often a part: a dog's face. Its activations know more of the
extent: places on the same thing have similar activations. So a map of winners is multiplied by how much more each
place is like the winners than like the losers, at a finer layer; two looks at the image are put together, one from
nearer; and only the largest region above the mean is kept, because a box is for one object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from excite.methods.base import Method, largest_region, spread
from excite.methods.excitation import NEARER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from excite.methods.base import Cue
    from excite.methods.view import View

__all__ = ["EXTENT"]

JOINT = "+"  # between layers: winners are read at all but the last, and places compared at the last
SHARPER = 2  # the winners' own activation is the mean with these powers of the map as weights: its strongest places
LOSING = 0.3  # means of the map; what wins much less than that is background, all of it alike
BACKGROUND = 0.75  # how much being like the background takes away


def taps(place: str) -> tuple[str, ...]:
    """The layers behind a place such as ``layer4.1+layer3``: the last is where places are compared.

    Example:
        >>> taps("layer4.1+layer3")
        ('layer4.1', 'layer3')
    """
    return tuple(place.split(JOINT))


def likeness(activations: Tensor, evidence: Tensor) -> Tensor:
    """How much more each place is like the winners than like the losers, from 0 to 1.

    Args:
        activations: [images, channels, h, w].
        evidence: [images, h, w], not negative, in means of the map.

    Example:
        >>> activations = torch.tensor([[[[1.0, 1.0, 0.0]], [[0.0, 0.2, 1.0]]]])
        >>> likeness(activations, torch.tensor([[[3.0, 0.0, 0.0]]])).round(decimals=1)
        tensor([[[1.0000, 0.9000, 0.0000]]])
    """
    directions = functional.normalize(activations.flatten(2), dim=1)
    weights = evidence.flatten(1)[:, None]
    winner = functional.normalize((directions * weights**SHARPER).sum(2, keepdim=True), dim=1)
    loser = functional.normalize((directions / (weights + LOSING)).sum(2, keepdim=True), dim=1)
    alike = (directions * (winner - BACKGROUND * loser)).sum(1)
    alike = alike - alike.amin(1, keepdim=True)
    top = alike.amax(1, keepdim=True)
    return torch.where(top > 0, alike / top, 1.0).view_as(evidence)  # where all places are alike, none is left out


def _extent(view: View, cue: Cue) -> dict[str, Tensor]:
    return {place: _at(view, cue, taps(place)) for place in view.layers[EXTENT]}


def _at(view: View, cue: Cue, layers: tuple[str, ...]) -> Tensor:
    looks = [_look(view, cue, layers, scale) for scale in EXTENT.scales]
    grid = looks[-1][0].shape[-2:]
    evidence, alike = (_mean(spread(look[k], grid) for look in looks) for k in (0, 1))
    found = largest_region(evidence * alike)
    total = found.sum((1, 2), keepdim=True)
    return torch.where(total > 0, found / total, 0) * _mean(look[2] for look in looks)


def _mean(values: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean(dim=0)


def _look(view: View, cue: Cue, layers: tuple[str, ...], scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The evidence in means of the map, the likeness of each place, and how much of the signal arrived."""
    sweep = view.winners(scale)
    arrived = sweep.down(cue(sweep.output), layers=layers[:-1] or layers)
    won = [each.detach().sum(dim=1).clamp(min=0) for each in arrived.values()]
    activations = sweep.readings[layers[-1]].activation.detach().to(won[0])
    evidence = _mean(_even(spread(each, activations.shape[-2:])) for each in won)
    return evidence, likeness(activations, evidence), won[0].sum((1, 2), keepdim=True)


def _even(maps: Tensor) -> Tensor:
    """Maps in their own means."""
    mean = maps.mean((1, 2), keepdim=True)
    return torch.where(mean > 0, maps / mean, 0)


EXTENT: Method = Method(
    "extent",
    "for boxes: the whole of the main object, what wins and what looks like it, in two looks",
    _extent,
    place="joint",
    scales=(1.0, NEARER),
    taps=taps,
)
