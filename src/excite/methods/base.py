"""What a method is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from excite.methods.view import View

    Cue: TypeAlias = Callable[[Tensor], Tensor]


Place = Literal["layer", "input", "top", "joint"]
Way = Literal["winners", "gradients"]


@dataclass(frozen=True)
class Method:
    """A way to make maps.

    Attributes:
        name: what users type.
        description: one line for ``excite ls methods``.
        maps: from a view of images and a cue to a map [images, h, w] for each layer that the view reads. The cue
            makes, of a network's output, the signal that starts there. Maps may be signed; only their positive part
            is evidence.
        place: where the method is read when nobody names a layer: at the classifier's own ``layer``, at the ``input``
            (the image itself), at the ``top``, the last map before places are lost, or ``joint``, at several
            layers at once.
        way: what its forward pass must keep: the competition for ``winners``, or ``gradients``.
        scales: the sizes of the image that it looks at, in sizes that the classifier was made for.
        taps: the layers of the network behind a place; most places are one.
        together: whether a cue may make several signals at once [signals, images, ...], which then go down together;
            the maps are [signals * images, h, w], those of the first signal first.
        plain: the same without a contrast of its own, for signals that are a contrast themselves ("cat, not dog").
    """

    name: str
    description: str
    maps: Callable[[View, Cue], dict[str, Tensor]]
    place: Place = "layer"
    way: Way = "winners"
    scales: tuple[float, ...] = (1.0,)
    taps: Callable[[str], tuple[str, ...]] = lambda place: (place,)
    together: bool = False
    plain: Method | None = None


# What methods do with the planes [images, h, w] they have made: smooth them, and make them comparable.

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
    total = maps.abs().double().sum((-2, -1), keepdim=True)  # of gradients, which may be near the largest float
    return torch.where(total == 0, 0, maps / total).to(maps.dtype)


def spread(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Maps on the places of other maps, without the values below zero that bicubic interpolation makes.

    Example:
        >>> spread(torch.ones(1, 2, 2), (4, 6)).shape
        torch.Size([1, 4, 6])
    """
    if maps.shape[-2:] == tuple(size):
        return maps
    return functional.interpolate(maps[:, None], tuple(size), mode="bicubic", align_corners=False)[:, 0].clamp(min=0)


def largest_region(maps: Tensor) -> Tensor:
    """Of each map only the largest region above its mean; a map that is nowhere above it stays as it is.

    Places that touch, also by a corner, are one region. Each place begins as its own and takes the highest number
    around it, until nothing changes.

    Example:
        >>> largest_region(torch.tensor([[[4.0, 4.0, 1.0, 5.0]]]))
        tensor([[[4., 4., 0., 0.]]])
    """
    strong = maps > maps.mean((-2, -1), keepdim=True)
    places = maps.shape[-2] * maps.shape[-1]
    regions = torch.arange(1, places + 1, device=maps.device).view(maps.shape[-2:]) * strong.double()
    while True:
        grown = functional.max_pool2d(regions, 3, stride=1, padding=1) * strong
        if torch.equal(grown, regions):
            break
        regions = grown
    numbers = regions.flatten(1).long()
    sizes = torch.zeros(len(maps), places + 1, device=maps.device)
    sizes.scatter_add_(1, numbers, torch.ones_like(numbers, dtype=sizes.dtype))
    sizes[:, 0] = 0  # of no region
    largest = sizes.argmax(dim=1).view(-1, 1, 1)  # 0 where there is no region: then no place has another number
    return torch.where(regions == largest, maps, 0)
