"""`Affine` by faster kernels: the same shares from weights that are read once, in the order the CPU wants them.

Dense layers and convolutions with many weights are read a block of rows at a time, split by sign while it is in the
CPU's cache. Other convolutions are transposed by torch's kernels, all else by autograd, as in the plain rule.
"""

from __future__ import annotations

import math
import threading
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation.fast import is_concrete
from excite.propagation.fast.carry import Deferred, added, channels_last, is_channels_last, materialize, transposed
from excite.propagation.fast.convolution import LIMITS, ConvolutionKernel, SignedWeight
from excite.propagation.fast.shortcuts import FlippedRows
from excite.propagation.rules import Affine, LinearOperation, scale_for, scaled_by, total_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from excite.propagation.fast.convolution import Back
    from excite.propagation.graph import Saved
    from excite.propagation.rules import Hints, Shares

Input = tuple[Tensor, int]  # children that are all on one side of their baseline, and the sign of that side
Side = tuple[int, bool]  # the direction of the response (1 or -1), and whether the rows are flipped
Rows = Tensor | slice

SIDES: tuple[Side, ...] = ((1, False), (-1, False), (1, True), (-1, True))  # in the order of the rule's outputs
MANY = 2**18  # weights: with fewer, a convolution is not read in blocks
LARGE, FEW = 2**20, 100  # weights, positions: torch's kernels reorder so many longer than they use them so few times
BLOCK = 2**19  # weights of a block: they fit into a CPU's cache
LEAST, MOST = 1e-8, 1e15  # of totals: others may come from weights that floats cannot hold without a scale

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
        pointwise = weight[0, 0].numel() == 1 and not any(padding)
        few = is_concrete() and weight.numel() >= LARGE and child.tensor.numel() <= FEW * weight.shape[1]
        if pointwise or few or max(stride) > 1:
            kind = WindowRule
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

    def backward(self, *arrived: Tensor | Deferred | None) -> Tensor | Deferred:
        """As `down`, with deferred products."""
        self.check_weights()
        self.scale = 1.0
        total: Tensor | Deferred | None = None
        for (direction, flipped), probability in zip(SIDES, arrived, strict=False):
            if probability is None:
                continue
            if (probability.values if isinstance(probability, Deferred) else probability).dtype != self.dtype:
                probability = materialize(probability).to(self.dtype)  # noqa: PLW2901 - the same in another type
            for factor, sign in ((self.unit, direction), (self.dual, -direction)):
                if factor:
                    share = self._redistribute((sign, flipped), probability)
                    if factor != 1:
                        values, by = share if isinstance(share, Deferred) else (share, None)
                        share = Deferred(values * factor, by) if isinstance(share, Deferred) else values * factor
                    total = added(total, share)
        return self._nothing(*arrived) if total is None else total

    def _nothing(self, *arrived: Tensor | Deferred | None) -> Tensor:
        some = materialize(next(each for each in arrived if each is not None))
        return some.new_zeros(len(some), *self.child.tensor.shape)

    def _redistribute(self, side: Side, probability: Tensor | Deferred) -> Tensor | Deferred:
        """The children whose contributions have the sign of one side share the probability of their parents."""
        if self.cued and self.hints.row_dim == 1 and not self.hints.grouped and is_concrete():  # few units are cued
            probability = materialize(probability)
            rows = probability.transpose(0, 2).flatten(1).any(1).nonzero()[:, 0]
            if not len(rows):  # torch has no convolution without outputs
                return self._nothing(probability)
            return Normaliser(self.restricted(rows), side).shares(probability.index_select(2, rows))
        key = side, self.normalised
        normaliser = self._normalisers.get(key) or Normaliser(self, side)
        if self.reuse:
            self._normalisers[key] = normaliser
        return normaliser.shares(probability) if normaliser.backs else self._nothing(probability)

    def restricted(self, rows: slice | Tensor) -> FastAffine:
        """The same rule for the units of some rows of the weights alone, which costs a fraction."""
        weight = None if self.weight is None else self.weight[rows]
        alone = type(self)(self.function, self.child, weight, self.baseline, self.hints)
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

    def part(self, weight: Tensor, sign: int, *, flipped: bool) -> SignedWeight:
        """The weights with that sign."""
        orientation = self.orientation if flipped else None
        return SignedWeight(weight, sign, orientation, self.dtype, self.scale)

    def must_scale(self, total: Tensor, direction: int) -> bool:
        """Whether totals of that sign have to be computed again, because the weights are extreme: with `scale`."""
        if self.weight is None or self.scale != 1 or not self.normalised or not is_concrete() or not total.numel():
            return False
        if LEAST < float(total.amax() if direction > 0 else -total.amin()) < MOST:
            return False
        self.scale = scale_for(self.weight)
        return self.scale != 1

    def forget(self) -> None:
        """Release what is only kept for later signals."""
        self._normalisers.clear()
        self._inputs = self.child.signed_inputs = None


