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
    """Lets so many through at a time.

    Args:
        at_once: how many.
        waiting: how many more may wait.

    Example:
        >>> gate = Gate(at_once=1, waiting=0)
        >>> with gate.passed(), gate.passed():
        ...     pass
        Traceback (most recent call last):
        excite.web.gate.BusyError: too many people are asking at the moment: try again in a few seconds
    """

    def __init__(self, at_once: int, waiting: int) -> None:
        self._places = threading.BoundedSemaphore(at_once + waiting)
        self._turns = threading.BoundedSemaphore(at_once)

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Wait for one's turn, and have it for as long as the block lasts."""
        if not self._places.acquire(blocking=False):
            raise BusyError("too many people are asking at the moment: try again in a few seconds")
        try:
            with self._turns:
                yield
        finally:
            self._places.release()
