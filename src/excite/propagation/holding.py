"""How much memory forward passes hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from excite.propagation.graph import nodes_below, rule_of
from excite.propagation.keeping import memory_of
from excite.propagation.signed_weights import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from excite.propagation.gradients import Gradients
    from excite.propagation.sweep import Sweep

__all__ = ["held_bytes"]


def held_bytes(module: nn.Module, passes: Iterable[Sweep | Gradients]) -> int:
    """The bytes of all tensors that forward passes of a network keep for the way down, each memory once.

    What the network holds itself is left out, and what is kept of its weights for all images.

    Example:
        >>> import torch
        >>> from excite.propagation import Sweep
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)).eval()
        >>> 0 < held_bytes(net, [Sweep(net, torch.ones(1, 2), ["1"])]) < 1000
        True
    """
    elsewhere = {
        memory_of(tensor) for tensor in (*module.parameters(), *module.buffers(), *KEPT.parts()) if not tensor.is_mkldnn
    }
    sizes = {
        memory_of(tensor): tensor.untyped_storage().nbytes()
        for each in passes
        for tensor in _tensors(each)
        if not tensor.is_mkldnn and memory_of(tensor) not in elsewhere
    }
    return sum(sizes.values())


def _tensors(each: Sweep | Gradients) -> list[Tensor]:
    found: list[Tensor] = [each.output]
    seen: set[int] = set()
    for node in nodes_below(each.top):
        _collect(rule_of(node), found, seen)
        for name in dir(node):
            if name.startswith("_saved_"):
                _collect(getattr(node, name), found, seen)
        if hasattr(node, "variable"):
            found.append(node.variable)
    return found


def _collect(value: Any, found: list[Tensor], seen: set[int]) -> None:
    """All tensors that a value leads to through its attributes, lists, dicts and closures."""
    if isinstance(value, Tensor):
        found.append(value)
        return
    if value is None or isinstance(value, (str, int, float, bool, type)) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        parts: Iterable[Any] = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = value
    elif callable(value) and getattr(value, "__closure__", None):
        parts = [cell.cell_contents for cell in value.__closure__ or ()]
    else:
        slots = (getattr(value, name, None) for name in getattr(type(value), "__slots__", ()) if name != "__weakref__")
        parts = [*getattr(value, "__dict__", {}).values(), *slots]
    for part in parts:
        _collect(part, found, seen)
