"""The rule of full connections, and of convolutions that are full connections at each place.

What they cost is reading their weights. So each block of them is read once, split while it is in the CPU's cache, and
used there for both ways: up for the totals that the children share, and down for the shares. Nothing is kept of full
connections, of which only the rows that won are read and which may be most of a network.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation.affine import Affine
from excite.propagation.deciding import is_known
from excite.propagation.extreme import scaled_by
from excite.propagation.layout import empty_places, is_side_by_side, side_by_side
from excite.propagation.rules import total_of
from excite.propagation.shares import Share, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from excite.propagation.affine import Push, Side
    from excite.propagation.products import Convolution
    from excite.propagation.signed_weights import Part

__all__ = ["Connected", "Mixing", "Windows"]

Rows = Tensor | slice

BLOCK = 2**19  # weights that are split and used at once: they fit into a CPU's cache

_SPACES = threading.local()


class Connected(Affine):
    """A full connection. Only the units that won need their rows."""

    def _competition(self, side: Side, probability: Tensor | Share, onto: Share | None = None) -> Tensor | Share:
        if not is_known():  # then all rows compete at once
            return super()._competition(side, probability, onto)
        won = whole(probability)
        pushes = [(push.reshape(-1, push.shape[-1]), sign) for push, sign in self.pushes]
        earned = self._earned(side, pushes, won.reshape(len(won), -1, won.shape[-1]))
        return self._shares([each.view(len(won), *self.child.tensor.shape) for each in earned])

    def _shares(self, earned: Sequence[Tensor]) -> Tensor | Share:
        """What the children get, of what each of their pushes earned, [signals, *child]."""
        if self.responses is not None:
            return Share(earned[0], self.responses)
        return total_of([each.mul_(push) for each, (push, _) in zip(earned, self.pushes, strict=True)])

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
        spaces = [_space(weight, number, min(some, len(weight)), weight.shape[1]) for number in range(len(signs))]
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


class Windows(Connected):
    """A convolution: a full connection of all that a window sees, at each place.

    It makes more of the children than other ways of convolving do, but kernels that take steps have none that is good
    in both directions, and their weights are better read once than brought in order twice.
    """

    def _competition(self, side: Side, probability: Tensor | Share, onto: Share | None = None) -> Tensor | Share:
        if not is_known():
            return super()._competition(side, probability, onto)
        pushes = [(self._sights(push), sign) for push, sign in self.pushes]
        won = whole(probability)
        turned = won.movedim(2, -1).flatten(2, -2) if is_side_by_side(won) else _turned(won.flatten(3))
        earned = self._earned(side, pushes, turned.flatten(1, 2))
        return self._shares([self._spread(each) for each in earned])

    def _sights(self, push: Tensor) -> Tensor:
        """What each place sees of a push, [places of all images, inputs]."""
        return _turned(functional.unfold(push, **self._window)).flatten(0, 1)

    def _spread(self, values: Tensor) -> Tensor:
        """From [signals, places of all images, inputs] to [signals, *child]."""
        pictures, _, *sides = shape = self.child.tensor.shape
        windows = _turned(values.reshape(len(values) * pictures, -1, values.shape[2]))
        return side_by_side(functional.fold(windows, tuple(sides), **self._window)).view(len(values), *shape)

    @property
    def _window(self) -> dict[str, Any]:
        """As torch's functions take it."""
        product = cast("Convolution", self.product)
        sides = cast("Tensor", self.weight).shape[2:]
        steps = {"dilation": product.dilation, "padding": product.padding, "stride": product.stride}
        return {"kernel_size": sides, **steps}

    def _rows_at_a_time(self, probability: Tensor, some: int) -> Iterable[Rows]:
        """All rows, one beside the other: hardly a channel wins nowhere, unless few are cued."""
        if self.cued:
            return super()._rows_at_a_time(probability, some)
        return [slice(start, start + some) for start in range(0, probability.shape[2], some)]


class Mixing(Windows):
    """A convolution whose kernel is one place wide: a full connection of the channels, at each place."""

    def _sights(self, push: Tensor) -> Tensor:
        return push[:, :, *self._places].movedim(1, -1).flatten(0, -2)

    @property
    def _places(self) -> tuple[slice, ...]:
        return cast("Convolution", self.product).places

    def _blocks(
        self, probability: Tensor, signs: Sequence[int], *, turned: bool
    ) -> Iterator[tuple[Rows, list[Tensor]]]:
        """As for full connections; but here all rows are used for every image, and splitting them once will do."""
        parts = [cast("Part", self.part(sign, turned=turned)) for sign in signs]
        if self.cued or not all(part.kept for part in parts):
            yield from super()._blocks(probability, signs, turned=turned)
            return
        kept = [part.form("rows", partial(_flat, part)) for part in parts]
        for rows in self._rows_at_a_time(probability, max(1, BLOCK // kept[0].shape[1])):
            yield rows, [_chosen(each, 0, rows) for each in kept]

    def _spread(self, values: Tensor) -> Tensor:
        seen = self._places
        pictures, channels, *sides = self.child.tensor.shape
        if all(each.step == 1 for each in seen):
            return values.view(len(values), pictures, *sides, channels).movedim(-1, 2)
        spread = empty_places(values, len(values), pictures, channels=channels, sides=tuple(sides))
        places = spread.movedim(2, -1)[:, :, *seen]
        places.copy_(values.view(places.shape))
        return spread


def _space(like: Tensor, number: int, rows: int, columns: int) -> Tensor:
    """Memory of this thread to work in. New memory would be cleared by the system first, which takes as long again."""
    spaces: dict[Any, Tensor] = _SPACES.__dict__
    key = f"{number} {like.dtype} {like.device}"
    if key not in spaces or spaces[key].numel() < rows * columns:
        with torch.inference_mode(mode=False):
            spaces[key] = like.new_empty(rows * columns)
    return spaces[key][: rows * columns].view(rows, columns)


def _chosen(values: Tensor, dim: int, rows: Rows, out: Tensor | None = None) -> Tensor:
    if isinstance(rows, slice):
        return values.narrow(dim, rows.start, min(rows.stop, values.shape[dim]) - rows.start)
    return torch.index_select(values, dim, rows, out=out)


def _flat(part: Part) -> Tensor:
    return part.tensor.flatten(1)


def _turned(values: Tensor) -> Tensor:
    """[..., a, b] as [..., b, a]. torch is four times quicker with one matrix after the other than with all at once."""
    turned = values.new_empty(*values.shape[:-2], values.shape[-1], values.shape[-2])
    for new, old in zip(turned.flatten(0, -3), values.flatten(0, -3), strict=True):
        new.copy_(old.t())
    return turned
