"""What is known of an activation beside its values: how it was made, where it rests, whether it is a gate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from excite.propagation.keeping import Kept
    from excite.propagation.rules import Tap

__all__ = ["Neuron", "Note", "is_live", "is_traced", "note_of", "set_note", "tensors_in"]

_ATTRIBUTE = "_excite_note"


@dataclass(frozen=True)
class Neuron:
    """The affine call that made a tensor, so that a norm, a scale or a shift behind it can join the same neuron."""

    operation: Callable[[Tensor, Tensor | None], Tensor]  # linear in its first argument, without the bias
    child: Tensor
    child_version: int
    kept_child: Kept
    weight: Tensor | None
    rest: Tensor | None  # of the children
    polarity: Tensor | None = None  # the sign of what the response was multiplied with since
    taps: tuple[Tap, ...] = ()  # on the response before it was normalised, the first one innermost
    probes: tuple[Tensor, ...] = ()  # of those taps

    def scaled(self, scale: Tensor | float | None, like: Tensor) -> Neuron:
        """The same neuron after its response was multiplied with a constant: only the sign of that matters."""
        if scale is None:
            return self
        sign = torch.as_tensor(scale, dtype=like.dtype, device=like.device).detach().sign()
        polarity = sign if self.polarity is None else self.polarity * sign
        return replace(self, polarity=None if bool((polarity == 1).all()) else polarity)

    def then(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], like: Tensor) -> Neuron:
        """The same neuron seen through a change of shape (``like``: a response before that change)."""
        before = self.operation

        def operation(child: Tensor, weight: Tensor | None) -> Tensor:
            result: Tensor = function(before(child, weight), *args, **kwargs)
            return result

        polarity = self.polarity
        if polarity is not None:
            polarity = function(polarity.expand(like.shape).contiguous(), *args, **kwargs)
        probes = tuple(function(probe, *args, **kwargs) for probe in self.probes)
        return replace(self, operation=operation, polarity=polarity, probes=probes)


@dataclass(frozen=True)
class Note:
    """A tensor with a note is live: it depends on the network's input.

    Attributes:
        neuron: the affine call whose plain (perhaps normalised) response this is.
        rest: the least value each unit can have, where its activation function goes below 0 (lambda, Eqn. 5).
        gate: how much it looks like a gate when two activations are multiplied: 2 sigmoid or softmax, 1 otherwise
            bounded, 0 not at all.
    """

    neuron: Neuron | None = None
    rest: Tensor | None = None
    gate: int = 0


def note_of(tensor: Tensor) -> Note:
    """The note of a live tensor."""
    note: Note = getattr(tensor, _ATTRIBUTE)
    return note


def set_note(tensor: Tensor, note: Note) -> Tensor:
    """Mark ``tensor`` as live."""
    setattr(tensor, _ATTRIBUTE, note)
    return tensor


def is_live(value: Any) -> bool:
    """Whether ``value`` is an activation: a tensor that depends on the network's input."""
    return isinstance(value, Tensor) and hasattr(value, _ATTRIBUTE)


def is_traced(value: Any) -> bool:
    """Whether ``value`` is an activation that depends on a tapped layer."""
    return is_live(value) and bool(value.requires_grad)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
