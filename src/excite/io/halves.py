"""Files that are not finished yet, and those that never will be because whoever wrote them was killed.

A file is locked for as long as somebody writes it, and a lock ends with its process. So a half file that nobody has
locked is waste, and whoever writes into the same folder next removes it; one that another run is writing stays.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from uuid import uuid4

from excite.io.locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["half_file", "half_name", "sweep", "sweep_once"]

HALF = re.compile(r"\.[0-9a-f]{32}\.tmp")

_swept: set[str] = set()  # to look through a large folder for every file would take long


def half_name(place: Path) -> Path:
    """A name beside a place for what is not finished: a move between disks is not one step.

    Example:
        >>> len(half_name(Path("out/map.png")).name)
        37
    """
    return place.with_name(f".{uuid4().hex}.tmp")


@contextmanager
def half_file(place: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside a place, open for writing. It is gone afterwards unless it was moved.

    Example:
        >>> with half_file(Path("whole.txt")) as (path, file):
        ...     _ = file.write(b"whole")
        ...     path.replace("whole.txt")
        PosixPath('whole.txt')
    """
    path, file = _new_and_locked(place)
    held = os.dup(file.fileno())  # the lock stays when the file is closed, until it was moved
    try:
        with file:
            yield path, file
    finally:
        with suppress(OSError):  # after a success there is nothing to remove
            path.unlink()
        os.close(held)


def sweep_once(folder: Path) -> None:
    """Remove what killed runs left half-written in a folder, the first time that this process asks for it.

    Example:
        >>> sweep_once(Path("not there"))
    """
    name = os.path.abspath(folder)  # noqa: PTH100 - a Path is slow, and this is asked for every file
    if name not in _swept:
        _swept.add(name)
        sweep(folder)


def sweep(folder: Path) -> None:
    """Remove what killed runs left half-written in a folder; links are half-made for a moment only, and go too.

    Example:
        >>> sweep(Path("not there"))
    """
    with suppress(OSError), os.scandir(folder) as entries:  # whoever cannot write here is told so when it matters
        for entry in entries:
            if HALF.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
        return
    with path.open("rb") as file:
        if locked(file):
            path.unlink()


def _new_and_locked(place: Path) -> tuple[Path, BinaryIO]:
    while True:
        path = half_name(place)
        file = path.open("xb")
        locked(file, wait=True)
        if path.exists():
            return path, file
        file.close()  # somebody swept between the two steps
