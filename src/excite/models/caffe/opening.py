"""Opening a file that should be one of Caffe's, and saying what it is where it is something else."""

import mmap
import re
from os import PathLike
from pathlib import Path

from excite.errors import ModelError
from excite.models.files import check_download, check_file

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
    check_file(path)
    try:
        with Path(path).open("rb") as stream:
            bytes_ = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be opened: {error}.") from error
    head = bytes(bytes_[:HEAD])
    check_download(head, path)
    if not CONTROL.search(head):
        raise ModelError(f"{path} is text, as a .prototxt is: the weights are in the binary .caffemodel beside it.")
    return bytes_


def text_in(path: str | PathLike[str]) -> str:
    """The text of a .prototxt.

    Raises:
        ModelError: There is no such file, or it is plainly something else.
    """
    check_file(path)
    try:
        with Path(path).open("rb") as stream:
            bytes_ = stream.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise ModelError(f"{path} cannot be opened: {error}.") from error
    check_download(bytes_[:HEAD], path)
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
