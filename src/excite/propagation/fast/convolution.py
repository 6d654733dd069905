"""Convolutions for all signals at once: (children, weights of one sign) -> totals, and the transposed convolution.

torch's kernels are called directly. The weights of one sign are made for each image, in the order that suits them, and
released as soon as the signals have passed: nothing is kept that could be out of date.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation.fast import is_concrete
from excite.propagation.fast.carry import is_channels_last, zeros_channels_last
from excite.propagation.rules import scaled_by

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIMITS = {1: (0, None), -1: (None, 0)}  # of the weights of each sign


@dataclass(frozen=True)
class SignedWeight:
    """The positive or the negative weights of an `Affine`.

    Attributes:
        weight: all of them.
        sign: 1 or -1.
        orientation: of each row: -1 where it is negated first.
        dtype: the type of the computation.
        scale: what they are multiplied with: see `scale_for`.
    """

    weight: Tensor
    sign: int
    orientation: Tensor | None
    dtype: torch.dtype
    scale: float = 1.0

    def tensor(self, order: torch.memory_format | None = None) -> Tensor:
        """In the shape of the weights, and in that order; computed anew each time, it is as large as the network."""
        weight = self.weight.detach()
        if self.orientation is not None:
            weight = weight * self.orientation.to(weight.dtype).view(-1, *[1] * (weight.dim() - 1))
        space = None if order is None else torch.empty_like(weight, memory_format=order)
        return scaled_by(torch.clamp(weight, *LIMITS[self.sign], out=space), self.scale).to(self.dtype)

    def rows(self) -> Tensor:
        """One row for each output."""
        return self.tensor().flatten(1)


class Back(Protocol):
    """The transpose of a linear operation."""

    def __call__(self, ratios: Tensor, onto: Tensor | None = None, /) -> Tensor:
        """From [signals, *response] to [signals, *child]; may add to ``onto`` in place, and then returns it."""


class ConvolutionKernel(NamedTuple):
    """A convolution of a batch, in any number of dimensions: torch's function and its options."""

    function: Callable[..., Tensor]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    def both_ways(self, child: Tensor, part: SignedWeight) -> tuple[Tensor, Back]:
        """Totals and the way back."""
        weight = part.weight
        pointwise = not any(self.padding) and weight[0, 0].numel() == 1
        if pointwise and max(self.stride) != 1:
            return self._strided_pointwise(child, part)
        if pointwise and self.groups == 1 and is_concrete():  # other runtimes have better convolutions than torch
            return self._pointwise(child, part)
        return self._direct(child, part)

    def _direct(self, child: Tensor, part: SignedWeight) -> tuple[Tensor, Back]:
        """By torch's kernels, which reorder weights in the order of the children in half the time."""
        last = is_channels_last(child) and child.dim() == 4 and self.groups == 1 and is_concrete()
        order = torch.channels_last if last else None
        once = [part.tensor(order)]  # for the signals that come at once; it is made anew for later ones
        total = self.function(child, once[0], None, self.stride, self.padding, self.dilation, self.groups)

        def back(ratios: Tensor, _onto: Tensor | None = None) -> Tensor:
            weight, flat = once.pop() if once else part.tensor(order), ratios.flatten(0, 1)  # all signals are one batch
            like = flat.new_empty(1).expand(flat.shape[0], *child.shape[1:])  # only its shape matters
            options = (self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups)
            shares = torch.ops.aten.convolution_backward(flat, like, weight, None, *options, (True, False, False))[0]
            given: Tensor = shares.view(*ratios.shape[:2], *shares.shape[1:])
            return given

        return total, back

    def _pointwise(self, child: Tensor, part: SignedWeight) -> tuple[Tensor, Back]:
        """A 1 x 1 kernel mixes the channels at each position: a matrix product."""
        once = [part.rows()]  # for the signals that come at once; it is made anew for later ones
        last = is_channels_last(child)
        if last:
            total = functional.linear(child.movedim(1, -1), once[0]).movedim(-1, 1)
        else:
            total = self.function(child, once[0].view(part.weight.shape))

        def back(ratios: Tensor, onto: Tensor | None = None) -> Tensor:
            weight = once.pop() if once else part.rows()
            lead, sides = ratios.shape[:2], ratios.shape[3:]
            if not last:
                return torch.matmul(weight.t(), ratios.flatten(3)).view(*lead, weight.shape[1], *sides)
            positions = ratios.movedim(2, -1).reshape(-1, ratios.shape[2])
            if onto is not None and onto.movedim(2, -1).is_contiguous():
                onto.movedim(2, -1).view(-1, weight.shape[1]).addmm_(positions, weight)
                return onto
            return torch.mm(positions, weight).view(*lead, *sides, weight.shape[1]).movedim(-1, 2)

        return total, back

    def _strided_pointwise(self, child: Tensor, part: SignedWeight) -> tuple[Tensor, Back]:
        """A 1 x 1 kernel with a stride: only the positions that it visits have a part in it."""
        visited = tuple(slice(None, None, step) for step in self.stride)
        every = self._replace(stride=[1] * len(visited))
        order = torch.channels_last if is_channels_last(child) else torch.contiguous_format
        total, back = every.both_ways(child[:, :, *visited].contiguous(memory_format=order), part)

        def back_to_all(ratios: Tensor, onto: Tensor | None = None) -> Tensor:
            if onto is not None:
                onto[:, :, :, *visited].add_(back(ratios))
                return onto
            if not is_concrete() and all(isinstance(side, int) for side in child.shape):
                return _dilated(back(ratios), self.stride, child.shape[2:])
            lead, channels, sides = (len(ratios), child.shape[0]), child.shape[1], child.shape[2:]
            if is_channels_last(child):
                shares = zeros_channels_last(ratios, *lead, channels=channels, sides=sides)
            else:
                shares = ratios.new_zeros(*lead, channels, *sides)
            shares[:, :, :, *visited] = back(ratios)
            return shares

        return total, back_to_all


def _dilated(shares: Tensor, stride: Sequence[int], sides: Sequence[int]) -> Tensor:
    """Zeros between the positions, by padding: other runtimes write to some positions slowly."""
    lead, apart = shares.shape[:3], [side for each in shares.shape[3:] for side in (each, 1)]
    gaps = [gap for step in reversed(stride) for gap in (0, step - 1, 0, 0)]
    wide = [side * step for side, step in zip(shares.shape[3:], stride, strict=True)]
    dilated = functional.pad(shares.reshape(*lead, *apart), gaps[:-2]).reshape(*lead, *wide)
    if wide == list(sides):
        return dilated
    for dim, side in enumerate(sides, start=3):
        dilated = dilated.narrow(dim, 0, side)
    return dilated.clone()  # the shares may be written to