class Normaliser:
    """The normaliser Z = W+^T a for one sign of the response (Eqn. 4), computed once for all signals."""

    def __init__(self, rule: FastAffine, side: Side) -> None:
        self.autograd = rule.hints.convolution is None and rule.hints.row_dim != -1
        total = self._total(rule, side)
        if total is not None and rule.must_scale(total, side[0]):
            total = self._total(rule, side)
        self.reciprocal = torch.zeros(()) if total is None else rule.reciprocal(total, side[0])

    def _total(self, rule: FastAffine, side: Side) -> Tensor | None:
        """Z, and the ways back; None: no child contributes."""
        (direction, flipped), totals = side, []
        self.backs: list[tuple[Tensor, Back]] = []
        back: Back
        inputs, self.responses = rule.signed_inputs()
        for values, sign in inputs:
            if rule.weight is None and sign != direction:
                continue  # positive weights: only children with that sign contribute
            part = None if rule.weight is None else rule.part(rule.weight, direction * sign, flipped=flipped)
            if part is None or self.autograd:
                operation = LinearOperation(rule.function, [None if part is None else part.tensor()])
                total, back = operation.totals(values[None]), operation.back
            elif rule.hints.convolution is None:  # a dense layer in a graph that is traced
                weight = part.tensor()
                total, back = functional.linear(values, weight), partial(functional.linear, weight=weight.t())
            else:
                total, back = ConvolutionKernel(*rule.hints.convolution).both_ways(values, part)
            self.backs.append((values, back))
            totals.append(total)
        return total_of(totals) if totals else None

    def shares(self, arrived: Tensor | Deferred) -> Tensor | Deferred:
        """The shares of all children, [signals, *child]."""
        values, by = arrived if isinstance(arrived, Deferred) else (arrived, None)
        ratio = values * (self.reciprocal if by is None else by * self.reciprocal)
        if self.responses is not None and not self.autograd:
            return Deferred(self.backs[0][1](ratio), self.responses)
        if self.autograd:  # it may give its argument, which must not be written to
            return total_of([back(ratio)[:, 0] * inputs for inputs, back in self.backs])
        return total_of([back(ratio).mul_(inputs) for inputs, back in self.backs])


