"""The mode: while it is on, every torch operation on an activation gets its top-down rule.

Nothing of the model is changed. Operations with a rule in `excite.propagation.operations` get it; all others run as
they are, and `excite.propagation.graph` later refuses those that do more than copy values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from excite.propagation.below import BELOW, run_below
from excite.propagation.call import WRITING, Call, operation_name
from excite.propagation.deciding import constants
from excite.propagation.graph import name_unruled
from excite.propagation.keeping import Keeper, is_exchangeable, memory_of, version_of
from excite.propagation.networks import own_tensors, running_module
from excite.propagation.notes import (
    Note,
    Parts,
    is_live,
    is_traced,
    leads_to_tap,
    note_of,
    set_note,
    tensors_given,
    tensors_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from excite.propagation.call import Operation

__all__ = ["Downward", "map_tensors"]

# Copies whatever the values are: the neuron behind them is still the same neuron, so a norm may still join it.
_MOVING = frozenset(
    """view view_as reshape reshape_as flatten unflatten ravel permute transpose swapaxes swapdims movedim moveaxis
    squeeze unsqueeze contiguous clone t T mT getitem narrow select index_select tensor_split expand
    expand_as repeat tile flip roll pad pixel_shuffle pixel_unshuffle channel_shuffle unfold to type float double half
    bfloat16 alias""".split()
)
# What a network asks of a tensor that has nothing to do with its values.
_FACTS = frozenset(
    [getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "is_cuda", "is_meta", "layout")]
    + [Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.is_contiguous, Tensor.stride]
)
_SPLITTING = frozenset("split chunk unbind split_with_sizes".split())


class Downward(TorchFunctionMode):
    """Gives every operation on an activation its top-down rule; the values stay those of the network."""

    def __init__(self, operations: Mapping[str, Operation], module: nn.Module, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.operations = operations
        self.below = True  # until the network comes to the first tap
        self.keeper = Keeper()
        self.module = module
        self.state = {id(tensor) for child in modules for tensor in own_tensors(child)}
        self._written: dict[int, StorageWeakRef] = {}  # memory that activations were written to, while it lasts

    def begin(self) -> None:
        """A tap was set: from here on signals may come."""
        self.below = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _FACTS:
            return func(*args, **kwargs)
        if torch.is_inference_mode_enabled():  # the network's own; tensors made in it could not carry a signal
            with torch.inference_mode(mode=False):
                return self.__torch_function__(func, types, args, kwargs)
        name = operation_name(func)
        answer = run_below(name, func, args, kwargs) if self.below and name in BELOW else None
        if answer is not None:
            return answer
        return self._split(func, types, args, kwargs) if name in _SPLITTING else self._any(func, types, args, kwargs)

    def _any(self, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = tensors_given(args, kwargs)
        self._recognise(tensors)
        if not any(is_live(tensor) for tensor in tensors):
            grad = not any(tensor.requires_grad for tensor in tensors)
            with torch.set_grad_enabled(grad), constants((args, kwargs)):
                return func(*args, **kwargs)
        if kwargs.get("out") is not None:
            result = self.__torch_function__(func, types, args, {k: v for k, v in kwargs.items() if k != "out"})
            return self.write(kwargs["out"], result)
        return self._run(Call(self, func, args, kwargs, tensors))

    def _run(self, call: Call) -> Any:
        """Run one call with its rule."""
        if call.writes and id(call.subject) in self.state:  # running statistics and the like: not an activation
            with torch.no_grad():
                call.function(*map_tensors(Tensor.detach, call.args), **map_tensors(Tensor.detach, call.kwargs))
            return call.subject
        operation = self.operations.get(call.name)
        if operation is None or call.name in WRITING:
            return call.plain()
        result = operation(call)
        if not call.in_place:
            return result
        return self._wrote(result, note_of(result)) if result is call.subject else self.write(call.subject, result)

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run another function with its rule, for an operation that is made of simpler ones."""
        return self.__torch_function__(function, (), args, kwargs)

    def run_plainly(self, call: Call) -> Any:
        """Run an operation without a rule and note what it gives."""
        if call.traced:
            result = self._traced(call)
        else:
            with torch.no_grad():
                if call.writes:
                    self.keeper.before_writing(call.subject)
                result = call.function(*call.args, **call.kwargs)
        if call.name in WRITING or (call.in_place and not call.traced):
            self._wrote(call.subject, Note())
        for position, tensor in enumerate(tensors_in(result)):
            if (tensor.is_floating_point() or tensor.is_complex()) and not is_live(tensor):
                set_note(tensor, self._inherited(call, position))
            if call.traced:
                name_unruled(tensor, call, self.module_name)
        if call.in_place and call.traced and call.name not in WRITING:
            return self.write(call.subject, result)
        return result

    def _traced(self, call: Call) -> Any:
        """Run an operation with autograd's own way down, on a copy where it would overwrite what is needed there."""
        args, kwargs = map_tensors(_without_parameters, (call.args, call.kwargs))
        with torch.enable_grad(), self.keeper.saving():
            if call.name in WRITING:
                self.keeper.before_writing(call.subject)
            elif call.in_place:
                return call.on(call.subject.clone())
            return call.function(*args, **kwargs)

    def module_name(self) -> str:
        """The name of the module whose code is running."""
        return running_module({id(child): name for name, child in self.module.named_modules()})

    def write(self, subject: Tensor, result: Tensor) -> Tensor:
        """Overwrite ``subject``, as the network asked, without hurting what rules have kept."""
        note = note_of(result)
        if self.keeper.alone_keeps(subject) and is_exchangeable(subject, result):
            torch.utils.swap_tensors(subject, result)  # type: ignore[no-untyped-call]  # torch has no type for it
            return self._wrote(subject, note)
        self.keeper.before_writing(subject)
        if subject.shape != result.shape and not subject.numel():  # torch gives an empty ``out`` its size
            subject.resize_(result.shape)
        with torch.enable_grad():
            subject.copy_(result)
        return self._wrote(subject, note)

    def _wrote(self, subject: Tensor, note: Note) -> Tensor:
        """An activation now lies in that memory, whichever tensor it is looked at through."""
        self._written[memory_of(subject)] = StorageWeakRef(subject.untyped_storage())  # type: ignore[no-untyped-call]  # torch has no type for it
        return set_note(subject, note)

    def _split(self, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take a tensor apart one view at a time: autograd lets nobody write to views that were made together."""
        call = Call(self, func, args, kwargs)
        with torch.no_grad():
            parts = func(*args, **kwargs)
        dim = call.argument(1 if call.name == "unbind" else 2, "dim", default=0)
        views, start = [], 0
        for part in parts:
            length = 1 if call.name == "unbind" else part.shape[dim]
            view = self.__torch_function__(torch.narrow, types, (call.subject, dim, start, length))
            views.append(self.__torch_function__(torch.squeeze, types, (view, dim)) if call.name == "unbind" else view)
            start += length
        return type(parts)(views)

    def _recognise(self, tensors: Sequence[Tensor]) -> None:
        """Activations that came by a way we did not see are activations all the same."""
        for tensor in tensors:
            if is_live(tensor) or id(tensor) in self.state:
                continue
            if not (tensor.is_floating_point() or tensor.is_complex()):
                continue
            history = tensor.grad_fn  # asked for first: torch then brings that of a view up to date
            if self._holds_activation(tensor) or (history is not None and leads_to_tap(tensor)):
                set_note(tensor, Note())

    def _holds_activation(self, tensor: Tensor) -> bool:
        memory = self._written.get(memory_of(tensor)) if self._written else None
        return memory is not None and not memory.expired()  # type: ignore[no-untyped-call]  # as above

    def _inherited(self, call: Call, position: int) -> Note:
        """What is known of an output of a copying operation, from what is known of its inputs."""
        live = [tensor for tensor in call.tensors if is_live(tensor)]
        moving = call.name in _MOVING and is_live(call.subject)
        notes = [note_of(call.subject)] if moving else [note_of(tensor) for tensor in live]
        neuron = notes[0].neuron if moving else None
        if neuron is not None:
            neuron = neuron.moved(lambda tensor: list(tensors_in(call.on(tensor)))[position])
        rest = None
        if any(note.rest is not None for note in notes):
            args, kwargs = map_tensors(_resting, (call.args, call.kwargs))
            rest = list(tensors_in(call.function(*args, **kwargs)))[position]
        return Note(neuron, _parts(call), rest, min(note.gate for note in notes))


def map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same nested tuples, lists and dicts with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        items = [map_tensors(change, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: map_tensors(change, item) for key, item in value.items()}
    return value


def _parts(call: Call) -> Parts | None:
    """What a concatenation is made of, where that can matter later."""
    if call.name not in {"cat", "concat", "concatenate"}:
        return None
    tensors = tuple(call.argument(0, "tensors"))
    notes = [note_of(part) for part in tensors if is_live(part)]
    if all(note.neuron is None and note.parts is None for note in notes):
        return None
    return Parts(tensors, tuple(version_of(part) for part in tensors), call.argument(1, "dim", "axis", default=0))


def _without_parameters(tensor: Tensor) -> Tensor:
    """Constants keep their values and lose their history: only activations carry the signal."""
    return tensor if is_traced(tensor) or not tensor.requires_grad else tensor.detach()


def _resting(tensor: Tensor) -> Tensor:
    """The same call on the resting levels tells the resting level of its output."""
    if not is_live(tensor):
        return tensor.detach()
    rest = note_of(tensor).rest
    return torch.zeros_like(tensor.detach()) if rest is None else rest.clone()  # the call may overwrite it
