"""Operations whose units have one child each: the signal stays the same (paper: ReLU and LRN layers)."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.propagation import quick
from excite.propagation.deciding import constants, is_known, may_be
from excite.propagation.notes import Note, is_live, is_traced, note_of, set_note
from excite.propagation.rules import Halves, Pass

if TYPE_CHECKING:
    from collections.abc import Callable

    from excite.propagation.call import Call

    Range = tuple[bool, bool, bool, Tensor]


def activation(call: Call) -> Any:
    """An element-wise function that keeps the sign (SiLU, GELU, leaky ReLU), and other one-to-one functions."""
    return call.pass_down(call.subject)


def bounded_activation(call: Call) -> Any:
    """An increasing function with a least value lambda: its response is what lies above that (Eqn. 5).

    The unit is then never negative, so its excitatory children compete whatever the sign of its input.
    """
    with constants():
        below, above, moved, least = _range(call)
    if not below:  # clamp with a maximum only: not bounded below
        return activation(call)
    response = call.response()
    gate = 0 if not above else 2 if "sigmoid" in call.name else 1
    rest = torch.zeros_like(response) + least if moved else None
    note = Note(rest=rest, gate=gate)
    if not call.traced:
        return call.emit(None, response, [], note)
    rate = response - least if moved else response
    neuron = note_of(call.subject).made_by()
    if neuron is not None:
        return call.join(neuron, response, rate, note, bounded=True)
    return call.emit(Pass(call.subject.shape, rate > 0), response, [call.subject], note)


def rectifier(call: Call) -> Any:
    """ReLU: where it is 0 nobody won, else its unit is its child's, whichever neuron that is.

    Autograd's own gradient would do as well, but as part of the neuron it is one step instead of two.
    """
    neuron = note_of(call.subject).neuron if call.traced else None
    if neuron is None or note_of(call.subject).rest is not None:
        return call.plain()
    return call.rectify(neuron)


def _range(call: Call) -> Range:
    """Of an increasing function: is it bounded below and above, is its least value other than 0, and that value."""
    args, kwargs = call.options
    dtype, device = call.subject.dtype, call.subject.device
    if all(option is None or isinstance(option, (bool, int, float, str)) for option in (*args, *kwargs.values())):
        return _fixed_range(call.name, call.function, args, tuple(kwargs.items()), dtype, device)
    return _measured_range(call.name, call.on, dtype, device)


@cache
def _fixed_range(
    name: str, function: Callable[..., Tensor], args: Any, kwargs: Any, dtype: torch.dtype, device: torch.device
) -> Range:
    """Where all options are plain numbers: networks call the same few functions again and again."""
    return _measured_range(name, lambda end: function(end, *args, **dict(kwargs)), dtype, device)


def _measured_range(name: str, function: Callable[[Tensor], Tensor], dtype: torch.dtype, device: torch.device) -> Range:
    """What the function tends to at both ends of the line."""
    ends = [torch.full((1,), end, dtype=dtype, device=device) for end in (-math.inf, math.inf)]
    if name == "softsign":  # its formula gives NaN there
        least, most = (end.sign() for end in ends)
    else:
        least, most = (function(end) for end in ends)
    return bool(torch.isfinite(least).all()), bool(torch.isfinite(most).all()), bool(least.any()), least


def softmax(call: Call) -> Any:
    """Each probability belongs to one unit: it hands its signal to that unit."""
    return call.pass_down(call.subject, Note(gate=2))


def response_norm(call: Call) -> Any:
    """Local response norm (paper: LRN layers), by the quicker of two ways."""
    return call.by(quick.local_response_norm).pass_down(call.subject)


def largest(call: Call) -> Any:
    """Max pooling: each unit copies one child. By the quicker of two ways."""
    return call.by(quick.max_pool2d).plain() if is_known() else call.plain()


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

    Their statistics are constants of this image, so what counts is the sign of their scale.
    """
    torch_order = call.function in {torch.batch_norm, torch.instance_norm}
    position = 3 if call.name in {"batch_norm", "instance_norm"} and not torch_order else 1 if torch_order else 2
    weight = call.argument(position, "weight")
    kept = id(weight) in call.mode.state
    with constants(weight):
        if weight is None:  # a norm without a scale is no shift either: it forgets where its input rested
            weight = torch.ones(())
        elif call.name not in {"layer_norm", "rms_norm"}:
            weight = weight.detach().reshape(1, -1, *[1] * (call.subject.dim() - 2))
    return scaled(call, call.subject, weight, kept=kept)


