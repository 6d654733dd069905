"""One call of a torch function, and the ways in which an operation can answer it."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from excite.propagation.affine import Affine
from excite.propagation.graph import refusal
from excite.propagation.notes import Neuron, Note, Turning, is_traced, note_of, set_note, tensors_given
from excite.propagation.rules import Facing, Pass, Refused, Rule, follow, ports

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.propagation.mode import Downward

    Operation = Callable[["Call"], Any]

__all__ = ["WRITING", "Call", "operation_name"]

# What Python calls to make a number of a tensor; not to be mistaken for x.float().
_CONVERTING = frozenset("__float__ __int__ __bool__ __index__ __complex__ __array__ __invert__ __len__".split())
_SUBJECTS = ("input", "self", "x")  # what torch's functions call their first argument
# In-place calls that autograd itself carries rightly: they copy values or change only the shape.
WRITING = frozenset("copy_ zero_ fill_ squeeze_ unsqueeze_ transpose_ t_ swapaxes_ __setitem__".split())
# In-place calls that networks make most, and the same beside their subject.
_BESIDE: dict[Any, Callable[..., Tensor]] = {
    torch.relu_: torch.relu,
    Tensor.relu_: torch.relu,
    Tensor.add_: torch.add,
    Tensor.__iadd__: torch.add,
}


class Call:
    """One call of a torch function on at least one activation."""

    def __init__(
        self,
        mode: Downward,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: Sequence[Tensor] | None = None,
    ) -> None:
        self.tensors = tensors_given(args, kwargs) if tensors is None else tensors  # all that it is given
        self.mode = mode
        self.function = function
        self.name = operation_name(function)
        self.args = args
        self.kwargs = kwargs

    def argument(self, position: int, *names: str, default: Any = None) -> Any:
        """An argument by its position or by one of its names."""
        if len(self.args) > position:
            return self.args[position]
        return next((self.kwargs[name] for name in names if name in self.kwargs), default)

    @property
    def subject(self) -> Tensor:
        """The first argument: the activation that the operation acts on."""
        subject: Tensor = self.argument(0, *_SUBJECTS)
        return subject

    @property
    def options(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments but the subject."""
        return self.args[1:], {k: v for k, v in self.kwargs.items() if k not in {*_SUBJECTS, "inplace"}}

    def response(self) -> Tensor:
        """The true value, exactly as the network computes it.

        Where a rule will need what an in-place call overwrites, it works on a copy; the mode writes that back later.
        """
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # noqa: SLF001 - what no_grad does, without its ten lines of Python a call
        try:
            if self.in_place and not self.traced:
                self.mode.keeper.before_writing(self.subject)
                return cast("Tensor", self.function(*self.args, **self.kwargs))
            result: Tensor = self._beside() if self.in_place else self.function(*self.args, **self.kwargs)
            return result
        finally:
            torch._C._set_grad_enabled(before)  # noqa: SLF001 - as above

    def _beside(self) -> Tensor:
        """What an in-place call would write, beside its subject: on a copy, where torch has no other way."""
        beside = _BESIDE.get(self.function)
        position = None if beside is not None else _inplace_position(self.function)
        if beside is not None:
            result: Tensor = beside(*self.args, **self.kwargs)
        elif position is not None:
            told = len(self.args) > position
            args = (*self.args[:position], False, *self.args[position + 1 :]) if told else self.args
            result = self.function(*args, **{k: v for k, v in self.kwargs.items() if k != "inplace"})
        else:
            return cast("Tensor", self.on(self.subject.clone()))
        alike = result.dtype == self.subject.dtype and result.shape == self.subject.shape
        return result if alike else cast("Tensor", self.on(self.subject.clone()))  # which stays as it is, or says no

    def on(self, subject: Tensor) -> Any:
        """The same call on another subject."""
        if self.args:
            return self.function(subject, *self.args[1:], **self.kwargs)
        name = next(name for name in _SUBJECTS if name in self.kwargs)
        return self.function(**{**self.kwargs, name: subject})

    @cached_property
    def traced(self) -> bool:
        """Whether the call depends on a tapped layer."""
        return any(is_traced(tensor) for tensor in self.tensors)

    @property
    def writes(self) -> bool:
        """Whether the call changes its subject in any way."""
        return self.name in WRITING or self.in_place

    @cached_property
    def in_place(self) -> bool:
        """Whether the call overwrites its subject."""
        name = self.function.__name__
        if name.endswith("_") and not name.endswith("__"):
            return True
        position = _inplace_position(self.function)
        return bool(self.argument(position, "inplace", default=False)) if position is not None else False

    def by(self, function: Callable[..., Any]) -> Call:
        """The same call of another function that gives the same values."""
        return Call(self.mode, function, self.args, self.kwargs, self.tensors)

    def plain(self) -> Any:
        """Run the operation as it is: right for whatever only copies values, refused later for anything else."""
        return self.mode.run_plainly(self)

    def emit(self, rule: Rule | None, response: Tensor, inputs: Sequence[Tensor], note: Note | None = None) -> Tensor:
        """Give ``response`` with ``rule`` as its way down to those ``inputs``, and note what is known of it."""
        if rule is not None and any(is_traced(tensor) for tensor in inputs):
            return set_note(follow(rule, lambda: response, inputs), note or Note())
        return set_note(response, note or Note())

    def pass_down(self, child: Tensor, note: Note | None = None, winning: Tensor | None = None) -> Tensor:
        """A single child takes the whole signal."""
        return self.emit(Pass(child.shape, winning), self.response(), [child], note)

    def compete(
        self, rule: Rule, response: Tensor, inputs: Sequence[Tensor], rate: Tensor | None, note: Note
    ) -> Tensor:
        """Give the response of units whose children compete by ``rule``; ``rate`` as in `join`."""
        if not any(is_traced(tensor) for tensor in inputs):
            return set_note(response, replace(note, fresh=True))
        count = rule.port_count if isinstance(rule, Affine) else 2
        up, down, *turned = ports(rule, response, inputs, count)
        turning = Turning(rule, *turned) if isinstance(rule, Affine) and turned else None
        neuron = Neuron(up, down, turning=turning)
        return self.join(neuron, response, rate, Note(neuron, note.parts, note.rest, note.gate))

    def join(
        self, neuron: Neuron, response: Tensor, rate: Tensor | None, note: Note, *, bounded: bool = False
    ) -> Tensor:
        """Give a response that belongs to ``neuron``.

        ``rate`` is what the sign of the response is read from, where that is not the response itself (None);
        ``bounded`` says that it cannot go below 0.
        """
        kept = self.mode.keeper.keep(response if rate is None else rate)
        rule = Facing(kept, neuron.polarity, bounded=bounded)
        rule.own_rate = rate is None
        result: Tensor = follow(rule, lambda: response, [neuron.up, neuron.down])
        for start in neuron.starts:
            start.continue_with(rule, neuron.up)
        return set_note(result, note)

    def rectify(self, neuron: Neuron) -> Tensor:
        """Give the positive part of a neuron's response; a walk that starts at the response itself still sees all."""
        response = self.response()
        rule = Facing(self.mode.keeper.keep(response), neuron.polarity, bounded=True)
        rule.own_rate = True
        result: Tensor = follow(rule, lambda: response, [neuron.up, neuron.down])
        return set_note(result, Note(gate=note_of(self.subject).gate))

    def refuse(self, reason: str) -> Any:
        """Run the operation, but let no signal through it."""
        rule = Refused(refusal(self.name, self.mode.module_name(), reason))
        traced = [tensor for tensor in self.tensors if is_traced(tensor)]
        return self.emit(rule, self.response(), traced)


@cache
def operation_name(function: Callable[..., Any]) -> str:
    """One name for all spellings of an operation: ``x += y``, ``x.add_(y)`` and ``torch.add(x, y)`` are ``add``."""
    name: str = function.__name__
    if name == "__get__":  # a property, such as x.data
        return str(function.__self__.__name__)  # type: ignore[attr-defined]  # a slot of a property
    if name in WRITING or name in _CONVERTING:
        return name
    if name.startswith("__i") and name.endswith("__"):
        name = name[3:-2]
    name = name.strip("_")
    return {
        "truediv": "div",
        "true_divide": "div",
        "divide": "div",
        "multiply": "mul",
        "subtract": "sub",
    }.get(name, name)


@cache
def _inplace_position(function: Callable[..., Any]) -> int | None:
    """Where the ``inplace`` flag of a function of torch.nn.functional stands."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # built in, without a readable signature: those say it in their name
        return None
    return names.index("inplace") if "inplace" in names else None
