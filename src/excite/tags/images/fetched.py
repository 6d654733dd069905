"""Files from the net in a folder that several processes share, and that does not grow without end."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from excite.errors import FetchError
from excite.io.fetch import fetch_unknown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Fetched"]

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
                    fetch_unknown(quote(url, safe=AS_THEY_ARE, errors="replace"), place, self.most_each)
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
