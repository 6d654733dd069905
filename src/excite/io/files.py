"""Atomic writes: a file is complete or absent, also after a kill, on a full disk, or with two writers of one name.

Content is written to a temporary file in the same folder (a move between disks is not atomic) and moved into place when
it is complete. A temporary file is locked while it is written, and the lock ends with its process: an unlocked one is
the leftover of a killed process, and the next writer into that folder removes it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self
from uuid import uuid4

import numpy as np

from excite.errors import ExciteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from PIL import Image
    from torch import Tensor


TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")

_cleaned: set[str] = set()  # folders whose leftovers this process has removed: a large one takes long to list


def temporary_path(path: Path) -> Path:
    """A new name for a temporary file in the folder of ``path``."""
    return path.with_name(f".{uuid4().hex}.tmp")


@contextmanager
def temporary_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new temporary file beside ``path``, open for writing and locked; removed afterwards unless it was moved."""
    temporary, file = _new_locked_file(path)
    descriptor = os.dup(file.fileno())  # keeps the lock when the file is closed, until it is moved
    try:
        with file:
            yield temporary, file
    finally:
        with suppress(OSError):  # after a success there is nothing to remove
            temporary.unlink()
        os.close(descriptor)


def _new_locked_file(path: Path) -> tuple[Path, BinaryIO]:
    while True:
        temporary = temporary_path(path)
        file = temporary.open("xb")
        locked(file, wait=True)
        if temporary.exists():
            return temporary, file
        file.close()  # another process removed it before it was locked


