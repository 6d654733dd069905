"""File locks that end with their process, also when it is killed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Self

from excite.errors import ExciteError

if TYPE_CHECKING:
    from pathlib import Path


def locked(file: BinaryIO | int, *, wait: bool = False) -> bool | None:
    """Lock an open file, or a file descriptor, until it is closed.

    Args:
        file: the file.
        wait: wait until the present holder of the lock releases it.

    Returns:
        True if this call locked it; False if another process, or another opening of the file, holds the lock; None
        on a file system without locks.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("example.txt").write_text("mine")
        >>> with open("example.txt", "rb") as first, open("example.txt", "rb") as second:
        ...     locked(first), locked(second)
        (True, False)
    """
    from filelock import lock_descriptor

    try:
        return lock_descriptor(file if isinstance(file, int) else file.fileno(), blocking=wait)
    except OSError:
        return None


class Lock:
    """A lock on a folder: one run at a time writes into it.

    Args:
        folder: the folder; it is made if missing.
        trace: lock a file ``.lock`` in it, which stays there; otherwise the folder itself, which does not keep two
            machines apart on a network file system.

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
        """Take the lock; False if this object holds it already.

        Raises:
            ExciteError: another run holds it, or the folder cannot be written to.
        """
        if self._file is not None:
            return False
        path, flags = (self._folder / ".lock", os.O_RDWR | os.O_CREAT) if self._trace else (self._folder, os.O_RDONLY)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, flags, 0o666)
        except OSError as error:
            reason = error.strerror or error
            raise ExciteError(f"cannot write to {str(self._folder)!r}: {reason}; choose another --out") from None
        if locked(self._file) is False:
            self.release()
            raise ExciteError(f"another run is writing {str(self._folder)!r}: wait for it, or use another --out")
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
