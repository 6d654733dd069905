"""The formats in which boxes can be written. A new one is one file here and one line in `FORMATS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.autolabel import coco, csv, voc
from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from excite.autolabel.document import Document
    from excite.autolabel.files import Content

    Format = Callable[[Document], dict[str, Content]]

__all__ = ["FORMATS", "find_format"]

FORMATS: Mapping[str, Format] = {
    "coco": coco.files,
    "csv": csv.files,
    "voc": voc.files,
}
"""For each, what its files hold, by their names below the folder; files that name others come after them."""


def find_format(name: str) -> Format:
    """The format of this name.

    Example:
        >>> find_format("coco") is FORMATS["coco"]
        True
    """
    if name not in FORMATS:
        raise DataError(f"there is no format {name!r}: use one of {', '.join(FORMATS)}")
    return FORMATS[name]
