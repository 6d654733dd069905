"""The rules: how the winning probability of an operation's outputs is handed down to its inputs.

Every unit of a network is a state of a Markov chain. When a unit wins, it draws the next winner among its children
with probability P(a_j | a_i), so the marginal winning probability (MWP) of all units of a layer is (paper, Eqn. 1)

    P(a_j) = sum_i P(a_j | a_i) P(a_i).

This has the form of a vector-Jacobian product in which the Jacobian is replaced by a transition matrix. So autograd
can carry the probabilities: `Winners` returns the true response on the way up and applies a rule on the way down,
and where a unit has several parents autograd adds what they send, which is the sum above. Operations that copy each
output from one input (ReLU, max pooling, reshaping, concatenation, padding) need no rule: their gradient is already
the transition matrix of a unit with a single child.

The paper assumes non-negative responses (A1): the children of a unit compete with their excitatory contributions
``x_j * w_ji`` where ``w_ji >= 0`` (Eqn. 3). Networks without that property are met with the same idea: the winners
are the children that pushed the unit the way it responded, that is the contributions ``x_j * w_ji`` that have the
sign of its response. With non-negative inputs and a positive response this is Eqn. 3 to the letter.

Which way a unit responded is not always seen in its own value: behind a convolution may stand a batch norm with a
negative scale or a large shift, and the two are one neuron. So an operation with competing children (`Affine`,
`Sum`) has two ports, one for the probability of units that won by being pushed up and one for those pushed down, and
`Facing` sends what arrives at the final response to one or the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.errors import NoRuleError, SignalError
from excite.propagation.keeping import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.propagation.keeping import Kept

__all__ = ["Affine", "Facing", "Halves", "Pass", "Refused", "Rule", "Sum", "Tap", "follow", "ports"]

Shares = tuple[Tensor | None, ...]


class Rule(ABC):
    """One operation's way down: from the probabilities of its outputs to those of its traced inputs."""

    cued = False  # set above and at the classifier's own weights: the signal says that these units are on
    normalised = True  # the paper's rules; without, the normaliser Z of Eqn. 3 is left out (the ablation "w/o norm")

    @abstractmethod
    def down(self, *probabilities: Tensor | None) -> Shares:
        """Hand the probabilities of the outputs down: one tensor for each input.

        Something arrived at one output at least; None stands for outputs where nothing did.
        """

    def ratio(self, probability: Tensor, total: Tensor) -> Tensor:
        """What a push of 1 earns: the probability over the total of all pushes, which all have one sign."""
        return _ratio(probability, total) if self.normalised else probability * total.sign()


class Winners(torch.autograd.Function):
    """An operation that gives its true response going up and follows its rule going down."""

    @staticmethod
    def forward(ctx: Any, rule: Rule, response: Callable[[], Any], *_inputs: Tensor) -> Any:
        """Compute the response; ``_inputs`` only tell autograd where the rule's shares go."""
        ctx.rule = rule
        ctx.set_materialize_grads(False)
        return response()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *probabilities: Tensor | None) -> Any:
        """Hand the probabilities down by the rule."""
        if all(probability is None for probability in probabilities):  # an absorbing layer lies above
            return (None,) * len(ctx.needs_input_grad)
        return (None, None, *ctx.rule.down(*probabilities))


def follow(rule: Rule, response: Callable[[], Any], inputs: Sequence[Tensor]) -> Any:
    """The response, with ``rule`` as its way down to ``inputs``."""
    with torch.enable_grad():
        return Winners.apply(rule, response, *inputs)  # type: ignore[no-untyped-call]  # torch has no type for it


