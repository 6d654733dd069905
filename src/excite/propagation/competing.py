"""Operations whose units have several children, which compete (paper, Eqns. 4, 5 and 10): weights, pooling, sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.propagation.affine import Affine
from excite.propagation.connected import Connected, Mixing, Windows
from excite.propagation.notes import Note, is_live, is_traced, note_of, set_note
from excite.propagation.passing import negation, scaled
from excite.propagation.products import Connection, Convolution, Traced
from excite.propagation.rules import Sum

if TYPE_CHECKING:
    from collections.abc import Callable

    from excite.propagation.call import Call
    from excite.propagation.products import Product

MANY = 2**18  # weights


def convolution(call: Call) -> Any:
    """Convolutions of any dimension, transposed ones, and full connections: ``f(input, weight, bias, ...)``."""
    weight = call.argument(1, "weight")
    if call.name == "linear":
        return _compete(call, call.subject, weight, Connection(), row_dim=-1)
    function, args = call.function, call.args[3:]  # a rule must not hold the call: its tensors lead back to the rule
    kwargs = {k: v for k, v in call.kwargs.items() if k not in {"input", "weight", "bias"}}

    def operation(child: Tensor, weight: Tensor | None) -> Tensor:
        result: Tensor = function(child, weight, None, *args, **kwargs)
        return result

    if call.name.startswith("conv_transpose") or call.subject.dim() != weight.dim():
        return _compete(call, call.subject, weight, Traced(operation))
    grouped = call.argument(6, "groups", default=1) != 1
    product = _plain_convolution(call, weight) or Traced(operation)
    return _compete(call, call.subject, weight, product, row_dim=1, grouped=grouped)


def _plain_convolution(call: Call, weight: Tensor) -> Convolution | None:
    """A convolution whose transpose is known; None where the padding is a word that means more at one end."""
    dims = weight.dim() - 2
    stride, dilation = (
        _each(call.argument(at, name, default=1), dims) for at, name in ((3, "stride"), (5, "dilation"))
    )
    padding = call.argument(4, "padding", default=0)
    if padding == "valid":
        padding = 0
    elif padding == "same":
        both = [step * (side - 1) for step, side in zip(dilation, weight.shape[2:], strict=True)]
        if any(each % 2 for each in both):
            return None
        padding = [each // 2 for each in both]
    return Convolution(call.function, stride, _each(padding, dims), dilation, call.argument(6, "groups", default=1))


def _each(value: Any, dims: int) -> list[int]:
    """A number for each dimension, where torch takes one for all."""
    values = [value] if isinstance(value, int) else list(value)
    return values * dims if len(values) == 1 else values


def pooling(call: Call) -> Any:
    """Average pooling, means, sums and smooth interpolation: linear with positive weights."""
    function, (args, kwargs) = call.function, call.options

    def operation(child: Tensor, _weight: Tensor | None) -> Tensor:
        result: Tensor = function(child, *args, **kwargs)
        return result

    return _compete(call, call.subject, None, Traced(operation))


def interpolation(call: Call) -> Any:
    """Nearest neighbour copies, the linear ones pool; bicubic has negative weights of its own and is refused."""
    mode = call.argument(3, "mode", default="nearest")
    return pooling(call) if mode in {"linear", "bilinear", "trilinear", "area"} else call.plain()


def product(call: Call) -> Any:
    """A matrix product of an activation with weights, or with a gate (attention over values)."""
    left, right = call.subject, call.argument(1, "mat2", "other", "vec2", "vec")
    return _product(call, left, right, call.function)


def einstein_sum(call: Call) -> Any:
    """``einsum`` of two operands: a matrix product in other words."""
    equation, *operands = call.args
    operands = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    if len(operands) != 2:
        return call.plain()
    left, right = operands
    function = call.function
    return _product(call, left, right, lambda *both: function(equation, *both))


def _product(call: Call, left: Tensor, right: Tensor, multiply: Callable[[Tensor, Tensor], Tensor]) -> Any:
    weight_first = _weighs(left, right)
    if weight_first == _weighs(right, left):  # nobody knows who wins
        return call.refuse("a product of two activations, none of them weights or a gate")
    child, weight = (right, left) if weight_first else (left, right)

    def operation(child: Tensor, weight: Any) -> Tensor:
        return multiply(weight, child) if weight_first else multiply(child, weight)

    return _compete(call, child, weight, Traced(operation))


def product_with_bias(call: Call) -> Any:
    """``addmm``: a bias and a matrix product in one call."""
    bias, left, right = call.args[:3]
    if is_live(bias) or is_live(right) or call.kwargs.get("beta", 1) != 1 or call.kwargs.get("alpha", 1) != 1:
        return call.plain()
    return _product(call, left, right, torch.matmul)


def _compete(
    call: Call,
    child: Tensor,
    weight: Tensor | None,
    product: Product,
    *,
    row_dim: int | None = None,
    grouped: bool = False,
) -> Any:
    response = call.response()
    note = note_of(child) if is_live(child) else Note()
    if weight is None:
        return _pool(call, child, product, response, note)
    inputs = [child] if is_traced(child) else []  # where only the weights come from the image they are a gate
    if not inputs:
        return set_note(response, Note(fresh=True))
    kept = id(weight) in call.mode.state and not weight.is_inference()
    kind = Connected if call.name == "linear" else _kind(product, weight)
    rule = kind(
        product,
        call.mode.keeper.keep(child),
        weight if kept else weight.detach(),
        note.rest,
        row_dim,
        grouped=grouped,
        kept=kept,
    )
    return call.compete(rule, response, inputs, None, Note())


def _kind(product: Product, weight: Tensor) -> type[Affine]:
    """The rule of a convolution; one with so many weights that they are better not copied reads them where they lie."""
    if not isinstance(product, Convolution) or product.groups != 1 or weight.numel() < MANY:
        return Affine
    if weight.numel() == weight.shape[0] * weight.shape[1] and not any(product.padding):
        return Mixing
    steps = weight.dim() == 4 and any(step > 1 for step in product.stride)  # torch has windows in two dimensions only
    return Windows if steps else Affine


def _pool(call: Call, child: Tensor, product: Product, response: Tensor, note: Note) -> Any:
    rest = None if note.rest is None else product(note.rest, None)[0]  # pooling rests where its children rest
    rate = None if rest is None else response - rest
    rule = Affine(product, call.mode.keeper.keep(child), None, note.rest)
    return call.compete(rule, response, [child], rate, Note(rest=rest, gate=note.gate))


def _weighs(tensor: Tensor, other: Tensor) -> bool:
    """Whether ``tensor`` weighs ``other``: a constant does, and so does a gate."""
    if not is_live(tensor):
        return True
    return is_live(other) and note_of(tensor).gate > note_of(other).gate


def addition(call: Call) -> Any:
    """A sum of activations is split by what each added; a constant is a bias and takes nothing."""
    return _sum(call, call.subject, call.argument(1, "other"), call.kwargs.get("alpha", 1))


def subtraction(call: Call) -> Any:
    """A difference: the second term adds its negative."""
    return _sum(call, call.subject, call.argument(1, "other"), -call.kwargs.get("alpha", 1))


def reversed_subtraction(call: Call) -> Any:
    """``other - x``: the first argument is the one that is taken away."""
    if is_live(call.argument(1, "other")):
        return call.plain()
    return negation(call)


def addition_of_product(call: Call) -> Any:
    """``addcmul``: a product and a sum in one call, whose value may differ from theirs in the last bit."""
    term, factor = call.subject, call.argument(3, "value", default=1)
    product = call.mode.run(torch.mul, call.argument(1, "tensor1"), call.argument(2, "tensor2"))
    result = call.mode.run(torch.add, term, product, alpha=factor)
    note = note_of(result)
    result.detach().copy_(call.response())
    return set_note(result, note)


def _sum(call: Call, left: Any, right: Any, factor: float) -> Any:
    if not is_live(right):
        return scaled(call, left, None)
    if not is_live(left):
        return scaled(call, right, factor)
    rests = [note_of(left).rest, note_of(right).rest]
    response = call.response()
    gate = min(note_of(left).gate, note_of(right).gate)
    if rests == [None, None] and not call.traced:
        return set_note(response, Note(gate=gate, fresh=True))
    terms = [left.detach(), right.detach() if factor == 1 else right.detach() * factor]
    resting = None
    if factor > 0 and any(rest is not None for rest in rests):
        levels = [
            torch.zeros_like(terms[0]) if rests[0] is None else rests[0],
            torch.zeros_like(terms[1]) if rests[1] is None else rests[1] * factor,
        ]
        terms = [term - level for term, level in zip(terms, levels, strict=True)]
        resting = levels[0] + levels[1]
    traced = [k for k, term in enumerate((left, right)) if is_traced(term)]
    rule = Sum([call.mode.keeper.keep(term) for term in terms], traced, plain=resting is None and factor == 1)
    rate = None if resting is None else response - resting
    inputs = [(left, right)[k] for k in traced]
    return call.compete(rule, response, inputs, rate, Note(rest=resting, gate=gate))
