"""Zip and tar archives, unpacked file by file: never outside of the target folder, and resumable."""

import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from excite.errors import DataError

BROKEN = (  # raised by the libraries for a damaged archive, or one with a password
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
    """The files in a zip or tar archive, in its order; a `DataError` if it is damaged or holds a dangerous name.

    Stricter than the ``data`` filter of `tarfile`: regular files with plain names only, no links even inside of the
    folder, and of each file only its content.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                yield [_zip_member(zipped, entry) for entry in zipped.infolist() if not entry.is_dir()]
        else:
            with tarfile.open(archive) as tarred:
                try:
                    found = [_tar_member(tarred, entry) for entry in tarred if not entry.isdir()]
                except OSError as error:  # gzip and bzip2 raise it for damaged data
                    raise _damaged(archive, error) from None
                yield found
    except BROKEN as error:
        raise _damaged(archive, error) from None


def _damaged(archive: Path, error: Exception) -> DataError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
    return DataError(f"{archive} is no archive that can be unpacked, or is damaged: {reason}")


def _zip_member(zipped: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Member:
    is_regular = stat.S_IFMT(entry.external_attr >> 16) in {0, stat.S_IFREG}
    name = _checked_name(entry.filename, zipped.filename, is_regular=is_regular)
    return Member(name, entry.file_size, lambda: zipped.open(entry))


def _tar_member(tarred: tarfile.TarFile, entry: tarfile.TarInfo) -> Member:
    name = _checked_name(entry.name, tarred.name, is_regular=entry.isreg())
    return Member(name, entry.size, lambda: cast("IO[bytes]", tarred.extractfile(entry)))  # never None: it is regular


def _checked_name(name: str, archive: object, *, is_regular: bool) -> str:
    """The name of a regular file that stays inside of the target folder on any system."""
    if not is_regular:
        raise DataError(f"{archive}: {name!r} is a link or a device, which no data set needs")
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or any(sign in name for sign in "\\:\0"):
        raise DataError(f"{archive}: {name!r} would be written outside of the folder; nothing is unpacked")
    return name


def unpack(found: list[Member], folder: Path) -> Iterator[str]:
    """Write the files of an archive into a folder, but for complete ones; yields each name when it is complete."""
    for member in found:
        path = folder / member.name
        try:
            if not (path.is_file() and path.stat().st_size == member.size):
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_name(path.name + ".part")
                with member.open() as content, partial.open("wb") as file:
                    shutil.copyfileobj(content, file)  # a zip's checksum is verified at the end of each file
                partial.replace(path)
        except OSError as error:
            raise DataError(f"cannot write {str(path)!r}: {error.strerror or error}; start again to resume") from None
        yield member.name
