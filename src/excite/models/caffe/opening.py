"""Opening a file that should be one of Caffe's, and saying what it is where it is something else."""

import mmap
import re
from os import PathLike
from pathlib import Path

from excite.errors import ModelError

__all__ = ["mapped", "text_in"]

LARGEST_TEXT = 2**22  # the largest networks have a tenth of that
LONGEST_LINE = 2**20  # protobuf takes 140 bytes of memory for each blank of a line
HEAD = 4096
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")  # in every binary model near its beginning, in no text


def mapped(path: str | PathLike[str]) -> memoryview:
    """The bytes of a .caffemodel, read from the disk when they are looked at.

    Raises:
        ModelError: There is no such file, or it is plainly something else.
    """
    _check_file(path)
    try:
        with Path(path).open("rb") as stream:
            bytes_ = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be opened: {error}.") from error
    head = bytes(bytes_[:HEAD])
    _check_download(head, path)
    if not CONTROL.search(head):
        raise ModelError(f"{path} is text, as a .prototxt is: the weights are in the binary .caffemodel beside it.")
    return bytes_


def text_in(path: str | PathLike[str]) -> str:
    """The text of a .prototxt.

    Raises:
        ModelError: There is no such file, or it is plainly something else.
    """
    _check_file(path)
    try:
        with Path(path).open("rb") as stream:
            bytes_ = stream.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise ModelError(f"{path} cannot be opened: {error}.") from error
    _check_download(bytes_[:HEAD], path)
    control = CONTROL.search(bytes_)
    if control:
        raise ModelError(
            f"{path} is binary (byte {control.start()} is {control.group()[0]:#04x}), as a .caffemodel is: "
            "the network is described by the .prototxt beside it."
        )
    if len(bytes_) > LARGEST_TEXT:
        raise ModelError(f"{path} is larger than {LARGEST_TEXT} bytes: no .prototxt is.")
    if max(map(len, bytes_.split(b"\n"))) > LONGEST_LINE:
        raise ModelError(f"{path} has a line of more than {LONGEST_LINE} bytes: no .prototxt has.")
    try:
        return bytes_.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 at byte {error.start}: save it as UTF-8.") from error


def _check_file(path: str | PathLike[str]) -> None:
    """Only a regular file with something in it: a pipe would block, a device has no end."""
    file = Path(path)
    try:
        exists, size = file.exists(), file.stat().st_size if file.exists() else 0
    except OSError as error:
        raise ModelError(f"{path} cannot be opened: {error}.") from error
    if not exists:
        raise ModelError(f"There is no file {path}.")
    if not file.is_file():
        raise ModelError(f"{path} is a {'folder' if file.is_dir() else 'device'}, not a file.")
    if not size:
        raise ModelError(f"{path} is empty: get it again.")


def _check_download(head: bytes, path: str | PathLike[str]) -> None:
    if head.startswith(b"version https://git-lfs"):
        raise ModelError(f"{path} is a Git LFS pointer, not the file itself: run 'git lfs pull' where it came from.")
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise ModelError(f"{path} is a web page, not the file itself: get it again from a link to the file.")
