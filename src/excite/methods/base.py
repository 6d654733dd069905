"""What a method is, and the operations on maps [..., h, w] that methods share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation.rules import widest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from excite.propagation import ExcitationPass, Gradients, TokenPass
    from excite.propagation.excitation_pass import Units
    from excite.propagation.tokens import TokenGrid

Place = Literal["layer", "input", "top", "joint", "attention"]
Forward = Literal["excitation", "gradients"]
Maps = dict[str, Tensor]
"""For each layer [signals, images, h, w]."""

BLUR = 0.02  # of the longer side: the paper's smoothing of maps that are sparse and noisy at the pixel level
CUT = 4.0  # standard deviations after which the Gaussian is cut off


class Passes(Protocol):
    """The forward passes of a batch of images: an `excite.Session`."""

    inputs: Mapping[float, Tensor]  # the preprocessed images at each scale

    def winning(self, layers: Sequence[str], scale: float = 1.0) -> ExcitationPass | TokenPass:
        """The forward pass for the winning probabilities of some layers: of their channels or of their tokens."""

    def excitation(self, scale: float = 1.0) -> ExcitationPass:
        """The forward pass for Excitation Backprop by channels."""

    def gradients(self, scale: float = 1.0) -> Gradients:
        """The forward pass for gradients."""

    @property
    def attention(self) -> Sequence[str]:
        """The edges of attention, in the order of computation."""

    def tokens(self, count: int) -> TokenGrid:
        """Where the image's positions lie among so many tokens."""


@dataclass(frozen=True)
class Method:
    """A way to compute maps.

    Attributes:
        name: as users type it.
        description: one line for ``excite ls methods``.
        maps: from the forward passes, the units where signals start and the layers to read to the maps of each layer.
            Maps may be signed; only their positive part is evidence.
        place: where the method is read if no layer is named: at the classifier's recommended ``layer``, at the
            ``input``, at the ``top`` (the last layer with spatial positions), ``joint``, at several layers at once, or
            at the ``attention``: over the tokens that the first one reads, from the edges of that and all above it.
        forward: the kind of forward pass that it needs.
        scales: the scales of the image that it uses; 1 is the size of the classifier's own preprocessing.
        taps: the layers of the network behind a joint layer; None: a layer is itself.
        plain: the same without contrast, for signals that are a contrast themselves ("cat, not dog").
        main: shown first in lists and menus; all others, ablations and controls among them, are for comparison.
        compared: those among the taps of which only activations are used, no probabilities.
    """

    name: str
    description: str
    maps: Callable[[Passes, Units, Sequence[str]], Maps]
    place: Place = "layer"
    forward: Forward = "excitation"
    scales: tuple[float, ...] = (1.0,)
    taps: Callable[[str], tuple[str, ...]] | None = None
    plain: Method | None = None
    main: bool = False
    compared: Callable[[str], tuple[str, ...]] | None = None


def blurred(maps: Tensor, amount: float = BLUR) -> Tensor:
    """A Gaussian blur of sigma ``amount`` times the longer side; at the borders the maps are mirrored."""
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
    blur = torch.zeros(side, side, dtype=torch.float64)
    return blur.scatter_add_(1, places, (weights / weights.sum()).expand(side, -1))


def normalised(maps: Tensor) -> Tensor:
    """Each map over the sum of its absolute values (L1); an empty map stays empty."""
    total = maps.abs().to(widest(maps)).sum((-2, -1), keepdim=True)  # of gradients, which may be near the largest float
    return torch.where(total == 0, 0, maps / total).to(maps.dtype)


def resized(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Maps [..., h, w] at another size, bicubic, without the negative values that this interpolation makes."""
    if maps.shape[-2:] == tuple(size):
        return maps
    flat = maps.flatten(0, -3)[:, None]
    larger = functional.interpolate(flat, tuple(size), mode="bicubic", align_corners=False)
    return larger.clamp(min=0).view(*maps.shape[:-2], *size)


def largest_region(maps: Tensor) -> Tensor:
    """Of each map [n, h, w] only the largest region that is not zero."""
    from scipy import ndimage  # not needed for most maps

    kept = torch.zeros_like(maps, dtype=torch.bool)
    for here, one in zip(kept, maps, strict=True):
        regions, _ = ndimage.label((one > 0).cpu().numpy(), torch.ones(3, 3).numpy())
        largest = torch.from_numpy(regions).flatten().bincount()[1:].argmax() + 1 if regions.any() else 0
        here.copy_(torch.from_numpy(regions == int(largest)))
    return torch.where(kept, maps, 0)
