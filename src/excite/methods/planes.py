"""What methods do with the planes [pictures, h, w] they have made: smooth them, and make them comparable."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["blurred", "normalised"]

BLUR = 0.02  # of the longer side: the paper's smoothing of maps that are sparse and noisy at the pixel level
CUT = 4.0  # standard deviations after which the Gaussian is cut off


def blurred(maps: Tensor, amount: float = BLUR) -> Tensor:
    """A Gaussian blur of sigma ``amount`` times the longer side; at the borders the maps are mirrored.

    Example:
        >>> blurred(torch.ones(1, 5, 7)).allclose(torch.ones(1, 5, 7))
        True
    """
    sigma = amount * max(maps.shape[-2:])
    down, across = (_gaussian(side, sigma).to(maps) for side in maps.shape[-2:])
    return down @ maps @ across.T


def _gaussian(side: int, sigma: float) -> Tensor:
    """The matrix [side, side] that blurs one dimension: each row a Gaussian, folded back where it leaves the map."""
    reach = math.ceil(CUT * sigma)
    offsets = torch.arange(-reach, reach + 1)
    weights = torch.exp(-0.5 * (offsets.double() / sigma).square())
    places = (torch.arange(side)[:, None] + offsets) % (2 * side)
    places = torch.minimum(places, 2 * side - 1 - places)
    return torch.zeros(side, side, dtype=torch.float64).scatter_add_(
        1, places, (weights / weights.sum()).expand(side, -1)
    )


def normalised(maps: Tensor) -> Tensor:
    """Each map over the sum of its absolute values (L1); an empty map stays empty.

    Example:
        >>> normalised(torch.tensor([[[1.0, -3.0]]]))
        tensor([[[ 0.2500, -0.7500]]])
    """
    total = maps.abs().sum((-2, -1), keepdim=True)
    return torch.where(total == 0, 0, maps / total)
