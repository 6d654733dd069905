"""Gradients, deconvolution, guided backpropagation and two kinds of relevance, after one forward pass.

Each operation keeps a small graph of its own for its true gradient; where a variant differs from it, a rule says how.

| | rectifier ``y = f(x)`` | weights ``y = W x + b`` | one-to-one ``y = f(x)`` | product of two activations |
|---|---|---|---|---|
| grad | f'(x) g | W' g | f'(x) g | to both |
| deconv | max(g, 0) | W' g | f'(x) g | to both |
| guided | f'(x) max(g, 0) | W' g | f'(x) g | to both |
| lrp | g y / x | W' (g y / (y + e sign y)) | g y / x | to what is gated, or half to each |
| attn-lrp | g y / x | the same, or the gamma rule | g y / x; softmax f'(x) g | half to each |

The functions that replaced ReLU are rectifiers as well, with their derivative in the place of its mask. For relevance
the signal is ``g = R / activation``: what is linear without weights (sums, pooling) passes that on by its plain
gradient. ``attn-lrp`` (Achtibat et al. 2024) differs from ``lrp`` in what is between weights. Softmax, ``s = f(x)``, is
expanded at x: ``R_i = x_i (R_i - s_i sum_j R_j)``, which is its plain gradient in terms of g. Layer and group norms are
linear for the deviation that they divide by, so that their mean takes its part. The gamma rule favours the
contributions that moved a unit the way it responded, as ``w + gamma w+`` where that was up (Montavon et al. 2019):
without it relevance in a vision transformer is noisy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from excite.errors import LayerError, MethodError, NoRuleError
from excite.propagation.attention import with_read_weights
from excite.propagation.excitation_pass import check_shape
from excite.propagation.graph import copies, hidden, node_name, refusal, rule_of
from excite.propagation.operations import NODES, OPERATIONS, Operation, main_and_gate, range_of, without_bias
from excite.propagation.provenance import (
    Provenance,
    gate_behind_weights,
    is_above_tap,
    nodes_below,
    provenance_of,
    set_provenance,
)
from excite.propagation.rules import LinearOperation, Rule, Shares, signed_part
from excite.propagation.taps import ForwardPass, Layers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.propagation.mode import Call

Variant = Literal["grad", "deconv", "guided", "lrp", "attn-lrp"]
RELEVANCE = frozenset[Variant]({"lrp", "attn-lrp"})


class Gamma(NamedTuple):
    """How much more the contributions count that moved a unit the way it responded."""

    convolution: float = 0.0
    dense: float = 0.0


NO_GAMMA = Gamma()


class Gradients(ForwardPass):
    """The forward pass of a network, and the gradients of its output with respect to its layers, in five variants.

    ReLUs are found wherever they are called (``F.relu``, ``x.relu_()``, one module used many times), so the network
    needs no preparation.

    Attributes:
        output: the network's output units, exactly as the network gives them.
        activations: for each layer its output.

    Args:
        module: any network in plain PyTorch. It is left exactly as it was found.
        inputs: what it is called with: a tensor, or a tuple of arguments.
        layers: as in `ExcitationPass`; ``input`` is the image itself.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> gradients = Gradients(net, torch.ones(1, 1, 4, 4), ["1", "input"])
        >>> signal = torch.tensor([[1.0, 0.0, 0.0]])
        >>> gradients.down(signal)["1"].shape
        torch.Size([1, 2, 2, 2])
        >>> gradients.down(signal, "guided", layers=["input"])["input"].shape
        torch.Size([1, 1, 4, 4])
    """

    top = ForwardPass.top  # part of the public interface

    def __init__(self, module: nn.Module, inputs: Tensor | tuple[Any, ...], layers: Layers) -> None:
        self._switch = Switch()
        super().__init__(module, inputs, layers, _operations(self._switch))
        self._checked: set[Variant] = set()

    def down(
        self,
        signal: Tensor,
        variant: Variant = "grad",
        *,
        epsilon: float = 1e-9,
        gamma: Gamma = NO_GAMMA,
        layers: Sequence[str] | None = None,
    ) -> dict[str, Tensor]:
        """The gradient of the signal's weighted sum of output units, or a variant of it, at the layers.

        Args:
            signal: the weight of each output unit, of the output's shape.
            variant: ``grad``: the gradient. ``deconv``: the same, but at rectifiers positive signals pass and negative
                ones do not, whether or not the rectifier was active (Zeiler and Fergus 2014). ``guided``: positive
                signals pass where it was active (Springenberg 2015). ``lrp``: relevance by the epsilon rule (Bach
                2015). There a unit of relevance starts at each cued output, so the relevances of a layer sum to the
                signal, less what biases and the epsilon took. Where an output is exactly 0 nothing starts.
                ``attn-lrp``: the same with rules for attention (Achtibat 2024).
            epsilon: of relevance, in units of the responses that it stabilises.
            gamma: of ``attn-lrp``, for convolutions and for dense layers; 0 is the epsilon rule.
            layers: the layers to read; None: all. What lies below them is not computed.

        Returns:
            for each layer a tensor of the shape of its output.
        """
        check_shape(signal, self.output)
        if variant not in get_args(Variant):
            raise MethodError(f"there is no way down named {variant!r}: use one of {', '.join(get_args(Variant))}")
        if variant not in self._checked:
            _refuse_unruled(self.top, variant)
            self._checked.add(variant)
        wanted = list(self.readings) if layers is None else list(layers)
        if not wanted:
            raise LayerError("no layer is read: name at least one")
        self._switch.variant, self._switch.epsilon, self._switch.gamma = variant, epsilon, gamma
        start = signal.to(self.output.dtype)
        if variant in RELEVANCE:
            start = torch.where(self.output == 0, 0, start / self.output)
        with torch.inference_mode(mode=False):
            probes = [self.readings[layer].probe for layer in wanted]
            found = torch.autograd.grad(self._traced, probes, start, retain_graph=True, materialize_grads=True)
        arrived = dict(zip(wanted, found, strict=True))
        if variant in RELEVANCE:
            arrived = {layer: self.readings[layer].activation * each for layer, each in arrived.items()}
        self.check_maps(arrived.values())
        return self.in_places(arrived)


# --- the rules -------------------------------------------------------------------------------------------------------


@dataclass
class Switch:
    """The variant that all rules of a forward pass compute at present."""

    variant: Variant = "grad"
    epsilon: float = 0.0
    gamma: Gamma = NO_GAMMA


class Step(Rule):
    """An operation with a small graph of its own: its true gradient, unless a variant differs.

    ``main`` is the child that takes the relevance, by its weights; others (weights, gates) only scale.
    """

    def __init__(self, switch: Switch, call: Call, children: Sequence[Tensor], main: int | None) -> None:
        self.switch, self.main, keep = switch, main, call.mode.memory.keep
        leaves = {id(child): child.detach().requires_grad_() for child in children}

        def leaf_of(tensor: Tensor) -> Tensor:
            leaf = leaves.get(id(tensor))
            if leaf is None:
                return tensor.detach() if tensor.requires_grad else tensor
            return leaf.clone() if call.in_place and tensor is call.subject else leaf  # it may be written to

        args, kwargs = tree_map_only(Tensor, leaf_of, (call.args, call.kwargs))
        with torch.enable_grad(), call.mode.memory.saving():
            self.leaves, self.result = list(leaves.values()), call.function(*args, **kwargs)
        self.child, self.response = keep(self.leaves[main or 0]), keep(self.result)

    def down(self, *signals: Any) -> Shares:
        """The signals of the children, in the variant of the switch."""
        (signal,) = signals
        ways = {"lrp": self._relevance, "attn-lrp": self._attended_relevance}
        return ways.get(self.switch.variant, self._gradient)(signal)

    def heir(self, variant: Variant) -> int | None:
        """The child that alone takes the relevance; None: there may be several, or it is no relevance."""
        return self.main if variant in RELEVANCE else None

    def _gradient(self, signal: Tensor) -> Shares:
        signal = signal.contiguous()  # torch's batch norm gives wrong gradients for one image with another order
        return torch.autograd.grad(self.result, self.leaves, signal, retain_graph=True, allow_unused=True)

    def _relevance(self, signal: Tensor) -> Shares:
        """The epsilon takes relevance from units that hardly responded: g y / (y + e sign y)."""
        response = self.response.tensor
        stable = signal * (response / self._stabilised(response)).nan_to_num(nan=0.0)
        return self._only_main(self._gradient(stable)[self.main or 0])

    def _attended_relevance(self, signal: Tensor) -> Shares:
        """As `_relevance`, unless ``attn-lrp`` differs."""
        return self._relevance(signal)

    def _stabilised(self, total: Tensor) -> Tensor:
        epsilon = torch.full((), self.switch.epsilon, dtype=total.dtype, device=total.device)
        return total + torch.copysign(epsilon, total)

    def _only_main(self, share: Tensor | None) -> Shares:
        return tuple(share if k == self.main else None for k in range(len(self.leaves)))


class Weights(Step):
    """A convolution or dense layer ``f(input, weight, bias)``."""

    def __init__(self, switch: Switch, call: Call, children: Sequence[Tensor], main: int | None) -> None:
        super().__init__(switch, call, children, main)
        self.dense, self.operation = call.name == "linear", without_bias(call)
        self.weight, self.bias = call.argument(1, "weight").detach(), call.argument(2, "bias")

    def _attended_relevance(self, signal: Tensor) -> Shares:
        """The gamma rule: ``R_j = sum_i x_j (w_ji + gamma w_ji±) R_i / sum_k x_k (w_ki + gamma w_ki±)``.

        The sign is such that ``x_j w_ji±`` has the sign of the response y_i. A bias takes part like a child of value 1.
        """
        gamma = self.switch.gamma.dense if self.dense else self.switch.gamma.convolution
        if not gamma or self.main is None:
            return self._relevance(signal)
        child, response = self.child.tensor.detach(), self.response.tensor.detach()
        share = torch.zeros_like(child)
        for sign in (1, -1):
            weights = [self.weight + gamma * signed_part(self.weight, each) for each in (sign, -sign)]
            linear = LinearOperation(self.operation, weights)
            total = linear.totals(torch.stack([child.clamp(min=0), child.clamp(max=0)])) + self._favoured_bias(
                gamma, sign
            )
            relevance = torch.where(response * sign > 0, signal * response, 0)
            above, below = linear.back((relevance / self._stabilised(total)).nan_to_num(nan=0.0)[None])[0]
            share += torch.where(child < 0, below, above)
        return self._only_main(share)

    def _favoured_bias(self, gamma: float, sign: int) -> Tensor | float:
        if self.bias is None:
            return 0.0
        bias: Tensor = self.bias.detach() + gamma * signed_part(self.bias, sign)
        return bias.reshape(-1, *[1] * (self.weight.dim() - 2))


class OneToOne(Step):
    """A unit with one child, which takes its relevance whatever the function: g y / x, and 0 where x = 0."""

    def _relevance(self, signal: Tensor) -> Shares:
        child = self.child.tensor
        relevance = (signal * self.response.tensor).sum_to_size(child.shape)
        return self._only_main(torch.where(child == 0, 0, relevance / child))


class Rectifier(OneToOne):
    """ReLU and its kind, at which deconvolution and guided backpropagation let only positive signals through."""

    def down(self, *signals: Any) -> Shares:
        """The signals of the children, in the variant of the switch."""
        (signal,) = signals
        if self.switch.variant == "deconv":
            return self._only_main(signal.clamp(min=0))
        return super().down(signal.clamp(min=0) if self.switch.variant == "guided" else signal)


class Softmax(OneToOne):
    """Each output depends on all inputs."""

    def _attended_relevance(self, signal: Tensor) -> Shares:
        """The expansion at x, whose constant term takes its part: R_i = x_i (R_i - s_i sum_j R_j)."""
        return self._gradient(signal)


class Norm(OneToOne):
    """A layer or group norm, whose mean and deviation depend on many children."""

    def __init__(self, switch: Switch, call: Call, children: Sequence[Tensor], main: int | None) -> None:
        super().__init__(switch, call, children, main)
        self.linear = linear_norm(call)

    def _attended_relevance(self, signal: Tensor) -> Shares:
        """The gradient for a constant deviation: the mean takes its part."""
        child = self.child.tensor.detach().requires_grad_()
        with torch.enable_grad():
            response = self.linear(child)
        return self._only_main(torch.autograd.grad(response, child, signal)[0])


class Product(Step):
    """Two activations that are multiplied: what is gated takes all; without a gate they are equally needed."""

    def _relevance(self, signal: Tensor) -> Shares:
        shares = self._gradient(signal if self.main is not None else signal / 2)
        return shares if self.main is None else self._only_main(shares[self.main])

    def heir(self, variant: Variant) -> int | None:
        """By ``lrp`` what is gated."""
        return self.main if variant == "lrp" else None

    def _attended_relevance(self, signal: Tensor) -> Shares:
        """Also a gate is needed: the same to each."""
        return self._gradient(signal / len(self.leaves))


class Quotient(Product):
    """An activation over another, which only scales it."""

    def heir(self, variant: Variant) -> int | None:
        """The dividend."""
        return self.main if variant in RELEVANCE else None

    def _attended_relevance(self, signal: Tensor) -> Shares:
        return self._relevance(signal)


class NoRelevance(Product):
    """A sum of products of activations, none of them a gate: whose relevance it is ``lrp`` does not define."""

    def __init__(self, switch: Switch, call: Call, children: Sequence[Tensor], main: int | None) -> None:
        super().__init__(switch, call, children, main)
        reason = "a product of two activations, none of them weights or a gate"
        self.refusal = refusal(call.name, call.mode.module_name(), reason)

    def _relevance(self, _signal: Tensor) -> Shares:
        raise NoRuleError(self.refusal)


# --- which operation follows which rule: the column ``gradient`` of the table ----------------------------------------


def _operations(switch: Switch) -> dict[str, Operation]:
    """The table of operations with the rules of this module; "same": as it is, "": the plain gradient."""
    handlers = {kind: partial(handler, switch) for kind, handler in _HANDLERS.items()}
    return {
        name: row if row.gradient == "same" else row._replace(handler=handlers.get(row.gradient))
        for name, row in OPERATIONS.items()
    }


def _above(tensors: Sequence[Any]) -> list[Tensor]:
    return list({id(tensor): tensor for tensor in tensors if is_above_tap(tensor)}.values())


def _step(kind: type[Step], switch: Switch, call: Call, main: Tensor | None) -> Any:
    """Give the response of a call a rule of that kind; ``main`` is the child that takes the relevance."""
    children, known = _above(call.tensors), Provenance(gate=call.operation.gate)
    if not children:
        return set_provenance(call.response(), known)
    rule = kind(switch, call, children, next((k for k, child in enumerate(children) if child is main), None))
    return call.emit(rule, rule.result.detach(), children, known)


def _weights(switch: Switch, call: Call, kind: type[Step] = Weights) -> Any:
    """Convolutions and dense layers."""
    response = _step(kind, switch, call, call.subject)
    return set_provenance(response, Provenance(gate=gate_behind_weights(call.subject)))


def _product(switch: Switch, call: Call) -> Any:
    """Matrix products: with weights, with a gate (attention over values), or of two activations."""
    call = with_read_weights(call)
    above = _above(call.tensors)
    if len(above) < 2:
        return _step(Step, switch, call, above[0] if above else None)
    ranks = [provenance_of(tensor).gate for tensor in above]
    if ranks.count(min(ranks)) > 1 or len(ranks) > 2:
        return _step(NoRelevance, switch, call, None)
    return _step(Product, switch, call, above[ranks.index(min(ranks))])


def _multiplication(switch: Switch, call: Call) -> Any:
    """A multiple is linear; two activations are a product; a square is a function of one."""
    left, right = call.subject, call.argument(1, "other")
    if not (is_above_tap(left) and is_above_tap(right)):
        return call.plain()
    if left is right:
        return _step(OneToOne, switch, call, left)
    return _step(Product, switch, call, main_and_gate(left, right)[0])


def _division(switch: Switch, call: Call) -> Any:
    """A divisor only scales."""
    above, below = call.subject, call.argument(1, "other")
    if not is_above_tap(below):
        return call.plain()
    return _step(Quotient, switch, call, above) if is_above_tap(above) else _step(OneToOne, switch, call, below)


def _one_to_one(switch: Switch, call: Call) -> Any:
    """Activation functions, norms, softmax; a norm with fixed statistics has weights."""
    if call.name == "batch_norm" and not call.argument(5, "training", default=False):
        return _weights(switch, call, Step)
    if call.name in _SPREAD:
        return _step(_SPREAD[call.name], switch, call, call.subject)
    rectifies = call.operation.rectifies == "always"
    if call.operation.rectifies == "from 0":
        bounded, _, moved, _ = range_of(call)
        rectifies = bounded and not moved
    return _step(Rectifier if rectifies else OneToOne, switch, call, call.subject)


_SPREAD: dict[str, type[Step]] = {
    "layer_norm": Norm,
    "group_norm": Norm,
    **dict.fromkeys(("softmax", "softmin", "log_softmax"), Softmax),
}
"""Functions of one activation each of whose outputs depends on many of its units."""


def linear_norm(call: Call) -> Callable[[Tensor], Tensor]:
    """A layer or group norm without its shift, linear in its child: the deviation counts as a constant."""
    weight, epsilon = call.argument(2, "weight"), call.argument(4, "eps", default=1e-5)
    groups = call.argument(1, "num_groups") if call.name == "group_norm" else None
    dims = (2,) if groups else tuple(range(-len(call.argument(1, "normalized_shape")), 0))
    scale: Tensor | float = 1.0 if weight is None else weight.detach()
    if groups and isinstance(scale, Tensor):
        scale = scale.reshape(-1, *[1] * (call.subject.dim() - 2))

    def linear(child: Tensor) -> Tensor:
        values = child.reshape(len(child), groups, -1) if groups else child
        deviations = values - values.mean(dims, keepdim=True)
        variance = deviations.detach().square().mean(dims, keepdim=True)
        normal: Tensor = deviations * (variance + epsilon).rsqrt()
        return normal.reshape(child.shape) * scale

    return linear


def _maximum(switch: Switch, call: Call) -> Any:
    """``maximum(x, 0)`` is ReLU; any other maximum copies values."""
    other = call.argument(1, "other", "dim")
    operands = [call.subject, other] if isinstance(other, Tensor) else []
    main = [tensor for tensor in operands if is_above_tap(tensor)]
    if len(main) == 1 and not any(bool(tensor.any()) for tensor in operands if tensor is not main[0]):
        return _step(Rectifier, switch, call, main[0])
    return call.plain()


_HANDLERS: dict[str, Callable[[Switch, Call], Any]] = {
    "weights": _weights,
    "product": _product,
    "one-to-one": _one_to_one,
    "multiplication": _multiplication,
    "division": _division,
    "maximum": _maximum,
}


def _refuse_unruled(top: Any, variant: Variant) -> None:
    """Refuse a variant that would meet operations without a rule for it. The true gradient needs no rules."""

    def below(node: Any) -> list[Any]:  # relevance does not pass into gates and divisors
        rule, children = rule_of(node), [child for child, _ in node.next_functions]
        heir = rule.heir(variant) if isinstance(rule, Step) else None
        return children if heir is None else [children[heir]]

    for node in [] if variant == "grad" else nodes_below(top, below=below):
        name = node_name(node)
        row = NODES.get(name, Operation())
        ruled = copies(node) or row.linear
        if variant in RELEVANCE and not ruled:
            raise NoRuleError(node.metadata.get("excite") or hidden(name))
        # A custom autograd.Function or TorchScript may hold a rectifier.
        foreign = isinstance(node, torch.autograd.function.BackwardCFunction) or "jit" in type(node).__name__
        if variant not in RELEVANCE and (row.rectifies or (not ruled and foreign)):
            raise NoRuleError(hidden(name))
