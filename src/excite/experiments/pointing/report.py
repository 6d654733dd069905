"""Tables and figures of the Pointing Game."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from excite.experiments.base import failures_of, left_out_lines
from excite.experiments.pointing.scores import wins
from excite.experiments.report import figures, tables
from excite.io.text import markdown_list
from excite.metrics.statistics import RESAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from excite.experiments.pointing.scores import PointingRow, PointingRun, Score

LONG_NAME = 8  # letters of a layer that fit side by side
SUBSETS: dict[str, Callable[[PointingRow], Score | None]] = {
    "All": lambda row: row.all,
    "Difficult": lambda row: row.difficult,
}


def answer(runs: Sequence[PointingRun]) -> dict[str, Any]:
    """All results as plain values for JSON, independent of time and machine."""
    about = runs[0].about
    return {
        "rows": [row.to_dict() for run in runs for row in run.rows],
        "data": about["data"],
        "split": about["data"]["split"],
        "pictures": about["pictures"],
        "protocol": {key: about[key] for key in ("protocol", "tolerance", "inclusive", "difficult")},
        **tables.per_network(runs, "output", "concepts"),
        "wins": {run.classifier_name: wins(run.rows) for run in runs},
        **tables.per_network(runs, "left_out"),
        "failures": failures_of(run.about for run in runs),
    }


def columns(row: PointingRow) -> dict[str, str]:
    """A row of the table in the terminal."""
    return {
        "model": row.model,
        "method": row.method,
        "layer": row.layer,
        "all %": str(row.all),
        "difficult %": str(row.difficult or tables.NOTHING),
        "empty maps": str(row.empty),
    }


def by_network(runs: Sequence[PointingRun]) -> list[dict[str, str]]:
    """Methods by networks, All / Difficult, as in the paper's Table 1; each layer of a method has its own line."""
    lines: dict[str, dict[str, str]] = {}
    for run in runs:
        for row in run.rows:
            several = sum(other.method == row.method for other in run.rows) > 1
            name = f"{row.method} at {row.layer}" if several else row.method
            hard = tables.shown(None if row.difficult is None else row.difficult.value)
            lines.setdefault(name, {})[run.classifier_name] = f"{row.all.value:.1f} / {hard}"
    names = [run.classifier_name for run in runs]
    return [
        {"all / difficult %": name, **{model: line.get(model, tables.NOTHING) for model in names}}
        for name, line in lines.items()
    ]


def sentences(run: PointingRun) -> list[str]:
    """What was measured, the number of wins, and what was left out and why."""
    row = run.rows[0]
    hard = row.difficult.pairs if row.difficult else 0
    measured = (
        f"{run.classifier_name} on {run.dataset_name} {run.split}: {len(run.records)} images, {row.all.pairs} pairs "
        f"of an image and one of {len(row.all.categories)} categories, {hard} of them difficult; means over "
        f"categories, with 95 % intervals from {RESAMPLES} resamples of the images"
    )
    won = ", ".join(f"{method} {count}" for method, count in wins(run.rows).items())
    missing = "; ".join(left_out_lines(run.about["left_out"]))
    return [
        measured,
        f"categories won (where several are best, each counts): {won}",
        *([f"left out: {missing}"] if missing else []),
    ]


def write_tables(runs: Sequence[PointingRun], out: Path) -> list[Path]:
    """Write ``rows.json``, ``rows.csv``, ``categories.csv`` and ``table.md``."""
    rows = [row for run in runs for row in run.rows]
    texts = {
        "rows.csv": tables.csv_table([tables.flat(row.to_dict(), last=True) for row in rows]),
        "categories.csv": tables.csv_table([line for row in rows for line in _categories(row)]),
        "table.md": _markdown(runs),
    }
    return tables.write_tables(out, answer(runs), texts)


def _categories(row: PointingRow) -> list[dict[str, Any]]:
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


def _markdown(runs: Sequence[PointingRun]) -> str:
    parts = [[columns(row) for run in runs for row in run.rows]] + ([by_network(runs)] if len(runs) > 1 else [])
    lines = markdown_list(sentence for run in runs for sentence in sentences(run))
    about = runs[0].about
    edge = "up to" if about["inclusive"] else "less than"
    rule = f"A point {edge} {about['tolerance']:g} pixels beside an object hits it (protocol: {about['protocol']})."
    return "\n\n".join([*map(tables.markdown_table, parts), lines, rule]) + "\n"


def scores_figure(rows: Sequence[PointingRow]) -> Any:
    """Each method's scores with 95 % intervals, a panel for each network; of each at most one row."""
    return figures.interval_figure(rows, "mean accuracy [%]", SUBSETS)


def layers_figure(rows: Sequence[PointingRow]) -> Any:
    """The score of each method at each layer of one network, a panel for all and one for Difficult pairs.

    None where no method was read at several layers. A method whose maps are all empty is not drawn.
    """
    methods = figures.methods_of(rows)
    by_method = groupby(sorted(rows, key=lambda row: methods.index(row.method)), key=lambda row: row.method)
    lines = [list(group) for _, group in by_method]
    lines = [each for each in lines if len(each) > 1 and not all(row.all_empty for row in each)]
    if not lines:
        return None
    drawn = [row for each in lines for row in each]
    layers = list(dict.fromkeys(row.layer for row in drawn))
    subsets = {name: score for name, score in SUBSETS.items() if any(score(row) for row in drawn)}
    figure = figures.new_figure(1.5 + len(subsets) * max(3.2, 0.62 * len(layers)), 4.2)
    panels = figure.subplots(1, len(subsets), sharey=True, squeeze=False)[0]
    scores: list[Score] = []
    for axes, (name, score) in zip(panels, subsets.items(), strict=True):
        for k, each in enumerate(lines):
            offset = min(0.07, 0.5 / len(lines)) * (k - (len(lines) - 1) / 2)  # so that intervals do not overlap
            found = [(layers.index(row.layer) + offset, score(row)) for row in each if score(row) is not None]
            xs, values = zip(*found, strict=True)
            figures.line(axes, xs, values, each[0].method, k)
            scores += values
        axes.set_title(name, fontsize=10, color=figures.INK)
        figures.name_layers(axes, layers, long=LONG_NAME)
        axes.set_xlabel("layer", color=figures.INK)
        figures.style_axes(axes)
    panels[0].set_ylabel("mean accuracy [%]", color=figures.INK)
    panels[0].set_ylim(*figures.tens_around(scores))
    figures.legend(figure, panels[0])
    return figure
