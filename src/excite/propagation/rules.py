"""The rules: from the winning probabilities of an operation's outputs to those of its inputs (docs/mechanism.md).

    P(a_j) = sum_i P(a_j | a_i) P(a_i),     P(a_j | a_i) = a_j w_ji+ / sum_k a_k w_ki+      (paper, Eqns. 1 and 4)
    P_n = A * W+ (P_{n-1} / (W+^T A))       for a whole layer with activations A and weights W             (Eqn. 10)

Autograd's graph carries the probabilities: `RuleFunction` gives the true response in the forward pass and applies a
rule in the top-down pass. Operations that copy each output from one input (ReLU, max pooling, reshaping, concatenation)
need no rule: their gradient is the transition matrix.

Signs. The paper assumes non-negative responses (A1). Without that assumption the winners are the children that moved
the unit in the direction of its response: the contributions x_j w_ji with the sign of y_i, that is x+ W+ and x- W-
where y_i > 0, x+ W- and x- W+ where y_i < 0. With non-negative x and y this is Eqn. 4.

The sign of a response may be decided after the weighted sum: a batch norm with a negative scale or a large shift is
part of the same neuron. So `Affine` and `Sum` have a positive and a negative input for probabilities, and a
`SignRouter` at the final response of the neuron sends each probability to one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from excite.errors import NoRuleError, SignalError
from excite.propagation.fast import is_concrete

WITHOUT_DOUBLE = {"mps"}  # devices

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.propagation.graph import Saved

Shares = tuple[Tensor | None, ...]


class Rule:  # no ABC, whose isinstance takes several times as long: each node of the graph is asked
    """The transition of one operation: probabilities of its outputs -> probabilities of its inputs."""

    cued = False  # at and above the classifier's own weights, where the signal decides that a unit is on
    normalised = True  # False leaves out the normaliser Z of Eqn. 4 (the ablation "without normalisation")
    plain = False  # nothing is known of the response that a copy of it must know as well: see `Provenance.plain`
    outputs = 1  # how many outputs the operation has in the graph; 2: a positive and a negative input

    def down(self, *probabilities: Tensor | None) -> Shares:
        """One tensor [signals, *input] for each input, from [signals, *output] for each output.

        None stands for an output that nothing arrived at; at least one is not None.
        """
        raise NotImplementedError

    def reciprocal(self, total: Tensor, sign: int) -> Tensor:
        """1 / Z for totals Z of that sign, and 0 where Z = 0 (a unit that only its bias excites)."""
        if not self.normalised:
            return total.sign()
        size = total if sign > 0 else -total
        inverse = functional.threshold(size, torch.finfo(total.dtype).tiny, torch.inf).reciprocal_()
        return inverse if sign > 0 else inverse.neg_()


class RuleFunction(torch.autograd.Function):
    """A node of autograd's graph: the true response forward, a rule backward."""

    @staticmethod
    def forward(ctx: Any, rule: Rule, outputs: tuple[Tensor, ...], *_inputs: Tensor) -> Any:
        """Return ``outputs``, already computed; ``_inputs`` are where the rule's shares go."""
        ctx.rule = rule
        ctx.set_materialize_grads(False)
        return outputs if len(outputs) > 1 else outputs[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *probabilities: Tensor | None) -> Any:
        """Apply the rule."""
        if all(probability is None for probability in probabilities):  # an absorbing layer lies above
            return (None,) * len(ctx.needs_input_grad)
        return (None, None, *ctx.rule.down(*probabilities))


# torch's own ``apply`` looks for functorch's wrappers in every argument, which takes longer than all the rest.
_APPLY: Callable[..., Any] = super(torch.autograd.Function, RuleFunction).apply


def apply(rule: Rule, outputs: tuple[Tensor, ...], inputs: Sequence[Tensor]) -> Any:
    """``outputs`` with ``rule`` as their transition to ``inputs``; a single output as it is, several as a tuple."""
    with torch.set_grad_enabled(True):  # half the time of enable_grad
        return _APPLY(rule, outputs, *inputs)


