"""What every place of images can do, and how its errors name them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from excite.errors import ExciteError, FetchError, ImageError
from excite.images import decode_image
from excite.io.fetch import fetch_unverified

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL import Image


MOST_BYTES = 256 << 20  # of one encoded image: more is no photo, and a few of them at once would fill the memory
WEB = ("http://", "https://")
LONGEST = 120  # letters of a name in an error: a corpus may hold names of a megabyte


class Pictures(Protocol):
    """The images a corpus names, wherever they lie. Can be pickled: each worker opens its own files.

    Nothing in a name is trusted: whatever it is, reading gives that image of this place, or an `ImageError` in one
    line.
    """

    @property
    def groups(self) -> int:
        """How many groups there are; their numbers begin at 0."""

    def group(self, name: str) -> int:
        """Pictures with the same number lie together and are best read one after the other: those of one shard."""

    def encoded(self, name: str) -> bytes:
        """The image as it is stored."""

    def state(self, name: str) -> str:
        """Changes when the image does, and costs much less than to read it."""

    def read(self, name: str) -> Image.Image:
        """The image as a person would see it: upright, RGB.

        Raises:
            ImageError: it is missing, damaged, too large, or lies elsewhere.
        """
        return decode_image(self.encoded(name), shown(name))


def shown(name: str) -> str:
    """A name for one line of an error.

    Example:
        >>> shown("cat.jpg")
        "'cat.jpg'"
        >>> len(shown("x" * 1_000_000))
        125
    """
    return repr(name if len(name) <= LONGEST else name[:LONGEST] + "...")


def too_large(name: str) -> ImageError:
    """The refusal of an image that would fill the memory."""
    return ImageError(f"{shown(name)} has more than {MOST_BYTES >> 20} MB: make it smaller")


def read_at(file: int, offset: int, size: int) -> bytes:
    """Some bytes of an opened file, without a position that several readers would share; fewer where it ends."""
    parts = []
    while size and (part := os.pread(file, size, offset)):
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)


# Images below a folder, and never beside it.

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
        """Where the image really lies, all links followed."""
        if name.startswith(WEB):
            raise ImageError(f"{shown(name)} lies on the web: fetching is off unless asked for (urls=True, --urls)")
        if not name or "\0" in name:
            raise ImageError(f"{shown(name)} is no name of an image: it is empty, or holds a zero byte")
        if len(name) > LONGEST_PATH:  # to follow a million folders would take minutes
            raise ImageError(f"{shown(name)} is no name of an image: it is too long ({len(name)} letters)")
        try:
            place = os.path.realpath(Path(self._real, name))
        except (OSError, ValueError) as error:
            raise self._unreadable(error, name) from None
        if os.path.commonpath([place, self._real]) != self._real:
            raise ImageError(f"{shown(name)} lies outside of {self.root}: images are read from below it only")
        return Path(place)

    def _check(self, about: os.stat_result, name: str) -> None:
        if stat.S_ISDIR(about.st_mode):
            raise ImageError(f"{shown(name)} is a folder in {self.root}, not an image")
        if not stat.S_ISREG(about.st_mode):
            raise ImageError(f"{shown(name)} in {self.root} is a pipe or a device, not an image")
        if about.st_size == 0:
            raise ImageError(f"{shown(name)} in {self.root} is empty (0 bytes): copy or download it again")
        if about.st_size > MOST_BYTES:
            raise too_large(name)

    def _unreadable(self, error: OSError | ValueError, name: str) -> ImageError:
        if isinstance(error, FileNotFoundError):
            if not os.path.isdir(self._real):  # noqa: PTH112 - not one image is missing, but all: nobody shall go on
                raise ExciteError(f"the folder of images {self.root} is gone: put it back, and start again")
            return ImageError(f"there is no image {shown(name)} in {self.root}")
        reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
        return ImageError(f"{shown(name)} in {self.root} cannot be read: {reason}")


# Files from the net in a folder that several processes share, and that does not grow without end.

AS_THEY_ARE = "%/:=&?~#+!$,;'@()*[]"  # in an address; other letters, such as spaces, have to be written by their bytes


@dataclass(frozen=True)
class Fetched:
    """A folder of fetched files, named by a hash of their addresses.

    One process fetches a file while the others that want it wait. A file that is removed to make room stays readable
    for whoever has it open. All are dated 1970: what was fetched from one address is taken to be the same for ever.

    Args:
        folder: where they are kept.
        suffix: what their names end in.
        most_each: how many bytes each may have.
        most_together: how many bytes all may have; those that were not used for longest are removed.
    """

    folder: Path
    suffix: str
    most_each: int | None = None
    most_together: int | None = None

    def place(self, url: str) -> Path:
        """Where the file is, or would be."""
        return self.folder / f"{hashlib.sha256(url.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}{self.suffix}"

    def get(self, url: str) -> Path:
        """The file, from the folder or else from the net.

        Raises:
            FetchError: it cannot be had.
        """
        place = self.place(url)
        try:
            if not self._use(place):
                self.folder.mkdir(parents=True, exist_ok=True)
                with _locked(place.with_name(place.name + ".lock")):
                    fetch_unverified(quote(url, safe=AS_THEY_ARE, errors="replace"), place, self.most_each)
                    self._use(place)
                    self._make_room(place)
        except OSError as error:
            raise FetchError(f"cannot keep {url[:200]} in {self.folder}: {error.strerror or error}") from None
        return place

    def _use(self, place: Path) -> bool:
        """Note that the file was wanted now; False if it is not there."""
        try:
            os.utime(place, ns=(time.time_ns(), 0))
        except FileNotFoundError:
            return False
        return True

    def _make_room(self, newest: Path) -> None:
        if self.most_together is None:
            return
        files = []
        for path in self.folder.glob(f"*{self.suffix}"):
            try:
                about = path.stat()
            except FileNotFoundError:  # another process made room
                continue
            files.append((path != newest, about.st_atime_ns, about.st_size, path))
        room = self.most_together
        for _, _, size, path in sorted(files, key=lambda file: (file[0], -file[1])):  # the newest first
            room -= size
            if room < 0 and path != newest:
                path.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait for the other processes; a lock ends with its process, also when that is killed."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


# Images that a corpus names by their web addresses.

MOST_FETCHED = 64_000_000
LONGEST_ADDRESS = 2000  # more than servers take


@dataclass(frozen=True)
class Linked(Pictures):
    """Pictures of another place, or fetched where their names are web addresses.

    Whoever wrote the corpus decides which addresses this machine asks for, also inside its own network: so this has to
    be asked for.

    Args:
        others: where the images lie whose names are no addresses.
        cache: where fetched images are kept; each is fetched once.

    Example:
        >>> Linked(open_pictures("photos"), Path("cache")).read("https://example.org/cat.jpg")  # doctest: +SKIP
    """

    others: Pictures
    cache: Path

    @property
    def groups(self) -> int:
        """As many as the other images have."""
        return self.others.groups

    def group(self, name: str) -> int:
        """That of the other images; the fetched ones are in the first."""
        return 0 if name.startswith(WEB) else self.others.group(name)

    def encoded(self, name: str) -> bytes:
        """The bytes that the address gave."""
        if not name.startswith(WEB):
            return self.others.encoded(name)
        if len(name) > LONGEST_ADDRESS:
            raise ImageError(f"{shown(name)} cannot be had: the address is too long ({len(name)} letters)")
        try:
            return self._fetched.get(name).read_bytes()
        except FetchError as error:
            raise ImageError(f"{shown(name)} cannot be had: {error}") from None
        except OSError as error:
            raise ImageError(f"{shown(name)} cannot be read from {self.cache}: {error.strerror or error}") from None

    def state(self, name: str) -> str:
        """The address: what it gives is fetched once."""
        return name if name.startswith(WEB) else self.others.state(name)

    @cached_property
    def _fetched(self) -> Fetched:
        return Fetched(self.cache / "web", ".picture", most_each=MOST_FETCHED)
