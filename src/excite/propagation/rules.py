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
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.autograd.graph import GradientEdge

    from excite.propagation.keeping import Kept
    from excite.propagation.notes import Neuron

__all__ = ["Affine", "Pass", "Rule", "Sum", "Tap", "follow"]

Shares = tuple[Tensor | None, ...]


class Rule(ABC):
    """One operation's way down: from the probabilities of its outputs to those of its traced inputs."""

    cued = False  # set above and at the classifier's own weights: the signal says that these units are on

    @abstractmethod
    def down(self, probability: Tensor) -> Shares:
        """Hand ``probability`` (of the outputs) down: one tensor for each traced input."""


class Winners(torch.autograd.Function):
    """An operation that gives its true response going up and follows its rule going down."""

    @staticmethod
    def forward(ctx: Any, rule: Rule, response: Callable[[], Tensor], *_inputs: Tensor) -> Tensor:
        """Compute the response; ``_inputs`` only tell autograd where the rule's shares go."""
        ctx.rule = rule
        return response()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, probability: Tensor) -> Any:
        """Hand the probabilities down by the rule."""
        return (None, None, *ctx.rule.down(probability))


def follow(rule: Rule, response: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Tensor:
    """The response, with ``rule`` as its way down to ``inputs``."""
    with torch.enable_grad():
        result: Tensor = Winners.apply(rule, response, *inputs)  # type: ignore[no-untyped-call]  # torch has no type for it
    return result


class Pass(Rule):
    """A unit with one child hands its whole probability to it (paper: ReLU and LRN layers)."""

    def __init__(self, shape: torch.Size, winning: Tensor | None = None) -> None:
        self.shape = shape  # of the child: smaller than the output when it was broadcast
        self.winning = winning  # which units can win at all; None: every one

    def down(self, probability: Tensor) -> Shares:
        """P(child) = P(parent), zero where the child contributed nothing."""
        if self.winning is not None:
            probability = probability * self.winning
        return (probability.sum_to_size(self.shape),)


class Tap(Rule):
    """A place where probabilities are read: they are recorded at the probe and handed on unchanged."""

    def __init__(self, tapped: Tensor) -> None:
        self.shape = tapped.shape
        self.source: GradientEdge | None = None  # where a walk from this layer starts; None: it is the lowest
        self.start_at(tapped)
        self.absorbing = False  # an absorbing layer keeps what arrives: the walk ends here

    def start_at(self, tensor: Tensor) -> None:
        """Let walks from this layer start at ``tensor``, as it is now (networks overwrite tensors)."""
        if tensor.shape == self.shape and tensor.requires_grad:
            self.source = get_gradient_edge(tensor)

    def down(self, probability: Tensor) -> Shares:
        """Record at the probe (second input) and go on (first input)."""
        return (None if self.absorbing else probability, probability)


class Sum(Rule):
    """An element-wise sum: each term wins in proportion to what it added (FIELD: Caffe's eltwise)."""

    def __init__(self, terms: Sequence[Kept], rate: Kept, traced: Sequence[int]) -> None:
        self.terms = terms  # what each term contributes, broadcast shapes allowed
        self.rate = rate
        self.traced = traced  # the terms that lead to a tap, in the order of the inputs; the others' shares end here

    def down(self, probability: Tensor) -> Shares:
        """P(term) = P(sum) * term / (sum of the terms that have the sign of the sum)."""
        terms = [term.tensor for term in self.terms]
        upward, downward = _by_direction(probability, None if self.cued else self.rate.tensor)
        parts: list[tuple[Tensor, list[Tensor]]] = [(upward, [t.clamp(min=0) for t in terms])]
        if downward is not None:
            parts.append((downward, [t.clamp(max=0) for t in terms]))
        ratios = [(_ratio(p, _total(pushes)), pushes) for p, pushes in parts]
        return tuple(
            _total([ratio * pushes[k] for ratio, pushes in ratios]).sum_to_size(terms[k].shape) for k in self.traced
        )


class Affine(Rule):
    """Convolution, full connection, pooling: children win in proportion to their excitation (Eqns. 3 and 10).

    The unit's response may have been normalised, scaled or shifted by a constant since (batch norm, a separate
    bias): that is part of the same neuron. Positive scales cancel in the normalisation, negative ones turn
    inhibition into excitation; ``polarity`` remembers the sign and ``rate`` the response as it finally is.
    """

    def __init__(self, neuron: Neuron, rate: Kept) -> None:
        self.operation = neuron.operation
        self.child = neuron.kept_child  # the response of the children: a_j in the paper
        self.weight = neuron.weight  # w_ji; None for pooling, whose weights are all positive
        self.rest = neuron.rest  # lambda, the minimum of the children's activation function (Eqn. 5)
        self.polarity = neuron.polarity
        self.taps = neuron.taps  # on the response before it was normalised: they see the same probability
        self.rate = rate  # its sign says which way the unit responded
        self.unit, self.dual = 1.0, 0.0  # at the top: how much of the unit and of its dual is cued
        self._excitations: dict[int, tuple[list[Tensor], Tensor]] = {}

    def down(self, probability: Tensor) -> Shares:
        """P_n = A * W+ (P_{n-1} / (W+^T A)), for each of the two directions a unit can be pushed."""
        arrived: Tensor | None = probability
        recorded = []
        for tap in reversed(self.taps):
            recorded.append(arrived)
            arrived = None if tap.absorbing else arrived
        return (None if arrived is None else self._share_out(arrived), *reversed(recorded))

    def _share_out(self, probability: Tensor) -> Tensor:
        upward, downward = _by_direction(probability, None if self.cued else self.rate.tensor, self.polarity)
        shares = torch.zeros_like(self.child.tensor, dtype=_exact(self.child.tensor.dtype))
        for direction, part in ((1, upward), (-1, downward)):
            if part is None:
                continue
            for weight, side in ((self.unit, direction), (self.dual, -direction)):
                if weight and part.any():
                    shares += weight * self._competition(side, part)
        return shares

    def _competition(self, side: int, probability: Tensor) -> Tensor:
        """The children that pushed to one ``side`` share the probability of their parents."""
        pushes, total = self._excitation(side)
        ratio = _ratio(probability.to(total.dtype), total)  # P / Z, with 0 where nobody pushed
        gradients = torch.autograd.grad(total, pushes, ratio, retain_graph=True)
        return _total([push.detach() * gradient for push, gradient in zip(pushes, gradients, strict=True)])

    def _excitation(self, side: int) -> tuple[list[Tensor], Tensor]:
        """The contributing children and their total push to ``side`` (+1 or -1), computed once for all signals."""
        if side not in self._excitations:
            with torch.enable_grad():
                child = self.child.tensor.to(_exact(self.child.tensor.dtype))
                if self.rest is not None:
                    child = child - self.rest
                pushes, terms = [], []
                for sign in (1, -1):
                    weight = _signed_part(self.weight, side * sign)
                    push = child.clamp(min=0) if sign > 0 else child.clamp(max=0)
                    if self.weight is None and sign != side:
                        continue  # positive weights: only children of that sign push to that side
                    if sign < 0 and not push.any():
                        continue
                    push.requires_grad_()
                    pushes.append(push)
                    terms.append(self.operation(push, None if weight is None else weight.to(push.dtype)))
                if not pushes:  # no child of that sign at all: nobody competes, and the total is 0
                    push = torch.zeros_like(child).requires_grad_()
                    pushes, terms = [push], [self.operation(push, self.weight)]
                self._excitations[side] = (pushes, _total(terms))
        return self._excitations[side]


def _by_direction(
    probability: Tensor, rate: Tensor | None, polarity: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Split the probability between the units pushed upward and those pushed downward by their children."""
    if rate is None and polarity is None:
        return probability, None
    facing = torch.ones_like(probability) if rate is None else (rate >= 0).to(probability.dtype) * 2 - 1
    if polarity is not None:
        facing = facing * polarity.to(probability.dtype)
    downward = probability * (facing < 0)
    return probability * (facing > 0), downward if downward.any() else None


def _ratio(probability: Tensor, total: Tensor) -> Tensor:
    """Probability over total, with the paper's Z = 0 where there is no excitation."""
    return torch.where(total == 0, 0, probability / torch.where(total == 0, 1, total))


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
