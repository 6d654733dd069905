"""The tables of the Pointing Game: for the terminal, for programs, and for papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.base import failures_of, left_out_words
from excite.experiments.pointing.scores import wins
from excite.experiments.report.tables import csv_table, markdown_table
from excite.io.files import save_json, save_text
from excite.metrics.pointing_bootstrap import RESAMPLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from excite.experiments.pointing.scores import Row, Run
    from excite.metrics.statistics import Estimate

    Line = Mapping[str, Any]

__all__ = ["answer", "by_network", "columns", "left_out_lines", "sentences", "write_tables"]


def answer(runs: Sequence[Run]) -> dict[str, Any]:
    """All of it as plain values for JSON; nothing in it depends on when and where it was made."""
    about = runs[0].about
    return {
        "rows": [row.to_dict() for run in runs for row in run.rows],
        "data": about["data"],
        "split": about["data"]["split"],
        "pictures": about["pictures"],
        "protocol": {key: about[key] for key in ("protocol", "tolerance", "inclusive", "difficult")},
        "output": {run.classifier_name: run.about["output"] for run in runs},
        "concepts": {run.classifier_name: run.about["concepts"] for run in runs},
        "wins": {run.classifier_name: wins(run.rows) for run in runs},
        "left_out": {run.classifier_name: run.about["left_out"] for run in runs},
        "failures": failures_of(run.about for run in runs),
    }


def columns(row: Row) -> dict[str, str]:
    """A row as people read it."""
    return {
        "model": row.model,
        "method": row.method,
        "layer": row.layer,
        "all %": _with_interval(row.all),
        "difficult %": "-" if row.difficult is None else _with_interval(row.difficult),
        "empty maps": str(row.empty),
    }


def by_network(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Methods by networks, All / Difficult, as in the paper's Table 1; each layer of a method has its own line."""
    lines: dict[str, dict[str, str]] = {}
    for run in runs:
        for row in run.rows:
            several = sum(other.method == row.method for other in run.rows) > 1
            name = f"{row.method} at {row.layer}" if several else row.method
            lines.setdefault(name, {})[run.classifier_name] = _both(row)
    names = [run.classifier_name for run in runs]
    return [
        {"all / difficult %": name, **{model: line.get(model, "-") for model in names}} for name, line in lines.items()
    ]


def sentences(run: Run) -> list[str]:
    """What was measured, who wins, and what was left out and why."""
    row, left_out = run.rows[0], run.about["left_out"]
    hard = row.difficult.pairs if row.difficult else 0
    measured = (
        f"{run.classifier_name} on {run.dataset_name} {run.split}: {len(run.records)} pictures, {row.all.pairs} pairs "
        f"of a picture and one of {len(row.all.categories)} categories, {hard} of them difficult; means over "
        f"categories, with 95 % intervals from {RESAMPLES} resamples of the pictures"
    )
    won = ", ".join(f"{method} {count}" for method, count in wins(run.rows).items())
    missing = "; ".join(left_out_lines(left_out))
    return [
        measured,
        f"categories won (where several are best, each counts): {won}",
        *([f"left out: {missing}"] if missing else []),
    ]


def left_out_lines(left_out: Mapping[str, Any]) -> list[str]:
    """What was left out and why, for people to read.

    Example:
        >>> nothing = {"unknown": {}, "difficult": 0, "empty": 0, "unreadable": {}, "no_difficult_pairs": []}
        >>> left_out_lines({**nothing, "no_pairs": ["cow", "sheep"]})
        ['categories without any pair: cow, sheep']
    """
    said = {
        "categories without any pair": left_out["no_pairs"],
        "categories without a difficult pair, no part of that mean": left_out["no_difficult_pairs"],
        "methods that cannot be read there (rows.json says why)": left_out["unreadable"],
    }
    return [*left_out_words(left_out), *(f"{reason}: {', '.join(what)}" for reason, what in said.items() if what)]


def write_tables(runs: Sequence[Run], out: Path) -> list[Path]:
    """Write ``rows.json``, ``rows.csv``, ``categories.csv`` and ``table.md``; the same runs give the same bytes."""
    rows = [row for run in runs for row in run.rows]
    texts = {
        "rows.csv": csv_table([_flat(row) for row in rows]),
        "categories.csv": csv_table([line for row in rows for line in _categories(row)]),
        "table.md": _markdown(runs),
    }
    written = [save_json(answer(runs), out / "rows.json")]
    return [*written, *(save_text(text, out / name) for name, text in texts.items())]


def _flat(row: Row) -> Line:
    """A row of the table without lists, for spreadsheets."""
    line = row.to_dict()
    for subset in ("all", "difficult"):
        low, high = line.pop(f"{subset}_interval") or (None, None)
        line |= {f"{subset}_low": low, f"{subset}_high": high}
    return line


def _categories(row: Row) -> list[Line]:
    hard = row.difficult.categories if row.difficult else {}
    return [
        {
            "model": row.model,
            "method": row.method,
            "layer": row.layer,
            "category": category,
            "hits": share.count,
            "pairs": share.total,
            "difficult_hits": hard[category].count if category in hard else 0,
            "difficult_pairs": hard[category].total if category in hard else 0,
        }
        for category, share in row.all.categories.items()
    ]


def _markdown(runs: Sequence[Run]) -> str:
    tables = [[columns(row) for run in runs for row in run.rows]] + ([by_network(runs)] if len(runs) > 1 else [])
    said = [f"- {sentence}" for run in runs for sentence in sentences(run)]
    about = runs[0].about
    edge = "up to" if about["inclusive"] else "less than"
    rule = f"A point {edge} {about['tolerance']:g} pixels beside an object hits it (protocol: {about['protocol']})."
    return "\n\n".join([*map(markdown_table, tables), "\n".join(said), rule]) + "\n"


def _with_interval(score: Estimate) -> str:
    return f"{score.value:.1f} ({score.low:.1f}-{score.high:.1f})"


def _both(row: Row) -> str:
    hard = "-" if row.difficult is None else f"{row.difficult.value:.1f}"
    return f"{row.all.value:.1f} / {hard}"
