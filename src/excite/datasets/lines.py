"""Lines of files of annotations."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from excite.datasets.base import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["read_lines"]


def read_lines(path: Path) -> Iterator[str]:
    r"""The lines of a file, without their ends, which may be those of any system.

    ``str.splitlines`` breaks also at rarer characters, such as U+2028, which JSON and captions may have in their words.

    Raises:
        DataError: the file cannot be read, or is no UTF-8 text.

    Example:
        >>> Path("said.txt").write_bytes("a dog\r\na\u2028cat".encode())  # doctest: +SKIP
        >>> list(read_lines(Path("said.txt")))  # doctest: +SKIP
        ['a dog', 'a\u2028cat']
    """
    return (line.removesuffix("\n") for line in io.StringIO(read_text(path), newline=None))
