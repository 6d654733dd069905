"""The tables of grounding as files: for programs, for spreadsheets, and for papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.grounding.grounding_marks import CURVE
from excite.experiments.grounding.report import (
    all_rows,
    answer,
    group_values,
    lines,
    paper_tables,
    sentences,
    titled_tables,
)
from excite.experiments.report.tables import csv_table, markdown_table
from excite.io.files import save_json, save_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from excite.experiments.grounding.grounding_rows import Row
    from excite.experiments.grounding.grounding_run import Run

__all__ = ["write_tables"]


def write_tables(runs: Sequence[Run], out: Path) -> list[Path]:
    """Write ``rows.json``, ``rows.csv``, ``groups.csv``, ``curves.csv`` and ``table.md``.

    The same runs give the same bytes. Without groups there is no table of them.
    """
    rows = all_rows(runs)
    texts = {
        "rows.csv": csv_table([_flat(row.to_dict()) for row in rows]),
        **({"groups.csv": csv_table([group_values(row) for row in rows])} if runs[0].groups else {}),
        "curves.csv": csv_table([line for row in rows for line in _curves(row)]),
        "table.md": _markdown(runs),
    }
    written = [save_json(answer(runs), out / "rows.json")]
    return [*written, *(save_text(text, out / name) for name, text in texts.items())]


def _curves(row: Row) -> Iterator[dict[str, Any]]:
    for number, recall in zip(CURVE, row.all.curve, strict=True):
        yield {"model": row.model, "method": row.method, "boxes": number, "recall": round(recall, 2)}


def _flat(line: dict[str, Any]) -> dict[str, Any]:
    """A row without lists, for spreadsheets."""
    flat: dict[str, Any] = {}
    for name, value in line.items():
        if name.endswith("_interval"):
            measure = name.removesuffix("_interval")
            flat[f"{measure}_low"], flat[f"{measure}_high"] = (None, None) if value is None else value
        else:
            flat[name] = value
    return flat


def _markdown(runs: Sequence[Run]) -> str:
    """All tables, in any case with the paper's."""
    parts = [markdown_table(lines(runs))]
    for title, table in (titled_tables(runs) | paper_tables()).items():
        parts += [f"{title[0].upper()}{title[1:]}:", markdown_table(table)]
    return "\n\n".join([*parts, "\n".join(f"- {said}" for said in sentences(runs))]) + "\n"
