"""Attention: fused operations as the simpler ones they are made of, and the rule of weights that the image decides.

Attention mixes values, ``y_i = sum_j w_ij v_j`` with weights ``w = softmax(q k / sqrt(d) + mask)``. The weights are a
data-dependent gate: P(value token j | output token i) is the share of what j added to i, ``w_ij v_j`` (Eqn. 4 with
``w_ij`` in the place of the weight). Queries and keys decide the weights, add nothing to the output, and get nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from excite.errors import LayerError
from excite.propagation import provenance
from excite.propagation.provenance import Provenance, is_above_tap, is_activation, provenance_of, set_provenance
from excite.propagation.rewrites import exactly
from excite.propagation.rules import Rule, split_by_sign, total_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.propagation.graph import Saved
    from excite.propagation.mode import Call, RuleMode
    from excite.propagation.rules import Shares

    Multiply = Callable[[Tensor, Tensor], Tensor]  # of weights and values

# --- the rule --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Mixing(Rule):
    """A product of weights that the image decides with values: ``y_ic = sum_j w_ij v_jc`` for each channel c.

    The contributions ``w_ij v_jc`` with the sign of y_ic share its probability. Summed over i they are what arrives at
    the values; summed over c they are the flow along each edge, from output token i to value token j.
    """

    multiply: Multiply
    weights: Saved
    values: Saved
    baseline: Tensor | None  # lambda, of the values (Eqn. 5)
    to_values: bool  # whether the values lead to a tapped layer
    to_edges: bool  # whether the flow along the edges is read
    outputs = 2

    def down(self, *probabilities: Tensor | None) -> Shares:
        """What arrives at the values, and what flows along the edges, as far as either is read."""
        half = self.values.tensor.dtype in {torch.float16, torch.bfloat16}  # cannot hold sums of many small products
        dtype = torch.float32 if half else self.values.tensor.dtype
        given = self.weights.tensor.detach().to(dtype)
        parts = [split_by_sign(each, at) for each, at in ((given, None), (self.values.tensor.to(dtype), self.baseline))]
        found: list[Tensor | None] = [None, None]
        for sign, probability in zip((1, -1), probabilities, strict=True):
            if probability is not None:
                self._share(sign, probability.to(dtype), parts, found)
        return tuple(found[k] for k, read in enumerate((self.to_values, self.to_edges)) if read)

    def _share(self, sign: int, probability: Tensor, parts: Sequence[Sequence[Tensor]], found: list[Any]) -> None:
        """Add the shares of the units whose response has that sign."""
        (up, down), (above, below) = ([each.detach().requires_grad_() for each in pair] for pair in parts)
        pairs = [(up, above), (down, below)] if sign > 0 else [(up, below), (down, above)]
        pairs = [pair for pair in pairs if all(map(_any, pair))]
        if not pairs:
            return
        with torch.enable_grad():
            total = total_of([self.multiply(*pair) for pair in pairs])
        ratio = probability * self.reciprocal(total.detach(), sign)
        for k, read in enumerate((self.to_values, self.to_edges)):
            if read:
                leaves = [pair[1 - k] for pair in pairs]
                each = [torch.autograd.grad(total, leaves, one, retain_graph=True) for one in ratio]
                for leaf, shares in zip(leaves, zip(*each, strict=True), strict=True):
                    share = torch.stack(shares) * leaf.detach()
                    found[k] = share if found[k] is None else found[k] + share


def mixture(call: Call, weights: Tensor, values: Tensor, multiply: Multiply, order: Sequence[int]) -> Any:
    """The response of a product of weights that the image decides with values, with its rule.

    ``order``: the dimensions of the weights as (..., queries, keys).
    """
    known, inputs = provenance_of(values), [values] if is_above_tap(values) else []
    read = read_weights(call, set_provenance(weights.detach(), provenance_of(weights)), order)
    response = call.response() if read is None or not call.mode.disturbs else multiply(read.detach(), values.detach())
    if read is not None:
        inputs.append(read)
    if not inputs:  # where only the weights depend on the layer they are a gate
        return set_provenance(response, Provenance(gate=provenance.MIXTURE, preactivation=True))
    keep = call.mode.memory.keep
    rule = Mixing(multiply, keep(weights), keep(values), known.baseline, is_above_tap(values), read is not None)
    return call.compete(rule, response, inputs, None, Provenance(gate=provenance.MIXTURE))


def _any(values: Tensor) -> bool:
    return bool(values.any())


# --- products of two tensors ---------------------------------------------------------------------------------------


class Factors(NamedTuple):
    """The two factors of a matrix product."""

    left: Tensor
    right: Tensor
    multiply: Multiply
    orders: tuple[Sequence[int], Sequence[int]]  # the dimensions of each as (..., queries, keys), if it holds weights


def factors_of(call: Call) -> Factors | None:
    """The factors of a matrix product; None: there are not two."""
    if call.name != "einsum":
        left, right = call.subject, call.argument(1, "mat2", "other", "vec2", "vec")
        *batch, last = range(right.dim())
        swapped = [*batch[:-1], last, *batch[-1:]]  # the weights stand behind the values: (..., keys, queries)
        return Factors(left, right, call.function, (range(left.dim()), swapped))
    equation, *operands = call.args
    operands = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    if len(operands) != 2 or not isinstance(equation, str):
        return None
    orders = _order(equation, 0, operands[0]), _order(equation, 1, operands[1])
    return Factors(operands[0], operands[1], partial(call.function, equation), orders)


def _order(equation: str, number: int, weights: Tensor) -> Sequence[int]:
    """The dimensions of an operand of ``einsum`` as (..., queries, keys): keys are summed over, values have no queries.

    As they are, where there are several of either.
    """
    inputs, _, output = equation.replace(" ", "").partition("->")
    own, other = inputs.split(",")[number], inputs.split(",")[1 - number]
    queries, keys = [k for k in own if k in output and k not in other], [k for k in own if k not in output]
    if len(own) != weights.dim() or len(queries) != 1 or len(keys) != 1:
        return range(weights.dim())
    rest = [k for k in own if k not in {*queries, *keys}]
    return [own.index(k) for k in (*rest, *queries, *keys)]


def weighs(tensor: Tensor, other: Tensor) -> bool:
    """Whether ``tensor`` holds the weights of ``other``: constants do, and what gates it."""
    if not is_activation(tensor):
        return True
    return is_activation(other) and provenance_of(tensor).gate > provenance_of(other).gate


def with_read_weights(call: Call) -> Call:
    """The same product with the weights of attention behind a tap, where the edges of the running module are read."""
    found = None if call.mode.read_weights is None else factors_of(call)
    if found is None or weighs(found.left, found.right) == weighs(found.right, found.left):
        return call
    first = weighs(found.left, found.right)
    weights, order = (found.left, found.orders[0]) if first else (found.right, found.orders[1])
    read = read_weights(call, weights, order)
    return call if read is None else call.exchanged(weights, read)


def read_weights(call: Call, weights: Tensor, order: Sequence[int]) -> Tensor | None:
    """The weights of attention behind a tap, where the edges of the running module are read."""
    if call.mode.read_weights is None or not is_activation(weights) or provenance_of(weights).gate <= 0:
        return None
    back = [list(order).index(k) for k in range(weights.dim())]
    with torch.enable_grad():
        read = call.mode.read_weights(weights.permute(*order))
        return None if read is None else set_provenance(read.permute(*back), provenance_of(weights))


# --- fused operations ------------------------------------------------------------------------------------------------


def attention(call: Call) -> Any:
    """``scaled_dot_product_attention``: scores, softmax, and the product with the values.

    The response is that of the fused call, to the bit. With dropout it is that of the parts.
    """
    if not call.above_tap and call.mode.read_weights is None:
        return set_provenance(call.response(), Provenance(gate=provenance.MIXTURE, preactivation=True))
    run = call.mode.run
    query, key, value = (call.argument(k, name) for k, name in enumerate(("query", "key", "value")))
    if call.argument(7, "enable_gqa", default=False):  # several heads of the queries share one of keys and values
        heads = query.shape[-3]
        key, value = (run(torch.repeat_interleave, each, heads // each.shape[-3], -3) for each in (key, value))
    weights, dropped = weights_of(call, query, key, run), call.argument(4, "dropout_p", default=0.0)
    if dropped:
        return run(torch.matmul, run(torch.nn.functional.dropout, weights, dropped), value)
    return exactly(call, run(torch.matmul, weights, value))


def weights_of(call: Call, query: Tensor, key: Tensor, run: Callable[..., Any]) -> Any:
    """``softmax(q k / sqrt(d) + mask)``, each step by ``run``; rows that are masked altogether are 0."""
    scale, mask = call.argument(6, "scale"), call.argument(3, "attn_mask")
    scores = run(torch.matmul, query, run(torch.transpose, key, -2, -1))
    scores = run(torch.mul, scores, 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale))
    if call.argument(5, "is_causal", default=False):
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is None:
        return run(torch.softmax, scores, -1)
    if mask.dtype == torch.bool:
        scores = run(torch.masked_fill, scores, run(torch.logical_not, mask), -math.inf)
    else:
        scores = run(torch.add, scores, mask)
    masked = (scores.detach() == -math.inf).all(-1, keepdim=True)
    weights = run(torch.softmax, run(torch.masked_fill, scores, masked, 0.0), -1)
    return run(torch.masked_fill, weights, masked, 0.0)


def seen_through(call: Call) -> Any:
    """``multi_head_attention_forward``: torch's own code in Python, with each of its calls seen by the mode."""
    code: Any = call.function
    names = {**code.__globals__, "has_torch_function": lambda _arguments: False}  # or it would call the mode again
    body = FunctionType(code.__code__, names, code.__name__, code.__defaults__, code.__closure__)
    with call.mode:
        return body(*call.args, **call.kwargs)


