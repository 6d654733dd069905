"""Where each picture of a tar file begins, so that any of them can be read at once.

An index is one row of numbers in NumPy's own format, which any number of processes map into their memory and share:
what it is an index of, then the pictures' names as 64-bit hashes in increasing order, their offsets, and their sizes.
17 million pictures take 800 MB that way, and no process has to hold them.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excite.errors import DataError
from excite.images import PICTURE_SUFFIXES
from excite.io.files import save_npy
from excite.tags.images.base import read_at
from excite.tags.images.naming import as_key, split_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["TarIndex", "found_at", "hash_of", "make_index", "read_index"]

Numbers = NDArray[np.uint64]

VERSION = 1
BLOCK = 512
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True, eq=False)
class TarIndex:
    """The pictures of one tar file.

    Attributes:
        size: how many bytes the file had.
        written: when it was written, in nanoseconds.
        hashes: of the names, increasing.
        offsets: where the pictures begin.
        sizes: how many bytes they have.
    """

    size: int
    written: int
    hashes: Numbers
    offsets: Numbers
    sizes: Numbers

    def fits(self, about: os.stat_result) -> bool:
        """Whether the file is still the one that was looked through."""
        return (self.size, self.written) == (about.st_size, about.st_mtime_ns)

    def find(self, names: Iterable[str]) -> tuple[int, int] | None:
        """Offset and size of the first of the names that there is."""
        for name in names:
            if (row := found_at(self.hashes, hash_of(name))) is not None:
                return int(self.offsets[row]), int(self.sizes[row])
        return None

    def save(self, path: Path) -> None:
        """Write it as one row of numbers."""
        facts = np.array([VERSION, self.size, self.written, len(self.hashes)], np.uint64)
        save_npy(np.concatenate([facts, self.hashes, self.offsets, self.sizes]), path)


def hash_of(name: str) -> int:
    """A name as a number. Among 17 million pictures two share one with a chance of 1 in 100,000."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def found_at(hashes: Numbers, wanted: int) -> int | None:
    """The first place of a number among increasing ones."""
    row = int(np.searchsorted(hashes, np.uint64(wanted)))
    return row if row < len(hashes) and int(hashes[row]) == wanted else None


def read_index(path: Path) -> TarIndex | None:
    """An index that was saved; None where there is none, or it is not one of this version."""
    try:
        with warnings.catch_warnings(action="ignore"):  # NumPy's, about a shape that no file can have
            numbers: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception:  # noqa: BLE001 - errors of all kinds for a damaged file; it is made anew, like one that does not fit
        return None
    if numbers.dtype != np.uint64 or numbers.ndim != 1 or len(numbers) < 4 or numbers[0] != VERSION:
        return None
    _, size, written, count = map(int, numbers[:4])
    if len(numbers) != 4 + 3 * count:
        return None
    return TarIndex(size, written, *(numbers[4 + part * count : 4 + (part + 1) * count] for part in range(3)))


def make_index(path: Path) -> TarIndex:
    """Look through the headers of a tar file; the pictures themselves are not read.

    Raises:
        DataError: it cannot be read, is compressed, or is damaged.
    """
    try:
        with path.open("rb", buffering=0) as file:
            about = os.fstat(file.fileno())
            _refuse_compressed(file.read(8), path)
            rows = [(hash_of(name), offset, size) for name, offset, size in _pictures(path)]
    except (OSError, tarfile.TarError, ValueError, OverflowError) as error:
        raise DataError(f"cannot read the shard {path}: {' '.join(str(error).split())}") from None
    columns = np.array(rows, np.uint64).reshape(-1, 3).T
    hashes, first = np.unique(columns[0], return_index=True)  # of a name that is there twice, the first
    return TarIndex(about.st_size, about.st_mtime_ns, hashes, columns[1][first], columns[2][first])


def _pictures(path: Path) -> Iterator[tuple[str, int, int]]:
    """The pictures of a tar file by their whole names; then by their keys."""
    by_key = []
    with tarfile.open(path, "r:") as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # it would remember all; typeshed lacks it
            if member.size < 0:
                raise tarfile.ReadError("a file in it has fewer than no bytes")
            name = member.name.removeprefix("./")
            key, rest = split_key(name)
            if not member.isreg() or member.issparse() or not _is_picture(rest):
                continue
            yield name, member.offset_data, member.size
            if "." not in rest:
                by_key.append((as_key(key), member.offset_data, member.size))
        _check_end(path, tar.offset)
    yield from by_key


def _is_picture(rest: str) -> bool:
    return f".{rest.rpartition('.')[2]}".lower() in PICTURE_SUFFIXES


def _check_end(path: Path, offset: int) -> None:
    """After the last file there is nothing, or zeros: a damaged header otherwise looks like the end."""
    file = os.open(path, os.O_RDONLY)
    try:
        if any(read_at(file, offset, BLOCK)):
            raise DataError(f"the shard {path} is damaged at byte {offset}: copy or download it again")
    finally:
        os.close(file)


def _refuse_compressed(beginning: bytes, path: Path) -> None:
    for magic, kind in COMPRESSED.items():
        if beginning.startswith(magic):
            raise DataError(f"the shard {path} is compressed ({kind}): unpack it, pictures are read here and there")
