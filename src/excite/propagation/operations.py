"""The table: which operation follows which rule. A new operation is one function here, or one more name in a line.

An operation that is not in the table runs as it is. If it only copies values that is right; if it does more, the
signal is refused when it would meet it (`excite.propagation.graph`), so operations that are only looked at (a
comparison, a statistic for an ``if``) never stand in the way.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.propagation.notes import Note, is_live, is_traced, note_of, set_note
from excite.propagation.rules import Affine, Pass, Sum

if TYPE_CHECKING:
    from collections.abc import Callable

    from excite.propagation.mode import Call, Operation

__all__ = ["OPERATIONS"]


# --- weights and pooling: the children compete (Eqns. 3, 5, 10) ---------------------------------------------------


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
    if weight_first == _weighs(right, left):  # two activations that meet as equals: nobody knows who wins
        return call.plain()
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


# --- one child: the signal stays the same -------------------------------------------------------------------------


def activation(call: Call) -> Any:
    """An element-wise function that keeps the sign (SiLU, GELU, leaky ReLU), and other one-to-one functions."""
    return call.pass_down(call.subject)


def bounded_activation(call: Call) -> Any:
    """An increasing function with a least value lambda: its response is what lies above that (Eqn. 5).

    The unit is then never negative, so its excitatory children compete whatever the sign of its input.
    """
    least, most = (_limit(call, end) for end in (-math.inf, math.inf))
    if not bool(torch.isfinite(least).all()):  # clamp with a maximum only: not bounded below
        return activation(call)
    response = call.response()
    gate = 0 if not bool(torch.isfinite(most).all()) else 2 if "sigmoid" in call.name else 1
    note = Note(rest=torch.zeros_like(response) + least if bool((least != 0).any()) else None, gate=gate)
    if not call.traced:
        return call.emit(None, response, [], note)
    rate = response - least
    neuron = note_of(call.subject).made_by()
    if neuron is not None:
        return call.join(neuron, response, rate, note, bounded=True)
    return call.emit(Pass(call.subject.shape, rate > 0), response, [call.subject], note)


def _limit(call: Call, end: float) -> Tensor:
    """What an increasing function tends to at one end of the line."""
    if call.name == "softsign":  # its formula gives NaN there
        return call.subject.detach().new_full((1,), math.copysign(1, end))
    args, kwargs = call.options
    limit: Tensor = call.function(call.subject.detach().new_full((1,), end), *args, **kwargs)
    return limit


def softmax(call: Call) -> Any:
    """Each probability belongs to one unit: it hands its signal to that unit."""
    return call.pass_down(call.subject, Note(gate=2))


def dropout(call: Call) -> Any:
    """Nothing at test time; while training the units that were dropped cannot win."""
    if not call.argument(2, "training", "train", default=True):
        return call.subject
    if "alpha" in call.name:  # moves dropped units to a value of its own
        return call.plain()
    response = call.response()
    winning = (response != 0) | (call.subject.detach() == 0)
    return call.emit(Pass(call.subject.shape, winning), response, [call.subject])


def norm(call: Call) -> Any:
    """Batch, group, layer, instance norm: part of the neuron they normalise, or else a single child.

    Their statistics are constants of this picture, so what counts is the sign of their scale.
    """
    torch_order = call.function in {torch.batch_norm, torch.instance_norm}
    position = 3 if call.name in {"batch_norm", "instance_norm"} and not torch_order else 1 if torch_order else 2
    weight = call.argument(position, "weight")
    if weight is None:  # a norm without a scale is no shift either: it forgets where its input rested
        weight = torch.ones(())
    elif call.name not in {"layer_norm", "rms_norm"}:
        weight = weight.detach().reshape(1, -1, *[1] * (call.subject.dim() - 2))
    return _scaled(call, call.subject, weight)


def negation(call: Call) -> Any:
    """``-x``: what excited now inhibits."""
    return _scaled(call, call.subject, -1.0)


def _scaled(call: Call, child: Tensor, scale: Tensor | float | None) -> Tensor:
    """A constant multiple of ``child`` plus a constant: the same neuron, where a neuron made it."""
    note = note_of(child)
    response = call.response()
    neuron = note.made_by() if response.shape == child.shape else None
    if neuron is not None:
        neuron = neuron.scaled(scale, response)
        return call.join(neuron, response, None, Note(neuron=neuron, gate=note.gate))
    winning = scale.detach() != 0 if isinstance(scale, Tensor) else None
    return call.emit(
        Pass(child.shape, winning), response, [child], Note(rest=_moved(call, child, scale), gate=note.gate)
    )


def _moved(call: Call, child: Tensor, scale: Tensor | float | None) -> Tensor | None:
    """Where a multiple or a shift of ``child`` rests."""
    rest = note_of(child).rest
    increasing = scale is None or (isinstance(scale, float) and scale > 0)
    if rest is None or not increasing:
        return None
    moved: Tensor = call.function(*(rest if argument is child else argument for argument in call.args), **call.kwargs)
    return moved


# --- two activations ----------------------------------------------------------------------------------------------


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


def _sum(call: Call, left: Any, right: Any, factor: float) -> Any:
    if not is_live(right):
        return _scaled(call, left, None)
    if not is_live(left):
        return _scaled(call, right, factor)
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


def multiplication(call: Call) -> Any:
    """A multiple, or an activation and its gate: the gate says how much, the activation says what."""
    left, right = call.subject, call.argument(1, "other")
    if not is_live(right):
        return _scaled(call, left, right if isinstance(right, Tensor) else float(right))
    if not is_live(left):
        return _scaled(call, right, left if isinstance(left, Tensor) else float(left))
    if left is right:  # a square
        return activation(call)
    main, gate = _main_and_gate(left, right)
    if main is None:
        return call.plain()
    rest = note_of(main).rest
    return call.pass_down(main, Note(rest=None if rest is None else rest * gate.detach()))


def _main_and_gate(left: Tensor, right: Tensor) -> tuple[Tensor | None, Tensor]:
    """Which of two activations gates the other: by how it was made, else the one that is broadcast."""
    ranks = note_of(left).gate, note_of(right).gate
    if ranks[0] == ranks[1]:
        ranks = right.numel(), left.numel()
    if ranks[0] == ranks[1]:
        return None, left
    return (right, left) if ranks[0] > ranks[1] else (left, right)


def division(call: Call) -> Any:
    """Whatever divides only scales (LRN by hand, ``x / x.norm()``): the numerator gets the signal."""
    above, below = call.subject, call.argument(1, "other")
    if is_live(above) and not is_live(below):
        return _scaled(call, above, below if isinstance(below, Tensor) else float(below))
    main = above if is_live(above) else below
    return call.pass_down(main, Note(gate=note_of(main).gate))


# --- looking at values without computing with them ----------------------------------------------------------------


def same(call: Call) -> Any:
    """``detach`` and ``data``: autograd's business, not the network's; the values go on and the signal with them."""
    with torch.set_grad_enabled(is_traced(call.subject)):
        return set_note(call.subject.view_as(call.subject), note_of(call.subject))


def hidden_flag(_call: Call) -> bool:
    """The network runs without gradients: it must not see that we use them."""
    return False


def number(call: Call) -> Any:
    """A plain number or array, for an ``if`` perhaps; what is computed from it no longer carries the signal."""
    args, kwargs = call.options
    return call.function(call.subject.detach(), *args, **kwargs)


def constant(call: Call) -> Any:
    """``zeros_like(x)`` and the like: of an activation's shape, but not an activation."""
    args, kwargs = call.options
    return call.function(call.subject.detach(), *args, **kwargs)