@dataclass(eq=False)
class LinearOperation:
    """W of one direction: z = W^T a for all children at once, and the way back W r.

    This plain implementation serves every operation: autograd transposes it, one signal at a time.
    """

    function: Callable[[Tensor, Tensor | None], Tensor]  # (child, weight) -> response without bias, linear in the child
    weights: Sequence[Tensor | None]  # that count for each kind of children: above and below their baseline

    def totals(self, children: Tensor) -> Tensor:
        """W^T A: [kinds, *child] -> [*response]."""
        with torch.enable_grad():
            self._children = children.detach().requires_grad_()
            self._response = total_of(list(map(self.function, self._children, self.weights)))
        return self._response.detach()

    def back(self, ratios: Tensor) -> Tensor:
        """W R: [signals, *response] -> [signals, kinds, *child]. `totals` comes first."""
        shares: list[Tensor] = []
        for ratio in ratios:
            shares += torch.autograd.grad(self._response, self._children, ratio, retain_graph=True)
        return torch.stack(shares) if len(shares) > 1 else shares[0][None]


class Hints(NamedTuple):
    """What is known of the weights of an `Affine`: only for the kernels in `fast`."""

    row_dim: int | None = None  # the output dimension whose units have one row of the weights each
    grouped: bool = False  # each row sees only some of the children's channels, so that it cannot stand alone
    convolution: tuple[Any, ...] | None = None  # torch's function, stride, padding, dilation, groups: a number each


@dataclass(eq=False)
class Affine(Rule):
    """Convolutions, dense layers, pooling: children win in proportion to their excitation (Eqns. 4 and 10)."""

    function: Callable[[Tensor, Tensor | None], Tensor]  # (child, weight) -> response without bias
    child: Saved  # the activations a_j of the children
    weight: Tensor | None  # w_ji; None for pooling, whose weights are all positive
    baseline: Tensor | None  # lambda, the minimum of the children's activation function (Eqn. 5); None: 0
    hints: Hints  # only for the fast kernels
    unit: float = 1.0  # the factor for children that moved a unit in the direction of its response, and
    dual: float = 0.0  # for those that moved it the other way; at the top, for the dual unit (c-MWP: -1)
    outputs = 2

    def __post_init__(self) -> None:
        half = self.child.tensor.dtype in {torch.float16, torch.bfloat16}  # cannot hold sums of many small products
        self.dtype = torch.float32 if half else self.child.tensor.dtype
        self._version = None if self.weight is None else version_of(self.weight)

    def down(self, *probabilities: Tensor | None) -> Shares:
        """The children's shares of units with a positive and of units with a negative response."""
        self.check_weights()
        shares = []
        for direction, probability in zip((1, -1), probabilities, strict=True):
            for factor, sign in ((self.unit, direction), (self.dual, -direction)):
                if probability is not None and factor:
                    shares.append(self._shares(probability.to(self.dtype), sign) * factor)
        if not shares:
            some = next(each for each in probabilities if each is not None)
            return (some.new_zeros(len(some), *self.child.tensor.shape),)
        return (total_of(shares),)

    def _shares(self, P: Tensor, sign: int) -> Tensor:  # noqa: N803 - the paper's symbols
        """The shares of the children whose contributions have that sign."""
        A, W = self._children(sign), LinearOperation(self.function, self._weights(sign))  # noqa: N806 - as above
        shares = A * W.back(P * self.reciprocal(W.totals(A), sign))  # A * W+ (P / (W+^T A)), Eqn. 10
        return shares.sum(1)  # a child is above or below its baseline, so one of the two is 0

    def _children(self, sign: int) -> Tensor:
        """a_j - lambda, those above 0 and those below, [2, *child]; of pooling those with ``sign``, [1, *child]."""
        above, below = split_by_sign(self.child.tensor.detach().to(self.dtype), self.baseline)
        return torch.stack([above, below]) if self.weight is not None else (above if sign > 0 else below)[None]

    def _weights(self, sign: int) -> list[Tensor | None]:
        """For children above their baseline the weights with ``sign``, for those below it the others."""
        if self.weight is None:
            return [None]
        scale = scale_for(self.weight) if self.normalised else 1.0
        return [scaled_by(signed_part(self.weight, each).to(self.dtype), scale) for each in (sign, -sign)]

    def check_weights(self) -> None:
        """Refuse a top-down pass with other weights than the forward pass had."""
        if self.weight is not None and self._version != version_of(self.weight):
            raise SignalError(
                "the network's weights were changed since its forward pass: run it again (a new ExcitationPass)"
            )