def ports(rule: Rule, like: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The two ports of an operation whose children compete: only their places in the graph matter, not their values."""
    up, down = follow(rule, lambda: (_blank(like), _blank(like)), inputs)
    return up, down


def _blank(like: Tensor) -> Tensor:
    return like.new_zeros(()).expand(like.shape)


class Pass(Rule):
    """A unit with one child hands its whole probability to it (paper: ReLU and LRN layers)."""

    def __init__(self, shape: torch.Size, winning: Tensor | None = None) -> None:
        self.shape = shape  # of the child: smaller than the output when it was broadcast
        self.winning = winning  # which units can win at all; None: every one

    def down(self, *probabilities: Any) -> Shares:
        """P(child) = P(parent), zero where the child contributed nothing."""
        (probability,) = probabilities
        if self.winning is not None and not self.cued:
            probability = probability * self.winning
        return (probability.sum_to_size(self.shape),)


class Halves(Rule):
    """A product of two activations, none of them a gate: without either there is no product, so each wins half."""

    def __init__(self, left: torch.Size, right: torch.Size) -> None:
        self.shapes = (left, right)

    def down(self, *probabilities: Any) -> Shares:
        """P(factor) = P(product) / 2."""
        (probability,) = probabilities
        return tuple((probability / 2).sum_to_size(shape) for shape in self.shapes)


class Facing(Rule):
    """A neuron's final response: it won by being pushed up or by being pushed down.

    The response may have been normalised, scaled or shifted by constants since its children competed (batch norm, a
    separate bias). Positive scales cancel in the competition, negative ones turn inhibition into excitation.
    """

    def __init__(self, rate: Kept, polarity: Tensor | None, *, bounded: bool = False) -> None:
        self.rate = rate  # the response as it finally is; its sign says which way the neuron responded
        self.bounded = bounded  # the rate cannot be negative, and where it is 0 the unit has not responded at all
        self.polarity = polarity  # the sign of what it was multiplied with since the competition; None: 1

    def down(self, *probabilities: Any) -> Shares:
        """All to the port that explains the response, nothing where the scale is 0."""
        (probability,) = probabilities
        if self.cued and self.polarity is None:
            return probability, None
        facing = self.direction()
        downward = probability * (facing < 0)
        return probability * (facing > 0), downward if downward.any() else None

    def direction(self) -> Tensor:
        """For each unit 1 where it was pushed up, -1 where it was pushed down, 0 where its children had no say."""
        rate = self.rate.tensor
        if self.cued:
            direction = torch.ones_like(rate)
        elif self.bounded:
            direction = (rate > 0).to(rate.dtype)
        else:
            direction = (rate >= 0).to(rate.dtype) * 2 - 1
        return direction if self.polarity is None else direction * self.polarity.to(rate.dtype)


class Tap(Rule):
    """A place where probabilities are read: they are recorded at the probe and handed on unchanged."""

    absorbing = False  # an absorbing layer keeps what arrives: the walk ends here

    def down(self, *probabilities: Tensor | None) -> Shares:
        """Record at the probe (second input) and go on (first input)."""
        (probability,) = probabilities
        return (None if self.absorbing else probability, probability)


class Refused(Rule):
    """An operation that has no rule although autograd has a gradient for it: `graph.check` says so."""

    def __init__(self, message: str) -> None:
        self.message = message

    def down(self, *_probabilities: Tensor | None) -> Shares:
        """Never asked: the graph is checked before any signal goes down."""
        raise NoRuleError(self.message)


class Sum(Rule):
    """An element-wise sum: each term wins in proportion to what it added (FIELD: Caffe's eltwise)."""

    def __init__(self, terms: Sequence[Kept], traced: Sequence[int]) -> None:
        self.terms = terms  # what each term contributes, broadcast shapes allowed
        self.traced = traced  # the terms that lead to a tap, in the order of the inputs; the others' shares end here

    def down(self, *probabilities: Tensor | None) -> Shares:
        """P(term) = P(sum) * term / (sum of the terms that pushed the same way)."""
        upward, downward = probabilities
        terms = [term.tensor for term in self.terms]
        pushes = []
        if upward is not None:
            pushes.append((upward, self._raising(terms)))
        if downward is not None:
            pushes.append((downward, [term.clamp(max=0) for term in terms]))
        ratios = [(self.ratio(probability, _total(parts)), parts) for probability, parts in pushes]
        return tuple(
            _total([ratio * parts[k] for ratio, parts in ratios]).sum_to_size(terms[k].shape) for k in self.traced
        )

    def _raising(self, terms: Sequence[Tensor]) -> list[Tensor]:
        """What each term added. A cued unit is on even if no term said so: then each speaks as loud as it spoke."""
        raising = [term.clamp(min=0) for term in terms]
        if not self.cued:
            return raising
        silent = _total(raising) == 0
        return [torch.where(silent, term.abs(), part) for term, part in zip(terms, raising, strict=True)]


class Affine(Rule):
    """Convolution, full connection, pooling: children win in proportion to their excitation (Eqns. 3 and 10)."""

    def __init__(
        self,
        operation: Callable[[Tensor, Tensor | None], Tensor],
        child: Kept,
        weight: Tensor | None,
        rest: Tensor | None,
        row_dim: int | None = None,
    ) -> None:
        self.operation = operation  # linear in its first argument: (child, weight) -> response without bias
        self.child = child  # the response of the children: a_j in the paper
        self.weight = weight  # w_ji; None for pooling, whose weights are all positive
        self.rest = rest  # lambda, the minimum of the children's activation function (Eqn. 5), where it is not 0
        self.row_dim = row_dim  # the output dimension whose units each have one row of the weights, where there is one
        # How much goes to the children that pushed a unit its way, and to those that pushed it the other way. At the
        # top: how much of the unit and of its dual is cued.
        self.unit, self.dual = 1.0, 0.0
        self._excitations: dict[int, tuple[list[Tensor], Tensor]] = {}
        self._seen = (
            None if weight is None else version_of(weight)
        )  # torch's counter of in-place changes, when the response was computed

    def down(self, *probabilities: Tensor | None) -> Shares:
        """P_n = A * W+ (P_{n-1} / (W+^T A)), for units pushed up (with W+) and for units pushed down (with W-)."""
        shares = torch.zeros_like(self.child.tensor, dtype=_exact(self.child.tensor.dtype))
        for direction, probability in zip((1, -1), probabilities, strict=True):
            if probability is not None and probability.any():
                for weight, side in ((self.unit, direction), (self.dual, -direction)):
                    if weight:
                        shares += weight * self._competition(side, probability)
        return (shares,)

    def row(self, number: int) -> Affine:
        """The same competition for the units of one row of the weights alone, which costs a fraction."""
        weight = None if self.weight is None else self.weight.narrow(0, number, 1)
        return Affine(self.operation, self.child, weight, self.rest, self.row_dim)

    def _competition(self, side: int, probability: Tensor) -> Tensor:
        """The children that pushed to one ``side`` share the probability of their parents."""
        pushes, total = self._excitation(side)
        ratio = self.ratio(probability.to(total.dtype), total)  # P / Z, with 0 where nobody pushed
        gradients = torch.autograd.grad(total, pushes, ratio, retain_graph=True)
        return _total([push.detach() * gradient for push, gradient in zip(pushes, gradients, strict=True)])

    def _excitation(self, side: int) -> tuple[list[Tensor], Tensor]:
        """The contributing children and their total push to ``side`` (+1 or -1), computed once for all signals."""
        if self.weight is not None and self._seen != version_of(self.weight):
            raise SignalError(
                "the network's weights were changed since it looked at the picture: look at it again (a new Sweep)"
            )
        if side not in self._excitations:
            with torch.enable_grad():
                pushes, terms = [], []
                for sign, push in self._pushes.items():
                    weight = _signed_part(self.weight, side * sign)
                    if self.weight is None and sign != side:
                        continue  # positive weights: only children of that sign push to that side
                    pushes.append(push)
                    terms.append(self.operation(push, None if weight is None else weight.to(push.dtype)))
                if not pushes:  # no child of that sign at all: nobody competes, and the total is 0
                    push = torch.zeros_like(self._pushes[1]).requires_grad_()
                    pushes, terms = [push], [self.operation(push, self.weight)]
                self._excitations[side] = (pushes, _total(terms))
        return self._excitations[side]

    @cached_property
    def _pushes(self) -> dict[int, Tensor]:
        """The children above their rest, and those below it if there are any: the same for both sides."""
        child = self.child.tensor.detach().to(_exact(self.child.tensor.dtype))
        if self.rest is not None:
            child = child - self.rest
        child = _in_range(child)
        parts = {1: child.clamp(min=0), -1: child.clamp(max=0)}
        return {sign: part.requires_grad_() for sign, part in parts.items() if sign > 0 or part.any()}


def _ratio(probability: Tensor, total: Tensor) -> Tensor:
    """Probability over total, with the paper's Z = 0 where there is no excitation (that floats can divide by)."""
    nothing = total.abs() < torch.finfo(total.dtype).tiny
    return torch.where(nothing, 0, probability / torch.where(nothing, 1, total))


def _in_range(child: Tensor) -> Tensor:
    """The competition does not depend on the children's common scale: bring extreme ones to where floats are dense."""
    largest = child.abs().max() if child.numel() else child.sum()
    return child / largest if 0 < largest < 1e-18 or 1e18 < largest < torch.inf else child


def _signed_part(weight: Tensor | None, sign: int) -> Tensor | None:
    if weight is None:
        return None
    return weight.detach().clamp(min=0) if sign > 0 else weight.detach().clamp(max=0)


def _total(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _exact(dtype: torch.dtype) -> torch.dtype:
    """Half precision cannot hold sums of many small products: the shares are computed in float32."""
    return torch.float32 if dtype in {torch.float16, torch.bfloat16} else dtype
