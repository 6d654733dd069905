"""The way back through max pooling: each unit's probability goes to the child whose value it copied.

Other runtimes are slow to say which child that was: it is found out here from the children and their maxima, first
within each row of a window and then among its rows. As in torch, the first of equals wins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["max_pool_backward", "pair"]

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
