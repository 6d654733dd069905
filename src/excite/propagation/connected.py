"""The rule of full connections, and of convolutions that are full connections at each place.

What they cost is reading their weights. So each block of them is read once, split while it is in the CPU's cache, and
used there for both ways: up for the totals that the children share, and down for the shares. Nothing is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from excite.propagation.affine import Affine
from excite.propagation.deciding import is_known
from excite.propagation.extreme import scaled_by
from excite.propagation.rules import total_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from excite.propagation.affine import Push, Side
    from excite.propagation.products import Convolution

__all__ = ["Connected", "Mixing"]

Rows = Tensor | slice

BLOCK = 2**19  # weights that are split and used at once: they fit into a CPU's cache


class Connected(Affine):
    """A full connection. Only the units that won need their rows."""

    def _competition(self, side: Side, probability: Tensor) -> Tensor:
        if not is_known():  # then all rows compete at once
            return super()._competition(side, probability)
        pushes = [(push.reshape(-1, push.shape[-1]), sign) for push, sign in self.pushes]
        earned = self._earned(side, pushes, probability.reshape(len(probability), -1, probability.shape[-1]))
        shape = len(probability), *self.child.tensor.shape
        return total_of([each.view(shape).mul_(push) for each, (push, _) in zip(earned, self.pushes, strict=True)])

    def _earned(self, side: Side, pushes: Sequence[Push], probability: Tensor) -> list[Tensor]:
        """What a push of 1 earns, [signals, places, inputs], where the units [signals, places, outputs] won.

        ``pushes`` are what each place sees, [places, inputs].
        """
        direction, turned = side
        earned = [push.new_zeros(len(probability) * len(push), push.shape[1]) for push, _ in pushes]
        for rows, parts in self._blocks(probability, [direction * sign for _, sign in pushes], turned=turned):
            total = total_of([push @ part.t() for (push, _), part in zip(pushes, parts, strict=True)])
            ratio = (_chosen(probability, 2, rows) * self.earned(total, direction)).flatten(0, 1)
            for each, part in zip(earned, parts, strict=True):
                each.addmm_(ratio, part)
        return [each.view(len(probability), -1, each.shape[1]) for each in earned]

    def _blocks(
        self, probability: Tensor, signs: Sequence[int], *, turned: bool
    ) -> Iterator[tuple[Rows, list[Tensor]]]:
        """Some rows at a time, with the parts of their weights of those signs, always in the same memory."""
        weight = cast("Tensor", self.weight).detach().flatten(1)
        some = max(1, BLOCK // weight.shape[1])
        spaces = [weight.new_empty(min(some, len(weight)), weight.shape[1]) for _ in signs]
        for rows in self._rows_at_a_time(probability, some):
            chosen = self._read(weight, rows, spaces[-1], turned=turned)
            parts = [
                torch.clamp(chosen, *((0, None) if sign > 0 else (None, 0)), out=space[: len(chosen)])
                for sign, space in zip(signs, spaces, strict=True)
            ]
            yield rows, [part.to(self._dtype) for part in parts]

    def _read(self, weight: Tensor, rows: Rows, space: Tensor, *, turned: bool) -> Tensor:
        """Some rows of the weights: where they lie, or else in ``space``. Memory for each block would cost more."""
        count = len(rows) if isinstance(rows, Tensor) else min(rows.stop, len(weight)) - rows.start
        space = space[:count]
        chosen = _chosen(weight, 0, rows, out=space)
        if turned and self.orientation is not None:
            signs = _chosen(self.orientation, 0, rows).to(weight.dtype)[:, None]
            chosen = torch.mul(chosen, signs, out=space)
        return scaled_by(chosen, self.scale)

    def _rows_at_a_time(self, probability: Tensor, some: int) -> Iterable[Rows]:
        """The rows of the units that won."""
        won = probability.flatten(0, 1).any(0).nonzero()[:, 0]
        return torch.split(won, some)


class Mixing(Connected):
    """A convolution whose kernel is one place wide: a full connection of the channels, at each place."""

    def _competition(self, side: Side, probability: Tensor) -> Tensor:
        if not is_known():
            return super()._competition(side, probability)
        seen = cast("Convolution", self.product).places
        pushes = [(push[:, :, *seen].movedim(1, -1).flatten(0, -2), sign) for push, sign in self.pushes]
        places = _turned(probability.flatten(3)).flatten(1, 2)
        earned = self._earned(side, pushes, places)
        return total_of(
            [self._spread(each, seen).mul_(push) for each, (push, _) in zip(earned, self.pushes, strict=True)]
        )

    def _spread(self, values: Tensor, seen: tuple[slice, ...]) -> Tensor:
        """From [signals, places of all pictures, inputs] to [signals, *child]."""
        shape = self.child.tensor.shape
        places_of_one = values.shape[1] // max(1, shape[0])
        there = _turned(values.view(len(values), shape[0], places_of_one, shape[1]))
        if all(each.step == 1 for each in seen):
            return there.view(len(values), *shape)
        whole = values.new_zeros(len(values), *shape)
        places = whole[:, :, :, *seen]
        places.copy_(there.view(places.shape))
        return whole

    def _rows_at_a_time(self, probability: Tensor, some: int) -> Iterable[Rows]:
        """All rows, one beside the other: hardly a channel wins nowhere, unless few are cued."""
        if self.cued:
            return super()._rows_at_a_time(probability, some)
        return [slice(start, start + some) for start in range(0, probability.shape[2], some)]


def _chosen(values: Tensor, dim: int, rows: Rows, out: Tensor | None = None) -> Tensor:
    if isinstance(rows, slice):
        return values.narrow(dim, rows.start, min(rows.stop, values.shape[dim]) - rows.start)
    return torch.index_select(values, dim, rows, out=out)


def _turned(values: Tensor) -> Tensor:
    """[..., a, b] as [..., b, a]. torch is four times quicker with one matrix after the other than with all at once."""
    turned = values.new_empty(*values.shape[:-2], values.shape[-1], values.shape[-2])
    for new, old in zip(turned.flatten(0, -3), values.flatten(0, -3), strict=True):
        new.copy_(old.t())
    return turned
