"""Operations that other runtimes do not have, in terms of those that they have.

Nearly all of them are transposes, which torch has as the backward halves of its own operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx import Interpreter
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# The way back through max pooling: each unit's probability goes to the child whose value it copied.
#
# Other runtimes are slow to say which child that was: it is found out here from the children and their maxima, first
# within each row of a window and then among its rows. As in torch, the first of equals wins.

aten = torch.ops.aten
NOBODY = -math.inf  # what is beyond the edge
EXACT = 2**24  # whole numbers up to this are exact in float32


def max_pool_backward(signal: Tensor, child: Tensor, *options: Any) -> Tensor:
    """As torch's operation of that name.

    Example:
        >>> child, signal = torch.tensor([[[[1.0, 3.0, 2.0]]]]), torch.ones(1, 1, 1, 3)
        >>> max_pool_backward(signal, child, [1, 3], [1, 1], [0, 1], [1, 1], False, torch.ones(1, 1, 1, 3).long())
        tensor([[[[0., 3., 0.]]]])
    """
    *window, ceil, chosen = options
    kernel, stride, padding, dilation = map(pair, window)
    pool = _Pool(child, kernel, stride or kernel, padding, dilation, signal.shape[-2:])
    if not pool.is_known:
        return _scattered(signal, chosen, child)
    largest = aten.max_pool2d_with_indices.default(child, *options[:4], ceil)[0]  # of which the graph has one already
    return _scattered(signal, pool.chosen(largest), child)


@dataclass
class _Pool:
    """Max pooling in two dimensions, of children of a known size."""

    child: Tensor
    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    places: Sequence[Any]  # how many windows there are in each dimension

    @property
    def is_known(self) -> bool:
        sides = [*self.child.shape[-2:], *self.places]
        return all(isinstance(side, int) for side in sides) and math.prod(sides[:2]) < EXACT

    def chosen(self, largest: Tensor) -> Tensor:
        """Which child each unit copied, counted row by row: what torch gives, too."""
        in_row = self._largest_in_row()
        place = self._first_places(in_row)
        passed = [(each < in_row).to(in_row.dtype) for each in self._seen(self.child, -1)[:-1]]
        if passed:
            further = passed[-1]
            for each in reversed(passed[:-1]):
                further = each * (1 + further)
            place = further * self.dilation[1] + place
        else:
            place = place.expand(in_row.shape)
        *others, found = self._seen(place, -2, beyond=0)
        for each, other in zip(reversed(self._seen(in_row, -2)[:-1]), reversed(others), strict=True):
            found = torch.where(each < largest, found, other)
        return found.to(torch.int64)

    def _first_places(self, like: Tensor) -> Tensor:
        """Where each row of each window begins, for all rows of children."""
        height, width = self.child.shape[-2:]
        rows = torch.arange(height, device=like.device) * width
        return (rows[:, None] + torch.arange(self.places[1], device=like.device) * self.stride[1] - self.padding[1]).to(
            like.dtype
        )

    def _largest_in_row(self) -> Tensor:
        """The largest child in each row of each window, for all rows of children."""
        row = self._around(self.child, -1, NOBODY)
        kernel, stride, dilation = ([1, each[1]] for each in (self.kernel, self.stride, self.dilation))
        found: Tensor = aten.max_pool2d_with_indices.default(row, kernel, stride, [0, 0], dilation)[0]
        return found

    def _seen(self, values: Tensor, dim: int, beyond: float = NOBODY) -> list[Tensor]:
        """Of each place of the windows, in one dimension, what it sees."""
        around = self._around(values, dim, beyond)
        step, last = self.stride[dim], self.stride[dim] * (self.places[dim] - 1) + 1
        starts = [number * self.dilation[dim] for number in range(self.kernel[dim])]
        return [self._cut(around, dim, start, last, step, values) for start in starts]

    def _cut(self, around: Tensor, dim: int, start: int, last: int, step: int, values: Tensor) -> Tensor:
        if start == self.padding[dim] and last == values.shape[dim] and step == 1:
            return values
        part = slice(start, start + last, step)
        return around[..., part] if dim == -1 else around[..., part, :]

    def _around(self, values: Tensor, dim: int, beyond: float) -> Tensor:
        """With what is beyond the edge, as far as windows reach."""
        reach = self.stride[dim] * (self.places[dim] - 1) + self.dilation[dim] * (self.kernel[dim] - 1) + 1
        edge = [self.padding[dim], reach - self.padding[dim] - values.shape[dim]]
        return functional.pad(values, edge if dim == -1 else [0, 0, *edge], value=beyond) if any(edge) else values


def _scattered(signal: Tensor, chosen: Tensor, child: Tensor) -> Tensor:
    height, width = child.shape[-2:]
    flat = signal.new_zeros(*signal.shape[:-2], height * width)
    return flat.scatter_add(-1, chosen.flatten(-2), signal.flatten(-2)).view(*signal.shape[:-2], height, width)


def pair(value: Any) -> list[int]:
    """A number for each of two dimensions, where torch takes one for both."""
    values = [value] if isinstance(value, int) else list(value)
    return values * 2 if len(values) == 1 else values


# Operations that other runtimes do not have, in terms of those that they have.
#
# Nearly all of them are transposes, which torch has as the backward halves of its own operations.


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
    """What `excite.propagation.products` asks for: only the children's share."""
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
