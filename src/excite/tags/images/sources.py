"""Sources of images by name: the interface, folders, and web addresses with a cache of fetched files."""

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from PIL import Image

from excite.errors import ExciteError, FetchError, ImageError
from excite.images import decode_image
from excite.io.fetch import fetch_unverified
from excite.io.files import locked

MOST_BYTES = 256 << 20  # of one image file: more is no photo, and a few of them would exhaust memory
WEB = ("http://", "https://")
LONGEST = 120  # characters of a name in an error: a corpus may hold names of a megabyte
LONGEST_PATH = 4096  # no system opens longer ones, and resolving a million folders takes minutes
UNQUOTED = "%/:=&?~#+!$,;'@()*[]"  # characters of an address that are not percent-encoded
MOST_FETCHED = 64_000_000  # bytes of one fetched image
LONGEST_ADDRESS = 2000  # more than servers accept


class ImageSource(Protocol):
    """The images of a corpus by name, which is not trusted. Can be pickled: each worker opens its own files."""

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
        """The decoded image, upright, RGB; an ImageError if it is missing, damaged, too large, or lies elsewhere."""
        return decode_image(self.encoded(name), shown(name))


def shown(name: str) -> str:
    """A name, quoted and cut, for one line of an error."""
    return repr(name if len(name) <= LONGEST else name[:LONGEST] + "...")


def check_size(size: int, name: str) -> None:
    """Refuse an image that would exhaust memory."""
    if size > MOST_BYTES:
        raise ImageError(f"{shown(name)} has more than {MOST_BYTES >> 20} MB: make it smaller")


@dataclass(frozen=True)
class ImageFolder(ImageSource):
    """Images whose names are paths below a root.

    No name leads out of the root: not by ``..``, not as an absolute path, and not through a symbolic link.
    """

    root: Path

    @cached_property
    def _real(self) -> Path:
        return Path(os.path.realpath(self.root))

    def encoded(self, name: str) -> bytes:
        """The bytes of the file."""
        with self._reasons(name):
            return self._file(name)[0].read_bytes()

    def state(self, name: str) -> str:
        """Which file, when it was written, and its size."""
        with self._reasons(name):
            path, about = self._file(name)
        return f"{path} {about.st_mtime_ns} {about.st_size}"

    def _file(self, name: str) -> tuple[Path, os.stat_result]:
        """The file of an image, all links followed."""
        if name.startswith(WEB):
            raise ImageError(f"{shown(name)} lies on the web: fetching is off unless asked for (urls=True, --urls)")
        if not name or "\0" in name:
            raise ImageError(f"{shown(name)} is no name of an image: it is empty, or holds a zero byte")
        if len(name) > LONGEST_PATH:
            raise ImageError(f"{shown(name)} is no name of an image: it is too long ({len(name)} letters)")
        path = Path(os.path.realpath(self._real / name))
        if not path.is_relative_to(self._real):
            raise ImageError(f"{shown(name)} lies outside of {self.root}: images are read from below it only")
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise ImageError(f"{shown(name)} is a folder in {self.root}, not an image")
        if not stat.S_ISREG(about.st_mode):
            raise ImageError(f"{shown(name)} in {self.root} is a pipe or a device, not an image")
        if about.st_size == 0:
            raise ImageError(f"{shown(name)} in {self.root} is empty (0 bytes): copy or download it again")
        check_size(about.st_size, name)
        return path, about

    @contextmanager
    def _reasons(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if not self._real.is_dir():  # all images are missing: stop
                raise ExciteError(f"the folder of images {self.root} is gone: put it back, and start again") from None
            raise ImageError(f"there is no image {shown(name)} in {self.root}") from None
        except (OSError, ValueError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
            raise ImageError(f"{shown(name)} in {self.root} cannot be read: {reason}") from None


@dataclass(frozen=True)
class FetchCache:
    """A folder of fetched files, named by the hash of their addresses and shared by several processes.

    One process fetches a file while the others wait for it. All are dated 1970: the content of an address is taken to
    be constant. fsspec's caches limit neither a file (`most_each`) nor the whole folder (`most_together`).
    """

    folder: Path
    suffix: str
    most_each: int | None = None
    most_together: int | None = None

    def path(self, url: str) -> Path:
        """Where the file is, or would be."""
        return self.folder / f"{hashlib.sha256(url.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}{self.suffix}"

    def get(self, url: str) -> Path:
        """The file, fetched if necessary; a FetchError if that fails."""
        path = self.path(url)
        try:
            if is_new := not path.is_file():
                self.folder.mkdir(parents=True, exist_ok=True)
                with path.with_name(path.name + ".lock").open("ab") as lock:
                    locked(lock, wait=True)
                    fetch_unverified(quote(url, safe=UNQUOTED, errors="replace"), path, self.most_each)
            with suppress(FileNotFoundError):  # another process made room
                os.utime(path, ns=(time.time_ns(), 0))  # records the use
            if is_new and self.most_together is not None:
                self._make_room(path, self.most_together)
        except OSError as error:
            raise FetchError(f"cannot keep {url[:200]} in {self.folder}: {error.strerror or error}") from None
        return path

    def _make_room(self, newest: Path, room: int) -> None:
        """Remove the least recently used files."""
        files = []
        for path in self.folder.glob(f"*{self.suffix}"):
            with suppress(FileNotFoundError):  # another process made room
                about = path.stat()
                files.append((path != newest, -about.st_atime_ns, about.st_size, path))
        for is_old, _, size, path in sorted(files):
            room -= size
            if room < 0 and is_old:
                path.unlink(missing_ok=True)


@dataclass(frozen=True)
class WebImages(ImageSource):
    """Images of another source, or fetched, by addresses that the author of the corpus chose: so this is opt-in."""

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
            return FetchCache(self.cache / "web", ".picture", most_each=MOST_FETCHED).get(name).read_bytes()
        except FetchError as error:
            raise ImageError(f"{shown(name)} cannot be had: {error}") from None
        except OSError as error:
            raise ImageError(f"{shown(name)} cannot be read from {self.cache}: {error.strerror or error}") from None

    def state(self, name: str) -> str:
        """The address, whose content is constant."""
        return name if name.startswith(WEB) else self.others.state(name)