def remove_leftovers_once(folder: Path) -> None:
    """`remove_leftovers`, once for each folder and process."""
    name = os.path.abspath(folder)  # noqa: PTH100 - a Path is slow, and this is called for every file
    if name not in _cleaned:
        _cleaned.add(name)
        remove_leftovers(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed processes from a folder; links too, temporary for a moment only."""
    with suppress(OSError), os.scandir(folder) as entries:  # missing permissions show up when something is written
        for path in (Path(entry.path) for entry in entries if TEMPORARY.fullmatch(entry.name)):
            with suppress(OSError):
                if path.is_symlink():
                    path.unlink()
                    continue
                with path.open("rb") as file:
                    if locked(file):
                        path.unlink()


def atomic_write(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> Path:
    """Write a file with ``write``, which gets it open in binary mode, and move it to ``path`` when it is complete.

    Missing folders are made, links followed. After any failure, also an interruption, an older file at ``path`` is
    unchanged and no temporary file remains.

    Example:
        >>> atomic_write("example.txt", lambda file: print(file.write(b"whole")))
        5
        PosixPath('example.txt')
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            raise ExciteError(f"cannot write {str(path)!r}: it is a folder or a device, give the name of a file.")
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers_once(target.parent)
        with temporary_file(target) as (temporary, file):
            with file:
                write(file)
                file.flush()
                os.fsync(file.fileno())  # a move may otherwise reach the disk before the content
            if target.exists():
                shutil.copymode(target, temporary)
            temporary.replace(target)
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise ExciteError(f"cannot write {str(path)!r}: {reason}; is the folder writable, has it room?") from error
    return path


def save_png(image: Image.Image, path: str | os.PathLike[str]) -> Path:
    """Write an image as PNG, whatever the suffix: PNG is lossless."""
    return atomic_write(path, lambda file: image.save(file, **PICTURE_KINDS[".png"]))


PICTURE_KINDS: dict[str, dict[str, Any]] = {  # by suffix, with the settings of Pillow
    ".png": {"format": "PNG", "compress_level": 1},  # photographs get as small as by the default 6, three times sooner
    ".jpg": {"format": "JPEG", "quality": 90},
    ".jpeg": {"format": "JPEG", "quality": 90},
    ".webp": {"format": "WEBP", "quality": 90},
}


def save_picture(image: Image.Image, path: str | os.PathLike[str]) -> Path:
    """Write an image in the format of its suffix, one of `PICTURE_KINDS`."""
    settings = PICTURE_KINDS[Path(path).suffix.lower()]
    return atomic_write(path, lambda file: image.save(file, **settings))


def save_npy(array: np.ndarray[Any, Any] | Tensor, path: str | os.PathLike[str]) -> Path:
    """Write numbers as NPY without pickles, so that they are safe to load."""
    numbers = array if isinstance(array, np.ndarray) else to_numpy(array)
    if numbers.dtype.hasobject:
        raise ExciteError(f"cannot write {str(path)!r}: the array holds Python objects, convert it to numbers first.")
    return atomic_write(path, lambda file: np.save(file, numbers, allow_pickle=False))


def save_bytes(content: bytes, path: str | os.PathLike[str]) -> Path:
    """Write bytes."""
    return atomic_write(path, lambda file: file.write(content))


def save_text(text: str, path: str | os.PathLike[str]) -> Path:
    r"""Write text as UTF-8; the bytes of odd file names, which are no text, become escapes such as ``\udcff``."""
    return save_bytes(text.encode("utf-8", "backslashreplace"), path)


def save_csv(rows: Iterable[Iterable[object]], path: str | os.PathLike[str]) -> Path:
    """Write rows as CSV in UTF-8; the first row holds the names of the columns."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return save_text(text.getvalue(), path)


def save_json(obj: object, path: str | os.PathLike[str]) -> Path:
    """Write plain Python values as JSON, one line per entry of the outermost list or dictionary.

    NaN and infinity are refused: they are not JSON, and other programs cannot read what Python would write.
    """
    try:
        text = _json_lines(obj)
    except (TypeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ExciteError(
            f"cannot write {str(path)!r}: {reason}; use finite numbers, text, lists, dictionaries."
        ) from error
    return save_text(text, path)


def _json_lines(obj: object) -> str:
    dumps = partial(json.dumps, ensure_ascii=False, allow_nan=False)
    if isinstance(obj, dict):
        entries, opening, closing = [dumps({key: value})[1:-1] for key, value in obj.items()], "{", "}"
    elif isinstance(obj, list | tuple):
        entries, opening, closing = list(map(dumps, obj)), "[", "]"
    else:
        return dumps(obj) + "\n"
    return opening + ",".join(f"\n  {entry}" for entry in entries) + f"\n{closing}\n"


def to_numpy(values: Tensor) -> np.ndarray[Any, Any]:
    """The tensor as an array on the CPU; bfloat16, which NumPy does not know, becomes float32."""
    values = values.detach().cpu()
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()


def locked(file: BinaryIO | int, *, wait: bool = False) -> bool | None:
    """Lock an open file, or a file descriptor, until it is closed; with ``wait``, once its holder releases it.

    True if this call locked it; False if another process, or another opening of the file, holds the lock; None on a
    file system without locks. A lock ends with its process, also when that is killed.
    """
    from filelock import lock_descriptor

    try:
        return lock_descriptor(file if isinstance(file, int) else file.fileno(), blocking=wait)
    except OSError:
        return None


class Lock:
    """A lock on a folder, which is made if missing: one run at a time writes into it.

    With ``trace`` a file ``.lock`` in it is locked, which stays there; otherwise the folder itself, which does not keep
    two machines apart on a network file system. ``option`` is that of a command which names the folder.
    """

    def __init__(self, folder: Path, *, trace: bool = True, option: str = "--out") -> None:
        self._folder, self._trace, self._option = folder, trace, option
        self._file: int | None = None

    def take(self) -> bool:
        """Take the lock, or raise an `ExciteError`; False if this object holds it already."""
        if self._file is not None:
            return False
        path, flags = (self._folder / ".lock", os.O_RDWR | os.O_CREAT) if self._trace else (self._folder, os.O_RDONLY)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, flags, 0o666)
        except OSError as error:
            reason = error.strerror or error
            raise ExciteError(
                f"cannot write to {str(self._folder)!r}: {reason}; choose another {self._option}"
            ) from None
        if locked(self._file) is False:
            self.release()
            raise ExciteError(
                f"another run is writing {str(self._folder)!r}: wait for it, or use another {self._option}"
            )
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