def negation(call: Call) -> Any:
    """``-x``: what excited now inhibits."""
    return scaled(call, call.subject, -1.0)


def scaled(call: Call, child: Tensor, scale: Tensor | float | None, *, kept: bool = False) -> Tensor:
    """A constant multiple of ``child`` plus a constant: the same neuron, where a neuron made it.

    ``kept``: the factor is the network's own, the same for the next image.
    """
    note = note_of(child)
    response = call.response()
    if note.fresh and response.shape == child.shape:
        return set_note(response, Note(gate=note.gate, fresh=True))
    neuron = note.made_by() if response.shape == child.shape else None
    if neuron is not None:
        neuron = neuron.scaled(scale, response, kept=kept)
        return call.join(neuron, response, None, Note(neuron=neuron, gate=note.gate))
    winning = scale.detach() != 0 if isinstance(scale, Tensor) else None
    rest = _moved(call, child, note.rest, response)
    return call.emit(Pass(child.shape, winning), response, [child], Note(rest=rest, gate=note.gate))


def _moved(call: Call, child: Tensor, rest: Tensor | None, response: Tensor) -> Tensor | None:
    """Where a multiple or a shift of ``child`` rests; None: at 0, or nobody knows.

    Responses that are not negative rest at 0, whichever way that was written (A1); with any that are, nobody knows.
    """
    known = None
    if rest is None:
        known = (child.detach() >= 0).flatten(1).all(1) if child.dim() > 1 else (child.detach() >= 0).all()
        if not may_be(known.any):
            return None
    moved = _moved_level(call, child, torch.zeros_like(child.detach()) if rest is None else rest.clone(), response)
    if moved is None or not may_be(moved.any):
        return None
    if known is None or (is_known() and bool(known.all())):
        return moved
    if moved.shape != child.shape:  # broadcast: whose units are whose cannot be told
        return None if is_known() else moved * known.all()
    return moved * known.reshape(-1, *[1] * (child.dim() - 1))


def _moved_level(call: Call, child: Tensor, level: Tensor, response: Tensor) -> Tensor | None:
    """The call on ``level`` in place of ``child``, with the statistics of ``child``."""
    if call.name in {"layer_norm", "group_norm"}:
        return response - _slope(call) * (child.detach() - level)
    training = call.name == "batch_norm" and call.argument(5, "training", default=False)
    if training or call.name in {"rms_norm", "instance_norm"}:
        return None
    kwargs = {name: level if argument is child else argument for name, argument in call.kwargs.items()}
    moved: Tensor = call.function(*(level if argument is child else argument for argument in call.args), **kwargs)
    return moved.detach()


def _slope(call: Call) -> Tensor:
    """By how much a layer or group norm multiplies each unit."""
    values, weight = call.subject.detach(), call.argument(2, "weight")
    epsilon = call.argument(4, "eps", default=1e-5)
    if call.name == "layer_norm":
        dims = tuple(range(-len(call.argument(1, "normalized_shape")), 0))
        spread = values.var(dims, unbiased=False, keepdim=True)
    else:
        groups = values.reshape(values.shape[0], call.argument(1, "num_groups"), -1)
        each = groups.var(2, unbiased=False, keepdim=True).expand_as(groups).reshape(values.shape)
        weight = None if weight is None else weight.reshape(1, -1, *[1] * (values.dim() - 2))
        spread = each
    slope: Tensor = (spread + epsilon).rsqrt() * (1.0 if weight is None else weight.detach())
    return slope


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
    main, gate = main_and_gate(left, right)
    if main is None:
        return call.emit(Halves(left.shape, right.shape), call.response(), [left, right])
    rest = note_of(main).rest
    return call.pass_down(main, Note(rest=None if rest is None else rest * gate.detach()))


def main_and_gate(left: Tensor, right: Tensor) -> tuple[Tensor | None, Tensor]:
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
