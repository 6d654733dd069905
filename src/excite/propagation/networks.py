"""Handling a user's network with care: finding its layers, reading its answer, leaving it as it was found."""

from __future__ import annotations

import difflib
import inspect
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from excite.errors import LayerError, ModelError
from excite.propagation.keeping import version_of
from excite.propagation.notes import is_live

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "as_found",
    "find_layer",
    "forget_activations",
    "main_output",
    "own_tensors",
    "plain_modules",
    "plain_network",
    "running_module",
]


def plain_network(module: nn.Module) -> nn.Module:
    """The network in plain PyTorch: without torch.compile's wrapper; TorchScript is refused by name."""
    return plain_modules(module)[0]


def plain_modules(module: nn.Module) -> list[nn.Module]:
    """The same with all its modules, itself first."""
    if not isinstance(module, nn.Module):
        raise ModelError(f"expected a torch.nn.Module, got {type(module).__name__}")
    module = getattr(module, "_orig_mod", module)
    modules = list(module.modules())
    for child in modules:
        if isinstance(child, torch.jit.ScriptModule):
            name = next(name for name, each in module.named_modules() if each is child)
            where = f"its module {name!r} is" if name else "it is"
            raise ModelError(
                f"this network cannot be explained because {where} TorchScript, which hides its operations: "
                "load the same network as plain PyTorch code (TorchScript files keep no such code)"
            )
    return modules


def find_layer(module: nn.Module, layer: str) -> tuple[nn.Module, int]:
    """A layer's module, and which of its calls is meant (``relu#0`` is the first; plain ``relu`` the last, -1).

    Where Caffe's names say how a layer is made, as in ``pool2/3x3_s2``, the paper's ``pool2`` will do.
    """
    name, _, call = layer.partition("#")
    number = int(call) if call.isdecimal() else -1
    if name and (not call or call.isdecimal()) and _has(module, name):
        return module.get_submodule(name), number
    modules = dict(module.named_modules(remove_duplicate=False))
    if name not in modules and name:
        within = [known for known in modules if known.startswith(f"{name}/")]
        name = within[0] if len(within) == 1 else name
    if name in modules and name and (not call or call.isdecimal()):
        return modules[name], number
    names = [known for known in modules if known]
    close = difflib.get_close_matches(layer, names, n=3)
    hint = f" (closest: {', '.join(close)})" if close else ""
    raise LayerError(f"no layer {layer!r} in this network{hint}; its layers: {_outline(names)}")


def _has(module: nn.Module, name: str) -> bool:
    """Whether there is a module of that name; asking by getattr would also find what is none."""
    child: nn.Module | None = module
    for part in name.split("."):
        child = None if child is None else child._modules.get(part)  # noqa: SLF001 - torch lists only all of them
    return child is not None


def _outline(names: list[str], most: int = 60) -> str:
    """The layers' names, the upper levels first where there are too many to list."""
    depth = 1
    while depth < 10 and sum(name.count(".") <= depth for name in names) <= most:
        depth += 1
    shown = [name for name in names if name.count(".") < depth]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f", and {more} more inside them (`excite ls layers MODEL` lists all)" if more else "")


def running_module(names: Mapping[int, str]) -> str:
    """The name of the module whose code is running (``names`` by id), read off the stack so that no hook is needed."""
    frame = inspect.currentframe()
    frame = frame and frame.f_back  # a frame that knows itself lives on, and with it all that its callers hold
    while frame is not None:
        running = id(frame.f_locals.get("self"))
        if running in names:
            return names[running]
        frame = frame.f_back
    return ""


def main_output(answer: Any) -> Tensor:
    """The tensor of output units in whatever a network returns."""
    if isinstance(answer, Tensor):
        return answer
    for name in ("logits", "out"):
        value = answer.get(name) if isinstance(answer, dict) else getattr(answer, name, None)
        if isinstance(value, Tensor):
            return value
    if isinstance(answer, (tuple, list)) and answer and isinstance(answer[0], Tensor):
        return answer[0]
    raise ModelError(
        f"the network returned {type(answer).__name__}, in which no output units were found: wrap it in a module "
        "that returns one tensor with a score for each class"
    )


@contextmanager
def as_found(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Put back whatever a forward pass changes in a network's buffers.

    Norms in training mode always write to their running statistics, so there the network works on copies. Otherwise
    writing is rare: it is undone where it happened, and nothing is touched where it did not, so that several threads
    can explain one network.
    """
    training = any(child.training for child in modules)
    buffers = [
        (child, name, buffer, buffer.clone(), version_of(buffer))
        for child in modules
        for name, buffer in child._buffers.items()  # noqa: SLF001 - setting them must not run a user's __setattr__
        if buffer is not None
    ]
    try:
        if training:
            for child, name, _, copy, _ in buffers:
                child._buffers[name] = copy  # noqa: SLF001 - as above
        yield
    finally:
        for child, name, buffer, copy, version in buffers:
            child._buffers[name] = buffer  # noqa: SLF001 - as above
            if version_of(buffer) != version:
                with torch.no_grad():
                    buffer.copy_(copy)


def own_tensors(module: nn.Module) -> list[Tensor]:
    """The parameters and buffers of a module itself."""
    both = (*module._parameters.values(), *module._buffers.values())  # noqa: SLF001 - asking torch for them is slow
    return [tensor for tensor in both if tensor is not None]


_USUAL = frozenset([bool, int, float, str, tuple, list, dict, set, OrderedDict, type(None)])  # what modules are made of


def forget_activations(modules: Sequence[nn.Module]) -> None:
    """Activations that a network keeps for itself (``self.last = x``) stay there without our graph."""
    for child in modules:
        attributes = vars(child)
        kept = [name for name, value in attributes.items() if value.__class__ not in _USUAL and is_live(value)]
        for name in kept:
            attributes[name] = attributes[name].detach()
