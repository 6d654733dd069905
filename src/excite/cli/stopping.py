"""Ctrl-C and SIGTERM: the first ends the work in order, the second at once; neither shows a trace."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Stopping"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)
CURSOR = "\x1b[?25h"  # a progress bar hides it


class Stopping:
    """Listens for a wish to stop, for as long as a command runs.

    Attributes:
        received: the signal that asked for it; None if none did.

    Example:
        >>> with Stopping() as stopping:
        ...     stopping.received is None
        True
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    @property
    def code(self) -> int:
        """The exit code of a command that was stopped: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (self.received or signal.SIGINT)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # nobody else may listen
            for number in SIGNALS:
                before = signal.getsignal(number)
                if before in {signal.SIG_DFL, signal.default_int_handler}:  # one who ignores it goes on to do so
                    self._before[number] = before
                    signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            self.at_once()
        self.received = number
        raise KeyboardInterrupt

    def finish(self) -> None:
        """The work is over: a wish to stop what little is left is fulfilled at once."""
        self.received = self.received or signal.SIGINT

    def at_once(self) -> None:
        """End without tidying up: all files are whole at every moment, and the next run removes what is half done."""
        told = f"{CURSOR if sys.stderr.isatty() else ''}excite: stopped at once; what was written down is kept\n"
        os.write(2, told.encode())
        os._exit(self.code)
