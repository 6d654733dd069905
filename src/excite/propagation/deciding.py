"""Shortcuts that depend on a picture's values, and how to go without them.

Much work can be left out once the values are known: no child is negative, nothing goes to a port. A graph that is
written down for all pictures (`excite.exporting`) cannot know, and has the work done every time.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

__all__ = ["for_all_pictures", "is_known", "may_be"]

_unknown: ContextVar[bool] = ContextVar("excite_unknown_pictures", default=False)


def may_be(condition: Callable[[], Tensor | bool]) -> bool:
    """Whether the condition holds; for pictures that are not known yet it may.

    Example:
        >>> may_be(lambda: False)
        False
        >>> with for_all_pictures():
        ...     may_be(lambda: False)
        True
    """
    return True if _unknown.get() else bool(condition())


def is_known() -> bool:
    """Whether the picture is known, so that its values may decide how the work is done.

    Example:
        >>> is_known()
        True
    """
    return not _unknown.get()


@contextmanager
def for_all_pictures() -> Iterator[None]:
    """Within, nothing is known of the picture: no shortcut is taken."""
    token = _unknown.set(True)
    try:
        yield
    finally:
        _unknown.reset(token)
