"""Lowers operations that other runtimes lack, mostly torch's backward operations, to ones that they have."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.fx import Interpreter
from torch.nn import functional

Sides = Sequence[Any]  # a number for each dimension, of sizes perhaps a symbolic one
aten = torch.ops.aten
OUTSIDE = -math.inf  # the value beyond the edge, for a maximum
EXACT = 2**24  # integers up to this are exact in float32


def transposed(
    signal: Tensor, weight: Tensor, size: Sides, stride: Sides, padding: Sides, dilation: Sides, groups: int
) -> Tensor:
    """The transpose of a convolution, for children of a size: a transposed convolution, cut to it.

    A stride may leave over some children at the far end. Their number is unknown where the size is symbolic: so as many
    as possible are computed, and the rest is cut off. Without strides the transpose is a convolution with the flipped
    kernel, for which runtimes have quicker kernels.
    """
    around = [spread * (side - 1) - pad for spread, side, pad in zip(dilation, weight.shape[2:], padding, strict=True)]
    if all(step == 1 for step in stride) and min(around) >= 0:
        flipped, plain = _flipped(weight, groups), [0] * len(stride)
        return torch.convolution(signal, flipped, None, stride, around, dilation, False, plain, groups)
    extra = [step - 1 for step in stride]
    for dim, (side, windows) in enumerate(zip(size, signal.shape[2:], strict=True)):
        if isinstance(side, int) and isinstance(windows, int):
            left_over = side + padding[dim] - around[dim] - 1 - (windows - 1) * stride[dim]
            extra[dim] = max(0, min(extra[dim], left_over))
    made = torch.convolution(signal, weight, None, stride, padding, dilation, True, extra, groups)
    for dim, side in enumerate(size, start=2):
        if stride[dim - 2] > 1 or isinstance(side, int):
            made = _cut(made, dim, side)
    return made


def _flipped(weight: Tensor, groups: int) -> Tensor:
    """The weights with inputs and outputs swapped in each group, and the kernel flipped."""
    sides = weight.shape[2:]
    each = weight.reshape(groups, -1, *weight.shape[1:]).transpose(1, 2).reshape(-1, weight.shape[0] // groups, *sides)
    dims = [dim for dim, side in enumerate(sides, start=2) if side > 1]
    return each.flip(dims) if dims else each


def _cut(made: Tensor, dim: int, side: Any) -> Tensor:
    """The first positions of a dimension. With a symbolic number, a slice would add a guard on whether it cuts."""
    if not isinstance(side, int):
        return made.index_select(dim, torch.arange(side, device=made.device))
    return made if made.shape[dim] == side else made.narrow(dim, 0, side)


def convolution_backward(
    signal: Tensor, child: Tensor, weight: Tensor, _bias: Any, *options: Any
) -> tuple[Tensor, None, None]:
    """The gradient of the input alone, which is all that `excite.propagation.products` uses."""
    stride, padding, dilation, _, _, groups, _ = options
    return transposed(signal, weight, child.shape[2:], stride, padding, dilation, groups), None, None


def avg_pool_backward(signal: Tensor, child: Tensor, kernel: Any, stride: Any, padding: Any, *options: Any) -> Tensor:
    """The transpose of a convolution with equal weights, after a division by the number of elements in each mean."""
    ceil, include_pad, divisor = options
    kernel, padding = pair(kernel), pair(padding)
    stride = pair(stride) if stride else kernel
    channels = child.shape[1]
    ones = torch.ones_like(child[:1, :1])
    if divisor is None:
        window = signal.new_ones(1, 1, *kernel)
        # With ceil, windows reach over the end by less than a stride.
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
    """A product with the matrices of means; other runtimes support it for one size only."""
    rows, columns = map(_means, size, child.shape[-2:], [child] * 2)
    return rows @ child @ columns.t()


def adaptive_avg_pool_backward(signal: Tensor, child: Tensor) -> Tensor:
    """The transpose: a product with both matrices of means."""
    rows, columns = map(_means, signal.shape[-2:], child.shape[-2:], [signal] * 2)
    return rows.t() @ signal @ columns


def _means(units: Any, side: Any, like: Tensor) -> Tensor:
    """The matrix [units, side] of torch's adaptive means, whose windows may overlap."""
    scaled = torch.arange(units, device=like.device)[:, None] * side
    begin = scaled.div(units, rounding_mode="floor")
    end = (scaled + side + units - 1).div(units, rounding_mode="floor")
    child = torch.arange(side, device=like.device)
    means: Tensor = ((child >= begin) & (child < end)).to(like.dtype) / (end - begin)
    return means


