"""The mode: while it is on, every torch operation on an activation gets its top-down rule.

The model is not changed. `RuleMode` sees each torch call; operations with a handler in `operations` get their rule from
it, all others run as they are, and `graph.check` later refuses those that do more than copy values. A `Call` is one
such call, with the ways in which a handler can answer it.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from excite.propagation.fast import choose, constants
from excite.propagation.graph import CopyOnWrite, is_exchangeable, memory_of, name_unruled, refusal
from excite.propagation.operations import Operation
from excite.propagation.provenance import (
    UNKNOWN,
    Neuron,
    Parts,
    Provenance,
    is_above_tap,
    is_activation,
    leads_to_tap,
    provenance_of,
    set_provenance,
    tensors_in,
)
from excite.propagation.rules import Pass, Refused, Rule, SignRouter, apply, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["WRITING", "Call", "RuleMode", "map_tensors", "operation_name", "run_below"]

# What Python calls to make a number of a tensor; not to be mistaken for x.float().
_CONVERTING = frozenset("__float__ __int__ __bool__ __index__ __complex__ __array__ __invert__ __len__".split())
_SUBJECTS = ("input", "self", "x")  # what torch's functions call their first argument
# In-place calls that autograd itself handles: they copy values or change only the shape.
WRITING = frozenset("copy_ zero_ fill_ squeeze_ unsqueeze_ transpose_ t_ swapaxes_ __setitem__".split())
# Frequent in-place calls, and the same out of place.
_OUT_OF_PLACE: dict[Any, Callable[..., Tensor]] = {
    torch.relu_: torch.relu,
    Tensor.relu_: torch.relu,
    Tensor.add_: torch.add,
    Tensor.__iadd__: torch.add,
}
# Properties of a tensor that have nothing to do with its values.
_PROPERTIES = frozenset(
    [getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "is_cuda", "is_meta", "layout")]
    + [Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.is_contiguous, Tensor.stride]
)
_UNLISTED = Operation()


class Call:
    """One call of a torch function on at least one activation.

    Attributes:
        subject: the first argument: the activation that the operation acts on.
        tensors: all tensors among the arguments.
        in_place: the call overwrites its subject.
        operation: its row of the table.
    """

    def __init__(
        self,
        mode: RuleMode,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: Sequence[Tensor] | None = None,
    ) -> None:
        self.mode, self.function, self.args, self.kwargs = mode, function, args, kwargs
        self.tensors = tensors_in((args, kwargs)) if tensors is None else tensors
        self.name = operation_name(function)
        self.operation = mode.operations.get(self.name, _UNLISTED)
        self.subject: Tensor = args[0] if args else self.argument(0, *_SUBJECTS)
        position = inplace_position(function)
        self.in_place = position == 0 or (position is not None and bool(self.argument(position, "inplace")))

    def argument(self, position: int, *names: str, default: Any = None) -> Any:
        """An argument by its position or by one of its names."""
        if len(self.args) > position:
            return self.args[position]
        for name in names:
            if name in self.kwargs:
                return self.kwargs[name]
        return default

    @property
    def options(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments but the subject and ``inplace``."""
        kwargs = dict(self.kwargs)
        for name in (*_SUBJECTS, "inplace"):
            kwargs.pop(name, None)
        return self.args[1:], kwargs

    @cached_property
    def above_tap(self) -> bool:
        """Whether the call depends on a tapped layer."""
        return any(map(is_above_tap, self.tensors))

    def response(self) -> Tensor:
        """The true value, exactly as the network computes it.

        Where a rule will need what an in-place call overwrites, the value is computed out of place; `RuleMode.write`
        writes it back.
        """
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # noqa: SLF001 - what no_grad does, without its ten lines of Python a call
        try:
            if self.in_place and self.above_tap:
                return self._out_of_place()
            if self.in_place:
                self.mode.memory.before_writing(self.subject)
            return cast("Tensor", self.function(*self.args, **self.kwargs))
        finally:
            torch._C._set_grad_enabled(before)  # noqa: SLF001 - as above

    def _out_of_place(self) -> Tensor:
        """What an in-place call would write; on a copy, where torch has no such function out of place."""
        function, args, kwargs = _OUT_OF_PLACE.get(self.function), self.args, self.kwargs
        position = None if function is not None else inplace_position(self.function)
        if position:
            function, kwargs = self.function, dict(kwargs)
            if len(args) > position:
                args = (*args[:position], False, *args[position + 1 :])
            kwargs.pop("inplace", None)
        result = None if function is None else function(*args, **kwargs)
        if result is None or result.dtype != self.subject.dtype or result.shape != self.subject.shape:
            return cast("Tensor", self.on(self.subject.clone()))  # where shape and type stay, or torch refuses
        return result

    def on(self, subject: Tensor) -> Any:
        """The same call on another subject."""
        if self.args:
            return self.function(subject, *self.args[1:], **self.kwargs)
        name = next(name for name in _SUBJECTS if name in self.kwargs)
        return self.function(**{**self.kwargs, name: subject})

    def by(self, function: Callable[..., Any]) -> Call:
        """The same call of another function that gives the same values."""
        return Call(self.mode, function, self.args, self.kwargs, self.tensors)

    def plain(self) -> Any:
        """Run the operation as it is: right for whatever only copies values, refused later for anything else."""
        return self.mode.run_plainly(self)

    def emit(self, rule: Rule, response: Tensor, inputs: Sequence[Tensor], known: Provenance = UNKNOWN) -> Tensor:
        """Give ``response`` with ``rule`` as its transition to ``inputs``, where these lie above a tap."""
        if any(map(is_above_tap, inputs)):
            response = apply(rule, (response,), inputs)
        return set_provenance(response, known)

    def pass_down(self, child: Tensor, known: Provenance = UNKNOWN) -> Tensor:
        """A single child takes the whole probability."""
        return self.emit(Pass(child.shape), self.response(), [child], known)

    def compete(
        self,
        rule: Rule,
        response: Tensor,
        inputs: Sequence[Tensor],
        signed: Tensor | None = None,
        known: Provenance = UNKNOWN,
    ) -> Tensor:
        """Give the response of a neuron whose children compete by ``rule``.

        ``signed``: the response as its distance from its baseline, where that is not 0.
        """
        if not any(map(is_above_tap, inputs)):
            return set_provenance(response, replace(known, preactivation=True))
        node = response.new_zeros(()).expand(response.shape)  # only its place in the graph matters
        positive, negative, *flipped = apply(
            rule, (node, node.detach(), node.detach(), node.detach())[: rule.outputs], inputs
        )
        neuron = Neuron(positive, negative, flipped_rows=rule.flipped_rows(rule, *flipped) if flipped else None)  # type: ignore[attr-defined]  # of `fast`
        known = Provenance(neuron, known.parts, known.baseline, known.gate)
        return self.route(neuron, response, response if signed is None else signed, known, own=signed is None)

    def route(
        self,
        neuron: Neuron,
        response: Tensor,
        signed: Tensor,
        known: Provenance,
        *,
        bounded: bool = False,
        own: bool = False,
    ) -> Tensor:
        """Give a response that belongs to ``neuron``, and whose sign is that of ``signed``: see `SignRouter`."""
        rule = SignRouter(self.mode.memory.keep(signed), neuron.polarity, bounded=bounded, own=own)
        result: Tensor = apply(rule, (response,), (neuron.positive, neuron.negative))
        if not (bounded and own):  # a path that starts at a rectified response starts at the response before
            for start in neuron.starts:
                start.continue_with(rule, neuron.positive)
        return set_provenance(result, known)

    def refuse(self, reason: str) -> Any:
        """Run the operation, but let no signal through it."""
        rule = Refused(refusal(self.name, self.mode.module_name(), reason))
        return self.emit(rule, self.response(), [tensor for tensor in self.tensors if is_above_tap(tensor)])


