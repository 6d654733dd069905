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
``x_j * w_ji`` where ``w_ji >= 0`` (Eqn. 4). Networks without that property are met with the same idea: the winners
are the children that pushed the unit the way it responded, that is the contributions ``x_j * w_ji`` that have the
sign of its response. With non-negative inputs and a positive response this is Eqn. 4 to the letter.

Which way a unit responded is not always seen in its own value: behind a convolution may stand a batch norm with a
negative scale or a large shift, and the two are one neuron. So an operation with competing children (`Affine`,
`Sum`) has two ports, one for the probability of units that won by being pushed up and one for those pushed down, and
`Facing` sends what arrives at the final response to one or the other. Where a norm turns some rows of the weights
round, `Affine` has two more ports, to the same competition with those rows turned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from excite.errors import NoRuleError
from excite.propagation.deciding import is_known, may_be
from excite.propagation.layout import is_side_by_side, side_by_side
from excite.propagation.shares import Share, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.propagation.keeping import Kept

__all__ = ["Facing", "Halves", "Pass", "Refused", "Rule", "Sum", "Tap", "follow", "ports", "summed", "total_of"]

Shares = tuple[Tensor | None, ...]


class Rule(ABC):
    """One operation's way down: from the probabilities of its outputs to those of its traced inputs."""

    cued = False  # set above and at the classifier's own weights: the signal says that these units are on
    normalised = True  # the paper's rules; without, the normaliser Z of Eqn. 4 is left out (the ablation "w/o norm")

    @abstractmethod
    def down(self, *probabilities: Tensor | None) -> Shares:
        """Hand the probabilities of the outputs down: one tensor for each input.

        Each has a leading dimension, one place for each signal. Something arrived at one output at least; None stands
        for outputs where nothing did.
        """

    def hand_down(self, *arrived: Tensor | Share | None) -> tuple[Tensor | Share | None, ...]:
        """As `down`, for rules that can take or give what is not multiplied out yet."""
        return self.down(*(whole(each) for each in arrived))

    def earned(self, total: Tensor, sign: int) -> Tensor:
        """What a push of 1 earns of a probability of 1: one over the total of all pushes, which all have that sign.

        It is the paper's Z, 0 where there is no excitation (that floats can divide by): one over infinity.
        """
        if not self.normalised:
            return total.sign()
        size = total if sign > 0 else -total
        earned = functional.threshold(size, torch.finfo(total.dtype).tiny, torch.inf).reciprocal_()
        return earned if sign > 0 else earned.neg_()


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


# torch's own ``apply`` looks for functorch's wrappers in every argument, which takes longer than all the rest.
_APPLY: Callable[..., Any] = super(torch.autograd.Function, Winners).apply


def follow(rule: Rule, response: Callable[[], Any], inputs: Sequence[Tensor]) -> Any:
    """The response, with ``rule`` as its way down to ``inputs``."""
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(True)  # noqa: SLF001 - what enable_grad does, without its ten lines of Python a call
    try:
        return _APPLY(rule, response, *inputs)
    finally:
        torch._C._set_grad_enabled(before)  # noqa: SLF001 - as above


def ports(rule: Rule, like: Tensor, inputs: Sequence[Tensor], count: int = 2) -> tuple[Tensor, ...]:
    """The ports of an operation whose children compete: only their places in the graph matter, not their values."""
    first = like.new_zeros(()).expand(like.shape)
    made: tuple[Tensor, ...] = follow(rule, lambda: (first, *(first.detach() for _ in range(count - 1))), inputs)
    return made


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
        return (summed(probability, self.shape),)


class Halves(Rule):
    """A product of two activations, none of them a gate: without either there is no product, so each wins half."""

    def __init__(self, left: torch.Size, right: torch.Size) -> None:
        self.shapes = (left, right)

    def down(self, *probabilities: Any) -> Shares:
        """P(factor) = P(product) / 2."""
        (probability,) = probabilities
        return tuple(summed(probability / 2, shape) for shape in self.shapes)


class Facing(Rule):
    """A neuron's final response: it won by being pushed up or by being pushed down.

    The response may have been normalised, scaled or shifted by constants since its children competed (batch norm, a
    separate bias). Positive scales cancel in the competition, negative ones turn inhibition into excitation.
    """

    def __init__(self, rate: Kept, polarity: Tensor | None, *, bounded: bool = False) -> None:
        self.rate = rate  # the response as it finally is; its sign says which way the neuron responded
        self.bounded = bounded  # the rate cannot be negative, and where it is 0 the unit has not responded at all
        self.polarity = polarity  # the sign of what it was multiplied with since the competition; None: 1
        self.own_rate = False  # the rate is what the units give: a share has nothing where that is not above 0

    def hand_down(self, *arrived: Any) -> tuple[Tensor | Share | None, ...]:
        """As `down`."""
        if self.own_rate and self.polarity is None and isinstance(arrived[0], Share):
            return arrived[0], None
        return super().hand_down(*arrived)

    def down(self, *probabilities: Any) -> Shares:
        """All to the port that explains the response, nothing where the scale is 0."""
        (probability,) = probabilities
        if self.polarity is None:
            return self._by_rate(probability)
        facing = self.direction()
        downward = probability * (facing < 0)
        return probability * (facing > 0), downward if may_be(downward.any) else None

    def _by_rate(self, probability: Tensor) -> Shares:
        if self.cued:
            return probability, None
        rate = self.rate.tensor
        if is_side_by_side(probability):  # two orders in memory at once take several times as long
            rate = side_by_side(rate)
        if self.bounded:
            return _where_positive(probability, rate), None
        negative = rate < 0
        if not may_be(negative.any):
            return probability, None
        downward = probability * negative
        return (probability - downward, downward) if may_be(downward.any) else (probability, None)

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