# --- edges as layers -------------------------------------------------------------------------------------------------

EDGES = ":edges"  # behind the name of a module


def split_edges(layer: str) -> tuple[str, int]:
    """The module whose edges a layer is, and which of its products of weights with values is meant (-1: the last)."""
    name, _, number = layer.partition("#")
    if number and not number.isdecimal():
        raise LayerError(f"no layer {layer!r}: the edges of a module's attention are counted from {name}#0 on")
    return name.removesuffix(EDGES), int(number or -1)


def read_edges(
    mode: RuleMode, found: dict[str, list[Any]], tap: Callable[[Tensor], tuple[Any, Tensor]]
) -> Callable[[Tensor], Tensor | None]:
    """Tap the weights of attention in the modules that ``found`` names, and add the readings to it."""

    def read(weights: Tensor) -> Tensor | None:
        name = mode.module_name()
        if name not in found:
            return None
        mode.below = False
        heads = getattr(mode.module.get_submodule(name), "num_heads", 1)
        apart = weights.dim() == 3 and isinstance(heads, int) and len(weights) % heads == 0
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - our own mode must not see the tap
            reading, given = tap(weights.reshape(-1, heads, *weights.shape[1:]) if apart else weights)
            found[name].append(reading)
            return given.flatten(0, 1) if apart else given

    return read
