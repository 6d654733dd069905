"""Whether somebody else is writing a file: a lock that ends with its process, also when that is killed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Self

from excite.errors import ExciteError

if TYPE_CHECKING:
    from pathlib import Path


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


# One run at a time writes a folder: two would replace each other's files.


class Lock:
    """A lock on a folder that ends with its process, also when that is killed.

    Args:
        folder: the folder; it need not be there yet.
        trace: lock a file in it, ``.lock``, which stays; otherwise the folder itself, which the file systems of the net
            cannot do: two machines are then not kept apart.

    Example:
        >>> from pathlib import Path
        >>> lock = Lock(Path("out/records.parquet"))
        >>> lock.take(), lock.take()
        (True, False)
        >>> lock.release()
    """

    def __init__(self, folder: Path, *, trace: bool = True) -> None:
        self._folder, self._trace = folder, trace
        self._file: int | None = None

    def take(self) -> bool:
        """Whether it is taken anew; False if it was held already."""
        if self._file is not None:
            return False
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._trace:
                self._file = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
            else:
                self._file = os.open(self._folder, os.O_RDONLY)
        except OSError as error:
            reason = error.strerror or error
            raise ExciteError(f"cannot write to {str(self._folder)!r}: {reason}; choose another --out") from None
        if locked(self._file) is False:
            self.release()
            raise ExciteError(f"another run is writing {str(self._folder)!r}: wait for it, or use another --out")
        return True

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let others write."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
