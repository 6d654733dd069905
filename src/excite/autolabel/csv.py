"""A table: one line for each box, half-open in pixels counted from 0."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from excite.errors import DataError

if TYPE_CHECKING:
    from excite.autolabel.document import Document
    from excite.autolabel.files import Content

__all__ = ["files"]

COLUMNS = "image,width,height,concept,probability,x0,y0,x1,y1"


def files(document: Document) -> dict[str, Content]:
    r"""The one file. All text is in quotes, so that commas and line breaks in names do no harm.

    Raises:
        DataError: the name of a picture is no Unicode text.

    Example:
        >>> from excite.autolabel import Document
        >>> files(Document((), ("dog",)))
        {'boxes.csv': b'image,width,height,concept,probability,x0,y0,x1,y1\n'}
    """
    table = io.StringIO()
    table.write(f"{COLUMNS}\n")
    rows = csv.writer(table, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    for one in document.pictures:
        name = _checked(one.picture.name)
        rows.writerows([name, *one.size, found.concept, found.probability, *found.box] for found in one.boxes)
    return {"boxes.csv": table.getvalue().encode()}


def _checked(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(f"the name {name!r} is no Unicode text, as CSV needs it: rename it, or use coco") from None
    return name
