"""Tables as text, for spreadsheets and for documentation, and the files of an experiment."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from excite.io.files import save_json, save_text
from excite.io.text import for_markdown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from excite.experiments.base import ExperimentRun

NOTHING = "-"


def csv_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Lines with the same columns as CSV with a header.

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
    """Lines with the same columns as a Markdown table; whatever they hold is text, and no markup.

    Example:
        >>> print(markdown_table([{"method": "mwp", "pairs": "3"}]))
        | method | pairs |
        | --- | --- |
        | mwp | 3 |
    """
    cells = [list(lines[0]), ["---"] * len(lines[0]), *(list(line.values()) for line in lines)]
    return "\n".join("| " + " | ".join(map(for_markdown, line)) + " |" for line in cells)


def write_tables(out: Path, answer: Mapping[str, Any], texts: Mapping[str, str]) -> list[Path]:
    """Write ``rows.json`` and the other tables by file name; the same values give the same bytes."""
    return [save_json(answer, out / "rows.json"), *(save_text(text, out / name) for name, text in texts.items())]


def per_network(runs: Sequence[ExperimentRun], *keys: str) -> dict[str, dict[str, Any]]:
    """For each key of the runs' facts its value for each network."""
    return {key: {run.classifier_name: run.about[key] for run in runs} for key in keys}


def flat(line: Mapping[str, Any], *, last: bool = False) -> dict[str, Any]:
    """A row without lists: each interval becomes two columns, in its place or after all others.

    Example:
        >>> flat({"r1": 5.0, "r1_interval": [4.0, 6.0]})
        {'r1': 5.0, 'r1_low': 4.0, 'r1_high': 6.0}
    """
    cells: dict[str, Any] = {}
    order = sorted(line, key=lambda name: name.endswith("_interval")) if last else line
    for name in order:
        measure = name.removesuffix("_interval")
        if measure != name:
            cells[f"{measure}_low"], cells[f"{measure}_high"] = line[name] or (None, None)
        else:
            cells[name] = line[name]
    return cells


def shown(value: float | None) -> str:
    """A value with one decimal, or a dash."""
    return NOTHING if value is None else f"{value:.1f}"