def unfold_backward(signal: Tensor, size: Sequence[Any], dim: int, length: int, step: int) -> Tensor:
    """Overlapping windows: the signal of each is added to the positions it was cut from."""
    dim %= len(size)
    starts = torch.arange(signal.shape[dim], device=signal.device)[:, None] * step
    index = (starts + torch.arange(length, device=signal.device)).flatten()
    windows = signal.movedim(-1, dim + 1).flatten(dim, dim + 1)
    return signal.new_zeros(*size).index_add(dim, index, windows)


# Max pooling: other runtimes are slow to return the indices of the maxima, so they are computed from the children and
# their maxima, first within each row of a window and then among its rows. As in torch, the first of equals wins.


def max_pool_backward(signal: Tensor, child: Tensor, *options: Any) -> Tensor:
    """As torch's operation of that name."""
    *window, ceil, chosen = options
    kernel, stride, padding, dilation = map(pair, window)
    height, width = child.shape[-2:]
    if all(isinstance(side, int) for side in (height, width, *signal.shape[-2:])) and height * width < EXACT:
        largest = aten.max_pool2d_with_indices.default(child, *window, ceil)[0]  # of which the graph has one already
        pool = _MaxPool(child, kernel, stride or kernel, padding, dilation, signal.shape[-2:])
        chosen = pool.chosen(largest)
    flat = signal.new_zeros(*signal.shape[:-2], height * width)
    return flat.scatter_add(-1, chosen.flatten(-2), signal.flatten(-2)).view(*signal.shape[:-2], height, width)


@dataclass
class _MaxPool:
    """Max pooling in two dimensions, of children of a known size."""

    child: Tensor
    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    windows: Sequence[int]  # their number in each dimension

    def chosen(self, largest: Tensor) -> Tensor:
        """The index of the child that is the maximum of each window, counted row by row, as torch gives it."""
        row = self._around(self.child, -1, OUTSIDE)
        along = ([1, each[1]] for each in (self.kernel, self.stride))
        in_row: Tensor = aten.max_pool2d_with_indices.default(row, *along, [0, 0], [1, self.dilation[1]])[0]
        rows, windows = (torch.arange(number, device=row.device) for number in (row.shape[-2], self.windows[1]))
        # of the first child in each row of each window, for all rows of children
        index = rows[:, None] * self.child.shape[-1] + windows * self.stride[1] - self.padding[1]
        index = index.to(in_row.dtype)
        passed = [(each < in_row).to(in_row.dtype) for each in self._seen(self.child, -1)[:-1]]
        if passed:
            further = reduce(lambda behind, each: each * (1 + behind), reversed(passed))
            index = further * self.dilation[1] + index
        else:
            index = index.expand(in_row.shape)
        *others, found = self._seen(index, -2, beyond=0)
        for each, other in zip(reversed(self._seen(in_row, -2)[:-1]), reversed(others), strict=True):
            found = torch.where(each < largest, found, other)
        return found.to(torch.int64)

    def _seen(self, values: Tensor, dim: int, beyond: float = OUTSIDE) -> list[Tensor]:
        """The values at each offset within the windows, along one dimension."""
        around = self._around(values, dim, beyond)
        step, last = self.stride[dim], self.stride[dim] * (self.windows[dim] - 1) + 1
        starts = [number * self.dilation[dim] for number in range(self.kernel[dim])]
        behind = () if dim == -1 else (slice(None),)
        return [
            values
            if start == self.padding[dim] and last == values.shape[dim] and step == 1
            else around[..., slice(start, start + last, step), *behind]
            for start in starts
        ]

    def _around(self, values: Tensor, dim: int, beyond: float) -> Tensor:
        """The values, padded as far as windows reach."""
        reach = self.stride[dim] * (self.windows[dim] - 1) + self.dilation[dim] * (self.kernel[dim] - 1) + 1
        edge = [self.padding[dim], reach - self.padding[dim] - values.shape[dim]]
        return functional.pad(values, edge if dim == -1 else [0, 0, *edge], value=beyond) if any(edge) else values


def pair(value: Any) -> list[int]:
    """A number for each of two dimensions, of which torch accepts one for both."""
    values = [value] if isinstance(value, int) else list(value)
    return values * 2 if len(values) == 1 else values


LOWERINGS: dict[Any, Callable[..., Any]] = {
    aten.convolution_backward.default: convolution_backward,
    aten.max_pool2d_with_indices_backward.default: max_pool_backward,
    aten.avg_pool2d_backward.default: avg_pool_backward,
    aten._adaptive_avg_pool2d.default: adaptive_avg_pool,  # noqa: SLF001 - that is its name
    aten._adaptive_avg_pool2d_backward.default: adaptive_avg_pool_backward,  # noqa: SLF001 - that is its name
    aten.unfold_backward.default: unfold_backward,
}


class LoweredInterpreter(Interpreter):
    """Runs a graph with the operations of `LOWERINGS` replaced."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One operation of the graph."""
        return super().call_function(LOWERINGS.get(target, target), args, kwargs)
