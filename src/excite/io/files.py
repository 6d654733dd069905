"""Files that are either whole or not there.

A run over a large collection is stopped, a disk fills up, a second process writes the same name: a reader
must never find half a file and take it for a result. So everything is written beside its place and moved
there in one step.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

import numpy as np
from torch import Tensor, bfloat16

from excite.errors import ExciteError
from excite.io.locks import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from PIL import Image


# Files that are not finished yet, and those that never will be because whoever wrote them was killed.
#
# A file is locked for as long as somebody writes it, and a lock ends with its process. So a half file that nobody has
# locked is waste, and whoever writes into the same folder next removes it; one that another run is writing stays.

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


# Files that are either whole or not there.
#
# A run over a large collection is stopped, a disk fills up, a second process writes the same name: a reader must
# never find half a file and take it for a result. So everything is written beside its place and moved there in one
# step.


def atomic_write(path: str | os.PathLike[str], write: Callable[[BinaryIO], None]) -> Path:
    """Give ``write`` a binary file to fill, and put that file in place only when it is whole.

    Missing folders are made. When anything fails, also an interruption, an older file of that name stays as
    it was and nothing is left behind. A link is followed, so that the file it points to is the one replaced.

    Args:
        path: where the file shall be.
        write: fills the open file.

    Returns:
        The path.

    Raises:
        ExciteError: the folder cannot be made or written to, or there is something at the path that is not a
            file.

    Example:
        >>> atomic_write("example.txt", lambda file: print(file.write(b"whole")))
        5
        PosixPath('example.txt')
    """
    path = Path(path)
    place = Path(os.path.realpath(path))
    try:
        if place.exists() and not place.is_file():
            raise ExciteError(f"cannot write {str(path)!r}: it is a folder or a device, give the name of a file.")
        place.parent.mkdir(parents=True, exist_ok=True)
        sweep_once(place.parent)
        with half_file(place) as (temporary, file):
            _write_whole(file, write)
            if place.exists():
                shutil.copymode(place, temporary)
            temporary.replace(place)
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise ExciteError(f"cannot write {str(path)!r}: {reason}; is the folder writable, has it room?") from error
    return path


def _write_whole(file: BinaryIO, write: Callable[[BinaryIO], None]) -> None:
    """Fill a new file and wait until the disk has it: a move may otherwise outrun the content it moves."""
    with file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def save_png(image: Image.Image, path: str | os.PathLike[str]) -> Path:
    """Write an image as PNG, whatever the name ends in: no pixel is lost.

    Example:
        >>> save_png(Image.new("RGB", (2, 2)), "example.png")
        PosixPath('example.png')
    """
    return atomic_write(path, lambda file: image.save(file, format="PNG"))


def save_npy(array: np.ndarray[Any, Any] | Tensor, path: str | os.PathLike[str]) -> Path:
    """Write numbers as NumPy's own format, without pickles, so that anyone may safely load them.

    Example:
        >>> save_npy(np.zeros((7, 7)), "example.npy")
        PosixPath('example.npy')
    """
    numbers = to_numpy(array) if isinstance(array, Tensor) else np.asarray(array)
    if numbers.dtype.hasobject:
        raise ExciteError(f"cannot write {str(path)!r}: the array holds Python objects, convert it to numbers first.")
    return atomic_write(path, lambda file: np.save(file, numbers, allow_pickle=False))


def save_text(text: str, path: str | os.PathLike[str]) -> Path:
    """Write text as UTF-8.

    Example:
        >>> save_text("whole", "example.txt")
        PosixPath('example.txt')
    """
    return atomic_write(path, lambda file: _write_bytes(file, text.encode()))


def save_csv(rows: Iterable[Iterable[object]], path: str | os.PathLike[str]) -> Path:
    """Write rows as CSV in UTF-8, the names of the columns being the first of them.

    Example:
        >>> save_csv([["tag", "count"], ["sea", 3]], "example.csv")
        PosixPath('example.csv')
    """
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return save_text(text.getvalue(), path)


def to_numpy(values: Tensor) -> np.ndarray[Any, Any]:
    """The tensor as an array on the CPU; bfloat16, which NumPy does not know, becomes float32.

    Example:
        >>> to_numpy(Tensor([1.0]))
        array([1.], dtype=float32)
    """
    values = values.detach().cpu()
    return (values.float() if values.dtype is bfloat16 else values).numpy()


def save_json(obj: object, path: str | os.PathLike[str]) -> Path:
    """Write plain Python values as JSON, one line per entry of the outermost list or dictionary.

    One line per entry is readable for a dozen fields, and for a map's thousands of values too. NaN and
    infinity are refused: JSON has no word for them, and other programs stumble over what Python would write.

    Example:
        >>> save_json({"concept": "cat", "point": [3, 4]}, "example.json")
        PosixPath('example.json')
    """
    try:
        content = _json_lines(obj).encode("utf-8", "backslashreplace")  # bytes of odd file names stay JSON escapes
    except (TypeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ExciteError(
            f"cannot write {str(path)!r}: {reason}; use finite numbers, text, lists, dictionaries."
        ) from error
    return atomic_write(path, lambda file: _write_bytes(file, content))


def _write_bytes(file: BinaryIO, content: bytes) -> None:
    file.write(content)


def _json_lines(obj: object) -> str:
    """The object as JSON with one line per entry."""
    if isinstance(obj, dict):
        entries, opening, closing = [_json({key: value})[1:-1] for key, value in obj.items()], "{", "}"
    elif isinstance(obj, list | tuple):
        entries, opening, closing = [_json(value) for value in obj], "[", "]"
    else:
        return _json(obj) + "\n"
    return opening + ",".join(f"\n  {entry}" for entry in entries) + f"\n{closing}\n"


def _json(obj: object) -> str:
    return json.dumps(obj, ensure_ascii=False, allow_nan=False)
