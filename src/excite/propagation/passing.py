"""Operations whose units have one child each: the signal stays the same (paper: ReLU and LRN layers)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.propagation.notes import Note, is_live, is_traced, note_of, set_note
from excite.propagation.rules import Halves, Pass

if TYPE_CHECKING:
    from excite.propagation.call import Call


def activation(call: Call) -> Any:
    """An element-wise function that keeps the sign (SiLU, GELU, leaky ReLU), and other one-to-one functions."""
    return call.pass_down(call.subject)


def bounded_activation(call: Call) -> Any:
    """An increasing function with a least value lambda: its response is what lies above that (Eqn. 5).

    The unit is then never negative, so its excitatory children compete whatever the sign of its input.
    """
    least, most = (_limit(call, end) for end in (-math.inf, math.inf))
    if not bool(torch.isfinite(least).all()):  # clamp with a maximum only: not bounded below
        return activation(call)
    response = call.response()
    gate = 0 if not bool(torch.isfinite(most).all()) else 2 if "sigmoid" in call.name else 1
    note = Note(rest=torch.zeros_like(response) + least if bool((least != 0).any()) else None, gate=gate)
    if not call.traced:
        return call.emit(None, response, [], note)
    rate = response - least
    neuron = note_of(call.subject).made_by()
    if neuron is not None:
        return call.join(neuron, response, rate, note, bounded=True)
    return call.emit(Pass(call.subject.shape, rate > 0), response, [call.subject], note)


def _limit(call: Call, end: float) -> Tensor:
    """What an increasing function tends to at one end of the line."""
    if call.name == "softsign":  # its formula gives NaN there
        return call.subject.detach().new_full((1,), math.copysign(1, end))
    args, kwargs = call.options
    limit: Tensor = call.function(call.subject.detach().new_full((1,), end), *args, **kwargs)
    return limit


def softmax(call: Call) -> Any:
    """Each probability belongs to one unit: it hands its signal to that unit."""
    return call.pass_down(call.subject, Note(gate=2))


def dropout(call: Call) -> Any:
    """Nothing at test time; while training the units that were dropped cannot win."""
    if not call.argument(2, "training", "train", default=True):
        return call.subject
    if "alpha" in call.name:  # moves dropped units to a value of its own
        return call.plain()
    response = call.response()
    winning = (response != 0) | (call.subject.detach() == 0)
    return call.emit(Pass(call.subject.shape, winning), response, [call.subject])


def norm(call: Call) -> Any:
    """Batch, group, layer, instance norm: part of the neuron they normalise, or else a single child.

    Their statistics are constants of this picture, so what counts is the sign of their scale.
    """
    torch_order = call.function in {torch.batch_norm, torch.instance_norm}
    position = 3 if call.name in {"batch_norm", "instance_norm"} and not torch_order else 1 if torch_order else 2
    weight = call.argument(position, "weight")
    if weight is None:  # a norm without a scale is no shift either: it forgets where its input rested
        weight = torch.ones(())
    elif call.name not in {"layer_norm", "rms_norm"}:
        weight = weight.detach().reshape(1, -1, *[1] * (call.subject.dim() - 2))
    return scaled(call, call.subject, weight)


def negation(call: Call) -> Any:
    """``-x``: what excited now inhibits."""
    return scaled(call, call.subject, -1.0)


def scaled(call: Call, child: Tensor, scale: Tensor | float | None) -> Tensor:
    """A constant multiple of ``child`` plus a constant: the same neuron, where a neuron made it."""
    note = note_of(child)
    response = call.response()
    neuron = note.made_by() if response.shape == child.shape else None
    if neuron is not None:
        neuron = neuron.scaled(scale, response)
        return call.join(neuron, response, None, Note(neuron=neuron, gate=note.gate))
    winning = scale.detach() != 0 if isinstance(scale, Tensor) else None
    rest = _moved(call, child, note.rest, scale)
    return call.emit(Pass(child.shape, winning), response, [child], Note(rest=rest, gate=note.gate))


def _moved(call: Call, child: Tensor, rest: Tensor | None, scale: Tensor | float | None) -> Tensor | None:
    """Where a multiple or a shift of ``child``, which rests at ``rest``, rests."""
    increasing = scale is None or (isinstance(scale, (int, float)) and scale > 0)
    if rest is None or not increasing:
        return None
    level = rest.clone()  # the call may overwrite it
    kwargs = {name: level if argument is child else argument for name, argument in call.kwargs.items()}
    moved: Tensor = call.function(*(level if argument is child else argument for argument in call.args), **kwargs)
    return moved


def multiplication(call: Call) -> Any:
    """A multiple, or an activation and its gate: the gate says how much, the activation says what.

    Two activations that meet as equals (gated linear units without a sigmoid) are equally needed: half to each.
    """
    left, right = call.subject, call.argument(1, "other")
    if not is_live(right):
        return scaled(call, left, right if isinstance(right, Tensor) else float(right))
    if not is_live(left):
        return scaled(call, right, left if isinstance(left, Tensor) else float(left))
    if left is right:  # a square
        return activation(call)
    main, gate = _main_and_gate(left, right)
    if main is None:
        return call.emit(Halves(left.shape, right.shape), call.response(), [left, right])
    rest = note_of(main).rest
    return call.pass_down(main, Note(rest=None if rest is None else rest * gate.detach()))


def _main_and_gate(left: Tensor, right: Tensor) -> tuple[Tensor | None, Tensor]:
    """Which of two activations gates the other: by how it was made, else the one that is broadcast."""
    ranks = note_of(left).gate, note_of(right).gate
    if ranks[0] == ranks[1]:
        ranks = right.numel(), left.numel()
    if ranks[0] == ranks[1]:
        return None, left
    return (right, left) if ranks[0] > ranks[1] else (left, right)


def division(call: Call) -> Any:
    """Whatever divides only scales (LRN by hand, ``x / x.norm()``): the numerator gets the signal."""
    above, below = call.subject, call.argument(1, "other")
    if is_live(above) and not is_live(below):
        return scaled(call, above, below if isinstance(below, Tensor) else float(below))
    main = above if is_live(above) else below
    return call.pass_down(main, Note(gate=note_of(main).gate))


def same(call: Call) -> Any:
    """``detach`` and ``data``: autograd's business, not the network's; the values go on and the signal with them."""
    with torch.set_grad_enabled(is_traced(call.subject)):
        return set_note(call.subject.view_as(call.subject), note_of(call.subject))


def hidden_flag(_call: Call) -> bool:
    """The network runs without gradients: it must not see that we use them."""
    return False


def value(call: Call) -> Any:
    """A number for an ``if``, an array, ``zeros_like(x)``: made from an activation, but no activation itself.

    What is computed from it no longer carries the signal.
    """
    args, kwargs = call.options
    return call.function(call.subject.detach(), *args, **kwargs)


def placing(call: Call) -> Any:
    """``index_put``: copies, unless it adds up."""
    if call.argument(3, "accumulate", default=False):
        return call.refuse("it adds values up, which is no copy")
    return call.plain()
