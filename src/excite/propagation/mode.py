"""The mode: while it is on, every torch operation on an activation gets its top-down rule; the model is not changed.

Operations with a handler in `operations` get their rule from it, all others run as they are, and `graph.check` later
refuses those that do more than copy values. A `Call` is one torch call, with the ways in which a handler can answer it.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from excite.errors import NoRuleError
from excite.propagation import graph, provenance, taint, writes
from excite.propagation.fast import choose, constants
from excite.propagation.graph import WRITING, inplace_position, operation_name, refusal
from excite.propagation.operations import Operation
from excite.propagation.provenance import UNKNOWN, Neuron, Provenance, is_above_tap, is_activation, provenance_of
from excite.propagation.rules import Pass, Refused, Rule, SignRouter, apply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SUBJECTS = ("input", "self", "x")  # what torch's functions call their first argument
# Frequent in-place calls, and the same out of place.
_OUT_OF_PLACE: dict[Any, Callable[..., Tensor]] = dict.fromkeys([torch.relu_, Tensor.relu_], torch.relu)
_OUT_OF_PLACE.update(dict.fromkeys([Tensor.add_, Tensor.__iadd__], torch.add))
_LIKE = frozenset("view_as reshape_as expand_as type_as to".split())  # the second tensor only gives a shape or a type
# Properties of a tensor that have nothing to do with its values.
_PROPERTIES = frozenset(
    [getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "is_cuda", "is_meta", "layout")]
    + [Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.is_contiguous, Tensor.stride]
)
_BACKWARD = frozenset([torch.autograd.grad, torch.autograd.backward, Tensor.backward])
_UNLISTED = Operation()
_in_transform = torch._C._functorch.peek_interpreter_stack  # noqa: SLF001 - torch has no public way to ask


class Call:
    """One call of a torch function on at least one activation."""

    def __init__(
        self,
        mode: RuleMode,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: Sequence[Tensor] | None = None,
    ) -> None:
        self.mode, self.function, self.args, self.kwargs = mode, function, args, kwargs
        self.tensors = provenance.tensors_in((args, kwargs)) if tensors is None else tensors
        self.name = operation_name(function)
        self.operation = mode.operations.get(self.name, _UNLISTED)
        self.subject: Tensor = args[0] if args else self.argument(0, *_SUBJECTS)  # what the operation acts on
        position = inplace_position(function)  # in place: its subject gets what the same call out of place would give
        self.in_place = position == 0 or (position is not None and bool(self.argument(position, "inplace")))
        self.writes = self.in_place or self.name in WRITING  # it overwrites its subject at all

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

    def changed(self, change: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """The results of the same call with every tensor changed."""
        args, kwargs = tree_map_only(Tensor, change, (self.args, self.kwargs))
        return provenance.tensors_in(self.function(*args, **kwargs))

    @cached_property
    def above_tap(self) -> bool:
        """Whether the call depends on a tapped layer."""
        return any(map(is_above_tap, self.tensors))

    @property
    def chosen(self) -> bool:
        """Whether an activation decides, by an index or a mask, where values go."""
        deciding = (tensor for tensor in self.tensors if not tensor.is_floating_point())
        return any(is_activation(tensor) or taint.origin_of(tensor) for tensor in deciding)

    @property
    def acts_on_subject(self) -> bool:
        """Whether the subject is the only activation."""
        others = (tensor for tensor in self.tensors if tensor is not self.subject)
        return is_activation(self.subject) and not any(map(is_activation, others))

    @property
    def out_of_place(self) -> Callable[..., Any]:
        """The function, or that of the same name that overwrites nothing."""
        name = self.function.__name__
        return getattr(Tensor, name[:-1], self.function) if inplace_position(self.function) == 0 else self.function

    def response(self) -> Tensor:
        """The true value; out of place, where a rule needs what is overwritten (`RuleMode.write` writes it back)."""
        with torch.set_grad_enabled(False):
            if self.in_place and (self.above_tap or not is_activation(self.subject)):
                return self._out_of_place()
            if self.in_place:
                self.mode.memory.before_writing(self.subject)
            return cast("Tensor", self.function(*self.args, **self.kwargs))

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

    def exchanged(self, old: Tensor, new: Tensor) -> Call:
        """The same call with another tensor in the place of one of its own."""
        args, kwargs = tree_map_only(Tensor, lambda each: new if each is old else each, (self.args, self.kwargs))
        return Call(self.mode, self.function, args, kwargs)

    def by(self, function: Callable[..., Any]) -> Call:
        """The same call of another function that gives the same values."""
        return Call(self.mode, function, self.args, self.kwargs, self.tensors)

    def plain(self) -> Any:
        """Run the operation as it is: right for whatever only copies values, refused later for anything else."""
        return self.mode.run_plainly(self)

    def emit(self, rule: Rule, response: Tensor, inputs: Sequence[Tensor], known: Provenance = UNKNOWN) -> Tensor:
        """Give ``response`` with ``rule`` as its transition to ``inputs``, where these lie above a tap."""
        if any(map(is_above_tap, inputs)):
            rule.plain = known.plain
            response = apply(rule, (response,), inputs)
        return provenance.set_provenance(response, known)

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
            return provenance.set_provenance(response, replace(known, preactivation=True))
        node = response.new_zeros(()).expand(response.shape)  # only its place in the graph matters
        outputs = tuple(node.detach() for _ in range(rule.outputs))
        positive, negative, *flipped = apply(rule, outputs, inputs)
        neuron = Neuron(positive, negative, flipped_rows=rule.flipped_rows(rule, *flipped) if flipped else None)  # type: ignore[attr-defined]  # of `fast`
        known = Provenance(neuron, known.baseline, known.gate)
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
        rule.plain = known.plain
        result: Tensor = apply(rule, (response,), (neuron.positive, neuron.negative))
        if not (bounded and own):  # a path that starts at a rectified response starts at the response before
            for start in neuron.starts:
                start.final = rule, neuron.positive
        return provenance.set_provenance(result, known)

    def refuse(self, reason: str) -> Any:
        """Run the operation, but let no signal through it."""
        rule = Refused(refusal(self.name, self.mode.module_name(), reason))
        above = [tensor for tensor in self.tensors if is_above_tap(tensor)]
        return self.emit(rule, self.response(), above, Provenance(gate=provenance.MIXTURE))  # and it gates nothing


class RuleMode(TorchFunctionMode):
    """Gives every operation on an activation its top-down rule; the values stay those of the network."""

    def __init__(self, operations: Mapping[str, Operation], module: nn.Module, taint: taint.Taint) -> None:
        super().__init__()
        self.operations, self.module, self.taint, self.memory = operations, module, taint, graph.CopyOnWrite()
        self.below = True  # until the first tap
        self.disturbs = False  # the taps give other activations than the network has
        # Reads the weights [..., queries, keys] of attention in the running module: behind a tap, or not at all.
        self.read_weights: Callable[[Tensor], Tensor | None] | None = None
        self._run_below = choose(run_below)

    def __torch_function__(  # noqa: PLR0911 - each return is one kind of call
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _PROPERTIES:
            return func(*args, **kwargs)
        if _in_transform() is not None:  # of torch.func, whose tensors cannot be marked
            self.taint.transformed = True
            return func(*args, **kwargs)
        if torch.is_inference_mode_enabled():  # the network's own; tensors made in it could not carry a signal
            with torch.inference_mode(mode=False):
                return self.__torch_function__(func, types, args, kwargs)
        name = operation_name(func)
        if self.below:
            answer = self._run_below(name, func, args, kwargs)
            if answer is not None:
                return answer
        if self.operations.get(name, _UNLISTED).splits and args and not args[0].is_nested:
            return self._split(func, args, kwargs)
        tensors = provenance.tensors_in(args)
        if kwargs:
            provenance.tensors_in(kwargs, tensors)
        if name in _LIKE and not is_activation(args[0]):
            tensors = tensors[:1]
        severed, unknown = self.taint.origins(tensors)
        if any(map(is_activation, tensors)):
            return self._run_on_activations(Call(self, func, args, kwargs, tensors), severed, unknown)
        return self._run_on_constants(Call(self, func, args, kwargs, tensors), severed, unknown)

    def _run_on_constants(self, call: Call, severed: Sequence[Tensor], unknown: Sequence[Tensor]) -> Any:
        """Run a call on no activation: the origin of its results is that of its arguments."""
        self._check_gradients(call, severed or unknown)
        grad = not any(tensor.requires_grad for tensor in call.tensors)
        with torch.set_grad_enabled(grad), constants((call.args, call.kwargs)):
            result = call.function(*call.args, **call.kwargs)
        self.taint.constant_call(call, result, severed, unknown)
        return result

    def _run_on_activations(self, call: Call, severed: Sequence[Tensor], unknown: Sequence[Tensor]) -> Any:
        """Run a call on at least one activation, with its rule."""
        self._check_gradients(call, call.tensors)
        if call.kwargs.get("out") is not None:
            kwargs = dict(call.kwargs)
            out = kwargs.pop("out")
            return self.write(out, self.run(call.function, *call.args, **kwargs))
        if unknown or self.taint.left:
            self.taint.note(call, unknown)
        self.taint.check_sure(call)
        try:
            return self._run_severed(call, severed) if severed else self._run(call)
        except Exception as error:
            taint.blame(call, error)
            raise

    def _check_gradients(self, call: Call, dependent: Sequence[Tensor]) -> None:
        if dependent and call.function in _BACKWARD:
            raise NoRuleError(refusal(call.name, self.module_name(), "the network computes gradients of its own"))

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run another function with its rule, for an operation that is made of simpler ones."""
        return self.__torch_function__(function, (), args, kwargs)

    def _run(self, call: Call) -> Any:
        """Run one call with its rule."""
        if call.writes and self.taint.in_state(call.subject):  # running statistics, or a workspace
            with torch.no_grad():
                call.changed(Tensor.detach)
            return self.taint.wrote(call.subject, taint.Severed(call.name, self.module_name()))
        if taint.is_ordinary(call):
            return self.run_ruled(call)
        return taint.run_unusual(call) if call.above_tap else self.run_plainly(call)

    def run_ruled(self, call: Call) -> Any:
        """Run a call with the rule of its operation."""
        if call.operation.handler is None or call.name in WRITING:
            return self.run_plainly(call)
        result = call.operation.handler(call)
        if not call.in_place:
            return result
        known = result is call.subject
        return self.taint.wrote(result, provenance_of(result)) if known else self.write(call.subject, result)

    def _run_severed(self, call: Call, severed: Sequence[Tensor]) -> Any:
        """Run a call in which severed tensors meet activations: refused, where one of these is live."""
        harmful = [tensor for tensor in severed if not taint.only_selects(call, tensor)]
        if not harmful:
            return self._run(call)
        if call.above_tap:
            result = taint.refuse(call, harmful[0])
            return self.write(call.subject, result) if call.in_place else result
        result = self._run_unrecorded(call)
        self.taint.constant_call(call, result, severed, ())
        return result

    @torch.no_grad()
    def _run_unrecorded(self, call: Call) -> Any:
        for tensor in provenance.tensors_in(call.subject) if call.writes else ():
            self.memory.before_writing(tensor)
        return call.function(*call.args, **call.kwargs)

    def run_plainly(self, call: Call) -> Any:
        """Run an operation without a rule and record what is known of its result."""
        writing = call.name in WRITING
        known = self._written_provenance(call) if call.writes else UNKNOWN
        if call.above_tap:
            args, kwargs = call.args, call.kwargs
            if any(_without_parameters(tensor) is not tensor for tensor in call.tensors):
                args, kwargs = tree_map_only(Tensor, _without_parameters, (args, kwargs))
            # a change of shape saves no tensor
            saving = nullcontext() if call.operation.moves and len(call.tensors) == 1 else self.memory.saving()
            with torch.enable_grad(), saving:
                if writing:
                    self.memory.before_writing(call.subject)
                if call.in_place and not writing:  # not over what the gradient needs
                    copied = call.subject.clone()
                    history, result = copied.grad_fn, call.on(copied)
                    recorded = not isinstance(result, Tensor) or result.grad_fn is not history
                    if not recorded and not torch.equal(result, call.subject):  # autograd does not know of it
                        result = result.detach()
                else:
                    result = call.function(*args, **kwargs)
        else:
            result = self._run_unrecorded(call)
        for tensor in provenance.tensors_in(call.subject) if writing or (call.in_place and not call.above_tap) else ():
            lost = call.above_tap and (call.name == "data=" or not provenance.leads_to_tap(tensor))
            self.taint.wrote(tensor, taint.Severed(call.name, self.module_name()) if lost else known)
        for position, tensor in enumerate(provenance.tensors_in(result)):
            self._record(call, position, tensor)
        if call.in_place and call.above_tap and not writing:
            return self.write(call.subject, result)
        return result

    def _record(self, call: Call, position: int, tensor: Tensor) -> None:
        """Record what is known of one result of a call that was run as it is."""
        moved = any(provenance_of(each).baseline is not None for each in call.tensors if is_activation(each))
        unknown = taint.is_choice(call, tensor) or (moved and call.operation is _UNLISTED)
        if not provenance.leads_to_tap(tensor) if call.above_tap else unknown:
            taint.sever([tensor], call)
        elif not is_activation(tensor):
            holds_values = tensor.is_floating_point() or tensor.is_complex()
            provenance.set_provenance(tensor, self._inherited(call, position) if holds_values else UNKNOWN)
        if call.above_tap:
            graph.name_unruled(tensor, call)

    def module_name(self) -> str:
        """The name of the module whose code is running, read off the stack so that no hook is needed."""
        return graph.running_module(self.names)

    @cached_property
    def names(self) -> dict[int, str]:
        """The names of all modules, by id."""
        return {id(child): name for name, child in self.module.named_modules()}

    def write(self, subject: Tensor, result: Tensor) -> Tensor:
        """Overwrite ``subject``, as the network asked, without changing what rules have saved."""
        if not is_activation(result):
            subject.copy_(result)
            return self.taint.wrote(subject, taint.origin_of(result) or taint.Severed("out"))
        known = provenance_of(result)
        if self.memory.only_saved(subject) and graph.is_exchangeable(subject, result):
            torch.utils.swap_tensors(subject, result)  # type: ignore[no-untyped-call]  # torch has no type for it
            return self.taint.wrote(subject, known)
        self.memory.before_writing(subject)
        if subject.shape != result.shape and not subject.numel():  # torch gives an empty ``out`` its size
            subject.resize_(result.shape)
        with torch.set_grad_enabled(provenance.leads_to_tap(result)):
            subject.copy_(result)
        lost = is_above_tap(result) and not provenance.leads_to_tap(subject)
        return self.taint.wrote(subject, taint.Severed("out", self.module_name()) if lost else known)

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
            where = (start,) if unbind else (start, length)
            views.append(self.run(torch.select if unbind else torch.narrow, call.subject, dim, *where))
            start += length
        return type(parts)(views)

    def _written_provenance(self, call: Call) -> Provenance:
        """What is known of a tensor after a copy was written to it."""
        source: Any = call.argument(1, "src", "other")
        if call.name == "copy_" and is_activation(source) and source.shape == call.subject.shape:
            return provenance_of(source)
        before = provenance_of(call.subject) if is_activation(call.subject) else UNKNOWN

        def write(target: Tensor, change: Callable[[Tensor], Tensor]) -> None:
            (_, *others), kwargs = tree_map_only(Tensor, change, (call.args, call.kwargs))
            call.function(target, *others, **kwargs)

        sources = [each for each in call.tensors if each is not call.subject]
        return writes.after_write(call.subject, before, sources, write, chosen=call.chosen)

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
                baseline = call.changed(writes.baseline_of)[position]
        if call.name in writes.PLACING and not call.chosen:
            neuron = writes.joined_neuron(known, lambda side: call.changed(writes.of_sources(side))[position])
        if call.operation.rectifies:  # a function of the response of weights
            gate = max(0, gate)
        return Provenance(neuron, baseline, gate, preactivation=moves and known[0].preactivation)


def run_below(_name: str, _function: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Tensor | None:
    """The result of a call below all taps, where a shortcut knows it; None: the general way. Plain: no shortcut."""
    return None


def _without_parameters(tensor: Tensor) -> Tensor:
    """Constants without their history: only activations carry the signal."""
    return tensor.detach() if tensor.requires_grad and not is_above_tap(tensor) else tensor
