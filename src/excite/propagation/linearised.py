"""A network made linear, by holding constant whatever the image decides in it: the rules of `TokenPass`.

With attention weights, gates, slopes ``y / x`` and the deviations of norms held constant, the output is a linear
function of the tokens x of a layer. What arrives there from a signal is the direction d along which it reads each of
them: ``d . x`` is what a token adds to the signal's sum of outputs, be that positive or negative.

| operation | what its inputs get from the direction d of its output |
|---|---|
| weights ``y = W x + b`` | W' d |
| one-to-one ``y = f(x)`` | d y / x |
| layer or group norm | the gradient for a constant deviation, so that the mean takes its part |
| values times a gate, or over a divisor | d times what scales them |
| attention ``y = w v`` | w' d for the values, d v' for the edges, if these are read |
| sums, pooling, copies | their gradient |

Each rule serves several signals at once; what it holds constant is computed in the forward pass, and only once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from excite.errors import SignalError
from excite.propagation import attention, provenance
from excite.propagation.attention import Factors, factors_of, read_weights, weighs
from excite.propagation.gradients import linear_norm
from excite.propagation.operations import OPERATIONS, Operation, main_and_gate
from excite.propagation.provenance import (
    Provenance,
    gate_behind_weights,
    is_above_tap,
    is_activation,
    provenance_of,
    set_provenance,
)
from excite.propagation.rules import Rule, Shares, reduced, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.propagation.graph import Saved
    from excite.propagation.mode import Call

# --- the rules -------------------------------------------------------------------------------------------------------


class Weights(Rule):
    """A dense layer, ``y = W x + b``."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.detach()
        self._version = version_of(self.weight)

    def down(self, *directions: Any) -> Shares:
        """W' d, without what is not read, d = 0: queries and keys, and above the last attention most tokens."""
        (direction,) = directions
        if self._version != version_of(self.weight):
            raise SignalError("the network's weights were changed since its forward pass: run it again")
        tokens, weight = direction.flatten(0, -2), self.weight
        units, read = _read(tokens), _read(tokens.mT)
        if units is not None:
            among = slice(int(units[0]), int(units[-1]) + 1) if len(units) else slice(0)
            tokens, weight = tokens[:, among], weight[among]
        if read is None:
            share = tokens @ weight
        else:
            share = tokens.new_zeros(len(tokens), weight.shape[1])
            share[read] = tokens[read] @ weight
        return (share.view(*direction.shape[:-1], -1),)


def _read(directions: Tensor) -> Tensor | None:
    """The columns in which anything is not 0; None where those are most of them, mostly known by a single row."""
    if not directions.numel() or 2 * int(directions[-1].count_nonzero()) >= directions.shape[1]:
        return None
    columns = directions.abs().amax(0).nonzero()[:, 0]
    return columns if 2 * len(columns) < directions.shape[1] else None


@dataclass(eq=False)
class Slopes(Rule):
    """An element-wise operation: a slope, and the shape, for each of its inputs."""

    slopes: Sequence[Saved | float]
    shapes: Sequence[torch.Size]

    def down(self, *directions: Any) -> Shares:
        """D times the slope."""
        (direction,) = directions
        return tuple(map(reduced, (_times(direction, slope) for slope in self.slopes), self.shapes))


def _times(direction: Tensor, slope: Saved | float) -> Tensor:
    if isinstance(slope, (int, float)):
        return direction if slope == 1 else direction * slope
    return direction * slope.tensor


@dataclass(eq=False)
class LayerNorm(Rule):
    """``(x - mean) / deviation * scale``, its deviation held constant."""

    dims: tuple[int, ...]  # that it normalises
    inverse: Tensor  # 1 / deviation
    scale: Tensor | None

    def down(self, *directions: Any) -> Shares:
        """The mean of what arrives takes its part."""
        (direction,) = directions
        scaled = direction if self.scale is None else direction * self.scale
        return ((scaled - scaled.mean(self.dims, keepdim=True)) * self.inverse,)


@dataclass(eq=False)
class MatrixProduct(Rule):
    """A matrix product ``left @ right``; a factor that nothing is read below is constant."""

    left: Saved
    right: Saved
    read: Sequence[bool]  # whether something is read below each

    def down(self, *directions: Any) -> Shares:
        """D right' for the left factor, left' d for the right one."""
        (direction,) = directions
        left, right = self.left.tensor, self.right.tensor
        shares = []
        if self.read[0]:
            shares.append(reduced(_products(direction, lambda one: one @ right.mT), left.shape))
        if self.read[1]:
            shares.append(reduced(_products(direction, lambda one: left.mT @ one), right.shape))
        return tuple(shares)