class RuleMode(TorchFunctionMode):
    """Gives every operation on an activation its top-down rule; the values stay those of the network.

    Args:
        operations: the table.
        module: the network.
        modules: the network and all modules in it.
    """

    def __init__(self, operations: Mapping[str, Operation], module: nn.Module, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.operations, self.module, self.memory = operations, module, CopyOnWrite()
        self.below = True  # until the first tap
        self.state: set[int] = set()  # the network's own parameters and buffers, by id
        for child in modules:
            self.state.update(map(id, child._parameters.values()))  # noqa: SLF001 - asking torch for them is slow
            self.state.update(map(id, child._buffers.values()))  # noqa: SLF001 - as above
        self.state.discard(id(None))
        self._run_below = choose(run_below)
        self._written: dict[int, StorageWeakRef] = {}  # memory that activations were written to, while it lasts

    def __torch_function__(  # noqa: PLR0911 - each return is one kind of call
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _PROPERTIES:
            return func(*args, **kwargs)
        if torch.is_inference_mode_enabled():  # the network's own; tensors made in it could not carry a signal
            with torch.inference_mode(mode=False):
                return self.__torch_function__(func, types, args, kwargs)
        if self.below:
            answer = self._run_below(operation_name(func), func, args, kwargs)
            if answer is not None:
                return answer
        if self.operations.get(operation_name(func), _UNLISTED).splits:
            return self._split(func, args, kwargs)
        tensors = tensors_in(args)
        if kwargs:
            tensors_in(kwargs, tensors)
        self._recognise(tensors)
        if not any(map(is_activation, tensors)):
            grad = True
            for tensor in tensors:
                grad = grad and not tensor.requires_grad
            with torch.set_grad_enabled(grad), constants((args, kwargs)):
                return func(*args, **kwargs)
        if kwargs.get("out") is not None:
            result = self.run(func, *args, **{k: v for k, v in kwargs.items() if k != "out"})
            return self.write(kwargs["out"], result)
        return self._run(Call(self, func, args, kwargs, tensors))

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run another function with its rule, for an operation that is made of simpler ones."""
        return self.__torch_function__(function, (), args, kwargs)

    def _run(self, call: Call) -> Any:
        """Run one call with its rule."""
        if id(call.subject) in self.state and (call.in_place or call.name in WRITING):  # running statistics
            with torch.no_grad():
                call.function(*map_tensors(Tensor.detach, call.args), **map_tensors(Tensor.detach, call.kwargs))
            return call.subject
        if call.operation.handler is None or call.name in WRITING:
            return self.run_plainly(call)
        result = call.operation.handler(call)
        if not call.in_place:
            return result
        return (
            self._wrote(result, provenance_of(result)) if result is call.subject else self.write(call.subject, result)
        )

    def run_plainly(self, call: Call) -> Any:
        """Run an operation without a rule and record what is known of its result."""
        if call.above_tap:
            args, kwargs = map_tensors(_without_parameters, (call.args, call.kwargs))
            with torch.enable_grad(), self.memory.saving():
                if call.name in WRITING:
                    self.memory.before_writing(call.subject)
                if call.in_place and call.name not in WRITING:  # not over what the gradient needs
                    result = call.on(call.subject.clone())
                else:
                    result = call.function(*args, **kwargs)
        else:
            with torch.no_grad():
                if call.in_place or call.name in WRITING:
                    self.memory.before_writing(call.subject)
                result = call.function(*call.args, **call.kwargs)
        if call.name in WRITING or (call.in_place and not call.above_tap):
            self._wrote(call.subject, UNKNOWN)
        for position, tensor in enumerate(tensors_in(result)):
            if (tensor.is_floating_point() or tensor.is_complex()) and not is_activation(tensor):
                set_provenance(tensor, self._inherited(call, position))
            if call.above_tap:
                name_unruled(tensor, call)
        if call.in_place and call.above_tap and call.name not in WRITING:
            return self.write(call.subject, result)
        return result

    def module_name(self) -> str:
        """The name of the module whose code is running, read off the stack so that no hook is needed."""
        return running_module({id(child): name for name, child in self.module.named_modules()})

    def write(self, subject: Tensor, result: Tensor) -> Tensor:
        """Overwrite ``subject``, as the network asked, without changing what rules have saved."""
        known = provenance_of(result)
        if self.memory.only_saved(subject) and is_exchangeable(subject, result):
            torch.utils.swap_tensors(subject, result)  # type: ignore[no-untyped-call]  # torch has no type for it
            return self._wrote(subject, known)
        self.memory.before_writing(subject)
        if subject.shape != result.shape and not subject.numel():  # torch gives an empty ``out`` its size
            subject.resize_(result.shape)
        with torch.enable_grad():
            subject.copy_(result)
        return self._wrote(subject, known)

    def _wrote(self, subject: Tensor, known: Provenance) -> Tensor:
        """Record that this memory holds an activation, through whichever tensor it is seen."""
        self._written[memory_of(subject)] = StorageWeakRef(subject.untyped_storage())  # type: ignore[no-untyped-call]  # torch has no type for it
        return set_provenance(subject, known)

    def _split(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Split a tensor one view at a time: autograd forbids in-place writes to views that were made together."""
        call = Call(self, func, args, kwargs)
        with torch.no_grad():
            parts = func(*args, **kwargs)
        unbind = call.name == "unbind"
        dim = call.argument(1 if unbind else 2, "dim", default=0)
        views, start = [], 0
        for part in parts:
            length = 1 if unbind else part.shape[dim]
            view = self.run(torch.narrow, call.subject, dim, start, length)
            views.append(self.run(torch.squeeze, view, dim) if unbind else view)
            start += length
        return type(parts)(views)

    def _recognise(self, tensors: Sequence[Tensor]) -> None:
        """Mark tensors that hold activations although no call was seen that made them."""
        for tensor in tensors:
            if is_activation(tensor) or id(tensor) in self.state:
                continue
            if not (tensor.is_floating_point() or tensor.is_complex()):
                continue
            history = tensor.grad_fn  # read first: torch then updates that of a view
            written = self._written.get(memory_of(tensor)) if self._written else None
            holds = written is not None and not written.expired()  # type: ignore[no-untyped-call]  # as above
            if holds or (history is not None and leads_to_tap(tensor)):
                set_provenance(tensor, UNKNOWN)

    def _inherited(self, call: Call, position: int) -> Provenance:
        """What is known of an output of a copying operation, from what is known of its inputs."""
        moves = call.operation.moves and is_activation(call.subject)
        inputs = [call.subject] if moves else filter(is_activation, call.tensors)
        known = list(map(provenance_of, inputs))
        neuron, baseline, gate = known[0].neuron if moves else None, None, known[0].gate
        if neuron is not None:
            neuron = neuron.moved(call.on, position)
        for each in known:
            gate = min(gate, each.gate)
            if each.baseline is not None and baseline is None:
                args, kwargs = map_tensors(_baseline, (call.args, call.kwargs))
                baseline = tensors_in(call.function(*args, **kwargs))[position]
        parts = None
        if call.name in {"cat", "concat", "concatenate"}:
            tensors = tuple(call.argument(0, "tensors"))
            if any(each.neuron is not None or each.parts is not None for each in known):
                dim = call.argument(1, "dim", "axis", default=0)
                parts = Parts(tensors, tuple(map(version_of, tensors)), dim)
        return Provenance(neuron, parts, baseline, gate)


def run_below(_name: str, _function: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Tensor | None:
    """The result of a call below all taps, where a shortcut knows it; None: the general way. Plain: no shortcut."""
    return None


def map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same nested tuples, lists and dicts with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        items = []
        for item in value:
            items.append(map_tensors(change, item))  # noqa: PERF401 - a comprehension would be one more frame for each
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict) and value:
        return {key: map_tensors(change, item) for key, item in value.items()}
    return value


def _without_parameters(tensor: Tensor) -> Tensor:
    """Constants without their history: only activations carry the signal."""
    return tensor.detach() if tensor.requires_grad and not is_above_tap(tensor) else tensor


def _baseline(tensor: Tensor) -> Tensor:
    """The baseline of an activation: the same call on baselines gives the baseline of its output."""
    if not is_activation(tensor):
        return tensor.detach()
    baseline = provenance_of(tensor).baseline
    return torch.zeros_like(tensor.detach()) if baseline is None else baseline.clone()  # the call may overwrite it


def running_module(names: Mapping[int, str]) -> str:
    """The name of the module whose code is running (``names`` by id), read off the stack so that no hook is needed."""
    frame = inspect.currentframe()
    frame = frame and frame.f_back  # a frame that refers to itself would keep alive all that its callers hold
    while frame is not None:
        running = id(frame.f_locals.get("self"))
        if running in names:
            return names[running]
        frame = frame.f_back
    return ""


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
    synonyms = {"truediv": "div", "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub"}
    return synonyms.get(name, name)


@cache
def inplace_position(function: Callable[..., Any]) -> int | None:
    """Where the ``inplace`` flag of a function stands; 0: it always works in place; None: never."""
    if function.__name__.endswith("_") and not function.__name__.endswith("__"):
        return 0
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # built in, without a readable signature: those say it in their name
        return None
    return names.index("inplace") if "inplace" in names else None
