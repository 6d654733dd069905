"""Sources of images by name: the interface, folders, and web addresses with a cache of fetched files."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from excite.errors import ExciteError, FetchError, ImageError
from excite.images import decode_image
from excite.io.fetch import fetch_unverified
from excite.io.locks import locked

if TYPE_CHECKING:
    from PIL import Image


MOST_BYTES = 256 << 20  # of one image file: more is no photo, and a few of them would exhaust memory
WEB = ("http://", "https://")
LONGEST = 120  # characters of a name in an error: a corpus may hold names of a megabyte
LONGEST_PATH = 4096  # no system opens longer ones
UNQUOTED = "%/:=&?~#+!$,;'@()*[]"  # characters of an address that are not percent-encoded
MOST_FETCHED = 64_000_000  # bytes of one fetched image
LONGEST_ADDRESS = 2000  # more than servers accept


class ImageSource(Protocol):
    """The images of a corpus by name. Can be pickled: each worker opens its own files.

    Names are not trusted: reading gives an image of this source, or an `ImageError` in one line.
    """

    @property
    def groups(self) -> int:
        """The number of groups; they are numbered from 0."""
        return 1

    def group(self, name: str) -> int:  # noqa: ARG002 - for other sources
        """The group of an image: those of one shard are best read one after the other."""
        return 0

    def encoded(self, name: str) -> bytes:
        """The bytes of the image file."""

    def state(self, name: str) -> str:
        """Changes when the image does; much cheaper than reading it."""

    def read(self, name: str) -> Image.Image:
        """The decoded image, upright, RGB.

        Raises:
            ImageError: it is missing, damaged, too large, or lies elsewhere.
        """
        return decode_image(self.encoded(name), shown(name))


def shown(name: str) -> str:
    """A name, quoted and cut, for one line of an error.

    Example:
        >>> shown("cat.jpg")
        "'cat.jpg'"
        >>> len(shown("x" * 1_000_000))
        125
    """
    return repr(name if len(name) <= LONGEST else name[:LONGEST] + "...")


def too_large(name: str) -> ImageError:
    """The error for an image that would exhaust memory."""
    return ImageError(f"{shown(name)} has more than {MOST_BYTES >> 20} MB: make it smaller")


def read_at(file: int, offset: int, size: int) -> bytes:
    """Bytes of an open file, without a shared position; fewer at its end."""
    parts = []
    while size and (part := os.pread(file, size, offset)):
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)


@dataclass(frozen=True)
class ImageFolder(ImageSource):
    """Images whose names are paths below a root.

    A corpus may come from anywhere, so no name leads out of the root: not by ``..``, not as an absolute path, and not
    through a symbolic link. Links that stay inside are followed.
    """

    root: Path
    _real: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_real", os.path.realpath(self.root))

    def encoded(self, name: str) -> bytes:
        """The bytes of the file."""
        try:
            # without blocking: the file may have become a pipe
            file = os.open(self._resolve(name), os.O_RDONLY | os.O_NONBLOCK)
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
        path = self._resolve(name)
        try:
            about = path.stat()
        except (OSError, ValueError) as error:
            raise self._unreadable(error, name) from None
        self._check(about, name)
        return f"{path} {about.st_mtime_ns} {about.st_size}"

    def _resolve(self, name: str) -> Path:
        """The path of the image, all links followed."""
        if name.startswith(WEB):
            raise ImageError(f"{shown(name)} lies on the web: fetching is off unless asked for (urls=True, --urls)")
        if not name or "\0" in name:
            raise ImageError(f"{shown(name)} is no name of an image: it is empty, or holds a zero byte")
        if len(name) > LONGEST_PATH:  # resolving a million folders takes minutes
            raise ImageError(f"{shown(name)} is no name of an image: it is too long ({len(name)} letters)")
        try:
            path = os.path.realpath(Path(self._real, name))
        except (OSError, ValueError) as error:
            raise self._unreadable(error, name) from None
        if os.path.commonpath([path, self._real]) != self._real:
            raise ImageError(f"{shown(name)} lies outside of {self.root}: images are read from below it only")
        return Path(path)

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
            if not os.path.isdir(self._real):  # noqa: PTH112 - all images are missing: stop
                raise ExciteError(f"the folder of images {self.root} is gone: put it back, and start again")
            return ImageError(f"there is no image {shown(name)} in {self.root}")
        reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
        return ImageError(f"{shown(name)} in {self.root} cannot be read: {reason}")


@dataclass(frozen=True)
class FetchCache:
    """A folder of fetched files, named by the hash of their addresses and shared by several processes.

    One process fetches a file while the others wait for it. A file that is removed to make room stays readable while it
    is open. All are dated 1970: the content of an address is taken to be constant.

    Args:
        folder: of the files.
        suffix: of their names.
        most_each: the size limit of a file, in bytes.
        most_together: the size limit of the folder; the least recently used files are removed.
    """

    folder: Path
    suffix: str
    most_each: int | None = None
    most_together: int | None = None

    def path(self, url: str) -> Path:
        """Where the file is, or would be."""
        return self.folder / f"{hashlib.sha256(url.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}{self.suffix}"

    def get(self, url: str) -> Path:
        """The file, fetched if necessary.

        Raises:
            FetchError: it cannot be fetched.
        """
        path = self.path(url)
        try:
            if not self._touch(path):
                self.folder.mkdir(parents=True, exist_ok=True)
                with path.with_name(path.name + ".lock").open("ab") as lock:
                    locked(lock, wait=True)
                    fetch_unverified(quote(url, safe=UNQUOTED, errors="replace"), path, self.most_each)
                    self._touch(path)
                    self._make_room(path)
        except OSError as error:
            raise FetchError(f"cannot keep {url[:200]} in {self.folder}: {error.strerror or error}") from None
        return path

    def _touch(self, path: Path) -> bool:
        """Record the use of a file in its access time; False if it is missing."""
        try:
            os.utime(path, ns=(time.time_ns(), 0))
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


@dataclass(frozen=True)
class WebImages(ImageSource):
    """Images of another source, or fetched where their names are web addresses.

    The author of the corpus chooses the addresses, also inside the local network: so this is opt-in.

    Args:
        others: the source of all other images.
        cache: the folder for fetched images; each is fetched once.
    """

    others: ImageSource
    cache: Path

    @property
    def groups(self) -> int:
        """Those of the other source."""
        return self.others.groups

    def group(self, name: str) -> int:
        """That of the other source; 0 for fetched images."""
        return 0 if name.startswith(WEB) else self.others.group(name)

    def encoded(self, name: str) -> bytes:
        """The bytes of the file, fetched if necessary."""
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
        """The address, whose content is constant."""
        return name if name.startswith(WEB) else self.others.state(name)

    @cached_property
    def _fetched(self) -> FetchCache:
        return FetchCache(self.cache / "web", ".picture", most_each=MOST_FETCHED)
