"""Operations whose units have several children, which compete (paper, Eqns. 3, 5 and 10): weights, pooling, sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.propagation.notes import Note, is_live, is_traced, note_of, set_note
from excite.propagation.passing import negation, scaled
from excite.propagation.rules import Affine, Sum

if TYPE_CHECKING:
    from collections.abc import Callable

    from excite.propagation.call import Call


def convolution(call: Call) -> Any:
    """Convolutions of any dimension, transposed ones, and full connections: ``f(input, weight, bias, ...)``."""
    function, args = call.function, call.args[3:]  # a rule must not hold the call: its tensors lead back to the rule
    kwargs = {k: v for k, v in call.kwargs.items() if k not in {"input", "weight", "bias"}}

    def operation(child: Tensor, weight: Tensor | None) -> Tensor:
        result: Tensor = function(child, weight, None, *args, **kwargs)
        return result

    return _compete(call, call.subject, call.argument(1, "weight"), operation, _row_dim(call))


def _row_dim(call: Call) -> int | None:
    """Which dimension of the response has one row of the weights for each of its units."""
    if call.name == "linear":
        return -1
    batched = call.subject.dim() == call.argument(1, "weight").dim()
    plain = not call.name.startswith("conv_transpose") and call.argument(6, "groups", default=1) == 1
    return 1 if batched and plain else None


def pooling(call: Call) -> Any:
    """Average pooling, means, sums and smooth interpolation: linear with positive weights."""
    function, (args, kwargs) = call.function, call.options

    def operation(child: Tensor, _weight: Tensor | None) -> Tensor:
        result: Tensor = function(child, *args, **kwargs)
        return result

    return _compete(call, call.subject, None, operation)


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

    return _compete(call, child, weight, operation)


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
    operation: Callable[[Tensor, Tensor | None], Tensor],
    row_dim: int | None = None,
) -> Any:
    response = call.response()
    note = note_of(child) if is_live(child) else Note()
    weight = None if weight is None else weight.detach()
    rule = Affine(operation, call.mode.keeper.keep(child), weight, note.rest, row_dim)
    if weight is not None:  # where only the weights come from the picture they are a gate, and a gate gets no share
        return call.compete(rule, response, [child] if is_live(child) else [], None, Note())
    rest = None if note.rest is None else operation(note.rest, None)  # pooling rests where its children rest
    rate = None if rest is None else response - rest
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
    terms, rests = [left.detach(), right.detach() * factor], [note_of(left).rest, note_of(right).rest]
    resting = None
    response = call.response()
    if factor > 0 and any(rest is not None for rest in rests):
        levels = [
            torch.zeros_like(terms[0]) if rests[0] is None else rests[0],
            torch.zeros_like(terms[1]) if rests[1] is None else rests[1] * factor,
        ]
        terms = [term - level for term, level in zip(terms, levels, strict=True)]
        resting = levels[0] + levels[1]
    traced = [k for k, term in enumerate((left, right)) if is_traced(term)]
    rule = Sum([call.mode.keeper.keep(term) for term in terms], traced)
    rate = None if resting is None else response - resting
    note = Note(rest=resting, gate=min(note_of(left).gate, note_of(right).gate))
    return call.compete(rule, response, [(left, right)[k] for k in traced], rate, note)