def _products(directions: Tensor, multiply: Callable[[Tensor], Tensor]) -> Tensor:
    """Each signal's product: of all at once torch would copy the other factor once for each of them."""
    return multiply(directions[0])[None] if len(directions) == 1 else torch.stack([multiply(one) for one in directions])


class Gradient(Rule):
    """Any other operation, linear in each of its inputs: its gradient, one signal at a time."""

    def __init__(self, call: Call, children: Sequence[Tensor], function: Callable[..., Tensor]) -> None:
        self.leaves = [child.detach().requires_grad_() for child in children]
        with torch.enable_grad(), call.mode.memory.saving():
            self.response = function(*self.leaves)

    def down(self, *directions: Any) -> Shares:
        """The gradient for each input."""
        each = [
            torch.autograd.grad(self.response, self.leaves, one.contiguous(), retain_graph=True)
            for one in directions[0]
        ]
        return tuple(map(torch.stack, zip(*each, strict=True)))


# --- which operation follows which rule: the column ``gradient`` of the table ----------------------------------------


def _weights(call: Call) -> Any:
    """Convolutions and dense layers."""
    child, known = call.subject, Provenance(gate=gate_behind_weights(call.subject))
    if not is_above_tap(child):
        return set_provenance(call.response(), known)
    weight = call.argument(1, "weight")
    rule: Rule
    rule = Weights(weight) if call.name == "linear" else Gradient(call, [child], _on_subject(call))
    return call.emit(rule, call.response(), [child], known)


def _on_subject(call: Call) -> Callable[[Tensor], Tensor]:
    """The call as a function of its subject."""

    def function(leaf: Tensor) -> Tensor:
        def given(tensor: Tensor) -> Tensor:
            return leaf if tensor is call.subject else tensor.detach()

        args, kwargs = tree_map_only(Tensor, given, (call.args, call.kwargs))
        result: Tensor = call.function(*args, **kwargs)
        return result

    return function


def _one_to_one(call: Call) -> Any:
    """Activation functions, norms, softmax: the slope is y / x, and 0 where x = 0."""
    child, response, known = call.subject, call.response(), Provenance(gate=call.operation.gate)
    if not is_above_tap(child):
        return set_provenance(response, known)
    rule: Rule
    if call.name == "batch_norm" and not call.argument(5, "training", default=False):
        rule, known = Gradient(call, [child], _on_subject(call)), Provenance(gate=gate_behind_weights(child))
    elif call.name == "layer_norm":
        rule = _layer_norm(call)
    elif call.name == "group_norm":
        rule = Gradient(call, [child], linear_norm(call))
    else:
        rule = _slopes(call, [child], [_slope(response, child.detach())])
    return call.emit(rule, response, [child], known)


def _slope(response: Tensor, child: Tensor) -> Tensor:
    return (response / child).nan_to_num_(0.0, 0.0, 0.0)  # where x = 0


def _slopes(call: Call, children: Sequence[Tensor], slopes: Sequence[Tensor | float]) -> Slopes:
    keep = call.mode.memory.keep
    kept = [keep(slope) if isinstance(slope, Tensor) else slope for slope in slopes]
    return Slopes(kept, [child.shape for child in children])


def _layer_norm(call: Call) -> LayerNorm:
    shape, scale = call.argument(1, "normalized_shape"), call.argument(2, "weight")
    epsilon = call.argument(4, "eps", default=1e-5)
    _, _, inverse = torch.native_layer_norm(call.subject.detach(), list(shape), None, None, epsilon)
    return LayerNorm(tuple(range(-len(shape), 0)), inverse, None if scale is None else scale.detach())


def _sum(call: Call) -> Any:
    """Terms, each with its sign and its factor; constants are biases."""
    factor = call.kwargs.get("alpha", 1) * (-1 if call.name == "sub" else 1)
    return _scaled(call, [(call.subject, 1.0), (call.argument(1, "other"), factor)])


def _multiplication(call: Call) -> Any:
    """A multiple, or values and their gate; two equally needed factors get half each."""
    left, right = call.subject, call.argument(1, "other")
    if left is right:
        return _one_to_one(call)
    if not is_above_tap(left) or not is_above_tap(right):  # the other one is constant
        return _scaled(call, [(left, right), (right, left)])
    main, gate = main_and_gate(left, right)
    factors = [(left, right.detach() / 2), (right, left.detach() / 2)] if main is None else [(main, gate)]
    return _scaled(call, factors)


