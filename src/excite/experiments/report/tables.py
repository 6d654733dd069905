"""Tables of results: cells for pages, text for spreadsheets and documentation."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from excite.io.text import for_markdown
from excite.metrics.statistics import Estimate

Lines = list[dict[str, Any]]  # with the same columns

NOTHING = "-"
DASH = "\N{EN DASH}"  # on pages: between the ends of an interval, and for a missing value


@dataclass(frozen=True)
class MethodRow:
    """The row of one method at one layer of one network."""

    model: str  # the network's name; empty for a ranking without one
    method: str  # the method's name
    layer: str  # the layer at which it is read; empty where there is none

    @property
    def key(self) -> tuple[str, str]:
        """The method and the layer."""
        return self.method, self.layer

    @property
    def names(self) -> dict[str, Any]:
        """All three, as the first cells of a line."""
        return {"model": self.model, "method": self.method, "layer": self.layer}


def methods_of(rows: Iterable[MethodRow]) -> list[str]:
    """The methods, in order of occurrence."""
    return list(dict.fromkeys(row.method for row in rows))


def models_of(rows: Iterable[MethodRow]) -> list[str]:
    """The networks, in order of occurrence."""
    return list(dict.fromkeys(row.model for row in rows))


def main_method(rows: Iterable[MethodRow], wanted: Sequence[str]) -> str:
    """The method that the others are compared with: the first of those wanted that is there, or else the first."""
    methods = methods_of(rows)
    return next((method for method in wanted if method in methods), methods[0])


@dataclass(frozen=True)
class Cell:
    """A cell of a table on a page."""

    text: str  # its content
    small: str = ""  # a second line: an interval, or a layer
    rank: int = 0  # 1 for the best of a column (bold), 2 for the second best (underlined)
    heat: float | None = None  # percentage by which it is shaded


@dataclass(frozen=True)
class Table:
    """A table on a page: headings, rows (the first cell names the row), groups of columns, and rows of totals."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    groups: Sequence[tuple[str, int]] = ()
    foot: Sequence[Sequence[Cell | str]] = ()


def ranked(values: Sequence[Estimate | float | None], *, highest: bool = True, zeros: bool = True) -> list[Cell]:
    """A column whose best two values are marked, with intervals; what looks equal is ranked equal."""
    numbers = [value.value if isinstance(value, Estimate) else value for value in values]
    shown = {f"{number:.1f}" for number in numbers if number or (zeros and number is not None)}
    best = sorted(shown, key=float, reverse=highest)[:2] if len(shown) > 1 else []
    ranks = {text: rank for rank, text in enumerate(best, 1)}
    return [estimate_cell(value, ranks) for value in values]


def estimate_cell(value: Estimate | float | None, ranks: Mapping[str, int] | None = None) -> Cell:
    """A value and its interval, if it has one; a dash for None."""
    if value is None:
        return Cell(DASH)
    text = f"{value.value if isinstance(value, Estimate) else value:.1f}"
    small = f"{value.low:.1f}{DASH}{value.high:.1f}" if isinstance(value, Estimate) else ""
    return Cell(text, small, (ranks or {}).get(text, 0))


def heated(values: Sequence[float | None], *, best: bool = True) -> list[Cell]:
    """Percentages as shades, the highest in bold if ``best``; a dash for None."""
    most = max((value or 0.0 for value in values), default=0.0) if best else 0.0
    return [
        Cell(DASH) if value is None else Cell(f"{value:.1f}", rank=int(value == most > 0), heat=value)
        for value in values
    ]


def text_table(lines: Sequence[Mapping[str, str]]) -> Table:
    """Lines with the same columns as a table on a page."""
    return Table(list(lines[0]), [list(line.values()) for line in lines])


def csv_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Lines with the same columns as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def differences_csv(pairs: Iterable[tuple[MethodRow, MethodRow, Mapping[str, Any]]]) -> dict[str, Lines]:
    """``differences.csv``: pairs of rows, each with paired differences; no file where there is one row only."""
    lines = [
        flat({**one.names, "other": other.method, "other_layer": other.layer, **lead}) for one, other, lead in pairs
    ]
    return {"differences.csv": lines} if lines else {}


def markdown_table(lines: Sequence[Mapping[str, str]]) -> str:
    """Lines with the same columns as a Markdown table; whatever they hold is text, and no markup."""
    cells = [list(lines[0]), ["---"] * len(lines[0]), *(list(line.values()) for line in lines)]
    return "\n".join("| " + " | ".join(map(for_markdown, line)) + " |" for line in cells)


def estimate_fields(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """A value and its interval as plain values for JSON, with two decimals."""
    if estimate is None:
        return {name: None, f"{name}_interval": None}
    return {name: round(estimate.value, 2), f"{name}_interval": [round(estimate.low, 2), round(estimate.high, 2)]}


def flat(line: Mapping[str, Any], *, last: bool = False) -> dict[str, Any]:
    """A row without lists: each interval becomes two columns, in its place or after all others."""
    cells: dict[str, Any] = {}
    for name in sorted(line, key=lambda name: last and name.endswith("_interval")):
        measure = name.removesuffix("_interval")
        if measure != name:
            cells[f"{measure}_low"], cells[f"{measure}_high"] = line[name] or (None, None)
        else:
            cells[name] = line[name]
    return cells


def shown(value: float | None) -> str:
    """A value with one decimal, or a dash."""
    return NOTHING if value is None else f"{value:.1f}"
