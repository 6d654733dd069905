"""The log of the server: few short lines, with kinds and places of errors but without any text of a user."""

from __future__ import annotations

import io
import logging
import sys
from collections import Counter
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from excite.errors import one_line
from excite.io.text import for_log

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = logging.getLogger("excite.web")
CONSTANT = {LOG.name, "uvicorn.error"}  # loggers whose messages hold no values, but for their arguments


def log_warning(message: Warning | str, category: type[Warning], file: str, number: int) -> None:
    """Log a warning that belongs to no request; the message of excite's own, which are about the classifier."""
    said = str(message) if category.__module__.startswith("excite.") else f"{Path(file).name}:{number}"
    LOG.warning(f"{category.__name__}: {said}")


@contextmanager
def bounded_log() -> Iterator[None]:
    """In the block, whatever is logged, or printed as an error, becomes such lines on standard error."""
    root = logging.getLogger()
    before, root.handlers[:] = root.handlers[:], [_Handler()]
    try:
        with redirect_stderr(_Printed()):
            yield
    finally:
        root.handlers[:] = before


class _Handler(logging.Handler):
    """Writes a line when it comes for the first, the tenth, the hundredth time, and so on."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._stream = sys.stderr
        self._times: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        self._times[line] += 1
        times = str(self._times[line])
        if times.strip("0") == "1":
            with suppress(OSError):  # nobody reads it any more
                self._stream.write(f"{line}\n" if times == "1" else f"{line} ({times} times)\n")
                self._stream.flush()

    def format(self, record: logging.LogRecord) -> str:
        place = f"{record.name} at {Path(record.pathname).name}:{record.lineno}"
        what = str(record.msg) if record.name in CONSTANT else place
        error = record.exc_info[1] if record.exc_info else None
        why = "" if error is None else f": {for_log(error)}"
        return f"excite: {record.levelname.lower()}: {one_line(what + why)}"


class _Printed(io.TextIOBase):
    """In place of standard error: a package may print a trace there, which quotes what was sent."""

    def write(self, text: str) -> int:
        LOG.warning("a package has printed something, which is left out: it may hold a user's text")
        return len(text)
