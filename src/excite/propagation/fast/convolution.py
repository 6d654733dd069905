"""Convolutions for all signals at once: (children, weights of one sign) -> totals, and the transposed convolution.

torch's kernels are called directly. The weights of one sign are made for each image, in the order that suits them, and
released as soon as the signals have passed: nothing is kept that could be out of date.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation.fast import is_concrete
from excite.propagation.fast.carry import is_channels_last
from excite.propagation.rules import scaled_by

if TYPE_CHECKING:
    from collections.abc import Callable

    Back = Callable[[Tensor], Tensor]  # the transpose: [signals, *response] -> [signals, *child]

LIMITS = {1: (0, None), -1: (None, 0)}  # of the weights of each sign


@dataclass(frozen=True)
class SignedWeight:
    """The positive or the negative weights of an `Affine`."""

    weight: Tensor
    sign: int
    orientation: Tensor | None  # of each row: -1 where it is negated first
    dtype: torch.dtype  # of the computation
    scale: float = 1.0  # what they are multiplied with: see `scale_for`

    def tensor(self, order: torch.memory_format | None = None) -> Tensor:
        """In the shape of the weights, and in that order; computed anew each time, it is as large as the network."""
        weight = self.weight.detach()
        if self.orientation is not None:
            weight = weight * self.orientation.to(weight.dtype).view(-1, *[1] * (weight.dim() - 1))
        space = None if order is None else torch.empty_like(weight, memory_format=order)
        return scaled_by(torch.clamp(weight, *LIMITS[self.sign], out=space), self.scale).to(self.dtype)


class ConvolutionKernel(NamedTuple):
    """A convolution of a batch, in any number of dimensions: torch's function and its options."""

    function: Callable[..., Tensor]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    def both_ways(self, child: Tensor, part: SignedWeight) -> tuple[Tensor, Back]:
        """Totals and the way back."""
        pointwise = not any(self.padding) and part.weight[0, 0].numel() == 1 == max(self.stride) == self.groups
        # Other runtimes have better convolutions than torch.
        return (self._pointwise if pointwise and is_concrete() else self._direct)(child, part)

    def _direct(self, child: Tensor, part: SignedWeight) -> tuple[Tensor, Back]:
        """By torch's kernels, which reorder weights in the order of the children in half the time."""
        last = is_channels_last(child) and child.dim() == 4 and self.groups == 1 and is_concrete()
        order = torch.channels_last if last else None
        once = [part.tensor(order)]  # for the signals that come at once; it is made anew for later ones
        total = self.function(child, once[0], None, self.stride, self.padding, self.dilation, self.groups)

        def back(ratios: Tensor) -> Tensor:
            weight, flat = once.pop() if once else part.tensor(order), ratios.flatten(0, 1)  # all signals are one batch
            like = flat.new_empty(1).expand(flat.shape[0], *child.shape[1:])  # only its shape matters
            options = (self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups)
            shares = torch.ops.aten.convolution_backward(flat, like, weight, None, *options, (True, False, False))[0]
            given: Tensor = shares.view(*ratios.shape[:2], *shares.shape[1:])
            return given

        return total, back

    def _pointwise(self, child: Tensor, part: SignedWeight) -> tuple[Tensor, Back]:
        """A 1 x 1 kernel mixes the channels at each position: a matrix product."""
        once = [part.tensor().flatten(1)]  # for the signals that come at once; it is made anew for later ones
        last = is_channels_last(child)
        if last:
            total = functional.linear(child.movedim(1, -1), once[0]).movedim(-1, 1)
        else:
            total = self.function(child, once[0].view(part.weight.shape))

        def back(ratios: Tensor) -> Tensor:
            weight = once.pop() if once else part.tensor().flatten(1)
            lead, sides = ratios.shape[:2], ratios.shape[3:]
            if not last:
                return torch.matmul(weight.t(), ratios.flatten(3)).view(*lead, weight.shape[1], *sides)
            positions = ratios.movedim(2, -1).reshape(-1, ratios.shape[2])
            return torch.mm(positions, weight).view(*lead, *sides, weight.shape[1]).movedim(-1, 2)

        return total, back
