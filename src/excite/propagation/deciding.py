"""Shortcuts that depend on an image's values, and how to go without them.

Much work can be left out once the values are known: no child is negative, nothing goes to a port. A graph that is
written down for all images (`excite.export`) cannot know, and has the work done every time.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from torch import Tensor

__all__ = ["constants", "for_all_pictures", "is_known", "may_be"]

_unknown: ContextVar[bool] = ContextVar("excite_unknown_pictures", default=False)


def may_be(condition: Callable[[], Tensor | bool]) -> bool:
    """Whether the condition holds; for images that are not known yet it may.

    Example:
        >>> may_be(lambda: False)
        False
        >>> with for_all_pictures():
        ...     may_be(lambda: False)
        True
    """
    return True if _unknown.get() else bool(condition())


def is_known() -> bool:
    """Whether the image is known, so that its values may decide how the work is done.

    Example:
        >>> is_known()
        True
    """
    return not _unknown.get()


@contextmanager
def for_all_pictures() -> Iterator[None]:
    """Within, nothing is known of the image: no shortcut is taken."""
    token = _unknown.set(True)
    try:
        yield
    finally:
        _unknown.reset(token)


@contextmanager
def constants(given: Any = None) -> Iterator[None]:
    """Within, what depends on no image is computed at once, also while a graph is written down for all images.

    Not so where something in ``given`` is not known yet: a size, or what was made with one.

    Example:
        >>> with for_all_pictures(), constants():
        ...     bool((torch.tensor([2.0]).sign() == 1).all())
        True
    """
    if is_known() or any(map(_is_written_down, tree_leaves(given))):
        yield
        return
    with _disable_current_modes():  # those that write the graph down
        yield


def _is_written_down(value: Any) -> bool:
    """Whether a value is a place in a graph: no number, and no tensor that holds any."""
    return isinstance(value, (torch.SymInt, FakeTensor))
