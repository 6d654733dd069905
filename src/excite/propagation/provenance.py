"""What is known of an activation beside its values: its neuron, its baseline (lambda), whether it is a gate, its sign.

A tensor that depends on the network's input carries a `Provenance` as an attribute. It decides which rule the next
operation gets: a batch norm of a convolution's response belongs to the neuron of the convolution, a product with a
sigmoid is gated by it, and the children of a layer behind tanh are counted from -1.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from excite.propagation.fast import constants
from excite.propagation.rules import Rule, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from excite.propagation.fast.shortcuts import FlippedRows
    from excite.propagation.taps import Start

_ATTRIBUTE = "_excite_provenance"


@dataclass(frozen=True)
class Neuron:
    """The weighted sum behind a tensor. A norm, a scale or a shift of its response is part of the same neuron."""

    positive: Tensor  # the input for the probability of units with a positive response; only its node matters
    negative: Tensor  # the same for units with a negative response
    polarity: Tensor | None = None  # the sign of what the response was multiplied with since; None: 1
    starts: tuple[Start, ...] = ()  # of the taps on the response before it was normalised
    flipped_rows: FlippedRows | None = None  # two more inputs of an untouched response; only for `fast`

    def scaled(self, scale: Tensor | float, like: Tensor) -> Neuron:
        """The same neuron after its response was multiplied with a constant: only the sign of that matters."""
        with constants((scale, self.polarity)):
            polarity = torch.as_tensor(scale, dtype=like.dtype, device=like.device).detach().sign()
            polarity = polarity if self.polarity is None else polarity * self.polarity
            if bool((polarity == 1).all()):
                return replace(self, polarity=None)
            flipped = None if self.flipped_rows is None else self.flipped_rows.flip(polarity, self.starts)
            return flipped or replace(self, polarity=polarity, flipped_rows=None)

    def moved(self, move: Callable[[Tensor], Any], number: int) -> Neuron:
        """The same neuron after a change of shape, a selection of units, a copy: the output ``number`` of ``move``."""
        polarity = self.polarity
        if polarity is not None:
            polarity = tensors_in(move(polarity.expand(self.positive.shape).contiguous()))[number]
        with torch.enable_grad():
            positive, negative = tensors_in(move(self.positive))[number], tensors_in(move(self.negative))[number]
        return Neuron(positive, negative, polarity, self.starts)


@dataclass(frozen=True)
class Provenance:
    """What is known of an activation.

    The baseline is the value of a unit that nothing excited, where that is not 0: the minimum of its activation
    function (lambda, Eqn. 5), scaled and shifted as the unit was since.
    """

    neuron: Neuron | None = None  # whose (perhaps normalised) response this is, without an activation function
    baseline: Tensor | None = None
    gate: int = 0  # of two activations that are multiplied the higher gates the lower: see `ATTENTION` to `MIXTURE`
    preactivation: bool = False  # below all taps, where no neuron is recorded: it is such a response

    @property
    def plain(self) -> bool:
        """Whether this is an activation with baseline 0 of which nothing else is known."""
        return self.neuron is None and self.baseline is None and self.gate <= 0


# What may gate what: 0 is any other activation. The last two hold values, and are gated by all others.
ATTENTION = 3  # softmax, and linear maps of it: the weights of attention
SWITCH = 2  # sigmoid
LIMITED = 1  # otherwise bounded
RESPONSE = -1  # the response of weights, without an activation function
MIXTURE = -2  # values that weights made of the image have mixed

UNKNOWN = Provenance()  # an activation with baseline 0
PREACTIVATION = Provenance(gate=RESPONSE, preactivation=True)
BOUNDED = Provenance(gate=LIMITED)  # baseline 0, and bounded above


def gate_behind_weights(child: Tensor) -> int:
    """What the response of constant weights may gate: as attention weights still, if its children are such."""
    attends = is_activation(child) and provenance_of(child).gate == ATTENTION
    return ATTENTION if attends else RESPONSE


def provenance_of(tensor: Tensor) -> Provenance:
    """What is known of an activation; nothing of one whose memory was overwritten since."""
    mark = getattr(tensor, _ATTRIBUTE)
    return mark.known if isinstance(mark, _Mark) and mark.version == version_of(tensor) else UNKNOWN


def set_provenance(tensor: Tensor, provenance: Provenance) -> Tensor:
    """Mark ``tensor`` as an activation, with torch's present counter of in-place changes of its memory."""
    setattr(tensor, _ATTRIBUTE, _Mark(provenance, version_of(tensor), id(tensor)))
    return tensor


class _Mark(NamedTuple):
    """What an activation carries; a network that pickles its tensors finds an empty dict instead."""

    known: Provenance
    version: int
    owner: int  # the tensor, by id

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, ()


def unset_provenance(tensor: Tensor) -> None:
    """Remove the mark: ``tensor`` is no activation any more."""
    vars(tensor).pop(_ATTRIBUTE, None)


def is_copied(tensor: Tensor) -> bool:
    """Whether an activation's mark is that of another tensor: hidden code (``copy.copy``, pickle) has copied both."""
    copied: bool = getattr(getattr(tensor, _ATTRIBUTE), "owner", None) != id(tensor)
    if copied:
        unset_provenance(tensor)
    return copied


def is_activation(value: Any) -> bool:
    """Whether ``value`` is a tensor that depends on the network's input."""
    return isinstance(value, Tensor) and hasattr(value, _ATTRIBUTE)


def is_above_tap(value: Any) -> bool:
    """Whether ``value`` is an activation that depends on a tapped layer."""
    return isinstance(value, Tensor) and hasattr(value, _ATTRIBUTE) and leads_to_tap(value)


def leads_to_tap(tensor: Tensor) -> bool:
    """Whether a tapped layer lies below ``tensor``: a history alone may be that of a custom function's parameters."""
    node: Any = tensor.grad_fn
    while node is not None and not isinstance(getattr(node, "rule", None), Rule):
        if len(node.next_functions) != 1:
            return any(isinstance(getattr(below, "rule", None), Rule) for below in nodes_below(node))
        node = node.next_functions[0][0]  # nearly always: a view of a ruled response, or a view of that
    return node is not None


def nodes_below(
    start: Any, ends: set[Any] | None = None, below: Callable[[Any], Iterable[Any]] | None = None
) -> Iterator[Any]:
    """All nodes below and including ``start``, without ``ends`` and what lies below them.

    ``below`` gives the nodes to visit next after a node; None: all its inputs.
    """
    waiting, seen = [start], set(ends or ())
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend([child for child, _ in node.next_functions] if below is None else below(node))


def tensors_in(value: Any, found: list[Tensor] | None = None) -> list[Tensor]:
    """All tensors in nested tuples, lists and dicts; added to ``found``, where that is given."""
    found = [] if found is None else found
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else (value,)
    for item in values:
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, (tuple, list, dict)):
            tensors_in(item, found)
    return found
