"""How far each operation reaches from a place: the table for `excite.models.receptive_field`.

An operation that is not in the table works place by place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from excite.propagation.mode import WRITING, operation_name
from excite.propagation.provenance import tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable


# What a place of a map sees of the image: see `excite.models.receptive_field`.

_ATTRIBUTE = "_excite_view"


@dataclass(frozen=True)
class Side:
    """One side of a map, in pixels of the image.

    Attributes:
        dim: the dimension of the tensor that it is.
        stride: from one place to the next.
        first: the first pixel that place 0 sees,
        last: and the last one.
    """

    dim: int
    stride: Fraction = Fraction(1)
    first: Fraction = Fraction(0)
    last: Fraction = Fraction(0)

    @property
    def field(self) -> int:
        """How many pixels one place sees."""
        return ceil(self.last - self.first) + 1

    def slid(self, window: Fraction | int, step: Fraction | int = 1, before: Fraction | int = 0) -> Side:
        """Seen through windows that are ``step`` places apart, the first one beginning ``before`` the map."""
        first = self.first - before * self.stride
        last = self.last + (window - 1 - before) * self.stride
        return replace(self, stride=self.stride * step, first=first, last=last)

    def joined(self, other: Side) -> Side:
        """What sees both: where strides differ, nothing says how the places lie together, so the larger counts."""
        if self.stride != other.stride:
            return max(self, other, key=lambda side: side.last - side.first)
        return replace(self, first=min(self.first, other.first), last=max(self.last, other.last))


View = tuple[Side, Side] | tuple[()]  # height and width
WHOLE: View = ()  # sees the whole image


@dataclass(frozen=True)
class Seeing:
    """A call that reads at least one activation: its arguments, and one of its answers."""

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
        """What the operation acts on."""
        subject: Tensor = self.argument(0, "input")
        return subject

    def sides(self) -> View:
        """The subject's own sides."""
        return view_of(self.subject) or WHOLE

    def joined(self) -> View:
        """All that the inputs see, for an operation that works place by place."""
        views = [(tensor, view_of(tensor)) for tensor in tensors_in((self.args, self.kwargs))]
        wholes = [tensor for tensor, view in views if view == WHOLE]
        joined = WHOLE
        for tensor, view in views:
            if view:
                aligned = _aligned(view, tensor, self.answer)
                if not aligned:
                    return WHOLE
                joined = _joined(joined, aligned) if joined else aligned
        return WHOLE if any(not _is_gate(tensor, joined, self.answer) for tensor in wholes) else joined


def view_of(tensor: Tensor) -> View | None:
    """What an activation sees; None where it depends on no image."""
    return getattr(tensor, _ATTRIBUTE, None)


def set_view(tensor: Tensor, view: View) -> None:
    """Say what an activation sees."""
    setattr(tensor, _ATTRIBUTE, view)


def _joined(one: tuple[Side, Side], other: tuple[Side, Side]) -> tuple[Side, Side]:
    return one[0].joined(other[0]), one[1].joined(other[1])


def _aligned(view: View, tensor: Tensor, answer: Tensor) -> View:
    """The same sides in the answer of an element-wise operation, whose dimensions are counted from the last."""
    moved = tuple(replace(side, dim=side.dim + answer.dim() - tensor.dim()) for side in view)
    fits = all(
        0 < new.dim < answer.dim() and answer.shape[new.dim] == tensor.shape[old.dim]
        for new, old in zip(moved, view, strict=True)
    )
    return moved if fits else WHOLE  # type: ignore[return-value]


def _is_gate(tensor: Tensor, sides: View, answer: Tensor) -> bool:
    """Whether it is one number for all places of a map."""
    dims = [side.dim - answer.dim() + tensor.dim() for side in sides]
    return all(dim < 0 or tensor.shape[dim] == 1 or tensor.stride(dim) == 0 for dim in dims)  # 0: it was expanded


# How far each operation reaches from a place: the table for `excite.models.receptive_field`.
#
# An operation that is not in the table works place by place.

_TAPS = {"linear": 2, "bilinear": 2, "bicubic": 4}  # places that an interpolated one is made of; else the nearest


