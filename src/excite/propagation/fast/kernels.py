"""`Affine` by faster kernels: the same shares from weights that are read once, in the order the CPU wants them.

`affine` chooses. Dense layers and convolutions with many weights are read a block of rows at a time: each is split by
sign while it is in the CPU's cache and used there for the totals and for the way back. Other convolutions are
transposed by calling torch's kernels directly, for all signals at once, with weights that are kept packed between
images where that pays. All else is transposed by autograd, as in the plain rule.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation.fast import is_concrete
from excite.propagation.fast.carry import (
    Accumulator,
    Deferred,
    channels_last,
    is_channels_last,
    materialize,
    zeros_channels_last,
)
from excite.propagation.fast.convolution import Back, ConvolutionKernel
from excite.propagation.fast.shortcuts import FlippedRows, SignedWeight, weight_scale
from excite.propagation.rules import Affine, LinearOperation, scale_for, scaled_by, total_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from excite.propagation.graph import Saved
    from excite.propagation.rules import Hints, Shares

Input = tuple[Tensor, int]  # children that are all on one side of their baseline, and the sign of that side
Side = tuple[int, bool]  # the direction of the response (1 or -1), and whether the rows are flipped
Rows = Tensor | slice

SIDES: tuple[Side, ...] = ((1, False), (-1, False), (1, True), (-1, True))  # in the order of the rule's outputs
MANY = 2**18  # weights: with fewer, a convolution is not read in blocks
BLOCK = 2**19  # weights of a block: they fit into a CPU's cache

_SCRATCH = threading.local()


def affine(
    function: Callable[[Tensor, Tensor | None], Tensor],
    child: Saved,
    weight: Tensor | None,
    baseline: Tensor | None,
    hints: Hints,
) -> FastAffine:
    """The fastest rule for some weights."""
    kind = FastAffine
    if hints.row_dim == -1:
        kind = DenseRule
    elif hints.convolution is not None and not hints.grouped and weight is not None and weight.numel() >= MANY:
        _, stride, padding, _, _ = hints.convolution
        if weight.numel() == weight.shape[0] * weight.shape[1] and not any(padding):
            kind = PointwiseConvRule
        elif weight.dim() == 4 and max(stride) > 1:  # torch has windows in two dimensions only
            kind = StridedConvRule
    return kind(function, child, weight, baseline, hints)


class FastAffine(Affine):
    """An `Affine` that takes and gives deferred products, and keeps its normalisers for later signals.

    Where there are rows of weights it has two more outputs: the positive and negative input of the same weights with
    some rows negated. A batch norm with scales of both signs then needs one normaliser, not two.
    """

    reuse = True  # other signals may follow
    scale = 1.0  # what the weights are multiplied with, which cancels in Eqn. 4
    flipped_rows = FlippedRows

    def __post_init__(self) -> None:
        super().__post_init__()
        self.outputs = 2 if self.hints.row_dim is None else 4
        self.orientation: Tensor | None = None  # of each row: -1 where a norm negates it
        self._inputs: list[Input] | None = None
        self._normalisers: dict[tuple[Side, bool], Normaliser] = {}

    def down(self, *probabilities: Tensor | None) -> Shares:
        """As the plain rule."""
        return (materialize(self.backward(*probabilities)),)

    def backward(  # noqa: C901 - the cases of one loop
        self, *arrived: Tensor | Deferred | None, onto: Deferred | None = None
    ) -> Tensor | Deferred:
        """As `down`, with deferred products.

        ``onto`` is what the children have got already: it may be added to in place, and then its values are returned.
        """
        self.check_weights()
        if self.weight is not None:
            self.scale = weight_scale(self.weight) if self.normalised and is_concrete() else 1.0
        shares: list[Tensor | Deferred] = []
        for (direction, flipped), probability in zip(SIDES, arrived, strict=False):
            if probability is None:
                continue
            if (probability.values if isinstance(probability, Deferred) else probability).dtype != self.dtype:
                probability = materialize(probability).to(self.dtype)  # noqa: PLW2901 - the same in another type
            for factor, sign in ((self.unit, direction), (self.dual, -direction)):
                if not factor:
                    continue
                share = self._redistribute((sign, flipped), probability, onto if factor == 1 and not shares else None)
                if factor != 1:
                    share = Deferred(share.values * factor, share.by) if isinstance(share, Deferred) else share * factor
                shares.append(share)
        if len(shares) == 1:
            return shares[0]
        total = Accumulator()
        for share in shares:
            total.add(share, owned=True)
        if not shares:
            some = materialize(next(each for each in arrived if each is not None))
            return some.new_zeros(len(some), *self.child.tensor.shape)
        return total.total()

    def _redistribute(self, side: Side, probability: Tensor | Deferred, onto: Deferred | None) -> Tensor | Deferred:
        """The children whose contributions have the sign of one side share the probability of their parents."""
        if self.cued and self.hints.row_dim == 1 and not self.hints.grouped and is_concrete():  # few units are cued
            probability = materialize(probability)
            rows = probability.transpose(0, 2).flatten(1).any(1).nonzero()[:, 0]
            if not len(rows):  # torch has no convolution without outputs
                return probability.new_zeros(len(probability), *self.child.tensor.shape)
            return Normaliser(self.restricted(rows), side).shares(probability.index_select(2, rows), None)
        key = side, self.normalised
        normaliser = self._normalisers.get(key)
        if normaliser is None:
            normaliser = Normaliser(self, side)
            if self.reuse:
                self._normalisers[key] = normaliser
        return normaliser.shares(probability, onto)

    def restricted(self, rows: slice | Tensor) -> FastAffine:
        """The same rule for the units of some rows of the weights alone, which costs a fraction."""
        weight = None if self.weight is None else self.weight[rows]
        alone = type(self)(self.function, self.child, weight, self.baseline, self.hints._replace(parameter=False))
        alone.orientation = None if self.orientation is None else self.orientation[rows]
        alone.normalised, alone.scale, alone.cued = self.normalised, self.scale, self.cued
        alone._inputs, _ = self.signed_inputs()  # noqa: SLF001 - of the same class
        return alone

    def signed_inputs(self) -> tuple[list[Input], Tensor | None]:
        """The children above their baseline, and those below it if there are any.

        And the children's responses, where none is negative and their baseline is 0: a factor that can be deferred.
        """
        if self._inputs is None and self.baseline is None:
            self._inputs = self.child.signed_inputs
        if self._inputs is None:
            child = self.child.tensor.detach().to(self.dtype)
            self._inputs = split(child if self.baseline is None else child - self.baseline)
            if self.baseline is None:
                self.child.signed_inputs = self._inputs  # shared with other rules of the same child
        defer = len(self._inputs) == 1 and self.baseline is None and is_concrete()
        return self._inputs, self._inputs[0][0] if defer else None

    def part(self, sign: int, *, flipped: bool) -> SignedWeight:
        """The weights with that sign."""
        weight = cast("Tensor", self.weight)
        orientation = self.orientation if flipped else None
        kept = self.hints.parameter and is_concrete() and self.scale == 1
        return SignedWeight(weight, sign, orientation, self.dtype, kept=kept, scale=self.scale)

    def forget(self) -> None:
        """Release what is only kept for later signals."""
        self._normalisers.clear()
        self._inputs = self.child.signed_inputs = None


class Normaliser:
    """The normaliser Z = W+^T a for one sign of the response (Eqn. 4), computed once for all signals."""

    def __init__(self, rule: FastAffine, side: Side) -> None:
        direction, flipped = side
        self.shape, totals = rule.child.tensor.shape, []
        self.backs: list[tuple[Tensor, Back]] = []
        inputs, self.responses = rule.signed_inputs()
        self.autograd = rule.hints.convolution is None and rule.hints.row_dim != -1
        for values, sign in inputs:
            if rule.weight is None and sign != direction:
                continue  # positive weights: only children with that sign contribute
            part = None if rule.weight is None else rule.part(direction * sign, flipped=flipped)
            if part is None or self.autograd:
                operation = LinearOperation(rule.function, [None if part is None else part.tensor()])
                total, back = operation.totals(values[None]), cast("Back", operation.back)
            elif rule.hints.convolution is None:  # a dense layer in a graph that is traced
                weight = part.tensor()
                total, back = functional.linear(values, weight), partial(_dense_back, weight)
            else:
                total, back = ConvolutionKernel(*rule.hints.convolution).both_ways(values, part)
            self.backs.append((values, back))
            totals.append(total)
        self.reciprocal = rule.reciprocal(total_of(totals), direction) if totals else None

    def shares(self, arrived: Tensor | Deferred, onto: Deferred | None) -> Tensor | Deferred:
        """The shares of all children, [signals, *child]; ``onto`` as in `FastAffine.backward`."""
        if self.reciprocal is None:  # no child contributes with that sign
            some = materialize(arrived)
            return some.new_zeros(len(some), *self.shape)
        values, by = arrived if isinstance(arrived, Deferred) else (arrived, None)
        ratio = values * (self.reciprocal if by is None else by * self.reciprocal)
        if self.responses is not None and not self.autograd:
            room = onto.values if onto is not None and onto.by is self.responses else None
            share = self.backs[0][1](ratio, room)
            return Deferred(share if room is None or share is room else room.add_(share), self.responses)
        shares = []
        for inputs, back in self.backs:
            share = back(ratio)
            shares.append(
                share[:, 0] * inputs if self.autograd else share.mul_(inputs)
            )  # autograd may give its argument
        return total_of(shares)


class DenseRule(FastAffine):
    """A dense layer, or a convolution as a dense layer at each position: rows of the weights are read in blocks."""

    def _redistribute(self, side: Side, probability: Tensor | Deferred, onto: Deferred | None) -> Tensor | Deferred:
        if not is_concrete():  # then all rows at once
            return super()._redistribute(side, probability, onto)
        direction, flipped = side
        won, (children, responses) = self._units(materialize(probability)), self.signed_inputs()
        inputs, signs, back = [], [], []
        for values, sign in children:
            inputs.append(self._gather(values))
            signs.append(direction * sign)
            back.append(values.new_zeros(len(won) * len(inputs[-1]), inputs[-1].shape[1]))
        for rows, parts in self._blocks(won, signs, flipped=flipped):
            total = inputs[0] @ parts[0].t()
            if len(parts) > 1:
                total = total + inputs[1] @ parts[1].t()
            ratio = (_chosen(won, 2, rows) * self.reciprocal(total, direction)).flatten(0, 1)
            for each, part in zip(back, parts, strict=True):
                each.addmm_(ratio, part)
        shares = []
        for each, (values, _) in zip(back, children, strict=True):
            share = self._scatter(each.view(len(won), -1, each.shape[1]))
            if responses is not None:
                return Deferred(share, responses)
            shares.append(share.mul_(values))
        return total_of(shares)

    def _gather(self, values: Tensor) -> Tensor:
        """The inputs of each position, [positions, inputs]."""
        if self.hints.convolution is None:
            return values.reshape(-1, values.shape[-1])
        steps = self.hints.convolution[1]
        return values[:, :, *map(slice, [None] * len(steps), [None] * len(steps), steps)].movedim(1, -1).flatten(0, -2)

    def _units(self, won: Tensor) -> Tensor:
        """The probabilities as [signals, positions, outputs]."""
        if self.hints.row_dim == -1:
            return won.reshape(len(won), -1, won.shape[-1])
        positions = won.movedim(2, -1).flatten(2, -2) if is_channels_last(won) else _transposed(won.flatten(3))
        return positions.flatten(1, 2)

    def _scatter(self, values: Tensor) -> Tensor:
        """From [signals, positions, inputs] to [signals, *child]."""
        if self.hints.convolution is None:
            return values.view(len(values), *self.child.tensor.shape)
        images, channels, *sides = self.child.tensor.shape
        steps = self.hints.convolution[1]
        if max(steps) == 1:
            return values.view(len(values), images, *sides, channels).movedim(-1, 2)
        spread = zeros_channels_last(values, len(values), images, channels=channels, sides=tuple(sides))
        visited = spread.movedim(2, -1)[:, :, *(slice(None, None, step) for step in steps)]
        visited.copy_(values.view(visited.shape))
        return spread

    def _blocks(self, won: Tensor, signs: Sequence[int], *, flipped: bool) -> Iterator[tuple[Rows, Sequence[Tensor]]]:
        """Some rows at a time, with their weights of those signs, always in the same memory."""
        weight = cast("Tensor", self.weight).detach().flatten(1)
        some = max(1, BLOCK // weight.shape[1])
        scratch = []
        for number in range(len(signs)):
            scratch.append(_scratch(weight, number, min(some, len(weight)), weight.shape[1]))  # noqa: PERF401 - one frame less
        for rows in self._rows(won, some):
            count = len(rows) if isinstance(rows, Tensor) else rows.stop - rows.start
            chosen = _chosen(weight, 0, rows, out=scratch[-1][:count])
            if flipped and self.orientation is not None:
                orientation = _chosen(self.orientation, 0, rows).to(weight.dtype)[:, None]
                chosen = torch.mul(chosen, orientation, out=scratch[-1][:count])
            chosen, parts = scaled_by(chosen, self.scale), []
            for sign, space in zip(signs, scratch, strict=True):
                limits = (0, None) if sign > 0 else (None, 0)
                parts.append(torch.clamp(chosen, *limits, out=space[:count]).to(self.dtype))
            yield rows, parts

    def _rows(self, won: Tensor, some: int) -> Iterable[Rows]:
        """The rows of the units that won; all of a convolution, unless few channels are cued."""
        if self.cued or self.hints.row_dim == -1:
            return torch.split(won.flatten(0, 1).any(0).nonzero()[:, 0], some)
        starts = range(0, won.shape[2], some)
        return map(slice, starts, [*starts[1:], won.shape[2]])


class PointwiseConvRule(DenseRule):
    """A convolution with a 1 x 1 kernel: a dense layer of the channels, at each position."""

    def _blocks(self, won: Tensor, signs: Sequence[int], *, flipped: bool) -> Iterator[tuple[Rows, Sequence[Tensor]]]:
        """As for dense layers; but here all rows are used for every image, so they are split once and kept."""
        kept = []
        for sign in signs:
            part = self.part(sign, flipped=flipped)
            if self.cued or not part.kept:
                yield from super()._blocks(won, signs, flipped=flipped)
                return
            kept.append(part.form("rows", part.rows))
        for rows in self._rows(won, max(1, BLOCK // kept[0].shape[1])):
            yield rows, kept if rows == slice(0, len(kept[0])) else [_chosen(each, 0, rows) for each in kept]


class StridedConvRule(DenseRule):
    """A convolution with a stride: a dense layer of all inputs of a window, at each position.

    That copies more of the children than other kernels do, but none of those is fast in both directions, and so many
    weights are better read once than reordered twice.
    """

    def _gather(self, values: Tensor) -> Tensor:
        return _transposed(functional.unfold(values, **self._window)).flatten(0, 1)

    def _scatter(self, values: Tensor) -> Tensor:
        images, _, *sides = shape = self.child.tensor.shape
        windows = _transposed(values.reshape(len(values) * images, -1, values.shape[2]))
        return channels_last(functional.fold(windows, tuple(sides), **self._window)).view(len(values), *shape)

    @property
    def _window(self) -> dict[str, Any]:
        """As torch's functions take it."""
        _, stride, padding, dilation, _ = cast("tuple[Any, ...]", self.hints.convolution)
        sides = cast("Tensor", self.weight).shape[2:]
        return {"kernel_size": sides, "dilation": dilation, "padding": padding, "stride": stride}


