"""So many are served at once and so many wait: whoever comes then is told so at once, instead of waiting for ever."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from excite.errors import ExciteError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BusyError", "Gate"]


class BusyError(ExciteError):
    """Too many are waiting already."""


class Gate:
    """Lets so many through at a time; whoever is inside may ask again without waiting.

    Args:
        at_once: how many.
        waiting: how many more may wait.

    Example:
        >>> gate = Gate(at_once=1, waiting=0)
        >>> with gate.passed(), gate.passed():
        ...     print("inside")
        inside
    """

    def __init__(self, at_once: int, waiting: int) -> None:
        self._places = threading.BoundedSemaphore(at_once + waiting)
        self._turns = threading.BoundedSemaphore(at_once)
        self._mine = threading.local()  # whether this thread is inside

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Wait for one's turn, and have it for as long as the block lasts.

        Raises:
            BusyError: too many are waiting.
        """
        if getattr(self._mine, "inside", False):
            yield
            return
        if not self._places.acquire(blocking=False):
            raise BusyError("too many people are asking at the moment: try again in a few seconds")
        try:
            with self._turns:
                self._mine.inside = True
                yield
        finally:
            self._mine.inside = False
            self._places.release()
