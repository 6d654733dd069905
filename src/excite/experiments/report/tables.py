"""Tables as text: for spreadsheets, and for pages of documentation."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["csv_table", "markdown_table"]


def csv_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Lines with the same columns as CSV, under the names of the columns.

    Example:
        >>> csv_table([{"method": "mwp", "pairs": 3}]).splitlines()
        ['method,pairs', 'mwp,3']
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def markdown_table(lines: Sequence[Mapping[str, str]]) -> str:
    """Lines with the same columns as Markdown, under the names of the columns.

    Example:
        >>> print(markdown_table([{"method": "mwp", "pairs": "3"}]))
        | method | pairs |
        | --- | --- |
        | mwp | 3 |
    """
    cells = [list(lines[0]), ["---"] * len(lines[0]), *(list(line.values()) for line in lines)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells)
