"""What a state dict would call, looked at before torch reads it.

torch refuses a file that calls anything but tensors, and then searches its own message for advice, in a time that grows
with the square of the name that the file has chosen: 15 kilobytes take five seconds.
"""

from __future__ import annotations

import pickletools
import zipfile
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["names_too_long"]

MOST_LETTERS = 500  # torch's own names have thirty
PICKLES = 5  # so many stand at the beginning of a file from before 2020
CALLS = {"GLOBAL", "INST"}
UNENDED = "no newline found"  # as pickletools says it


def names_too_long(file: BinaryIO) -> bool:
    r"""Whether a state dict calls something by a name that nobody has; the file is at its beginning again then.

    Example:
        >>> import io
        >>> names_too_long(io.BytesIO(b"cos\nsystem\n."))
        False
    """
    try:
        return any(len(name) > MOST_LETTERS for name in _names(file))
    except Exception as error:  # noqa: BLE001 - damaged files fail in any way there is, and torch is the one to say how
        return UNENDED in str(error)  # but of a line without an end it takes all the rest for the name
    finally:
        file.seek(0)


def _names(file: BinaryIO) -> Iterator[str]:
    if file.read(2) == b"PK":
        with zipfile.ZipFile(file) as zipped:
            for name in zipped.namelist():
                if name.endswith("/data.pkl"):
                    yield from _called(zipped.read(name))
        return
    file.seek(0)
    for _ in range(PICKLES):
        yield from _called(file)


def _called(pickled: Any) -> Iterator[str]:
    return (str(name) for operation, name, _ in pickletools.genops(pickled) if operation.name in CALLS)