@dataclass(eq=False)
class Sum(Rule):
    """An element-wise sum: each term wins in proportion to what it added (as in Caffe's eltwise layer)."""

    terms: Sequence[Saved]  # what each term contributes; broadcast shapes are allowed
    traced: Sequence[int]  # the terms that lead to a tapped layer; the shares of the others end here
    unchanged: bool = False  # the terms are the responses below, neither negated nor taken from their baseline
    outputs = 2

    def down(self, *probabilities: Tensor | None) -> Shares:
        """P(term) = P(sum) * term / (sum of the terms with the sign of the response)."""
        return self.shares([term.tensor for term in self.terms], probabilities)

    def shares(self, terms: Sequence[Tensor], probabilities: Sequence[Tensor | None]) -> Shares:
        """The same for given ``terms``; nothing where no term has that sign."""
        found: list[Tensor | None] = [None] * len(self.traced)
        for sign, probability in zip((1, -1), probabilities, strict=True):
            if probability is None:
                continue
            sizes = [(term if sign > 0 else -term).clamp(min=0) for term in terms]
            if self.cued and sign > 0:  # a cued unit is on even if no term is positive: then all terms count
                silent = total_of(sizes) == 0
                sizes = [torch.where(silent, term.abs(), size) for term, size in zip(terms, sizes, strict=True)]
            total = functional.threshold(total_of(sizes), 0.0, torch.inf) if self.normalised else None
            for number, k in enumerate(self.traced):
                share = reduced(probability * (sizes[k] if total is None else sizes[k] / total), terms[k].shape)
                before = found[number]
                found[number] = share if before is None else before + share
        return tuple(found)


@dataclass(eq=False)
class Pass(Rule):
    """One child for each unit takes its whole probability (paper: ReLU and LRN layers)."""

    shape: torch.Size  # of the child, smaller than the output where it was broadcast
    mask: Tensor | None = None  # which units can win at all; None: all

    def down(self, *probabilities: Any) -> Shares:
        """P(child) = P(parent), 0 where the child contributed nothing."""
        (probability,) = probabilities
        if self.mask is not None and not self.cued:
            probability = probability * self.mask
        return (reduced(probability, self.shape),)


@dataclass(eq=False)
class ProductRule(Rule):
    """A product of two activations, neither of them a gate: without either it is 0, so each wins half."""

    left: torch.Size
    right: torch.Size

    def down(self, *probabilities: Any) -> Shares:
        """P(factor) = P(product) / 2."""
        (probability,) = probabilities
        return reduced(probability / 2, self.left), reduced(probability / 2, self.right)


