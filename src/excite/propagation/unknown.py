"""Tensors of unknown origin, which no seen call has made: are they constant, or made from activations by hidden code?

The network runs again with other images and other activations at its taps, and the tensors that it combines with
activations must have the same values. What was found to be constant is remembered by its values.
"""

from __future__ import annotations

import weakref
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from excite.errors import NoRuleError
from excite.propagation.graph import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CONSTANT: weakref.WeakKeyDictionary[nn.Module, list[Tensor]] = weakref.WeakKeyDictionary()
MOST_VALUES = 2**22  # numbers of tensors that were found to be constant, kept for each network


class Unknown(NamedTuple):
    """A tensor of unknown origin that met an activation."""

    number: int  # the how many-th such tensor of the pass it is
    operation: str  # the call in which they met, and
    module: str  # the module in whose code that was
    live: bool  # that activation lies above a tap
    values: Tensor


def known_constant(module: nn.Module, values: Tensor) -> bool:
    """Whether a tensor with these values was found to be constant before."""
    return any(_same(values, each) for each in _CONSTANT.get(module, ()))


def _same(mine: Tensor, other: Tensor) -> bool:
    if mine.shape != other.shape or mine.dtype != other.dtype or mine.device != other.device:
        return False
    return bool(((mine == other) | ((mine != mine) & (other != other))).all())  # noqa: PLR0124 - NaN


def activations_among(
    module: nn.Module, before: Sequence[Unknown], trials: Sequence[Sequence[Unknown]]
) -> frozenset[int]:
    """Which tensors of unknown origin differ in any of the trials; those that do not are constant from now on.

    Refused is the first of them that met a live tensor, and a network that does not make the same calls.
    """
    found = frozenset[int]().union(*(_differing(before, after) for after in trials))
    kept = _CONSTANT.setdefault(module, [])
    for each in before:
        if each.number not in found and sum(map(Tensor.numel, kept)) + each.values.numel() <= MOST_VALUES:
            kept.append(each.values)
    return found


def _differing(before: Sequence[Unknown], after: Sequence[Unknown]) -> set[int]:
    same_calls = [each[:4] for each in before] == [each[:4] for each in after]
    if not same_calls and not any(each.live for each in (*before, *after)):
        return {each.number for each in before}
    found = set()
    for first, second in zip_longest(before, after):
        if first is None or second is None or first[:4] != second[:4]:
            raise NoRuleError(hidden_in(first or second))
        if not _same(first.values, second.values):
            if first.live:
                raise NoRuleError(hidden_in(first))
            found.add(first.number)
    return found


def hidden_in(unknown: Unknown) -> str:
    """The one line for a tensor of unknown origin that is not constant."""
    reason = "it gets a tensor that depends on the layer but was made by hidden code: NumPy, numbers, a thread"
    return refusal(unknown.operation, unknown.module, reason)


def disturbed(values: Tensor, signs: Callable[[Tensor], Tensor]) -> Tensor:
    """Other activations of the same size: all of them differ, and have other signs; no integers."""
    if not values.is_floating_point():
        return values.detach()
    generator = torch.Generator().manual_seed(0)
    noise = (torch.rand(values.shape, generator=generator) - 0.5).to(values)
    size = values.detach().abs() * (0.5 + noise.abs()) + noise.abs() * (values.detach().abs().mean() + 0.1)
    return size * signs(noise)


# About half of the signs differ; all are negative, as a maximum would hide the half; all are positive.
_SIGNS = (torch.sign, lambda noise: -torch.ones_like(noise), torch.ones_like)
TRIALS = tuple(partial(disturbed, signs=signs) for signs in _SIGNS)
