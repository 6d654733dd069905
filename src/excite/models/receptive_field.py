"""The stride and the receptive field of each layer, found in one dry run.

A torch function mode attaches to every activation, for each side of its map, the stride and the interval of pixels
that the first position depends on, also outside of the image. Behind upsampling it may be up to two steps too large.
What only scales a map (the gate of a squeeze-and-excite block, the statistics of a norm) does not count; behind all
else that mixes all positions it is the whole image. An operation not in the table is applied position by position.

So each activation is a map whose dimensions are known, with its own field or the whole image as each position's; or its
positions are unknown; or it has a number for each pair of positions (the weights of an attention), and is no map.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from excite.propagation.graph import WRITING, operation_name
from excite.propagation.provenance import tensors_in

_ATTRIBUTE = "_excite_view"


@dataclass(frozen=True)
class Side:
    """One side of a map, dimension ``dim`` of the tensor: its stride and the field of position 0, in pixels."""

    dim: int
    stride: Fraction = Fraction(1)
    first: Fraction = Fraction(0)
    last: Fraction = Fraction(0)
    whole: bool = False  # all positions were mixed, as in attention beside a residual: the field is the whole image
    repeat: int = 1  # where both sides share a dimension (tokens), how often a position is repeated,
    period: int = 0  # and the number of positions after which they begin again; 0: a dimension of its own

    @property
    def alone(self) -> bool:
        """Whether the dimension is of this side alone."""
        return (self.repeat, self.period) == (1, 0)

    @property
    def field(self) -> int | None:
        """The size of the receptive field; None: the whole image."""
        return None if self.whole else ceil(self.last - self.first) + 1

    def resized(self, inside: int, outside: int) -> "Side":
        """With another number of positions, each of which depends on the whole image."""
        return replace(self, stride=self.stride * Fraction(inside, outside), whole=True)

    def slid(self, window: Fraction | int, step: Fraction | int = 1, before: Fraction | int = 0) -> "Side":
        """Behind windows that are ``step`` positions apart, the first one beginning ``before`` the map."""
        first = self.first - before * self.stride
        last = self.last + (window - 1 - before) * self.stride
        return replace(self, stride=self.stride * step, first=first, last=last)

    def joined(self, other: "Side") -> "Side":
        """The union of two fields; where the strides differ, the larger field."""
        whole = self.whole or other.whole
        if (self.repeat, self.period) != (other.repeat, other.period):  # windows: of several positions each
            return replace(min(self, other, key=lambda side: side.stride), whole=True)
        if self.stride != other.stride:
            return replace(max(self, other, key=lambda side: side.last - side.first), whole=whole)
        return replace(self, first=min(self.first, other.first), last=max(self.last, other.last), whole=whole)


class _Pairs(tuple[()]):
    """A number for each pair of positions."""

    __slots__ = ()


View = tuple[Side, Side] | tuple[()]  # height and width
WHOLE: View = ()  # the whole image, and which position is where is unknown
PAIRS: View = _Pairs()


@dataclass(frozen=True)
class Call:
    """A call that reads an activation: its arguments, and one of its results."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: Tensor
    position: int = 0

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its position or by its name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    @property
    def subject(self) -> Tensor:
        """The first input."""
        return cast("Tensor", self.argument(0, "input"))

    def each(self, change: Callable[[Side, int], Side | None]) -> View:
        """The sides of the first input, both changed; the whole image where that cannot be."""
        view = view_of(self.subject)
        if view is PAIRS:
            return PAIRS
        sides = tuple(change(side, k) for k, side in enumerate(view or WHOLE))
        return WHOLE if None in sides else sides  # type: ignore[return-value]

    def slid(self, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> View:
        """Behind windows of one size; each number is for both sides, or there is one for each."""
        sizes, strides, margins, dilations = map(_pair, (kernel, stride, padding, dilation))
        if not is_map(view_of(self.subject), self.subject):
            return PAIRS if view_of(self.subject) is PAIRS else WHOLE
        return self.each(lambda side, k: side.slid((sizes[k] - 1) * dilations[k] + 1, strides[k], margins[k]))

    def joined(self) -> View:
        """The union over the inputs, for an operation that is applied position by position."""
        views = [(tensor, view_of(tensor)) for tensor in tensors_in((self.args, self.kwargs))]
        joined = WHOLE
        for tensor, view in views:
            if view:
                aligned = _aligned(view, tensor, self.answer)
                if not aligned or (joined and [side.dim for side in joined] != [side.dim for side in aligned]):
                    return WHOLE
                joined = (joined[0].joined(aligned[0]), joined[1].joined(aligned[1])) if joined else aligned
        wholes = [tensor for tensor, view in views if view == WHOLE]
        if joined and not all(_is_gate(tensor, joined, self.answer) for tensor in wholes):
            joined = (replace(joined[0], whole=True), replace(joined[1], whole=True))
        return joined or next((view for _, view in views if view is PAIRS), WHOLE)


def view_of(tensor: Tensor) -> View | None:
    """The sides of an activation; None where it does not depend on the image."""
    return getattr(tensor, _ATTRIBUTE, None)


def is_map(view: View | None, tensor: Tensor) -> bool:
    """Whether the last two dimensions are height and width."""
    return bool(view) and [(side.dim - tensor.dim(), side.alone) for side in view or ()] == [(-2, True), (-1, True)]


def _aligned(view: View, tensor: Tensor, answer: Tensor) -> View:
    """The same sides in the result of an element-wise operation, whose dimensions are aligned at the last."""
    before = answer.dim() - tensor.dim()
    dims = [(side.dim, side.dim + before) for side in view]
    fits = all(0 < new < answer.dim() and answer.shape[new] == tensor.shape[old] for old, new in dims)
    return tuple(replace(side, dim=side.dim + before) for side in view) if fits else WHOLE  # type: ignore[return-value]


def _is_gate(tensor: Tensor, sides: View, answer: Tensor) -> bool:
    """Whether it is one number for all positions of a map."""
    dims = [side.dim - answer.dim() + tensor.dim() for side in sides]
    return all(dim < 0 or tensor.shape[dim] == 1 or tensor.stride(dim) == 0 for dim in dims)  # 0: it was expanded


# The operations.

_TAPS = {"linear": 2, "bilinear": 2, "bicubic": 4}  # inputs of an interpolated position; else the nearest


def convolution(call: Call) -> View:
    """A kernel slides over the map."""
    kernel, dilations = call.argument(1, "weight").shape[2:], _pair(call.argument(5, "dilation", 1))
    padding = call.argument(4, "padding", 0)
    if padding == "same":
        padding = [dilation * (size - 1) // 2 for size, dilation in zip(kernel, dilations, strict=True)]
    return call.slid(kernel, call.argument(3, "stride", 1), 0 if padding == "valid" else padding, dilations)


def transposed_convolution(call: Call) -> View:
    """Each position depends on those whose kernels cover it."""
    kernel = call.argument(1, "weight").shape[2:]
    strides, padding = _pair(call.argument(3, "stride", 1)), _pair(call.argument(4, "padding", 0))
    dilations = _pair(call.argument(7, "dilation", 1))

    def spread(side: Side, k: int) -> Side:
        reach = (kernel[k] - 1) * dilations[k]
        before = Fraction(reach - padding[k], strides[k])
        return side.slid(Fraction(reach, strides[k]) + 1, Fraction(1, strides[k]), before)

    return call.each(spread)


def pooling(call: Call) -> View:
    """A window slides over the map; that of ``lp_pool2d`` is an argument later, and has no padding."""
    name, later = call.function.__name__, call.function.__name__ == "lp_pool2d"
    kernel, stride = call.argument(1 + later, "kernel_size"), call.argument(2 + later, "stride")
    dilation = call.argument(4, "dilation", 1) if "max" in name else 1
    return call.slid(kernel, stride or kernel, 0 if later else call.argument(3, "padding", 0), dilation)


def adaptive_pooling(call: Call) -> View:
    """Windows of one size side by side; the whole image where sizes differ, and no map where there is one window."""

    def pooled(side: Side, _: int) -> Side | None:
        inside, outside = call.subject.shape[side.dim], call.answer.shape[side.dim]
        window = inside // outside
        if inside % outside:
            return side.resized(inside, outside)
        return None if outside == 1 < inside else side.slid(window, window)

    return call.each(pooled)


def interpolation(call: Call) -> View:
    """The nearest position, or the neighbours on both sides; an upper bound, because rounding differs by position."""
    mode = call.argument(3, "mode", "nearest")
    if mode == "area":
        return adaptive_pooling(call)
    taps = _TAPS.get(mode, 0)

    def resized(side: Side, _: int) -> Side:
        ratio = Fraction(call.subject.shape[side.dim], call.answer.shape[side.dim])
        if not taps:
            rounded = 1 - Fraction(1, ratio.denominator)
            return side.slid(1 + rounded, ratio, rounded)
        wide = ratio if call.argument(6, "antialias", False) and ratio > 1 else 1
        centre = ratio / 2 - Fraction(1, 2)
        return side.slid(taps * wide + 1, ratio, taps * wide / Fraction(2) - centre)

    return call.each(resized)


def padding(call: Call) -> View:
    """Position 0 moves before the map; padding is given from the last dimension on."""
    amounts = call.argument(1, "pad")

    def padded(side: Side, _: int) -> Side:
        pair = 2 * (call.subject.dim() - 1 - side.dim)
        before = amounts[pair] if pair < len(amounts) else 0
        return replace(side, first=side.first - before * side.stride, last=side.last - before * side.stride)

    return call.each(padded)


def pixel_shuffle(call: Call) -> View:
    """Each position becomes several with the same field, or the other way round several the channels of one."""
    if call.function.__name__ == "pixel_unshuffle":
        return call.slid(factor := call.argument(1, "downscale_factor"), factor)
    return call.each(lambda side, _: side.slid(1, Fraction(1, call.argument(1, "upscale_factor"))))


def reduction(call: Call) -> View:
    """Reduces some dimensions: channels, or positions."""
    dims = call.argument(2 if call.function.__name__ == "norm" else 1, "dim")
    if dims is None or not isinstance(dims, (int, tuple, list)):  # everything, or the other one of two maps
        return call.joined() if isinstance(dims, Tensor) else WHOLE
    gone = {dim % call.subject.dim() for dim in ([dims] if isinstance(dims, int) else dims)}
    moved = set() if call.answer.dim() == call.subject.dim() else gone

    def kept(side: Side, _: int) -> Side | None:
        return None if side.dim in gone else replace(side, dim=side.dim - sum(dim < side.dim for dim in moved))

    return call.each(kept)


def rearrangement(call: Call) -> View:
    """Copies positions to others: the same call on their numbers shows which."""

    def followed(side: Side, _: int) -> Side | None:
        size = call.subject.shape[side.dim]
        positions = torch.arange(size) // side.repeat % (side.period or size)
        positions = positions.reshape(-1, *[1] * (call.subject.dim() - 1 - side.dim))
        # in the activation's memory layout, which some views depend on
        numbers = torch.empty_like(call.subject, dtype=torch.long, device="cpu")
        numbers.copy_(positions.expand(call.subject.shape))
        moved = tensors_in(call.function(numbers, *call.args[1:], **call.kwargs))[call.position]
        lines = {dim: _line(moved, dim) for dim in range(moved.dim()) if moved.shape[dim] > 1}
        patterns = {dim: _pattern(line) for dim, line in lines.items() if bool((line != 0).any())}
        total = sum((line.reshape(-1, *[1] * (moved.dim() - 1 - dim)) for dim, line in lines.items()), torch.tensor(0))
        if not patterns or None in patterns.values() or bool((moved - moved.flatten()[0] != total).any()):
            return None  # mixed with another dimension, or a single position
        dim, (step, repeat, period) = max(patterns.items(), key=lambda item: item[1][0])  # if split, the outer part
        inner = sum(int(line[-1]) for other, line in lines.items() if other != dim)
        start = int(moved.flatten()[0]) * side.stride
        first, last = side.first + start, side.last + start + inner * side.stride
        return Side(dim, side.stride * step, first, last, side.whole, repeat, period)

    return call.each(followed)


def _line(moved: Tensor, dim: int) -> Tensor:
    """The numbers along a dimension, from 0."""
    line = moved[tuple(slice(None) if k == dim else 0 for k in range(moved.dim()))]
    return line - line[0]


def _pattern(line: Tensor) -> Any:
    """Of numbers that rise evenly: the step, how often each is repeated, and after how many they begin anew (0: no)."""
    changed = line.nonzero()[:, 0]
    repeat, step = int(changed[0]), int(line[changed[0]])
    starts = line[::repeat]
    again = (starts[1:] == 0).nonzero()[:, 0]
    period = int(again[0]) + 1 if len(again) else len(starts)
    regular = torch.arange(len(line)) // repeat % period * step
    if step < 1 or bool((line != regular).any()):
        return None
    return step, repeat, 0 if (repeat, period) == (1, len(line)) else period


def concatenation(call: Call) -> View:
    """The union for channels side by side; the whole image for maps side by side."""
    dim = call.argument(1, "dim", call.kwargs.get("axis", 0)) % call.answer.dim()
    joined = call.joined()
    return WHOLE if any(side.dim == dim for side in joined) else joined


def stacking(call: Call) -> View:
    """The union, with one dimension more."""
    dim = call.argument(1, "dim", 0) % call.answer.dim()
    view = replace(call, answer=call.argument(0, "tensors")[0]).joined()
    return tuple(replace(side, dim=side.dim + (side.dim >= dim)) for side in view)  # type: ignore[return-value]


def product(call: Call) -> View:
    """A matrix product: weights act on the last dimension; of two activations it has a number for each pair."""
    views = [view for tensor in tensors_in((call.args, call.kwargs)) if (view := view_of(tensor)) is not None]
    if len(views) == 1 and call.function.__name__ in {"matmul", "__matmul__"} and view_of(call.subject) is not None:
        return last_dimension(call) if call.argument(1, "other").dim() == 2 else WHOLE
    return PAIRS if len(views) > 1 and not any(view is PAIRS for view in views) else WHOLE


def last_dimension(call: Call) -> View:
    """Weights mix the last dimension, which are the channels or, in a mixer, positions."""
    return call.each(lambda side, _: None if side.dim == call.subject.dim() - 1 else side)


def everywhere(call: Call) -> View:
    """Each position depends on all, but is where it was: sampled by a grid, transformed, added up."""
    return call.each(
        lambda side, _: (
            side.resized(call.subject.shape[side.dim], call.answer.shape[side.dim])
            if call.answer.dim() == call.subject.dim()
            else None
        )
    )


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


REACHES: dict[str, Callable[[Call], View]] = {
    name: reach
    for reach, names in {
        convolution: "conv2d",
        transposed_convolution: "conv_transpose2d",
        pooling: "max_pool2d max_pool2d_with_indices avg_pool2d lp_pool2d",
        adaptive_pooling: "adaptive_avg_pool2d adaptive_max_pool2d adaptive_max_pool2d_with_indices",
        interpolation: "interpolate upsample",
        padding: "pad",
        pixel_shuffle: "pixel_shuffle pixel_unshuffle",
        last_dimension: "linear",
        reduction: "mean sum nansum amax amin max min argmax argmin std var norm logsumexp median prod all any",
        rearrangement: """view view_as reshape reshape_as flatten unflatten ravel permute transpose swapaxes swapdims
                          movedim moveaxis squeeze squeeze_ unsqueeze unsqueeze_ transpose_ t t_ T mT getitem narrow
                          select index_select tensor_split split split_with_sizes chunk unbind expand expand_as repeat
                          tile flip roll rot90 channel_shuffle""",
        concatenation: "cat concat concatenate",
        stacking: "stack",
        product: "matmul mm bmm baddbmm einsum tensordot",
        everywhere: """grid_sample cumsum cumprod fft_fft2 fft_rfft2 fft_ifft2 fft_irfft2 fft_fftn fft_rfftn fft_ifftn
                       fft_irfftn""",
        lambda _call: WHOLE: """mv addmm scaled_dot_product_attention multi_head_attention_forward conv1d conv3d
                                conv_transpose1d conv_transpose3d gather""",
    }.items()
    for name in names.split()
}


class Receptive(TorchFunctionMode):
    """While active, attaches the sides to every activation computed from ``pictures``; `view_of` reads them."""

    def __init__(self, pictures: Tensor) -> None:
        super().__init__()
        self.pictures = pictures.detach()  # an alias, so that nothing is attached to the user's tensor
        setattr(self.pictures, _ATTRIBUTE, (Side(pictures.dim() - 2), Side(pictures.dim() - 1)))

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        live = any(view_of(tensor) is not None for tensor in tensors_in((args, kwargs)))
        result = func(*args, **kwargs)
        if live:
            answers = tensors_in(args[0] if func.__name__ in WRITING else result)
            reach = REACHES.get(operation_name(func), Call.joined)
            for position, answer in enumerate(answers):
                setattr(answer, _ATTRIBUTE, reach(Call(func, args, kwargs, answer, position)))
        return result
