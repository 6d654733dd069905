"""Operations that other runtimes do not have, in terms of those that they have.

Nearly all of them are transposes, which torch has as the backward halves of its own operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx import Interpreter
from torch.nn import functional

from excite.exporting.pools import max_pool_backward, pair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["LOWERINGS", "Lowered"]

aten = torch.ops.aten


def transposed(
    signal: Tensor,
    weight: Tensor,
    size: Sequence[Any],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """The transpose of a convolution, onto children of a size: a transposed convolution, cut to it.

    A stride may have left over some children at the far end. How many is not known where the size is not: so as many
    are made as there can be, and those that are too many are cut off. Without strides the transpose is a convolution
    itself, with the kernel turned round, and runtimes have quicker kernels for that.
    """
    around = [spread * (side - 1) - pad for spread, side, pad in zip(dilation, weight.shape[2:], padding, strict=True)]
    if all(step == 1 for step in stride) and min(around) >= 0:
        convolve = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[len(stride)]
        return convolve(signal, _turned_round(weight, groups), None, 1, around, dilation, groups)
    extra = [
        min(step - 1, _left_over(side, places, step, pad, spread * (kernel - 1) + 1))
        for side, places, step, pad, spread, kernel in zip(
            size, signal.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True
        )
    ]
    spread_out = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
    made = spread_out[len(stride)](signal, weight, None, stride, padding, extra, groups, dilation)
    for dim, side in enumerate(size, start=2):
        if stride[dim - 2] > 1 or isinstance(side, int):
            made = _cut(made, dim, side)
    return made


def _turned_round(weight: Tensor, groups: int) -> Tensor:
    """From what each output takes to what each input gives, group by group."""
    sides = weight.shape[2:]
    each = weight.reshape(groups, -1, *weight.shape[1:]).transpose(1, 2).reshape(-1, weight.shape[0] // groups, *sides)
    places = [dim for dim, side in enumerate(sides, start=2) if side > 1]
    return each.flip(places) if places else each


def _cut(made: Tensor, dim: int, side: Any) -> Tensor:
    """The first so many places. Where their number is not known a slice would have torch decide if it cuts anything."""
    if not isinstance(side, int):
        return made.index_select(dim, torch.arange(side, device=made.device))
    return made if made.shape[dim] == side else made.narrow(dim, 0, side)


def _left_over(side: Any, places: Any, step: int, pad: int, kernel: int) -> int:
    """How many children at the far end no window has seen; as many as there can be where that is not known."""
    if not isinstance(side, int) or not isinstance(places, int):
        return step - 1
    return max(0, side + 2 * pad - ((places - 1) * step + kernel))


def convolution_backward(
    signal: Tensor, child: Tensor, weight: Tensor, _bias: Any, *options: Any
) -> tuple[Tensor, None, None]:
    """What `excite.propagation.fast.kernels` asks for: only the children's share."""
    stride, padding, dilation, _, _, groups, _ = options
    return transposed(signal, weight, child.shape[2:], stride, padding, dilation, groups), None, None


def avg_pool_backward(signal: Tensor, child: Tensor, kernel: Any, stride: Any, padding: Any, *options: Any) -> Tensor:
    """The transpose of a convolution with equal weights, after each unit was divided by what its mean is over."""
    ceil, include_pad, divisor = options
    kernel, padding = pair(kernel), pair(padding)
    stride = pair(stride) if stride else kernel
    channels = child.shape[1]
    ones = torch.ones_like(child[:1, :1])
    if divisor is None:
        window = signal.new_ones(1, 1, *kernel)
        # With ceil, windows reach over the end, by less than a stride: there are places that are none.
        seen = functional.conv2d(functional.pad(ones, (0, stride[1], 0, stride[0])), window, None, stride, padding)
        for dim in (2, 3):
            seen = _cut(seen, dim, signal.shape[dim])
        share = functional.avg_pool2d(ones, kernel, stride, padding, ceil, include_pad) / seen
    else:
        share = signal.new_full((1,), 1 / divisor)
    return transposed(
        signal * share, signal.new_ones(channels, 1, *kernel), child.shape[2:], stride, padding, (1, 1), channels
    )


def adaptive_avg_pool(child: Tensor, size: Sequence[Any]) -> Tensor:
    """Each unit is the mean of some rows and some columns; other runtimes know which for one size of children only."""
    rows, columns = (_means(places, side, child) for places, side in zip(size, child.shape[-2:], strict=True))
    return rows @ child @ columns.t()


def adaptive_avg_pool_backward(signal: Tensor, child: Tensor) -> Tensor:
    """The transpose: a product with both matrices of means."""
    rows, columns = (
        _means(places, side, signal) for places, side in zip(signal.shape[-2:], child.shape[-2:], strict=True)
    )
    return rows.t() @ signal @ columns


def _means(places: Any, side: Any, like: Tensor) -> Tensor:
    """Which of the children each unit is the mean of, [places, side], as torch shares them out: they may overlap."""
    place = torch.arange(places, device=like.device)[:, None] * side
    begin = place.div(places, rounding_mode="floor")
    end = (place + side + places - 1).div(places, rounding_mode="floor")
    child = torch.arange(side, device=like.device)
    means: Tensor = ((child >= begin) & (child < end)).to(like.dtype) / (end - begin)
    return means


def unfold_backward(signal: Tensor, size: Sequence[Any], dim: int, length: int, step: int) -> Tensor:
    """Windows that overlap: what arrives at each goes to the places it was cut from."""
    dim %= len(size)
    places = torch.arange(signal.shape[dim], device=signal.device)[:, None] * step
    places = (places + torch.arange(length, device=signal.device)).flatten()
    windows = signal.movedim(-1, dim + 1).flatten(dim, dim + 1)
    return signal.new_zeros(*size).index_add(dim, places, windows)


LOWERINGS: dict[Any, Callable[..., Any]] = {
    aten.convolution_backward.default: convolution_backward,
    aten.max_pool2d_with_indices_backward.default: max_pool_backward,
    aten.avg_pool2d_backward.default: avg_pool_backward,
    aten._adaptive_avg_pool2d.default: adaptive_avg_pool,  # noqa: SLF001 - that is its name
    aten._adaptive_avg_pool2d_backward.default: adaptive_avg_pool_backward,  # noqa: SLF001 - that is its name
    aten.unfold_backward.default: unfold_backward,
}


class Lowered(Interpreter):
    """Runs a graph with those operations replaced."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One operation of the graph."""
        return super().call_function(LOWERINGS.get(target, target), args, kwargs)
