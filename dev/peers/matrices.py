"""Excitation Backprop of small networks as the paper writes it: explicit matrices in float64, nobody's package.

Units know their responses and, for each of them, where a winner ends: a row of probabilities over the pixels.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from peers.networks import Small

__all__ = ["Units", "winners"]


@dataclass(frozen=True)
class Units:
    """A layer for one image: its responses, and the probability of each pixel when a unit wins [units, pixels]."""

    responses: Tensor
    ends: Tensor


def winners(network: Small, picture: Tensor, unit: int, *, contrastive: bool = False) -> Tensor:
    """The winning probability of every number of the image, when an output unit wins."""
    pixels = Units(picture[0], torch.eye(picture.numel(), dtype=picture.dtype))
    top = copy.deepcopy(network.folded()).matrices(pixels, Reference())
    weights = network.classifier.weight[unit].detach()
    ends = _shares(top.responses.flatten(), weights[None]) @ top.ends
    if contrastive:
        ends = ends - _shares(top.responses.flatten(), -weights[None]) @ top.ends
    return ends.reshape(picture.shape)


class Reference:
    """The steps of a small network, each taken on responses and on where winners end."""

    def layer(self, units: Units, module: nn.Conv2d | nn.Linear) -> Units:
        """A convolution or a full connection: children share by what they excite (paper, Eqn. 4)."""
        shape, size = units.responses.shape, units.responses.numel()
        linear = copy.deepcopy(module)
        linear.bias = None
        weights = linear(torch.eye(size, dtype=units.ends.dtype).reshape(size, *shape)).detach().reshape(size, -1).T
        shares = _shares(units.responses.flatten(), weights)
        return Units(module(units.responses[None])[0].detach(), shares @ units.ends)

    def relu(self, units: Units) -> Units:
        """A unit with one child."""
        return Units(units.responses.relu(), units.ends)

    def max_pool(self, units: Units, side: int) -> Units:
        """The child that is the largest."""
        pooled, places = functional.max_pool2d(units.responses[None], side, return_indices=True)
        channels, height, width = units.responses.shape
        first = torch.arange(channels).view(1, -1, 1, 1) * height * width
        return Units(pooled[0], units.ends[(places + first).flatten()])

    def flat(self, units: Units) -> Units:
        """The same units in a row."""
        return Units(units.responses.flatten(), units.ends)

    def added(self, one: Units, other: Units) -> Units:
        """Two terms that are not negative share in proportion."""
        total = one.responses + other.responses
        part = torch.where(total > 0, one.responses / total, 0.0).reshape(-1, 1)
        return Units(total, part * one.ends + (1 - part) * other.ends)


def _shares(children: Tensor, weights: Tensor) -> Tensor:
    """P(child | unit) [units, children] for children that are not negative."""
    pushes = children * weights.clamp(min=0)
    total = pushes.sum(dim=1, keepdim=True)
    return torch.where(total > 0, pushes / total, 0.0)
