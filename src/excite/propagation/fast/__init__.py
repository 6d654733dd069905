"""The wall: everything in this package is only speed, and nothing outside needs it to be understood.

`choose` is the one place where a plain implementation is exchanged for a fast one; `plain_kernels` switches that off.
Also here: whether values are known at all, which they are not while a graph is traced for export.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from excite.propagation.mode import Call

Implementation = TypeVar("Implementation")

_plain: ContextVar[bool] = ContextVar("excite_plain_kernels", default=False)
_tracing: ContextVar[bool] = ContextVar("excite_tracing", default=False)


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Use only the plain implementations: for forward passes that begin within, no code of `fast` runs.

    Example:
        >>> with plain_kernels():
        ...     choose(torch.nn.functional.max_pool2d) is torch.nn.functional.max_pool2d
        True
    """
    yield from _within(_plain)


def _within(switch: ContextVar[bool]) -> Iterator[None]:
    token = switch.set(True)
    try:
        yield
    finally:
        switch.reset(token)


def choose(plain: Implementation) -> Implementation:
    """The fast implementation of ``plain``, or ``plain`` itself where there is none or within `plain_kernels`."""
    return plain if _plain.get() else _fast().get(plain, plain)


@cache
def _fast() -> dict[Any, Any]:
    """All that is exchanged: plain implementation -> fast one, with the same arguments and the same result."""
    from excite.propagation import graph, mode, rules
    from excite.propagation.fast import carry, kernels, shortcuts, transfer

    return {
        rules.Affine: kernels.affine,
        graph.carry: carry.carry,
        graph.sums: transfer.sums,
        mode.run_below: shortcuts.run_below,
        torch.nn.functional.max_pool2d: shortcuts.max_pool2d,
        torch.nn.functional.local_response_norm: shortcuts.local_response_norm,
    }


def is_concrete() -> bool:
    """Whether tensors have values, so that these may decide how the work is done; not while a graph is traced."""
    return not _tracing.get()


def possibly(condition: Callable[[], Tensor | bool]) -> bool:
    """Whether the condition holds; while a graph is traced it may, so True."""
    return True if _tracing.get() else bool(condition())


@contextmanager
def tracing() -> Iterator[None]:
    """A graph for all images is traced within (`excite export`): no shortcut may depend on values."""
    yield from _within(_tracing)


@contextmanager
def constants(given: Any = None) -> Iterator[None]:
    """Compute at once, also while a graph is traced: for what depends on no image (no symbolic size in ``given``)."""
    if not _tracing.get() or any(isinstance(leaf, (torch.SymInt, FakeTensor)) for leaf in tree_leaves(given)):
        yield
        return
    with _disable_current_modes():  # those that record the graph
        yield


def geometry(call: Call, weight: Tensor) -> tuple[Any, ...] | None:
    """A convolution's function, stride, padding, dilation, groups; None where the padding is uneven."""
    sizes: list[Any] = []
    for position, name, default in ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1)):
        value = call.argument(position, name, default=default)
        if not isinstance(value, str):
            value = [value] if isinstance(value, int) else list(value)
            value = value * (weight.dim() - 2) if len(value) == 1 else value
        sizes.append(value)
    stride, padding, dilation = sizes
    if isinstance(padding, str):
        width = [step * (side - 1) for step, side in zip(dilation, weight.shape[2:], strict=True)]
        if padding == "same" and any(each % 2 for each in width):
            return None
        padding = [each // 2 if padding == "same" else 0 for each in width]
    return call.function, stride, padding, dilation, call.argument(6, "groups", default=1)
