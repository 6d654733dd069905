"""Convolutions for all signals at once: (children, weights of one sign) -> totals, and the transposed convolution.

torch's kernels are called directly, with weights that are kept packed between images where that pays.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation.fast import is_concrete
from excite.propagation.fast.carry import (
    is_channels_last,
    zeros_channels_last,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.propagation.fast.shortcuts import SignedWeight

LARGE = 2**20  # weights: with fewer, a second packed copy costs little memory
LEAST_PACKED = 2**12  # weights: with fewer there is nothing to gain from packing
FEW_POSITIONS = 100  # with more, a convolution takes much longer than reordering its weights: not worth the memory
_REORDER = getattr(torch._C._nn, "mkldnn_reorder_conv2d_weight", None)  # noqa: SLF001 - torch has no public name for it
_CONVOLVE = getattr(torch.ops.mkldnn, "_convolution_pointwise", None) if torch._C._has_mkldnn else None  # noqa: SLF001 - as above


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
        if part.kept and can_pack(child, weight):
            if weight.numel() >= LARGE and is_channels_last(child) and self._transposes(weight):
                return self._shifted(child, part)
            return self._packed(child, part)
        if pointwise and self.groups == 1 and is_concrete():  # other runtimes have better convolutions than torch
            return self._pointwise(child, part)
        total = self.function(child, part.tensor(), None, self.stride, self.padding, self.dilation, self.groups)
        return total, partial(self._back, child, part)

    def _back(self, child: Tensor, part: SignedWeight, ratios: Tensor, _onto: Tensor | None = None) -> Tensor:
        """All signals of all images are one batch."""
        flat = ratios.flatten(0, 1)
        like = flat.new_empty(1).expand(flat.shape[0], *child.shape[1:])  # only its shape matters
        options = (self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups)
        shares = torch.ops.aten.convolution_backward(flat, like, part.tensor(), None, *options, (True, False, False))[0]
        given: Tensor = shares.view(*ratios.shape[:2], *shares.shape[1:])
        return given

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
                onto[:, :, :, *visited] += back(ratios)
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

    def _packed(self, child: Tensor, part: SignedWeight) -> tuple[Tensor, Back]:
        """With weights in the order in which oneDNN reads them.

        The transpose of a convolution of stride 1 is a convolution too, with the flipped kernel.
        """
        options = self.padding, self.stride, self.dilation, self.groups
        if child.shape[2] * child.shape[3] <= FEW_POSITIONS:
            packed = part.form("forward", partial(pack, part.tensor, *options, child.shape))
            total = convolve(child, packed, *options)
        else:
            total = self.function(child, part.tensor(), None, self.stride, self.padding, self.dilation, self.groups)
        if not self._transposes(part.weight):
            return total, partial(self._back, child, part)
        flipped = self._transposed_padding(part.weight), self.stride, self.dilation, self.groups

        def back(ratios: Tensor, _onto: Tensor | None = None) -> Tensor:
            flat = ratios.flatten(0, 1)
            packed = part.form("backward", partial(pack, partial(_flipped_kernel, part), *flipped, flat.shape))
            shares = convolve(flat, packed, *flipped)
            return shares.view(*ratios.shape[:2], *shares.shape[1:])

        return total, back

    def _shifted(self, child: Tensor, part: SignedWeight) -> tuple[Tensor, Back]:
        """With weights that are kept once for both directions."""
        sides, dilation, padding = part.weight.shape[2:], self.dilation, self._transposed_padding(part.weight)
        positions = part.form("positions", lambda: _by_position(part))
        flipped = positions.unbind()[::-1]

        def back(ratios: Tensor, _onto: Tensor | None = None) -> Tensor:
            shares = convolve_shifted(ratios.flatten(0, 1), flipped, sides, padding, dilation)
            return shares.view(*ratios.shape[:2], *shares.shape[1:])

        return convolve_shifted(child, positions.mT.unbind(), sides, self.padding, dilation), back

    def _transposes(self, weight: Tensor) -> bool:
        """Whether the transpose is a convolution of the same kind."""
        return self.groups == 1 and max(self.stride) == 1 and min(self._transposed_padding(weight)) >= 0

    def _transposed_padding(self, weight: Tensor) -> list[int]:
        each = zip(self.dilation, weight.shape[2:], self.padding, strict=True)
        return [step * (side - 1) - pad for step, side, pad in each]


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


def _flipped_kernel(part: SignedWeight) -> Tensor:
    """The kernel of the transpose: [inputs, outputs, ...], flipped."""
    outputs, inputs, *sides = part.weight.shape
    flipped = part.weight.new_empty(inputs, outputs, *sides)
    for there, position in zip(reversed(flipped.flatten(2).unbind(2)), part.positions(), strict=True):
        there.copy_(position.t())
    return flipped


def _by_position(part: SignedWeight) -> Tensor:
    """The weights of each position of the kernel as one matrix, [positions, outputs, inputs]."""
    outputs, inputs, *sides = part.weight.shape
    ordered = part.weight.new_empty(math.prod(sides), outputs, inputs)
    for there, position in zip(ordered, part.positions(), strict=True):
        there.copy_(position)
    return ordered


def can_pack(child: Tensor, weight: Tensor) -> bool:
    """Whether a convolution of ``child`` gains from packed weights, and this build of torch has them.

    oneDNN reorders the weights each time a convolution runs. With many weights and few positions that takes longer than
    the convolution itself, and they are the same from image to image.
    """
    return (
        _REORDER is not None
        and _CONVOLVE is not None
        and child.device.type == "cpu"
        and child.dtype == weight.dtype == torch.float32
        and weight.dim() == 4
        and weight.numel() >= LEAST_PACKED
        and weight.shape[2] * weight.shape[3] > 1
        and bool(torch.backends.mkldnn.enabled)
    )


def pack(
    weight: Callable[[], Tensor],
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    shape: torch.Size,
) -> Tensor:
    """The weights as oneDNN reads them for inputs of that shape; other shapes work too, if not as fast.

    ``weight`` makes them, so that they are released as soon as they were read.
    """
    packed: Tensor = _REORDER(weight().to_mkldnn(), padding, stride, dilation, groups, shape)  # type: ignore[misc]  # see `can_pack`
    return packed


def convolve(
    child: Tensor, packed: Tensor, padding: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int
) -> Tensor:
    """A convolution with packed weights, without bias, in channels_last."""
    answer: Tensor = _CONVOLVE(child, packed, None, padding, stride, dilation, groups, "none", [], "")  # type: ignore[misc]  # as above
    return answer


def convolve_shifted(
    values: Tensor, positions: Sequence[Tensor], sides: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """A convolution of stride 1, without bias, as one matrix product for each position of the kernel.

    Args:
        values: [N, inputs, height, width].
        positions: for each position of the kernel its weights, [inputs, outputs].
        sides: of the kernel.
        padding: at both ends of each dimension.
        dilation: of the kernel.

    Example:
        >>> weight, values = torch.randn(8, 4, 3, 3).double(), torch.randn(2, 4, 5, 6).double()
        >>> positions = [each.t() for each in weight.flatten(2).unbind(2)]
        >>> found = convolve_shifted(values, positions, (3, 3), (1, 1), (1, 1))
        >>> torch.testing.assert_close(found, torch.conv2d(values, weight, None, 1, 1))
    """
    (top, left), (height, width) = padding, values.shape[2:]
    last = [(side - 1) * step for side, step in zip(sides, dilation, strict=True)]
    around = functional.pad(values.movedim(1, -1), (0, 0, left, left, top, top))
    tall, wide = height + 2 * top - last[0], width + 2 * left - last[1]
    found = values.new_zeros(len(values) * tall * wide, positions[0].shape[1])
    for number, weight in enumerate(positions):
        row, column = divmod(number, sides[1])
        first, start = row * dilation[0], column * dilation[1]
        seen = around[:, first : first + tall, start : start + wide]
        found.addmm_(seen.reshape(len(found), -1), weight)
    return found.view(len(values), tall, wide, -1).movedim(-1, 1)
