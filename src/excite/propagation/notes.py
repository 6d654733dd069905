"""What is known of an activation beside its values: how it was made, where it rests, whether it is a gate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.propagation.deciding import constants
from excite.propagation.keeping import version_of
from excite.propagation.rules import Rule
from excite.propagation.signs import Signs, signs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from excite.propagation.affine import Affine
    from excite.propagation.taps import Start

__all__ = [
    "CAPPED",
    "FRESH",
    "REST",
    "Neuron",
    "Note",
    "Parts",
    "Turning",
    "is_live",
    "is_traced",
    "leads_to_tap",
    "note_of",
    "set_note",
    "tensors_given",
    "tensors_in",
]

_ATTRIBUTE = "_excite_note"


@dataclass(frozen=True)
class Neuron:
    """The competition that made a tensor, so that a norm, a scale or a shift behind it can be part of the neuron."""

    up: Tensor  # the ports of the competition: where the probability of units goes that were pushed up,
    down: Tensor  # and of those that were pushed down
    polarity: Tensor | None = None  # the sign of what the response was multiplied with since
    starts: tuple[Start, ...] = ()  # of the taps on the response before it was normalised
    turning: Turning | None = None  # while nothing but its ports is known of it: where its rows may be turned

    def scaled(self, scale: Tensor | float | None, like: Tensor, *, kept: bool = False) -> Neuron:
        """The same neuron after its response was multiplied with a constant: only the sign of that matters.

        ``kept``: the constant is the network's own, the same for the next image.
        """
        if scale is None:
            return self
        with constants((scale, self.polarity)):
            constant = torch.as_tensor(scale, dtype=like.dtype, device=like.device).detach()
            signs = signs_of(constant, kept=kept)
            if self.polarity is not None:
                signs = Signs.of(self.polarity * signs.polarity)
            if signs.all_positive:
                return replace(self, polarity=None)
            if self.turning is not None and self.turning.turn(signs):
                return Neuron(self.turning.up, self.turning.down, signs.mute, self.starts)
            return replace(self, polarity=signs.polarity, turning=None)

    def moved(self, move: Callable[[Tensor], Tensor]) -> Neuron:
        """The same neuron seen through a change of shape, a choice of some of its units, a copy."""
        polarity = self.polarity
        if polarity is not None:
            polarity = move(polarity.expand(self.up.shape).contiguous())
        with torch.enable_grad():
            return replace(self, up=move(self.up), down=move(self.down), polarity=polarity, turning=None)


@dataclass(frozen=True)
class Turning:
    """More ports of a competition, for units whose rows of weights are turned to the sign of their scale.

    A batch norm has scales of both signs, and with these ports its neurons need one competition, not two.
    """

    rule: Affine
    up: Tensor
    down: Tensor

    def turn(self, signs: Signs) -> bool:
        """Have the rows turned that way, if it is one sign for each row, and nobody else turned them otherwise."""
        shape = [1] * self.up.dim()
        shape[self.rule.row_dim or 0] = self.up.shape[self.rule.row_dim or 0]
        if list(signs.polarity.shape) not in (shape, shape[1:]):
            return False
        if self.rule.orientation is None:
            self.rule.orientation = signs.orientation
        return self.rule.orientation is signs.orientation or torch.equal(self.rule.orientation, signs.orientation)


@dataclass(frozen=True)
class Parts:
    """What a tensor was concatenated from: a norm behind it still belongs to the neurons of its parts (DenseNet)."""

    tensors: tuple[Tensor, ...]
    versions: tuple[int, ...]  # torch's counters of in-place changes, when they were concatenated
    dim: int

    def joined(self) -> Neuron | None:
        """Their neurons side by side, None when one of them was overwritten since.

        A part that is no neuron takes its probability whichever way its successor was pushed.
        """
        if any(version_of(part) != version for part, version in zip(self.tensors, self.versions, strict=True)):
            return None
        neurons = [note_of(part).made_by() if is_live(part) else None for part in self.tensors]
        both = list(zip(self.tensors, neurons, strict=True))
        polarity = None
        if any(neuron is not None and neuron.polarity is not None for neuron in neurons):
            polarity = torch.cat([_polarity(part, neuron) for part, neuron in both], self.dim)
        with torch.enable_grad():
            up = torch.cat([part if neuron is None else neuron.up for part, neuron in both], self.dim)
            down = torch.cat([part if neuron is None else neuron.down for part, neuron in both], self.dim)
        starts = tuple(start for neuron in neurons if neuron is not None for start in neuron.starts)
        return Neuron(up, down, polarity, starts)


def _polarity(part: Tensor, neuron: Neuron | None) -> Tensor:
    if neuron is None or neuron.polarity is None:
        return torch.ones_like(part.detach())
    return neuron.polarity.expand(part.shape)


@dataclass(frozen=True)
class Note:
    """A tensor with a note is live: it depends on the network's input.

    Attributes:
        neuron: the competition whose plain (perhaps normalised) response this is.
        parts: what it was concatenated from, where a part is such a response.
        rest: the value of a unit that nothing excited, where that is not 0: the least value of its activation function
            (lambda, Eqn. 5), scaled and shifted as the unit was since.
        gate: how much it looks like a gate when two activations are multiplied: 2 sigmoid or softmax, 1 otherwise
            bounded, 0 not at all.
        fresh: below all taps, what ``neuron`` is above them: a plain (perhaps normalised) response.
    """

    neuron: Neuron | None = None
    parts: Parts | None = None
    rest: Tensor | None = None
    gate: int = 0
    fresh: bool = False

    def made_by(self) -> Neuron | None:
        """The neuron that a norm, scale or shift of this tensor belongs to."""
        return self.parts.joined() if self.neuron is None and self.parts is not None else self.neuron


REST = Note()  # nothing is known but that it rests at 0
FRESH = Note(fresh=True)
CAPPED = Note(gate=1)  # rests at 0 and cannot grow without bound


def note_of(tensor: Tensor) -> Note:
    """The note of a live tensor; nothing is known of one whose memory was overwritten since."""
    note: Note
    note, version = getattr(tensor, _ATTRIBUTE)
    return note if version == version_of(tensor) else REST


def set_note(tensor: Tensor, note: Note) -> Tensor:
    """Mark ``tensor`` as live, with torch's counter of in-place changes of its memory, when the note was made."""
    setattr(tensor, _ATTRIBUTE, (note, version_of(tensor)))
    return tensor