def convolution(call: Seeing) -> View:
    """A kernel slides over the map."""
    kernel = call.argument(1, "weight").shape[2:]
    dilations = _pair(call.argument(5, "dilation", 1))
    padding = call.argument(4, "padding", 0)
    if padding == "same":
        padding = [dilation * (size - 1) // 2 for size, dilation in zip(kernel, dilations, strict=True)]
    padding = (0, 0) if padding == "valid" else _pair(padding)
    strides = _pair(call.argument(3, "stride", 1))
    return _each(
        call.sides(),
        lambda side, k: side.slid((kernel[k] - 1) * dilations[k] + 1, strides[k], padding[k]),
    )


def transposed_convolution(call: Seeing) -> View:
    """Each place is made of those whose kernels cover it."""
    kernel = call.argument(1, "weight").shape[2:]
    strides, padding = _pair(call.argument(3, "stride", 1)), _pair(call.argument(4, "padding", 0))
    dilations = _pair(call.argument(7, "dilation", 1))

    def spread(side: Side, k: int) -> Side:
        reach = (kernel[k] - 1) * dilations[k]
        before = Fraction(reach - padding[k], strides[k])
        return side.slid(Fraction(reach, strides[k]) + 1, Fraction(1, strides[k]), before)

    return _each(call.sides(), spread)


def max_pooling(call: Seeing) -> View:
    """A window slides over the map."""
    dilations = _pair(call.argument(4, "dilation", 1))
    return _pooled(call, call.argument(1, "kernel_size"), call.argument(2, "stride"), dilations)


def average_pooling(call: Seeing) -> View:
    """A window slides over the map."""
    return _pooled(call, call.argument(1, "kernel_size"), call.argument(2, "stride"), (1, 1))


def power_pooling(call: Seeing) -> View:
    """A window slides over the map, which has no padding."""
    kernel = _pair(call.argument(2, "kernel_size"))
    strides = _pair(call.argument(3, "stride") or kernel)
    return _each(call.sides(), lambda side, k: side.slid(kernel[k], strides[k]))


def _pooled(call: Seeing, kernel: Any, stride: Any, dilations: tuple[int, int]) -> View:
    kernel = _pair(kernel)
    strides, padding = _pair(stride or kernel), _pair(call.argument(3, "padding", 0))
    return _each(call.sides(), lambda side, k: side.slid((kernel[k] - 1) * dilations[k] + 1, strides[k], padding[k]))


def adaptive_pooling(call: Seeing) -> View:
    """Windows side by side, where they have one size; one window over everything sees everything."""
    view = call.sides()
    sizes = [(call.subject.shape[side.dim], call.answer.shape[side.dim]) for side in view]
    if any(inside % outside or (outside == 1 < inside) for inside, outside in sizes):
        return WHOLE
    return _each(view, lambda side, k: side.slid(sizes[k][0] // sizes[k][1], sizes[k][0] // sizes[k][1]))


def interpolation(call: Seeing) -> View:
    """Each place is made of the nearest one, or of its neighbours on both sides.

    Which ones these are comes of rounding, differently for each place: what is told includes them all.
    """
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

    return _each(call.sides(), resized)


def padding(call: Seeing) -> View:
    """Place 0 now is one before the map; padding is told from the last dimension on."""
    amounts = call.argument(1, "pad")

    def padded(side: Side, _: int) -> Side:
        pair = 2 * (call.subject.dim() - 1 - side.dim)
        before = amounts[pair] if pair < len(amounts) else 0
        return replace(side, first=side.first - before * side.stride, last=side.last - before * side.stride)

    return _each(call.sides(), padded)


def pixel_shuffle(call: Seeing) -> View:
    """Each place becomes several, which see the same."""
    factor = call.argument(1, "upscale_factor")
    return _each(call.sides(), lambda side, _: side.slid(1, Fraction(1, factor)))


def pixel_unshuffle(call: Seeing) -> View:
    """Several places become the channels of one."""
    factor = call.argument(1, "downscale_factor")
    return _each(call.sides(), lambda side, _: side.slid(factor, factor))


def linear(call: Seeing) -> View:
    """Mixes the last dimension: channels, or places."""
    view = call.sides()
    return WHOLE if any(side.dim == call.subject.dim() - 1 for side in view) else view


def reduction(call: Seeing) -> View:
    """Sums up some dimensions: channels, or places."""
    view, dims = call.sides(), call.argument(1, "dim")
    if call.function.__name__ == "norm":
        dims = call.argument(2, "dim")
    if dims is None or not isinstance(dims, (int, tuple, list)):  # everything, or the other one of two maps
        return call.joined() if isinstance(dims, Tensor) else WHOLE
    gone = {dim % call.subject.dim() for dim in ([dims] if isinstance(dims, int) else dims)}
    if any(side.dim in gone for side in view):
        return WHOLE
    kept = call.answer.dim() == call.subject.dim()
    return view if kept else _each(view, lambda side, _: replace(side, dim=side.dim - sum(d < side.dim for d in gone)))


def rearrangement(call: Seeing) -> View:
    """Only copies places to other ones: done to their numbers, it tells where they went."""
    return _each(call.sides(), lambda side, _: _followed(call, side))


def _followed(call: Seeing, side: Side) -> Side | None:
    size = call.subject.shape[side.dim]
    places = torch.arange(size).reshape(-1, *[1] * (call.subject.dim() - 1 - side.dim))
    # In the activation's own layout of memory, which some views depend on.
    numbers = torch.empty_like(call.subject, dtype=torch.long, device="cpu").copy_(places.expand(call.subject.shape))
    moved = list(tensors_in(call.function(numbers, *call.args[1:], **call.kwargs)))[call.position]
    dims = [dim for dim in range(moved.dim()) if moved.shape[dim] > 1 and bool((moved.diff(dim=dim) != 0).any())]
    if len(dims) != 1:  # mixed with another dimension, or a single place, of which nothing can be told
        return None
    steps = moved.diff(dim=dims[0])
    step = int(steps.flatten()[0])
    if step < 1 or not bool((steps == step).all()):
        return None
    start = int(moved.flatten()[0]) * side.stride
    return Side(dims[0], side.stride * step, side.first + start, side.last + start)


def whole(_call: Seeing) -> View:
    """Mixes all places."""
    return WHOLE


def concatenation(call: Seeing) -> View:
    """Channels side by side see what each of them sees; maps side by side are one map no more."""
    dim = call.argument(1, "dim", call.kwargs.get("axis", 0)) % call.answer.dim()
    joined = call.joined()
    return WHOLE if any(side.dim == dim for side in joined) else joined


def stacking(call: Seeing) -> View:
    """As the sum of the maps, with one dimension more."""
    tensors = call.argument(0, "tensors")
    dim = call.argument(1, "dim", 0) % call.answer.dim()
    view = replace(call, answer=tensors[0]).joined()
    return _each(view, lambda side, _: replace(side, dim=side.dim + (side.dim >= dim)))


def _each(view: View, change: Callable[[Side, int], Side | None]) -> View:
    if not view:
        return WHOLE
    height, width = change(view[0], 0), change(view[1], 1)
    return WHOLE if height is None or width is None else (height, width)


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


def _table(rows: dict[Callable[[Seeing], View], str]) -> dict[str, Callable[[Seeing], View]]:
    return {name: reach for reach, names in rows.items() for name in names.split()}


REACHING = _table(
    {
        convolution: "conv2d",
        transposed_convolution: "conv_transpose2d",
        max_pooling: "max_pool2d max_pool2d_with_indices",
        average_pooling: "avg_pool2d",
        power_pooling: "lp_pool2d",
        adaptive_pooling: "adaptive_avg_pool2d adaptive_max_pool2d adaptive_max_pool2d_with_indices",
        interpolation: "interpolate upsample",
        padding: "pad",
        pixel_shuffle: "pixel_shuffle",
        pixel_unshuffle: "pixel_unshuffle",
        linear: "linear",
        reduction: "mean sum nansum amax amin max min argmax argmin std var norm logsumexp median prod all any",
        rearrangement: """view view_as reshape reshape_as flatten unflatten ravel permute transpose swapaxes swapdims
                          movedim moveaxis squeeze squeeze_ unsqueeze unsqueeze_ transpose_ t t_ T mT getitem narrow
                          select index_select tensor_split split split_with_sizes chunk unbind expand expand_as repeat
                          tile flip roll rot90 channel_shuffle""",
        concatenation: "cat concat concatenate",
        stacking: "stack",
        whole: """matmul mm bmm mv addmm baddbmm einsum tensordot scaled_dot_product_attention
                  multi_head_attention_forward grid_sample conv1d conv3d conv_transpose1d conv_transpose3d cumsum
                  cumprod gather fft_fft2 fft_rfft2 fft_ifft2 fft_irfft2 fft_fftn fft_rfftn fft_ifftn
                  fft_irfftn""",
    }
)


# How far apart the places of a layer are in the image, and how much of the image each of them sees.
#
# One dry run tells, under a mode that carries with every activation, for each side of its map, the stride between two
# places and the pixels that the first one sees: an interval whose ends may lie outside of the image. So the field
# is that of the operations, whatever the size of the image. Behind upsampling, places see unequally much, and the
# field may be up to two steps of the coarser map larger than any of them sees.
#
# What only scales a map does not count as seeing: the gate of a squeeze-and-excite block, which is one number for the
# whole map, and the statistics of a norm. Whatever else mixes all places (attention, global pooling, a linear layer
# on a flattened map) sees the whole image; nothing is known of places behind it.


class Receptive(TorchFunctionMode):
    """While it is on, every activation computed from ``pictures`` carries what it sees; read it with `view_of`."""

    def __init__(self, pictures: Tensor) -> None:
        super().__init__()
        self.pictures = pictures.detach()  # an alias: nothing is left on the user's own tensor
        set_view(self.pictures, (Side(pictures.dim() - 2), Side(pictures.dim() - 1)))

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        live = any(view_of(tensor) is not None for tensor in tensors_in((args, kwargs)))
        result = func(*args, **kwargs)
        if live:
            answers = tensors_in(args[0] if func.__name__ in WRITING else result)
            reach = REACHING.get(operation_name(func), Seeing.joined)
            for position, answer in enumerate(answers):
                set_view(answer, reach(Seeing(func, args, kwargs, answer, position)))
        return result
