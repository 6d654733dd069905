"""Pairs of networks with the same weights and the same output: an odd one, and its plain twin.

A `Plan` says which steps a network has; it follows from a seed alone. Both networks of a pair are built from it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hunt.allowed import ALLOWED
from hunt.arithmetic import ARITHMETIC
from hunt.copying import COPYING
from hunt.parts import SHAPE, Parts, Spelling
from hunt.severing import SEVERING, in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["SPELLINGS", "Network", "Plan", "bare", "picture"]

SPELLINGS: dict[str, Spelling] = SEVERING | ARITHMETIC | COPYING | ALLOWED

WHOLE: dict[str, Callable[[Parts, int, Tensor], Tensor]] = {
    "conv": lambda parts, k, h: parts.convs[k](h),
    "conv, norm": lambda parts, k, h: parts.norms[k](parts.convs[k](h)),
    "conv, norm, relu": lambda parts, k, h: torch.relu(parts.norms[k](parts.convs[k](h))),
    "relu": lambda _parts, _k, h: torch.relu(h),
    "max pool": lambda _parts, _k, h: functional.max_pool2d(h, 3, 1, 1),
    "times 2": lambda _parts, _k, h: h * 2,
    "permute": lambda _parts, _k, h: h.transpose(2, 3),
}
ORDINARY = WHOLE | {
    "tanh": lambda _parts, _k, h: torch.tanh(h),
    "silu": lambda _parts, _k, h: functional.silu(h),
    "mean pool": lambda _parts, _k, h: functional.avg_pool2d(h, 3, 1, 1),
    "gate": lambda parts, k, h: h * torch.sigmoid(parts.convs[k](h).mean((2, 3), keepdim=True)),
}
SKIPS: dict[str, Callable[[Parts, Tensor, Tensor], Tensor]] = {
    "none": lambda _parts, _before, made: made,
    "around": lambda _parts, before, made: before + made,
    "around, reversed": lambda _parts, before, made: made + before,
    "around, subtracted": lambda _parts, before, made: before * 5 - made,
    "around, in place": lambda _parts, before, made: before.clone().add_(made),
    "around, in place of it": lambda _parts, before, made: made.add_(before),
    "around, +=": lambda _parts, before, made: before.clone().__iadd__(made),
    "concatenated": lambda parts, before, made: parts.mixes[5](torch.cat([before, made], 1)),
    "concatenated in a workspace": lambda parts, before, made: parts.mixes[5](joined(before, made)),
    "gated": lambda parts, before, made: made * torch.sigmoid(parts.convs[6](before)),
    "multiplied": lambda _parts, before, made: made * before,
    "the larger": lambda _parts, before, made: torch.maximum(made, before),
}
FOLLOWS: dict[str, Callable[[Parts, Tensor], Tensor]] = {
    "conv, norm with a negative scale": lambda parts, h: parts.head(
        torch.relu(parts.norms[7](parts.convs[7](h))).flatten(1)
    ),
    "linear": lambda parts, h: parts.head(h.flatten(1)),
    "tanh": lambda parts, h: parts.head(torch.tanh(h / 8).flatten(1)),  # where it does not saturate
    "relu": lambda parts, h: parts.head(torch.relu(h).flatten(1)),
    "sum": lambda parts, h: parts.pooled_head(h.sum((2, 3))),
}
RIGHT_WRAPPERS = ("functional", "module", "nested", "no_grad", "inference_mode", "hook", "functional_call")
HIDING_WRAPPERS = ("thread", "checkpoint", "reentrant checkpoint", "vmap")
POSITIONS = ("above", "above", "above", "below", "at", "around")


def joined(before: Tensor, made: Tensor) -> Tensor:
    """Two tensors side by side in memory that was there before them."""
    space = torch.empty(1, 2 * before.shape[1], *before.shape[2:], dtype=before.dtype)
    space[:, : before.shape[1]] = before
    space[:, before.shape[1] :] = made
    return space


@dataclass(frozen=True)
class Plan:
    """A network as words.

    Attributes:
        seed: of the choices.
        odd: the spelling that differs, and where a second one does as well, that.
        before: ordinary steps below the odd one.
        skip: how what lies below the odd step gets past it.
        wrapper: what the odd step is called in.
        position: where the odd step is, seen from the layer that is read; "around": below it, and past it too.
        follows: what comes above.
        dtype: of all numbers.
        draw: which weights.
    """

    seed: int
    odd: tuple[str, ...]
    before: tuple[str, ...]
    skip: str
    wrapper: str
    position: str
    follows: str
    dtype: torch.dtype
    draw: int = 0

    @classmethod
    def of(cls, seed: int) -> Plan:
        """The plan of a seed: each spelling has its turn, everything else is drawn."""
        names = list(SPELLINGS)
        turn, place = divmod(seed, len(names))
        first = names[place]
        random = Random(f"{first} {turn}")  # noqa: S311 - networks, not secrets
        second = random.choice(names)
        odd = [first, second] if random.random() < 0.15 and _fit(SPELLINGS[first], SPELLINGS[second]) else [first]
        steps = list(WHOLE if any(SPELLINGS[name].whole for name in odd) else ORDINARY)
        if SPELLINGS[first].level:
            steps = [name for name in steps if name != "tanh"]
        dtype = SPELLINGS[first].dtype or random.choice([torch.float32, torch.float64])
        if any(SPELLINGS[name].inexact for name in odd):  # where rounding is small beside any mistake
            dtype = torch.float64
        return cls(
            seed,
            tuple(odd),
            before=tuple(random.choice(steps) for _ in range(random.randint(0, 4 - len(odd)))),
            skip=random.choice(list(SKIPS)) if random.random() < 0.75 else "none",
            wrapper=random.choice(RIGHT_WRAPPERS + HIDING_WRAPPERS) if random.random() < 0.3 else "functional",
            position=random.choice(POSITIONS),
            follows=random.choice(list(FOLLOWS)),
            dtype=dtype,
        )

    def simplified(self) -> Plan:
        """The same spelling in plain surroundings, for those that others forbid or silence."""
        return replace(self, wrapper="functional", odd=self.odd[:1], skip="none", follows="linear")

    def smaller(self) -> Iterator[Plan]:
        """All plans that lack one thing."""
        for k in range(len(self.before)):
            yield replace(self, before=self.before[:k] + self.before[k + 1 :])
        for k in range(len(self.odd) if len(self.odd) > 1 else 0):
            yield replace(self, odd=self.odd[:k] + self.odd[k + 1 :])
        simplest = {"wrapper": "functional", "skip": "none", "follows": "linear", "position": "above"}
        for name, value in simplest.items():
            if getattr(self, name) != value:
                yield replace(self, **{name: value})
        if self.skip not in {"none", "around"}:
            yield replace(self, skip="around")

    @property
    def called_plainly(self) -> bool:
        """Whether the call itself hides nothing."""
        return self.wrapper in RIGHT_WRAPPERS

    @property
    def right(self) -> bool:
        """Whether it must not be refused."""
        spellings = [SPELLINGS[name] for name in self.odd]
        if self.position in {"below", "at"} and not any(each.anywhere for each in spellings):
            return True  # all that is left of it is the layer's own output
        return all(each.right for each in spellings) and self.called_plainly

    @property
    def whole(self) -> bool:
        """Whether the network must keep to whole numbers."""
        return any(SPELLINGS[name].whole for name in self.odd)

    def __str__(self) -> str:
        words = [*self.before, f"[{' + '.join(self.odd)}]", f"skip: {self.skip}"]
        words += [] if self.wrapper == "functional" else [f"in {self.wrapper}"]
        return f"{', '.join(words)}; {self.position} the layer; then {self.follows}; {str(self.dtype)[6:]}"


def _fit(one: Spelling, other: Spelling) -> bool:
    """Whether two spellings can follow each other."""
    apart = (one.inexact and other.whole) or (other.inexact and one.whole) or one.level or other.level
    return not apart and one.dtype is other.dtype is None


class Network(nn.Module):
    """One of the two networks of a plan.

    Args:
        plan: what it is made of.
        odd: the odd one; else the plain twin.
    """

    def __init__(self, plan: Plan, *, odd: bool) -> None:
        super().__init__()
        self.plan, self.odd = plan, odd
        self.parts = Parts(plan.seed * DRAWN + plan.draw, whole=plan.whole, dtype=plan.dtype)
        self.inner = Wrapped(self.steps, self.parts, plan.wrapper if odd else "functional")
        self.layer = Inside(self.block) if plan.position == "at" else nn.Identity()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """A first layer, the odd stage before, at or behind the layer that is read, and what follows."""
        h = torch.relu(self.parts.convs[2](x))
        if self.plan.position == "above":
            h = self.stage(self.layer(h))
        elif self.plan.position == "at":
            h = self.layer(h)
        elif self.plan.position == "below":
            h = self.layer(self.block(h))
        else:
            made = self.stage(h)
            h = self.layer(torch.relu(self.parts.convs[7](made))) + made
        return FOLLOWS[self.plan.follows](self.parts, h)

    def block(self, h: Tensor) -> Tensor:
        """The stage and a neuron: what is known of the plain stage beside its values ends there."""
        return torch.relu(self.parts.convs[7](self.stage(h)))

    def stage(self, h: Tensor) -> Tensor:
        """The ordinary steps and the odd one, with its skip connection."""
        for k, name in enumerate(self.plan.before):
            h = ORDINARY[name](self.parts, k, h)
        if any(SPELLINGS[name].rectified for name in self.plan.odd):
            h = torch.relu(h)
        return SKIPS[self.plan.skip](self.parts, h, self.inner(h))

    def steps(self, h: Tensor) -> Tensor:
        """The odd step, or its plain twin."""
        for name in self.plan.odd:
            spelling = SPELLINGS[name]
            h = torch.relu(h) if spelling.rectified else h
            h = (spelling.odd if self.odd else spelling.plain)(self.parts, h)
        return h


DRAWN = 64  # seeds of weights for each plan


class Inside(nn.Module):
    """A step as a module; with ``parts`` its parameters can be exchanged."""

    def __init__(self, step: Callable[[Tensor], Tensor], parts: Parts | None = None) -> None:
        super().__init__()
        self.step, self.parts = step, parts

    def forward(self, h: Tensor) -> Tensor:
        """The step."""
        return self.step(h)


class Wrapped(nn.Module):
    """A step that is called in some other way."""

    def __init__(self, step: Callable[[Tensor], Tensor], parts: Parts, wrapper: str) -> None:
        super().__init__()
        self.step, self.parts, self.wrapper = step, [parts], wrapper  # a list: no modules of this one
        self.inside = {"module": Inside(step), "nested": Inside(Inside(step))}.get(wrapper, nn.Identity())
        if wrapper == "hook":
            self.inside.register_forward_hook(lambda _module, _given, answer: step(answer))

    def forward(self, h: Tensor) -> Tensor:
        """The step."""
        modes: dict[str, AbstractContextManager[object]] = {
            "no_grad": torch.no_grad(),
            "inference_mode": torch.inference_mode(),
        }
        with modes.get(self.wrapper, nullcontext()):
            return self._ways().get(self.wrapper, self.step)(h)

    def _ways(self) -> dict[str, Callable[[Tensor], Tensor]]:
        return {
            "module": self.inside,
            "nested": self.inside,
            "hook": self.inside,
            "functional_call": self._with_other_parameters,
            "thread": lambda h: in_thread(lambda: self.step(h)),
            "checkpoint": lambda h: checkpoint(self.step, h, use_reentrant=False),
            "reentrant checkpoint": lambda h: checkpoint(self.step, h, use_reentrant=True),
            "vmap": torch.vmap(lambda row: self.step(row[None])[0]),
        }

    def _with_other_parameters(self, h: Tensor) -> Tensor:
        (parts,) = self.parts
        others = {f"parts.{name}": value.detach() for name, value in parts.named_parameters()}
        return torch.func.functional_call(Inside(self.step, parts), others, (h,))


def picture(plan: Plan) -> Tensor:
    """The input of both networks."""
    random = torch.Generator().manual_seed(plan.seed * DRAWN + plan.draw + 1)
    numbers = torch.randn(SHAPE, generator=random, dtype=torch.float64) * 1.5
    return (numbers.round() if plan.whole else numbers).to(plan.dtype)


def bare(network: nn.Module, x: Tensor) -> Tensor:
    """The output as torch alone computes it."""
    with torch.no_grad():
        return network(x.clone())