class DenseRule(FastAffine):
    """A dense layer, or a convolution as a dense layer at each position: rows of the weights are read in blocks."""

    def _redistribute(self, side: Side, probability: Tensor | Deferred) -> Tensor | Deferred:
        if not is_concrete():  # then all rows at once
            return super()._redistribute(side, probability)
        direction, flipped = side
        won, (children, responses) = self._units(materialize(probability)), self.signed_inputs()
        inputs, signs, back = [], [], []
        for values, sign in children:
            inputs.append(self._gather(values))
            signs.append(direction * sign)
            back.append(values.new_empty(len(won) * len(inputs[-1]), inputs[-1].shape[1]))
        kept = 0  # nothing is in that memory yet
        for rows, parts in self._blocks(won, signs, flipped=flipped):
            total = inputs[0] @ parts[0].t()
            if len(parts) > 1:
                total = total + inputs[1] @ parts[1].t()
            if self.must_scale(total, direction):
                return self._redistribute(side, probability)
            ratio = (_chosen(won, 2, rows) * self.reciprocal(total, direction)).flatten(0, 1)
            for each, part in zip(back, parts, strict=True):
                each.addmm_(ratio, part, beta=kept)
            kept = 1
        shares = []
        for each, (values, _) in zip(back, children, strict=True):
            share = self._scatter((each if kept else each.zero_()).view(len(won), -1, each.shape[1]))
            if responses is not None:
                return Deferred(share, responses)
            shares.append(share.mul_(values))
        return total_of(shares)

    def _gather(self, values: Tensor) -> Tensor:
        """The inputs of each position, [positions, inputs]."""
        return values.reshape(-1, values.shape[-1])

    def _units(self, won: Tensor) -> Tensor:
        """The probabilities as [signals, positions, outputs]."""
        if self.hints.row_dim == -1:
            return won.reshape(len(won), -1, won.shape[-1])
        positions = won.movedim(2, -1).flatten(2, -2) if is_channels_last(won) else transposed(won.flatten(3))
        return positions.flatten(1, 2)

    def _scatter(self, values: Tensor) -> Tensor:
        """From [signals, positions, inputs] to [signals, *child]."""
        return values.view(len(values), *self.child.tensor.shape)

    def _blocks(self, won: Tensor, signs: Sequence[int], *, flipped: bool) -> Iterator[tuple[Rows, Sequence[Tensor]]]:
        """Some rows at a time, with their weights of those signs, always in the same memory."""
        weight = cast("Tensor", self.weight).detach().movedim(1, -1)
        columns = weight[0].numel()
        some = 1 << round(math.log2(max(1, BLOCK / columns)))  # matrix products are fastest with powers of two
        scratch = [_scratch(weight, number, min(some, len(weight)), columns) for number in range(len(signs))]
        for rows in self._rows(won, some):
            shape = (len(rows) if isinstance(rows, Tensor) else rows.stop - rows.start, *weight.shape[1:])
            spaces = [space[: shape[0]].view(shape) for space in scratch]
            chosen = _chosen(weight, 0, rows, out=spaces[-1])
            if flipped and self.orientation is not None:
                orientation = _chosen(self.orientation, 0, rows).to(weight.dtype)
                chosen = torch.mul(chosen, orientation.view(-1, *[1] * (weight.dim() - 1)), out=spaces[-1])
            chosen, both = scaled_by(chosen, self.scale), zip(signs, spaces, strict=True)
            yield (
                rows,
                [torch.clamp(chosen, *LIMITS[sign], out=space).flatten(1).to(self.dtype) for sign, space in both],
            )

    def _rows(self, won: Tensor, some: int) -> Iterable[Rows]:
        """The rows of the units that won; all of a convolution, unless few channels are cued."""
        if self.cued or self.hints.row_dim == -1:
            return torch.split(won.flatten(0, 1).any(0).nonzero()[:, 0], some)
        starts = range(0, won.shape[2], some)
        return map(slice, starts, [*starts[1:], won.shape[2]])


class WindowRule(DenseRule):
    """A convolution: a dense layer of all inputs of a window, at each position.

    That copies the children more often than other kernels do, which have to reorder all weights twice.
    """

    def _gather(self, values: Tensor) -> Tensor:
        _, _, padding, _, _ = cast("tuple[Any, ...]", self.hints.convolution)
        edges = [pad for each in reversed(padding) for pad in (each, each)]
        around = values.movedim(1, -1)
        windows = self._windows(functional.pad(around, [0, 0, *edges]) if any(edges) else around)
        return windows.flatten(len(padding) + 1).flatten(0, len(padding))

    def _scatter(self, values: Tensor) -> Tensor:
        _, stride, padding, _, _ = cast("tuple[Any, ...]", self.hints.convolution)
        images, channels, *sides = self.child.tensor.shape
        kernel = cast("Tensor", self.weight).shape[2:]
        lead = len(values), images
        if max(stride) == max(kernel) == 1 and not any(padding):
            return values.view(*lead, *sides, channels).movedim(-1, 2)
        wide = [side + 2 * pad for side, pad in zip(sides, padding, strict=True)]
        around = values.new_zeros(len(values) * images, *wide, channels)
        windows = self._windows(around)
        given = values.view(windows.shape)
        if max(kernel) == 1:
            windows.copy_(given)
        else:
            for place in product(*map(range, kernel)):
                at: tuple[Any, ...] = (..., *place, slice(None))
                windows[at].add_(given[at])
        inner = [slice(pad, pad + side) for pad, side in zip(padding, sides, strict=True)]
        return around.view(*lead, *wide, channels)[:, :, *inner].movedim(-1, 2)

    def _windows(self, around: Tensor) -> Tensor:
        """A view of padded children [N, *sides, channels] as [N, *positions, *kernel, channels]."""
        _, stride, _, dilation, _ = cast("tuple[Any, ...]", self.hints.convolution)
        kernel, (first, *apart, last) = cast("Tensor", self.weight).shape[2:], around.stride()
        spans = [(side - 1) * step for side, step in zip(kernel, dilation, strict=True)]
        counts = [
            (side - span - 1) // step + 1 for side, span, step in zip(around.shape[1:-1], spans, stride, strict=True)
        ]
        steps = [each * step for each, step in zip(apart, stride, strict=True)]
        within = [each * step for each, step in zip(apart, dilation, strict=True)]
        shape = (len(around), *counts, *kernel, around.shape[-1])
        return around.as_strided(shape, (first, *steps, *within, last))


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
