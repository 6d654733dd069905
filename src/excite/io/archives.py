"""Archives unpacked file by file: nothing outside of the folder, and resumed where it was stopped."""

from __future__ import annotations

import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Member", "members", "unpack"]

BROKEN = (  # what the libraries raise for a damaged archive, or one with a password
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, IndexError, NotImplementedError, OverflowError, RuntimeError, ValueError),
)


@dataclass(frozen=True)
class Member:
    """A file in an archive."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


@contextmanager
def members(archive: Path) -> Iterator[list[Member]]:
    """The files in a zip or tar archive, in its order.

    Stricter than the ``data`` filter of `tarfile`: files with plain names only, no links even inside of the folder, and
    nothing but their content is taken over.

    Raises:
        DataError: It is none, it is broken, or it would write outside of the folder it is unpacked to.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                yield [_of_zip(zipped, entry) for entry in zipped.infolist() if not entry.is_dir()]
        else:
            with tarfile.open(archive) as tarred:
                yield _all_of_tar(tarred, archive)
    except BROKEN as error:
        raise _damaged(archive, error) from None


def _all_of_tar(tarred: tarfile.TarFile, archive: Path) -> list[Member]:
    try:
        return [_of_tar(tarred, entry) for entry in tarred if not entry.isdir()]
    except OSError as error:  # so gzip and bzip2 call damaged data
        raise _damaged(archive, error) from None


def _damaged(archive: Path, error: Exception) -> DataError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
    return DataError(f"{archive} is no archive that can be unpacked, or is damaged: {reason}")


def unpack(found: list[Member], folder: Path) -> Iterator[str]:
    """Put the files of an archive into a folder; the name of each, when it is there.

    A file that is there in full length is left alone: it was moved there when it was whole.

    Raises:
        DataError: A file cannot be written.
    """
    for member in found:
        place = folder / member.name
        try:
            if not (place.is_file() and place.stat().st_size == member.size):
                _write(member, place)
        except OSError as error:
            raise DataError(f"cannot write {str(place)!r}: {error.strerror or error}; start again to resume") from None
        yield member.name


def _write(member: Member, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(place.name + ".part")
    with member.open() as content, partial.open("wb") as file:
        shutil.copyfileobj(content, file)  # a zip's own check of each file is made when its end is read
    partial.replace(place)


def _of_zip(zipped: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Member:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in {0, stat.S_IFREG}:
        raise DataError(f"{zipped.filename}: {entry.filename!r} is a link or a device, which no data set needs")
    return Member(_inside(entry.filename, zipped.filename), entry.file_size, lambda: zipped.open(entry))


def _of_tar(tarred: tarfile.TarFile, entry: tarfile.TarInfo) -> Member:
    name = str(tarred.name)
    if not entry.isreg():
        raise DataError(f"{name}: {entry.name!r} is a link or a device, which no data set needs")

    def opened() -> IO[bytes]:
        content = tarred.extractfile(entry)
        if content is None:
            raise DataError(f"{name}: {entry.name!r} cannot be read")
        return content

    return Member(_inside(entry.name, name), entry.size, opened)


def _inside(name: str, archive: object) -> str:
    """A name that stays in the folder wherever it is unpacked, on any system."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or any(sign in name for sign in "\\:\0"):
        raise DataError(f"{archive}: {name!r} would be written outside of the folder; nothing is unpacked")
    return name