def placing(call: Call) -> Any:
    """``index_put``: copies, unless it adds up."""
    if call.argument(3, "accumulate", default=False):
        return call.refuse("it adds values up, which is no copy")
    return call.plain()


def _table(rows: dict[Operation, str]) -> dict[str, Operation]:
    return {name: operation for operation, names in rows.items() for name in names.split()}


OPERATIONS: dict[str, Operation] = _table(
    {
        convolution: "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear",
        pooling: """avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
                    mean sum cumsum fold""",
        interpolation: "interpolate upsample",
        product: "matmul mm bmm mv",
        product_with_bias: "addmm",
        einstein_sum: "einsum",
        bounded_activation: """sigmoid tanh elu selu celu softplus softsign hardsigmoid relu6 hardtanh clamp clip
                               clamp_min clamp_max exp""",
        activation: """silu gelu hardswish mish leaky_relu prelu rrelu softshrink hardshrink tanhshrink logsigmoid
                       log_softmax pow float_power sqrt rsqrt reciprocal rdiv square abs log log1p expm1
                       local_response_norm normalize""",
        softmax: "softmax softmin",
        dropout: """dropout dropout1d dropout2d dropout3d feature_dropout alpha_dropout feature_alpha_dropout""",
        norm: "batch_norm instance_norm group_norm layer_norm rms_norm",
        negation: "neg negative",
        addition: "add",
        subtraction: "sub",
        reversed_subtraction: "rsub",
        multiplication: "mul",
        division: "div",
        same: "detach data",
        hidden_flag: "requires_grad",
        number: "item tolist numpy __float__ __int__ __bool__ __index__ __complex__ __array__",
        constant: """zeros_like ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones
                     new_full new_empty new_tensor""",
        placing: "index_put",
    }
)
