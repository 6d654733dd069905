"""Edges of attention as layers: the weights ``[N, heads, queries, keys]`` of a module are read as ``NAME:edges``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from excite.errors import LayerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from excite.propagation.mode import RuleMode

EDGES = ":edges"


def is_edges(layer: str) -> bool:
    """Whether a layer is the edges of a module's attention: ``blocks.3.attn:edges``, or its first ``...:edges#0``."""
    return layer.partition("#")[0].endswith(EDGES)


def split_edges(layer: str) -> tuple[str, int]:
    """The module whose edges a layer is, and which of its products of weights with values is meant (-1: the last)."""
    name, _, number = layer.partition("#")
    if number and not number.isdecimal():
        raise LayerError(f"no layer {layer!r}: the edges of a module's attention are counted from {name}#0 on")
    return name.removesuffix(EDGES), int(number or -1)


def numbered(names: Sequence[str]) -> list[str]:
    """The layers of the modules that multiply weights with values, in that order; several of one are numbered.

    Example:
        >>> numbered(["a", "b", "a"])
        ['a:edges#0', 'b:edges', 'a:edges#1']
    """
    seen: dict[str, int] = {}
    layers = []
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        layers.append(f"{name}{EDGES}" + (f"#{seen[name]}" if names.count(name) > 1 else ""))
    return layers


def read_edges(
    mode: RuleMode, found: dict[str, list[Any]], tap: Callable[[Tensor], tuple[Any, Tensor]]
) -> Callable[[Tensor], Tensor | None]:
    """Tap the weights of attention in the modules that ``found`` names, and add the readings to it."""

    def read(weights: Tensor) -> Tensor | None:
        name = mode.module_name()
        if name not in found:
            return None
        mode.below = False
        heads = getattr(mode.module.get_submodule(name), "num_heads", 1)
        apart = weights.dim() == 3 and isinstance(heads, int) and len(weights) % heads == 0
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - our own mode must not see the tap
            reading, given = tap(weights.reshape(-1, heads, *weights.shape[1:]) if apart else weights)
            found[name].append(reading)
            return given.flatten(0, 1) if apart else given

    return read