@dataclass(eq=False)
class SignRouter(Rule):
    """The final response of a neuron: routes each probability to its positive or its negative input.

    The response may have been normalised, scaled or shifted by constants since the weighted sum (batch norm, a separate
    bias). Positive scales cancel in Eqn. 4, negative ones exchange excitation and inhibition.
    """

    response: Saved  # as it finally is; its sign is the neuron's
    polarity: Tensor | None  # the sign of what the weighted sum was multiplied with; None: 1
    bounded: bool = False  # the response cannot be negative, and 0 means that nothing excited the unit
    own: bool = False  # the units give ``response`` itself, not their distance from a baseline

    def down(self, *probabilities: Any) -> Shares:
        """All to the input that explains the response, nothing where the scale is 0."""
        (probability,) = probabilities
        direction = self.direction()
        return probability * (direction > 0), probability * (direction < 0)

    def direction(self) -> Tensor:
        """Of each unit: 1 for its positive input, -1 for its negative input, 0 for none."""
        response = self.response.tensor
        if self.cued:
            direction = torch.ones_like(response)
        elif self.bounded:
            direction = (response > 0).to(response.dtype)
        else:
            direction = (response >= 0).to(response.dtype) * 2 - 1
        return direction if self.polarity is None else direction * self.polarity.to(response.dtype)


class Tap(Rule):
    """A layer that is read: the probability is recorded at a probe and passed on unchanged."""

    absorbing = False  # an absorbing layer passes nothing on: paths end here

    def down(self, *probabilities: Tensor | None) -> Shares:
        """The second input is the probe."""
        (probability,) = probabilities
        return (None if self.absorbing else probability, probability)


@dataclass(eq=False)
class Refused(Rule):
    """An operation that has a gradient but no rule. `graph.check` refuses it before any signal is propagated."""

    message: str

    def down(self, *_probabilities: Tensor | None) -> Shares:
        """Refuse."""
        raise NoRuleError(self.message)


def total_of(terms: Sequence[Tensor]) -> Tensor:
    """The sum of some tensors; a single one is not copied."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def reduced(probabilities: Tensor, shape: torch.Size) -> Tensor:
    """The sum over broadcast dimensions, for each signal: [signals, *broadcast] -> [signals, *shape]."""
    if probabilities.shape[1:] == shape:
        return probabilities
    wide = [1] * (probabilities.dim() - 1 - len(shape)) + list(shape)
    return probabilities.sum_to_size(len(probabilities), *wide).reshape(len(probabilities), *shape)


def signed_part(weight: Tensor, sign: int) -> Tensor:
    """W+ (sign 1) or W- (sign -1)."""
    return weight.detach().clamp(min=0) if sign > 0 else weight.detach().clamp(max=0)


def split_by_sign(child: Tensor, baseline: Tensor | None) -> tuple[Tensor, Tensor]:
    """The parts of ``child`` above and below its baseline, scaled where they are extreme."""
    child = child if baseline is None else child - baseline
    child = scaled_by(child, scale_for(child))
    return child.clamp(min=0), child.clamp(max=0)


def scale_for(values: Tensor, largest: float | None = None) -> float:
    """A power of two that brings extreme values to where floats are dense; 1 for ordinary ones.

    Eqn. 4 does not depend on scales, but a total of extreme values would be rounded to 0 or infinity. A product of two
    values within the limits, summed a million times, is a float32. ``largest``: their magnitude, where it is known.
    """
    if largest is None:
        if not is_concrete() or not values.numel():
            return 1.0
        least, most = values.detach().aminmax()
        largest = max(-float(least), float(most))
    return math.ldexp(1.0, -math.frexp(largest)[1]) if 0 < largest < 1e-15 or 1e15 < largest < math.inf else 1.0


def scaled_by(values: Tensor, scale: float) -> Tensor:
    """The values times a scale that float32 may not hold."""
    return values if scale == 1 else (values.to(widest(values)) * scale).to(values.dtype)


def widest(values: Tensor) -> torch.dtype:
    """The type for sums that float32 may not hold: double precision, where the device has it."""
    return torch.float32 if values.device.type in WITHOUT_DOUBLE else torch.float64


def version_of(tensor: Tensor) -> int:
    """Torch's counter of in-place changes to a tensor's memory; 0 for tensors made in inference mode."""
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - it has no public name
