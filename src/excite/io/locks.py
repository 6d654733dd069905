"""Whether somebody else is writing a file: a lock that ends with its process, also when that is killed."""

from __future__ import annotations

from typing import BinaryIO

__all__ = ["locked"]


def locked(file: BinaryIO | int, *, wait: bool = False) -> bool | None:
    """Lock an open file until it is closed.

    Args:
        file: the file, or its number.
        wait: wait for whoever holds it.

    Returns:
        Whether it is ours now; False if another process, or another opening of the file, holds it; None where there
        are no such locks: Windows, and some file systems of the net.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("example.txt").write_text("mine")
        >>> with open("example.txt", "rb") as first, open("example.txt", "rb") as second:
        ...     locked(first), locked(second)
        (True, False)
    """
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # this file system has none: whoever starts two runs into one folder is on their own
        return None
    return True