def _division(call: Call) -> Any:
    """A divisor only scales."""
    above, below = call.subject, call.argument(1, "other")
    if is_above_tap(above):
        return _scaled(call, [(above, 1 / _held(below))])
    response = call.response()
    return _scaled(call, [(below, _slope(response, below.detach()))] if is_above_tap(below) else [], response)


def _scaled(call: Call, factors: Sequence[tuple[Any, Any]], response: Tensor | None = None) -> Any:
    """The response of an element-wise call, with the factor of each input from which something is read below."""
    above = [(child, _held(factor)) for child, factor in factors if is_above_tap(child)]
    gate = min(provenance_of(each).gate for each in call.tensors if is_activation(each))
    children, slopes = [child for child, _ in above], [factor for _, factor in above]
    response = call.response() if response is None else response
    return call.emit(_slopes(call, children, slopes), response, children, Provenance(gate=gate))


def _held(factor: Any) -> Any:
    return factor.detach() if isinstance(factor, Tensor) else factor


def _product(call: Call) -> Any:
    """Matrix products of values with weights, constant ones or those of attention."""
    factors = factors_of(call)
    if factors is None:
        return call.plain()
    left, right, first = factors.left, factors.right, weighs(factors.left, factors.right)
    if first == weighs(right, left):
        if is_above_tap(left) and is_above_tap(right):
            return call.refuse("a product of two activations, none of them weights or a gate")
        first = is_above_tap(right)  # the other one is constant
    return _mixture(call, factors, weights_first=first)


def _attention(call: Call) -> Any:
    """Fused attention: queries and keys decide the weights, and contribute nothing, so they need no way down."""
    query, key, value = (call.argument(k, name) for k, name in enumerate(("query", "key", "value")))
    if not is_above_tap(value):
        return set_provenance(call.response(), Provenance(gate=provenance.MIXTURE))
    if call.argument(4, "dropout_p", default=0.0) or call.argument(7, "enable_gqa", default=False):
        return attention.attention(call)
    with torch.no_grad():
        weights = attention.weights_of(call, query.detach(), key.detach(), lambda function, *args: function(*args))
    set_provenance(weights, Provenance(gate=provenance.ATTENTION))
    return _mixture(call, Factors(weights, value, torch.matmul, (range(weights.dim()), ())), weights_first=True)


def _mixture(call: Call, factors: Factors, *, weights_first: bool) -> Any:
    """Values times weights, with the way down to the values and, where they are read, to the weights."""
    both, at = [factors.left, factors.right], 0 if weights_first else 1
    weights, values = both[at], both[1 - at]
    known = Provenance(gate=provenance.MIXTURE if is_activation(weights) else gate_behind_weights(values))
    held = set_provenance(weights.detach(), provenance_of(weights)) if is_activation(weights) else weights.detach()
    read = read_weights(call, held, factors.orders[at])
    both[at] = held if read is None else read
    disturbed = call.mode.disturbs and read is not None
    response = factors.multiply(*map(Tensor.detach, both)) if disturbed else call.response()
    inputs = [each for each in both if is_above_tap(each)]
    if not inputs:
        return set_provenance(response, known)
    if call.name != "einsum" and min(each.dim() for each in both) > 1:
        left, right = map(call.mode.memory.keep, both)
        return call.emit(MatrixProduct(left, right, list(map(is_above_tap, both))), response, inputs, known)

    def multiply(*leaves: Tensor) -> Tensor:
        given = iter(leaves)
        return factors.multiply(*(next(given) if is_above_tap(each) else each.detach() for each in both))

    return call.emit(Gradient(call, inputs, multiply), response, inputs, known)


_HANDLERS: dict[str, Callable[[Call], Any]] = {  # by the column
    "weights": _weights,
    "product": _product,
    "one-to-one": _one_to_one,
    "multiplication": _multiplication,
    "division": _division,
}
_BY_NAME: dict[str, Callable[[Call], Any]] = {
    "add": _sum,
    "sub": _sum,
    "dropout": lambda call: call.plain() if call.argument(2, "training", default=True) else call.subject,
    "scaled_dot_product_attention": _attention,
}


def _row(name: str, row: Operation) -> Operation:
    """A row of the table with the rules of this module; "same": as it is, "": the plain gradient."""
    if name not in _BY_NAME and (row.gradient == "same" or name.startswith("add")):
        return row  # as it is, or made of simpler ones
    return row._replace(handler=_BY_NAME.get(name, _HANDLERS.get(row.gradient)))


LINEARISED = {name: _row(name, row) for name, row in OPERATIONS.items()}