def split(child: Tensor) -> list[Input]:
    """The values above 0, and those below if there are any; extreme ones at another scale."""
    if not is_concrete():
        return [(child.clamp(min=0), 1), (child.clamp(max=0), -1)]
    if not child.numel():
        return [(child, 1)]
    least, most = map(float, child.aminmax())
    child = channels_last(scaled_by(child, scale_for(child, max(-least, most))))
    return [(child, 1)] if least >= 0 else [(child.clamp(min=0), 1), (child.clamp(max=0), -1)]


def _scratch(like: Tensor, number: int, rows: int, columns: int) -> Tensor:
    """Memory of this thread. New memory would be cleared by the system first, which takes as long again."""
    memory: dict[Any, Tensor] = _SCRATCH.__dict__
    key = f"{number} {like.dtype} {like.device}"
    if key not in memory or memory[key].numel() < rows * columns:
        with torch.inference_mode(mode=False):
            memory[key] = like.new_empty(rows * columns)
    return memory[key][: rows * columns].view(rows, columns)


def _chosen(values: Tensor, dim: int, rows: Rows, out: Tensor | None = None) -> Tensor:
    if isinstance(rows, slice):
        return values.narrow(dim, rows.start, rows.stop - rows.start)
    return torch.index_select(values, dim, rows, out=out)


def _transposed(values: Tensor) -> Tensor:
    """[..., a, b] as [..., b, a]. torch is four times as fast with one matrix after the other as with all at once."""
    turned = values.new_empty(*values.shape[:-2], values.shape[-1], values.shape[-2])
    for new, old in zip(turned.flatten(0, -3), values.flatten(0, -3), strict=True):
        new.copy_(old.t())
    return turned


def _dense_back(weight: Tensor, ratios: Tensor, _onto: Tensor | None = None) -> Tensor:
    return torch.matmul(ratios, weight)
