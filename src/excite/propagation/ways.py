"""The table of ways: which operation follows which of the rules in `excite.propagation.steps`, and what is refused."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.errors import NoRuleError
from excite.propagation.competing import convolution, einstein_sum, product, product_with_bias
from excite.propagation.graph import children_of, copies, hidden, node_name, nodes_below, rule_of
from excite.propagation.notes import Note, is_traced, note_of, tensors_in
from excite.propagation.operations import OPERATIONS
from excite.propagation.passing import (
    activation,
    bounded_activation,
    hidden_flag,
    main_and_gate,
    norm,
    same,
    softmax,
    value,
)
from excite.propagation.steps import NoRelevance, OneToOne, Product, Rectifier, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from excite.propagation.call import Call, Operation
    from excite.propagation.steps import Switch, Way

__all__ = ["operations", "refuse_unruled"]

_RECTIFIERS = frozenset(
    "relu relu6 leaky_relu prelu rrelu elu selu celu gelu silu mish hardswish softplus threshold".split()
)
_CLAMPS = frozenset("hardtanh clamp clip clamp_min".split())  # rectifiers where they cut at 0
_RECTIFYING_NODES = frozenset("Relu LeakyRelu Elu Gelu Silu Mish Hardswish Softplus PreluKernel Threshold".split())
_LINEAR_NODES = frozenset(
    """Add Sub Rsub Mul Div Neg Mean Sum Cumsum Lerp NativeDropout AvgPool2D AvgPool3D MkldnnAvgPool2D AdaptiveAvgPool2D
    AdaptiveAvgPool3D MkldnnAdaptiveAvgPool2D UpsampleLinear1D UpsampleBilinear2D UpsampleTrilinear3D UpsampleBicubic2D
    UpsampleBilinear2DAa UpsampleBicubic2DAa Col2Im""".split()
)


def _step(kind: type[Step], switch: Switch, call: Call, main: Tensor | None, gate: int = 0) -> Any:
    """Answer a call with a rule of that kind; ``main`` is the child that says what."""
    children = list({id(tensor): tensor for tensor in _traced(call)}.values())
    if not children:
        return call.emit(None, call.response(), [], Note(gate=gate))
    place = next((k for k, child in enumerate(children) if child is main), None)
    rule = kind(switch, call, children, place)
    return call.emit(rule, rule.result.detach(), children, Note(gate=gate))


def _traced(call: Call) -> list[Tensor]:
    return [tensor for tensor in tensors_in((call.args, call.kwargs)) if is_traced(tensor)]


def _weighted(switch: Switch, call: Call) -> Any:
    """Convolutions and full connections."""
    return _step(Step, switch, call, call.subject)


def _product(switch: Switch, call: Call) -> Any:
    """Matrix products: with weights, with a gate (attention over values), or of two activations."""
    first, *others = {id(tensor): tensor for tensor in _traced(call)}.values() or [None]
    if not others:
        return _step(Step, switch, call, first)
    ranks = [note_of(tensor).gate for tensor in (first, *others)]
    if ranks.count(min(ranks)) > 1 or len(ranks) > 2:
        return _step(NoRelevance, switch, call, None)
    return _step(Product, switch, call, (first, *others)[ranks.index(min(ranks))])


def _multiplication(switch: Switch, call: Call) -> Any:
    """A multiple is linear; two activations are a product; a square is a function of one."""
    left, right = call.subject, call.argument(1, "other")
    if not (is_traced(left) and is_traced(right)):
        return call.plain()
    if left is right:
        return _step(OneToOne, switch, call, left)
    return _step(Product, switch, call, main_and_gate(left, right)[0])


def _division(switch: Switch, call: Call) -> Any:
    """Whatever divides only scales."""
    above, below = call.subject, call.argument(1, "other")
    if not is_traced(below):
        return call.plain()
    return _step(Product, switch, call, above) if is_traced(above) else _step(OneToOne, switch, call, below)


def _one_to_one(switch: Switch, call: Call) -> Any:
    """Activation functions, norms, softmax; a norm with fixed statistics has weights."""
    if call.name == "batch_norm" and not call.argument(5, "training", default=False):
        return _weighted(switch, call)
    clamped = call.name in _CLAMPS and _cuts_at_zero(call)
    kind = Rectifier if clamped or call.name in _RECTIFIERS else OneToOne
    gate = 2 if "sigmoid" in call.name or "softmax" in call.name else 1 if call.name == "tanh" else 0
    return _step(kind, switch, call, call.subject, gate)


def _cuts_at_zero(call: Call) -> bool:
    args, kwargs = call.options
    return bool((call.function(call.subject.detach().new_full((1,), -math.inf), *args, **kwargs) == 0).all())


def _larger(switch: Switch, call: Call) -> Any:
    """``maximum(x, 0)`` is ReLU in other words; any other maximum copies values."""
    other = call.argument(1, "other", "dim")
    operands = [call.subject, other] if isinstance(other, Tensor) else []
    main = [tensor for tensor in operands if is_traced(tensor)]
    if len(main) == 1 and not any(bool(tensor.any()) for tensor in operands if tensor is not main[0]):
        return _step(Rectifier, switch, call, main[0])
    return call.plain()


_KINDS: dict[Operation, Callable[[Switch, Call], Any]] = {
    **dict.fromkeys((convolution,), _weighted),
    **dict.fromkeys((product, product_with_bias, einstein_sum), _product),
    **dict.fromkeys((activation, bounded_activation, softmax, norm), _one_to_one),
}


def operations(switch: Switch) -> dict[str, Operation]:
    """The table of operations for all ways. What is not in it has a plain gradient, which `refuse_unruled` judges."""
    table: dict[str, Operation] = {
        name: partial(_KINDS[operation], switch) for name, operation in OPERATIONS.items() if operation in _KINDS
    }
    table |= {name: operation for name, operation in OPERATIONS.items() if operation in {same, hidden_flag, value}}
    table |= dict.fromkeys(_RECTIFIERS, partial(_one_to_one, switch))
    table |= dict.fromkeys(("maximum", "max"), partial(_larger, switch))
    return table | {"mul": partial(_multiplication, switch), "div": partial(_division, switch)}


def refuse_unruled(output: Tensor, way: Way) -> None:
    """Refuse a way that would meet operations without a rule for it. The true gradient needs no rules."""
    for node in [] if way == "grad" else _on_the_way(output, way):
        name = node_name(node)
        ruled = copies(node) or name in _LINEAR_NODES
        if way == "lrp" and not ruled:
            raise NoRuleError(node.metadata.get("excite") or hidden(name))
        if way != "lrp" and (name in _RECTIFYING_NODES or (not ruled and _is_foreign(node))):
            raise NoRuleError(hidden(name))


def _on_the_way(output: Tensor, way: Way) -> Iterator[Any]:
    """All nodes that a signal comes through; relevance does not go into gates and divisors."""

    def below(node: Any) -> list[Any]:
        rule, children = rule_of(node), children_of(node)
        main = rule.main if way == "lrp" and isinstance(rule, Step) else None
        return children if main is None else [children[main]]

    return nodes_below(output.grad_fn, below)


def _is_foreign(node: Any) -> bool:
    """Made by somebody's own autograd.Function, or by TorchScript: there may be a rectifier in it."""
    return isinstance(node, torch.autograd.function.BackwardCFunction) or "jit" in type(node).__name__
