"""Tables of boxes: lines of text with commas between the columns."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from excite.datasets.base import read_text
from excite.datasets.sample import Box, check_begin, checked_box
from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["Row", "box_of", "box_with_last_pixel", "read_rows"]

Row = tuple[int, list[str]]
"""The number of a line, and its columns."""


def read_rows(path: Path) -> Iterator[Row]:
    """The lines of a table that are not blank, the header too where it has one.

    Raises:
        DataError: the file cannot be read, or is no such table.

    Example:
        >>> next(read_rows(Path("LOC_val_solution.csv")))  # doctest: +SKIP
        (1, ['ImageId', 'PredictionString'])
    """
    lines = csv.reader(io.StringIO(read_text(path)))
    try:
        for columns in lines:
            if columns:
                yield lines.line_num, columns
    except csv.Error as error:
        raise DataError(f"{path}, line {lines.line_num}: {error}") from None


def box_of(corners: Sequence[str], where: str) -> Box:
    """A half-open box whose pixels are counted from 0.

    Example:
        >>> box_of(["1", "2", "3", "4"], "boxes.csv, line 2")
        (1.0, 2.0, 3.0, 4.0)
    """
    x0, y0, x1, y1 = _numbers(corners, where)
    return check_begin(checked_box(x0, y0, x1, y1, where), where)


def box_with_last_pixel(corners: Sequence[str], where: str) -> Box:
    """A box as ImageNet has it: pixels are counted from 0, and the last one is included.

    Example:
        >>> box_with_last_pixel(["0", "0", "499", "374"], "LOC_val_solution.csv, line 2")
        (0.0, 0.0, 500.0, 375.0)
    """
    x0, y0, x1, y1 = _numbers(corners, where)
    return check_begin(checked_box(x0, y0, x1 + 1, y1 + 1, where), where)


def _numbers(corners: Sequence[str], where: str) -> tuple[float, float, float, float]:
    try:
        x0, y0, x1, y1 = (float(corner) for corner in corners)
    except ValueError:
        raise DataError(f"{where}: the corners of a box must be numbers, not {' '.join(corners)[:80]!r}") from None
    return x0, y0, x1, y1
