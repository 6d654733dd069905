"""The quick way up below the taps, where no signal will ever come: the network just runs.

All that must be known there is what is known of an activation when it reaches a tap or passes it by: mostly that it is
a plain response, or one that rests at 0. The few operations that networks are made of keep that by the simplest of
rules; for anything else, and in any doubt, the general way serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.propagation.notes import CAPPED, FRESH, REST, is_live, note_of, set_note

if TYPE_CHECKING:
    from collections.abc import Callable

    from excite.propagation.notes import Note

__all__ = ["BELOW", "run_below"]

Arguments = tuple[Any, ...]


def run_below(name: str, function: Callable[..., Any], args: Arguments, kwargs: dict[str, Any]) -> Tensor | None:
    """The answer of a call below all taps with what is known of it; None where the general way must be taken."""
    judge = BELOW.get(name)
    note = None if judge is None or not args or not is_live(args[0]) else judge(args, kwargs)
    if note is None:
        return None
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)  # noqa: SLF001 - what no_grad does, without its ten lines of Python a call
    try:
        answer: Tensor = function(*args, **kwargs)
    finally:
        torch._C._set_grad_enabled(before)  # noqa: SLF001 - as above
    if note is FRESH and name in _NORMS and answer.shape != args[0].shape:
        return None
    return set_note(answer, note)


def _weighted(args: Arguments, kwargs: dict[str, Any]) -> Note | None:
    """With weights that are constants it is a plain response."""
    alone = len(args) > 1 and not any(map(is_live, args[1:])) and not any(map(is_live, kwargs.values()))
    return FRESH if alone else None


def _normalised(args: Arguments, kwargs: dict[str, Any]) -> Note | None:
    """A norm of a plain response is one still."""
    note = note_of(args[0])
    return _weighted(args, kwargs) if note.fresh and not note.gate else None


def _added(args: Arguments, kwargs: dict[str, Any]) -> Note | None:
    """So is a sum of activations that rest at 0."""
    if len(args) != 2 or kwargs or not is_live(args[1]):
        return None
    notes = note_of(args[0]), note_of(args[1])
    return FRESH if all(note.rest is None and not note.gate for note in notes) else None


def _rectified(args: Arguments, _kwargs: dict[str, Any]) -> Note | None:
    """A rectifier rests at 0 if its input does."""
    note = note_of(args[0])
    return REST if note.rest is None and not note.gate else None


def _capped(args: Arguments, kwargs: dict[str, Any]) -> Note | None:
    """ReLU6 and its like: a rectifier with an upper end."""
    least = args[1] if len(args) > 1 else kwargs.get("min_val", -1.0)
    return CAPPED if least == 0 else None


def _padded(args: Arguments, _kwargs: dict[str, Any]) -> Note | None:
    """As it was, but no plain response any more."""
    note = note_of(args[0])
    return (REST, CAPPED, None)[note.gate] if note.rest is None else None


_WEIGHTED = "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear".split()
_NORMS = frozenset(["batch_norm", "group_norm", "layer_norm"])
BELOW: dict[str, Callable[[Arguments, dict[str, Any]], Any]] = {
    **dict.fromkeys(_WEIGHTED, _weighted),
    **dict.fromkeys(_NORMS, _normalised),
    "add": _added,
    "relu": _rectified,
    "relu6": lambda _args, _kwargs: CAPPED,
    "hardtanh": _capped,
    "pad": _padded,
}