def _where_positive(probability: Tensor, rate: Tensor) -> Tensor:
    """The probability of units whose rate is above 0; torch has that in one step, as the way back through a ReLU."""
    if is_known() and probability.dtype == rate.dtype:
        kept: Tensor = torch.ops.aten.threshold_backward(probability, rate, 0)
        return kept
    return probability * (rate > 0)


class Tap(Rule):
    """A place where probabilities are read: they are recorded at the probe and handed on unchanged."""

    absorbing = False  # an absorbing layer keeps what arrives: the walk ends here

    def down(self, *probabilities: Tensor | None) -> Shares:
        """Record at the probe (second input) and go on (first input)."""
        (probability,) = probabilities
        return (None if self.absorbing else probability, probability)

    def hand_down(self, *arrived: Tensor | Share | None) -> tuple[Tensor | Share | None, ...]:
        """As `down`."""
        return (None if self.absorbing else arrived[0], arrived[0])


class Refused(Rule):
    """An operation that has no rule although autograd has a gradient for it: `graph.check` says so."""

    def __init__(self, message: str) -> None:
        self.message = message

    def down(self, *_probabilities: Tensor | None) -> Shares:
        """Never asked: the graph is checked before any signal goes down."""
        raise NoRuleError(self.message)


class Sum(Rule):
    """An element-wise sum: each term wins in proportion to what it added (FIELD: Caffe's eltwise)."""

    def __init__(self, terms: Sequence[Kept], traced: Sequence[int], *, plain: bool = False) -> None:
        self.plain = plain  # the terms are what the units below give: none was turned round, or is seen from its rest
        self.terms = terms  # what each term contributes, broadcast shapes allowed
        self.traced = traced  # the terms that lead to a tap, in the order of the inputs; the others' shares end here

    def down(self, *probabilities: Tensor | None) -> Shares:
        """P(term) = P(sum) * term / (sum of the terms that pushed the same way)."""
        return tuple(map(whole, self.hand_down(*probabilities)))

    def hand_down(self, *arrived: Tensor | Share | None) -> tuple[Tensor | Share | None, ...]:
        """As `down`; of units that were pushed up, terms that did not push up get nothing."""
        probabilities = upward, downward = (whole(arrived[0]), whole(arrived[1]))
        terms = [term.tensor for term in self.terms]
        if is_side_by_side(next(each for each in probabilities if each is not None)):
            terms = [side_by_side(term) for term in terms]
        pushes = []
        if upward is not None:
            pushes.append((upward, self._of_all(self._raising(terms), 1)))
        if downward is not None:
            pushes.append((downward, self._of_all([term.clamp(max=0) for term in terms], -1)))
        shares = [
            summed(total_of([probability * parts[k] for probability, parts in pushes]), terms[k].shape)
            for k in self.traced
        ]
        silent = self.plain and downward is None and not self.cued
        return tuple(Share(share, None) for share in shares) if silent else tuple(shares)

    def _of_all(self, parts: Sequence[Tensor], sign: int) -> list[Tensor]:
        """What each term is of all that pushed its way, however faint they are; nothing where nobody pushed."""
        if not self.normalised:
            return [part.abs() for part in parts]
        total = total_of(parts)
        if not is_known():
            total = total.masked_fill(total == 0, torch.inf)
        elif sign > 0:
            total = functional.threshold(total, 0.0, torch.inf)
        else:
            total = functional.threshold(-total, 0.0, torch.inf).neg_()
        return [part / total for part in parts]

    def _raising(self, terms: Sequence[Tensor]) -> list[Tensor]:
        """What each term added. A cued unit is on even if no term said so: then each speaks as loud as it spoke."""
        raising = [term.clamp(min=0) for term in terms]
        if not self.cued:
            return raising
        silent = total_of(raising) == 0
        return [torch.where(silent, term.abs(), part) for term, part in zip(terms, raising, strict=True)]


def total_of(terms: Sequence[Tensor]) -> Tensor:
    """The sum of some tensors, not copied where there is only one."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def summed(probabilities: Tensor, shape: torch.Size) -> Tensor:
    """What units get that were broadcast, each signal for itself: [signals, *wide] to [signals, *shape]."""
    if probabilities.shape[1:] == shape:
        return probabilities
    wide = [1] * (probabilities.dim() - 1 - len(shape)) + list(shape)
    return probabilities.sum_to_size(len(probabilities), *wide).reshape(len(probabilities), *shape)
