"""The stride and the receptive field of each layer, found in one dry run.

A torch function mode attaches to every activation, for each side of its map, the stride and the interval of pixels
that the first position depends on, also outside of the image. Behind upsampling it may be up to two steps too large.
What only scales a map (the gate of a squeeze-and-excite block, the statistics of a norm) does not count; behind all
else that mixes all positions it is the whole image. An operation not in the table is applied position by position.

So each activation has known positions, wherever they lie (rows and columns of a map, tokens of a sequence, windows in
the batch), with its own field or the whole image as each position's; or its positions are unknown; or it has a number
for each pair of positions (the weights of an attention), and is no map.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from excite.models.positions import NOWHERE, WHOLE, Line, Pairs, Side, View, is_map
from excite.propagation.graph import WRITING, operation_name
from excite.propagation.provenance import tensors_in

_ATTRIBUTE = "_excite_view"
ROW = 2**20  # between the numbers of two rows


@dataclass(frozen=True)
class Call:
    """A call that reads an activation: its arguments, and one of its results."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: Tensor
    position: int = 0
    known: dict[Any, View] = field(default_factory=dict)  # the results of earlier rearrangements: blocks are alike

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its position or by its name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    @property
    def subject(self) -> Tensor:
        """The first input."""
        return cast("Tensor", self.argument(0, "input"))

    @property
    def view(self) -> View:
        """The sides of the first input."""
        return view_of(self.subject) or WHOLE

    def each(self, change: Callable[[Side, int], Side | None]) -> View:
        """The sides of the first input, both changed; of unknown positions where that cannot be."""
        return self.view.each(change)

    def over_map(self, change: Callable[[Side, int], Side | None]) -> View:
        """The sides of the first input, a map whose channels are mixed, both changed; the size is the result's."""
        mixed = self.view.mixed({self.subject.dim() - 3})
        if isinstance(mixed, Pairs):
            return mixed if self.subject.shape[-2:] == self.answer.shape[-2:] else Pairs()
        if not is_map(mixed, self.subject):
            return WHOLE

        def changed(side: Side, k: int) -> Side | None:
            found = change(side, k)
            return found and found.at(dim := self.subject.dim() - 2 + k, self.answer.shape[dim])

        return mixed.each(changed)

    def slid(self, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> View:
        """Behind windows of one size; each number is for both sides, or there is one for each."""
        sizes, strides, margins, dilations = map(_pair, (kernel, stride, padding, dilation))
        return self.over_map(lambda side, k: side.slid((sizes[k] - 1) * dilations[k] + 1, strides[k], margins[k]))

    def joined(self) -> View:
        """The union over the inputs, for an operation that is applied position by position."""
        inputs = [
            (tensor, view) for tensor in tensors_in((self.args, self.kwargs)) if (view := view_of(tensor)) is not None
        ]
        kinds = [kind for kind in (View, Pairs) if any(type(view) is kind and view for _, view in inputs)]
        if not kinds:
            return next((view for _, view in inputs if isinstance(view, Pairs)), WHOLE)
        joined = WHOLE
        for tensor, view in inputs:
            if type(view) is kinds[0] and view:
                aligned = _aligned(view, tensor, self.answer)
                joined = aligned.each(lambda side, k: side.joined(joined[k])) if joined else aligned  # noqa: B023
                if not joined:
                    return WHOLE
        wholes = [tensor for tensor, view in inputs if view == WHOLE]
        return joined if all(_is_gate(tensor, joined, self.answer) for tensor in wholes) else joined.everywhere()


def view_of(tensor: Tensor) -> View | None:
    """The sides of an activation; None where it does not depend on the image."""
    return getattr(tensor, _ATTRIBUTE, None)


def _aligned(view: View, tensor: Tensor, answer: Tensor) -> View:
    """The same sides in the result of an element-wise operation, whose dimensions are aligned at the last."""
    before = answer.dim() - tensor.dim()
    fits = all(dim + before >= 0 and answer.shape[dim + before] == tensor.shape[dim] for dim in view.dims)
    return view.each(lambda side, _: side.moved(lambda dim: dim + before)) if fits else WHOLE


def _is_gate(tensor: Tensor, view: View, answer: Tensor) -> bool:
    """Whether it is one number for all positions of a map."""
    dims = [dim - answer.dim() + tensor.dim() for dim in view.dims]
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

    return call.over_map(spread)


def pooling(call: Call) -> View:
    """A window slides over the map; that of ``lp_pool2d`` is an argument later, and has no padding."""
    name, later = call.function.__name__, call.function.__name__ == "lp_pool2d"
    kernel, stride = call.argument(1 + later, "kernel_size"), call.argument(2 + later, "stride")
    dilation = call.argument(4, "dilation", 1) if "max" in name else 1
    return call.slid(kernel, stride or kernel, 0 if later else call.argument(3, "padding", 0), dilation)


def adaptive_pooling(call: Call) -> View:
    """Windows of one size side by side; the whole image where sizes differ, and no map where there is one window."""

    def pooled(side: Side, k: int) -> Side | None:
        dim = call.subject.dim() - 2 + k
        inside, outside = call.subject.shape[dim], call.answer.shape[dim]
        window = inside // outside
        if inside % outside:
            return side.resized(dim, inside, outside)
        return None if outside == 1 < inside else side.slid(window, window)

    return call.over_map(pooled)


def interpolation(call: Call) -> View:
    """The nearest position, or the neighbours on both sides; an upper bound, because rounding differs by position."""
    mode = call.argument(3, "mode", "nearest")
    if mode == "area":
        return adaptive_pooling(call)
    taps = _TAPS.get(mode, 0)

    def resized(side: Side, k: int) -> Side:
        dim = call.subject.dim() - 2 + k
        ratio = Fraction(call.subject.shape[dim], call.answer.shape[dim])
        if not taps:
            rounded = 1 - Fraction(1, ratio.denominator)
            return side.slid(1 + rounded, ratio, rounded)
        wide = ratio if call.argument(6, "antialias", False) and ratio > 1 else 1
        centre = ratio / 2 - Fraction(1, 2)
        return side.slid(taps * wide + 1, ratio, taps * wide / Fraction(2) - centre)

    return call.over_map(resized)


def padding(call: Call) -> View:
    """Position 0 moves before the map, and tokens get others beside them; given from the last dimension on."""
    amounts, rank = call.argument(1, "pad"), call.subject.dim()

    def padded(side: Side, _: int) -> Side | None:
        for dim in side.dims:
            before, after = amounts[2 * (rank - 1 - dim) :][:2] or (0, 0)
            if (before or after) and side.alone != dim:
                side = side.beside(dim, before, after)
            elif before or after:
                moved = before * side.stride
                side = replace(side.at(dim, call.answer.shape[dim]), first=side.first - moved, last=side.last - moved)
        return side if all(max(line) >= 0 for _, line in side.lines) else None

    return call.each(padded)


def pixel_shuffle(call: Call) -> View:
    """Each position becomes several with the same field, or the other way round several the channels of one."""
    if call.function.__name__ == "pixel_unshuffle":
        return call.slid(factor := call.argument(1, "downscale_factor"), factor)
    return call.over_map(lambda side, _: side.slid(1, Fraction(1, call.argument(1, "upscale_factor"))))


def reduction(call: Call) -> View:
    """Reduces some dimensions: channels, or positions."""
    dims = call.argument(2 if call.function.__name__ == "norm" else 1, "dim")
    if dims is None or not isinstance(dims, (int, tuple, list)):  # everything, or the other one of two maps
        return call.joined() if isinstance(dims, Tensor) else WHOLE
    gone = {dim % call.subject.dim() for dim in ([dims] if isinstance(dims, int) else dims)}
    moved = set() if call.answer.dim() == call.subject.dim() else gone

    def kept(side: Side, _: int) -> Side | None:
        left = side.mixed(gone)
        return left and left.moved(lambda dim: dim - sum(each < dim for each in moved))

    return call.each(kept)


def rearrangement(call: Call) -> View:
    """Copies positions to others: the same call on their numbers shows which."""
    if not call.view or tensors_in((call.args[1:], call.kwargs)):
        return _rearranged(call)
    memory = call.subject.shape, call.subject.stride()
    key = (call.function, repr((call.args[1:], call.kwargs, memory)), call.position, call.view)
    if key not in call.known:
        call.known[key] = _rearranged(call)
    return call.known[key]


def _rearranged(call: Call) -> View:
    numbers = torch.zeros((), dtype=torch.long)
    for side, unit in zip(call.view, (ROW, 1), strict=False):
        for dim, line in side.lines:
            places = torch.tensor([place * unit if place >= 0 else NOWHERE for place in line])
            numbers = numbers + places.reshape(-1, *[1] * (call.subject.dim() - 1 - dim))
    numbers = numbers.expand(call.subject.shape)
    try:
        moved = call.function(numbers, *call.args[1:], **call.kwargs)
    except RuntimeError:  # a view that only the activation's layout of memory allows
        laid_out = torch.empty_like(call.subject, dtype=torch.long, device="cpu").copy_(numbers)
        moved = call.function(laid_out, *call.args[1:], **call.kwargs)
    found = _lines(tensors_in(moved)[call.position]) if call.view else None
    return call.each(lambda side, k: side.counted(*found[k])) if found else type(call.view)()


def _lines(moved: Tensor) -> list[tuple[dict[int, Line], int]] | None:
    """Rows and columns as sums of one line for each dimension, and of a start; None where they are no such sums."""
    if not moved.numel():  # the class tokens of a network that has none
        return None
    for dim in range(moved.dim()):  # most are of channels, along which nothing changes
        once = moved.narrow(dim, 0, 1)
        if moved.stride(dim) == 0 or (dim == moved.dim() - 1 and torch.equal(once.expand(moved.shape), moved)):
            moved = once
    here, dims = moved >= 0, range(moved.dim())
    if not here.any():
        return None
    valid = [here.any(tuple(k for k in dims if k != dim)) if moved.dim() > 1 else here for dim in dims]
    origin = [int(each.nonzero()[0]) for each in valid]
    start, total, inside = int(moved[tuple(origin)]), torch.tensor(0), torch.tensor(True)
    lines: dict[int, tuple[Tensor, Tensor]] = {}
    for dim, where in enumerate(valid):
        line = moved[tuple(slice(None) if k == dim else origin[k] for k in dims)] - start
        shape = (-1, *[1] * (moved.dim() - 1 - dim))
        total, inside = total + line.reshape(shape), inside & where.reshape(shape)
        if line.any():
            lines[dim] = line, where
    if not torch.equal(here, inside.expand(here.shape)) or bool(((moved - start != total) & here).any()):
        return None
    found = []
    for rows in (True, False):
        each = {dim: (_parts(line)[not rows].where(where, NOWHERE)).tolist() for dim, (line, where) in lines.items()}
        found.append(({dim: tuple(line) for dim, line in each.items()}, divmod(start, ROW)[not rows]))
    return found


def _parts(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The differences of rows and of columns in those of numbers."""
    rows = (numbers + ROW // 2).div(ROW, rounding_mode="floor")
    return rows, numbers - rows * ROW


def concatenation(call: Call) -> View:
    """The union for channels side by side; tokens beside others are where they are; of maps side by side, nothing."""
    dim = call.argument(1, "dim", call.kwargs.get("axis", 0)) % call.answer.dim()
    parts: list[Tensor] = list(call.argument(0, "tensors"))
    holders = [k for k, part in enumerate(parts) if dim in (view_of(part) or WHOLE).dims]
    if not holders:
        return call.joined()
    views = [view for part in parts if (view := view_of(part))]
    if len(views) > 1:
        return replace(call, answer=parts[holders[0]]).joined().mixed({dim})
    before, after = (sum(part.shape[dim] for part in each) for each in (parts[: holders[0]], parts[holders[0] + 1 :]))
    return views[0].each(lambda side, _: side.beside(dim, before, after))


def stacking(call: Call) -> View:
    """The union, with one dimension more."""
    dim = call.argument(1, "dim", 0) % call.answer.dim()
    view = replace(call, answer=call.argument(0, "tensors")[0]).joined()
    return view.each(lambda side, _: side.moved(lambda each: each + (each >= dim)))


def product(call: Call) -> View:
    """A product of two tensors, matrices or by ``einsum``: positions stay where their dimension does."""
    name = call.function.__name__
    first = 1 if name in {"baddbmm", "addmm"} else 0
    operands = list(call.args[1:] if name == "einsum" else call.args[first : first + 2])
    if name == "einsum":
        letters = _letters(call.args[0])
        operands = list(operands[0]) if operands and isinstance(operands[0], (list, tuple)) else operands
    else:
        operands += [call.kwargs[key] for key in ("other", "mat2") if key in call.kwargs]
        letters = _of_matrices([each.dim() for each in operands]) if len(operands) == 2 else None
    if letters is None or len(operands) != 2:
        return WHOLE
    return _product(operands, *letters)


def _letters(equation: Any) -> tuple[list[str], str] | None:
    """The letters of the dimensions of two operands, and of their product."""
    parts = str(equation).replace(" ", "").replace("->", ",").split(",")
    return (parts[:2], parts[2]) if len(parts) == 3 and "->" in str(equation) and "." not in equation else None


def _of_matrices(ranks: list[int]) -> tuple[list[str], str] | None:
    """The same for a product of matrices [..., i, k] and [..., k, j]."""
    if min(ranks) < 2:
        return None
    batch = "abcdefgh"[: max(ranks) - 2]
    left, right = (batch[len(batch) - rank + 2 :] for rank in ranks)
    return [left + "xz", right + "zy"], batch + "xy"


def _product(operands: list[Tensor], letters: list[str], result: str) -> View:
    """The positions of two factors that are left in their product; of both, where they differ, the pairs."""
    views = [view_of(each) for each in operands]
    left: list[View] = []
    own: list[bool] = []  # whether a factor's positions lie in a dimension of its own
    for view, mine, other in zip(views, letters, letters[::-1], strict=True):
        kept = (view or WHOLE).mixed({dim for dim, letter in enumerate(mine) if letter not in result})
        own.append(any(mine[dim] not in other for dim in kept.dims))
        left.append(kept.each(lambda side, _: side.moved(lambda dim: result.index(mine[dim]))))  # noqa: B023
    if all(own):
        return Pairs(left[0])
    chosen = View(left[own.index(True)] if any(own) else left[0] or left[1])
    return chosen.everywhere() if None not in views else chosen


def attention(call: Call) -> View:
    """An output token lies where its query lay, and depends on the whole image."""
    query = call.argument(0, "query")
    view = (view_of(query) or WHOLE).mixed({query.dim() - 1})
    fits = all(call.answer.dim() == query.dim() and call.answer.shape[dim] == query.shape[dim] for dim in view.dims)
    return View(view).everywhere() if fits and call.position == 0 else Pairs()


def last_dimension(call: Call) -> View:
    """Weights mix the last dimension, which are the channels or, in a mixer, positions."""
    return call.view.mixed({call.subject.dim() - 1})


def everywhere(call: Call) -> View:
    """Each position depends on all, but is where it was: sampled by a grid, transformed, added up."""

    def resized(side: Side, _: int) -> Side | None:
        dim = side.alone
        if dim is None or call.answer.dim() != call.subject.dim():
            return None
        return side.resized(dim, call.subject.shape[dim], call.answer.shape[dim])

    return call.each(resized)


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
        product: "matmul mm bmm baddbmm einsum",
        attention: "scaled_dot_product_attention multi_head_attention_forward",
        everywhere: """grid_sample cumsum cumprod fft_fft2 fft_rfft2 fft_ifft2 fft_irfft2 fft_fftn fft_rfftn fft_ifftn
                       fft_irfftn""",
        lambda _call: WHOLE: "mv addmm tensordot conv1d conv3d conv_transpose1d conv_transpose3d gather",
    }.items()
    for name in names.split()
}


class Receptive(TorchFunctionMode):
    """While active, attaches the sides to every activation computed from ``pictures``; `view_of` reads them."""

    def __init__(self, pictures: Tensor) -> None:
        super().__init__()
        self.pictures = pictures.detach()  # an alias, so that nothing is attached to the user's tensor
        self._known: dict[Any, View] = {}
        last = (self.pictures.dim() - 2, self.pictures.dim() - 1)
        setattr(self.pictures, _ATTRIBUTE, View(Side.along(dim, self.pictures.shape[dim]) for dim in last))

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
                setattr(answer, _ATTRIBUTE, reach(Call(func, args, kwargs, answer, position, self._known)))
        return result
