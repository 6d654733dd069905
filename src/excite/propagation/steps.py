"""Other rules than winning: gradients, deconvolution, guided backpropagation, relevance with an epsilon.

They are one mechanism too. Each operation keeps a small graph of its own, from the values it was given to the value it
gave, so its true gradient is always at hand; and where a way differs from the gradient, a rule says how. All rules of
a forward pass look at one `Switch`, so that any way can be taken any number of times after a single forward pass.

| | rectifier ``y = f(x)`` | weights ``y = W x + b`` | one-to-one ``y = f(x)`` | product of two activations |
|---|---|---|---|---|
| grad | f'(x) g | W' g | f'(x) g | to both |
| deconv | max(g, 0) | W' g | f'(x) g | to both |
| guided | f'(x) max(g, 0) | W' g | f'(x) g | to both |
| lrp | g y / x | W' (g y / (y + e sign y)) | g y / x | to what is gated, or half to each |

For ReLU f'(x) is its mask, and these are the rules as published (Simonyan 2014; Zeiler and Fergus 2014; Springenberg
2015; Bach 2015). The functions that took ReLU's place (leaky ReLU, ELU, GELU, SiLU, ReLU6 and the like) are
rectifiers as well, with their derivative in the place of the mask; sigmoid, tanh and softmax do not rectify.

On the way ``lrp`` travels ``g = R / activation``, relevance for each unit of activation, because then everything that
is linear without weights of its own (sums, pooling, concatenation, dropout) hands it down by its plain gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from excite.errors import NoRuleError
from excite.propagation.graph import refusal
from excite.propagation.mode import map_tensors
from excite.propagation.rules import Rule, Shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.propagation.call import Call

__all__ = ["NoRelevance", "OneToOne", "Product", "Rectifier", "Step", "Switch", "Way"]

Way = Literal["grad", "deconv", "guided", "lrp"]


@dataclass
class Switch:
    """Which way all rules of a forward pass take just now."""

    way: Way = "grad"
    epsilon: float = 0.0


class Step(Rule):
    """An operation with a small graph of its own: its true gradient, unless a way says otherwise."""

    def __init__(self, switch: Switch, call: Call, children: Sequence[Tensor], main: int | None) -> None:
        self.switch = switch
        self.main = main  # the child that says what; the others (weights made of the image, gates) say how much
        self.leaves, self.result = _on_leaves(call, children)
        keep = call.mode.keeper.keep
        self.child, self.response = keep(self.leaves[main or 0]), keep(self.result)

    def down(self, *signals: Any) -> Shares:
        """What arrives at the children, by the way that the switch says."""
        (signal,) = signals
        return self.relevance(signal) if self.switch.way == "lrp" else self.gradient(signal)

    def gradient(self, signal: Tensor) -> Shares:
        """The vector-Jacobian product."""
        return torch.autograd.grad(self.result, self.leaves, signal, retain_graph=True, allow_unused=True)

    def relevance(self, signal: Tensor) -> Shares:
        """All to the main child, by its weights."""
        return self.only_main(self.gradient(self._stabilised(signal))[self.main or 0])

    def only_main(self, share: Tensor | None) -> Shares:
        """That share for the main child, nothing for the others."""
        return tuple(share if k == self.main else None for k in range(len(self.leaves)))

    def _stabilised(self, signal: Tensor) -> Tensor:
        """The epsilon takes relevance from units that hardly responded: g y / (y + e sign y)."""
        response = self.response.tensor
        epsilon = torch.full((), self.switch.epsilon, dtype=response.dtype, device=response.device)
        return signal * (response / (response + torch.copysign(epsilon, response))).nan_to_num(nan=0.0)


class OneToOne(Step):
    """A unit with one child: the child gets its relevance, whatever the function."""

    def relevance(self, signal: Tensor) -> Shares:
        """R stays the same: g y / x, and nothing where there was nothing."""
        child = self.child.tensor
        relevance = (signal * self.response.tensor).sum_to_size(child.shape)
        return self.only_main(torch.where(child == 0, 0, relevance / child))


class Rectifier(OneToOne):
    """ReLU and its kind, at which deconvolution and guided backpropagation let only positive signals through."""

    def down(self, *signals: Any) -> Shares:
        """What arrives at the children, by the way that the switch says."""
        (signal,) = signals
        if self.switch.way == "deconv":
            return self.only_main(signal.clamp(min=0))
        return super().down(signal.clamp(min=0) if self.switch.way == "guided" else signal)


class Product(Step):
    """Two activations that are multiplied, of which one may gate the other."""

    def relevance(self, signal: Tensor) -> Shares:
        """All to what is gated; without a gate the two are equally needed: half to each."""
        shares = self.gradient(signal if self.main is not None else signal / 2)
        return shares if self.main is None else self.only_main(shares[self.main])


class NoRelevance(Step):
    """A product of activations, none of them a gate, that adds up as well: nobody knows whose relevance it is."""

    def __init__(self, switch: Switch, call: Call, children: Sequence[Tensor], main: int | None) -> None:
        super().__init__(switch, call, children, main)
        reason = "a product of two activations, none of them weights or a gate"
        self.message = refusal(call.name, call.mode.module_name(), reason)

    def relevance(self, _signal: Tensor) -> Shares:
        """Refused."""
        raise NoRuleError(self.message)


def _on_leaves(call: Call, children: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Run a call in a graph of its own that begins at its children; an in-place call gets a copy to write to."""
    leaves = {id(child): child.detach().requires_grad_() for child in children}

    def stand_in(tensor: Tensor) -> Tensor:
        leaf = leaves.get(id(tensor))
        if leaf is None:
            return tensor.detach() if tensor.requires_grad else tensor
        return leaf.clone() if call.in_place and tensor is call.subject else leaf

    args, kwargs = map_tensors(stand_in, (call.args, call.kwargs))
    with torch.enable_grad(), call.mode.keeper.saving():
        return list(leaves.values()), call.function(*args, **kwargs)