def is_live(value: Any) -> bool:
    """Whether ``value`` is an activation: a tensor that depends on the network's input."""
    return isinstance(value, Tensor) and hasattr(value, _ATTRIBUTE)


def is_traced(value: Any) -> bool:
    """Whether ``value`` is an activation that depends on a tapped layer."""
    return is_live(value) and leads_to_tap(value)


def leads_to_tap(tensor: Tensor) -> bool:
    """Whether a tapped layer lies below ``tensor``: a history alone may be that of a custom function's parameters."""
    top = tensor.grad_fn
    if top is None or isinstance(getattr(top, "rule", None), Rule):  # nearly always
        return top is not None
    waiting: list[Any] = [top]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(getattr(node, "rule", None), Rule):
            return True
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(below for below, _ in node.next_functions)
    return False


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists and dicts."""
    found: list[Tensor] = []
    _collect((value,), found)
    return found


def tensors_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """All tensors among the arguments of a call."""
    found: list[Tensor] = []
    _collect(args, found)
    if kwargs:
        _collect(kwargs.values(), found)
    return found


def _collect(values: Iterable[Any], found: list[Tensor]) -> None:
    for item in values:
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, dict):
            _collect(item.values(), found)
        elif isinstance(item, (tuple, list)):
            _collect(item, found)
