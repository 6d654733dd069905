"""How a command ends that failed: one line that says what to do, and an exit code that says what kind it was."""

from __future__ import annotations

import errno
import os
import sys
import textwrap
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from excite.errors import ExciteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FAILED", "UNFORESEEN", "flush_answers", "quiet_hooks", "told"]

FAILED = 1
UNFORESEEN = 70  # a fault of excite itself; 70 is what Unix calls an internal error of software

AGAIN = "and start again: what was finished is kept"
NO_ROOM = f"make room {AGAIN}"
NOT_ALLOWED = "is it writable, and are you allowed to? Choose another folder, or change its permissions"
REMEDIES = {
    errno.ENOSPC: NO_ROOM,
    errno.EDQUOT: NO_ROOM,
    errno.EFBIG: NO_ROOM,
    errno.EACCES: NOT_ALLOWED,
    errno.EPERM: NOT_ALLOWED,
    errno.EROFS: NOT_ALLOWED,
    errno.EIO: f"the disk or the net does not answer as it should: see to it, {AGAIN}",
    errno.ENOENT: f"was it removed? Put it back {AGAIN}",
    errno.EMFILE: f"allow more with `ulimit -n 4096` {AGAIN}",
}
NO_MEMORY = f"not enough memory: use fewer workers or smaller pictures, {AGAIN}"
MEMORY_WORDS = ("can't allocate memory", "out of memory")  # torch raises a plain RuntimeError
REPORT = "this is a fault of excite: run it again with --debug and report what it prints"


def told(error: BaseException, command: str) -> tuple[str, int]:
    """What to say about an error, and the exit code.

    Args:
        error: what went wrong.
        command: what was run, such as "excite bench pointing".

    Example:
        >>> told(KeyError("x"), "excite attend")[0]
        "excite attend: KeyError: 'x'; this is a fault of excite: run it again with --debug and report what it prints"
        >>> told(OSError(28, "No space left on device", "out/a.png"), "excite attend")[0]
        "'out/a.png': No space left on device; make room and start again: what was finished is kept"
    """
    if isinstance(error, ExciteError):
        return str(error), FAILED
    if isinstance(error, MemoryError) or any(words in str(error).lower() for words in MEMORY_WORDS):
        return NO_MEMORY, FAILED
    if isinstance(error, OSError) and error.errno is not None:
        return _of_system(error), FAILED
    reason = str(error).partition("Original Traceback")[0]  # torch adds the trace of a worker
    said = textwrap.shorten(f"{type(error).__name__}: {reason}", 200).rstrip(" :")
    return f"{command}: {said}; {REPORT}", UNFORESEEN


def _of_system(error: OSError) -> str:
    """What the system refused, and what to do about it."""
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)!r}: "
    reason = error.strerror or os.strerror(error.errno or 0)
    return f"{where}{reason}; {REMEDIES.get(error.errno or 0, f'mend that {AGAIN}')}"


def flush_answers() -> str | None:
    """Hand all answers over; why that cannot be done, "" if nobody reads them any more, None if all is well.

    Otherwise Python would try when everything else is over, and show a trace.

    Example:
        >>> flush_answers() is None
        True
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left has nowhere to go
        broken = error.errno == errno.EPIPE
        return "" if broken else f"cannot write the answers: {_of_system(error)}"
    return None


@contextmanager
def quiet_hooks(stop_at_once: Callable[[], None]) -> Iterator[None]:
    """For so long, an error that nobody can catch, in a thread or while things are tidied up, is one line as well.

    Args:
        stop_at_once: called when what got lost that way was the wish to stop.
    """

    def unraisable(lost: Any) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            stop_at_once()
        _note_lost("while tidying up", lost.exc_value)

    before = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = unraisable
    threading.excepthook = lambda lost: _note_lost("in a thread", lost.exc_value)
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = before


def _note_lost(where: str, error: BaseException | None) -> None:
    said = textwrap.shorten(f"{type(error).__name__}: {error}", 200)
    sys.stderr.write(f"excite: note: {where}: {said}; --debug tells more\n")
