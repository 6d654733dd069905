"""Pictures below a folder, and never beside it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from excite.errors import ExciteError, ImageError
from excite.tags.images.base import MOST_BYTES, WEB, Pictures, read_at, shown, too_large

__all__ = ["Folder"]

LONGEST_PATH = 4096  # no system opens longer ones


@dataclass(frozen=True)
class Folder(Pictures):
    """Pictures whose names are paths below a root.

    A corpus may come from anywhere, so a name must not lead out of the root: not by ``..``, not as an absolute path,
    and not through a symbolic link inside. Links that stay inside are followed.

    Args:
        root: the folder.

    Example:
        >>> Folder(Path("photos")).read("2024/cat.jpg")  # doctest: +SKIP
    """

    root: Path
    _real: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_real", os.path.realpath(self.root))

    @property
    def groups(self) -> int:
        """All is one group."""
        return 1

    def group(self, name: str) -> int:  # noqa: ARG002 - what other places need
        """All is one group."""
        return 0

    def encoded(self, name: str) -> bytes:
        """The bytes of the file."""
        try:
            # without waiting: what was a file a moment ago may be a pipe that nobody ever writes to
            file = os.open(self._place(name), os.O_RDONLY | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise self._unreadable(error, name) from None
        try:
            about = os.fstat(file)
            self._check(about, name)
            return read_at(file, 0, about.st_size)
        except OSError as error:
            raise self._unreadable(error, name) from None
        finally:
            os.close(file)

    def state(self, name: str) -> str:
        """Which file, when it was written, and its size."""
        place = self._place(name)
        try:
            about = place.stat()
        except (OSError, ValueError) as error:
            raise self._unreadable(error, name) from None
        self._check(about, name)
        return f"{place} {about.st_mtime_ns} {about.st_size}"

    def _place(self, name: str) -> Path:
        """Where the picture really lies, all links followed."""
        if name.startswith(WEB):
            raise ImageError(f"{shown(name)} lies on the web: fetching is off unless asked for (urls=True, --urls)")
        if not name or "\0" in name:
            raise ImageError(f"{shown(name)} is no name of a picture: it is empty, or holds a zero byte")
        if len(name) > LONGEST_PATH:  # to follow a million folders would take minutes
            raise ImageError(f"{shown(name)} is no name of a picture: it is too long ({len(name)} letters)")
        try:
            place = os.path.realpath(Path(self._real, name))
        except (OSError, ValueError) as error:
            raise self._unreadable(error, name) from None
        if os.path.commonpath([place, self._real]) != self._real:
            raise ImageError(f"{shown(name)} lies outside of {self.root}: pictures are read from below it only")
        return Path(place)

    def _check(self, about: os.stat_result, name: str) -> None:
        if stat.S_ISDIR(about.st_mode):
            raise ImageError(f"{shown(name)} is a folder in {self.root}, not a picture")
        if not stat.S_ISREG(about.st_mode):
            raise ImageError(f"{shown(name)} in {self.root} is a pipe or a device, not a picture")
        if about.st_size == 0:
            raise ImageError(f"{shown(name)} in {self.root} is empty (0 bytes): copy or download it again")
        if about.st_size > MOST_BYTES:
            raise too_large(name)

    def _unreadable(self, error: OSError | ValueError, name: str) -> ImageError:
        if isinstance(error, FileNotFoundError):
            if not os.path.isdir(self._real):  # noqa: PTH112 - not one picture is missing, but all: nobody shall go on
                raise ExciteError(f"the folder of pictures {self.root} is gone: put it back, and start again")
            return ImageError(f"there is no picture {shown(name)} in {self.root}")
        reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
        return ImageError(f"{shown(name)} in {self.root} cannot be read: {reason}")
