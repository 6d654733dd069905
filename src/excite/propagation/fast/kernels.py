"""`Affine` by faster kernels: the same shares from weights that are read once, in the order the CPU wants them.

`affine` chooses. Dense layers and convolutions with many weights are read a block of rows at a time: each is split by
sign while it is in the CPU's cache and used there for the totals and for the way back. Other convolutions are
transposed by calling torch's kernels directly, for all signals at once, with weights that are kept packed between
images where that pays. All else is transposed by autograd, as in the plain rule.
"""

from __future__ import annotations

import math
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

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
from excite.propagation.fast.shortcuts import FlippedRows, SignedWeight, weight_scale
from excite.propagation.rules import Affine, LinearOperation, scale_for, scaled_by, total_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from excite.propagation.graph import Saved
    from excite.propagation.rules import Hints, Shares

__all__ = ["ConvolutionKernel", "DenseRule", "FastAffine", "PointwiseConvRule", "StridedConvRule", "affine"]

Input = tuple[Tensor, int]  # children that are all on one side of their baseline, and the sign of that side
Side = tuple[int, bool]  # the direction of the response (1 or -1), and whether the rows are flipped
Rows = Tensor | slice

SIDES: tuple[Side, ...] = ((1, False), (-1, False), (1, True), (-1, True))  # in the order of the rule's outputs
MANY = 2**18  # weights: with fewer, a convolution is not read in blocks
BLOCK = 2**19  # weights of a block: they fit into a CPU's cache
LARGE = 2**20  # weights: with fewer, a second packed copy costs little memory
LEAST_PACKED = 2**12  # weights: with fewer there is nothing to gain from packing
FEW_POSITIONS = 100  # with more, a convolution takes much longer than reordering its weights: not worth the memory

_SCRATCH = threading.local()
_REORDER = getattr(torch._C._nn, "mkldnn_reorder_conv2d_weight", None)  # noqa: SLF001 - torch has no public name for it
_CONVOLVE = getattr(torch.ops.mkldnn, "_convolution_pointwise", None) if torch._C._has_mkldnn else None  # noqa: SLF001 - as above


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


# --- convolutions: (children, weights of one sign) -> totals, and the way back ---------------------------------------


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


def _dense_back(weight: Tensor, ratios: Tensor, _onto: Tensor | None = None) -> Tensor:
    return torch.matmul(ratios, weight)


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
