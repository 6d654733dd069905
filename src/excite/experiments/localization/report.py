"""The tables of localisation: for the terminal, for programs, and for papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.base import failures_of, left_out_words
from excite.experiments.localization.localization_rules import RULES
from excite.experiments.published import LOCALIZATION, LOCALIZED_DATA, LOCALIZED_ON, WORDS
from excite.experiments.report.tables import csv_table, markdown_table
from excite.io.files import save_json, save_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.experiments.localization.scores import Row, RuleResult, Run

    Line = Mapping[str, Any]

__all__ = ["answer", "left_out_lines", "lines", "sentences", "write_tables"]

NOTHING = "-"


def answer(runs: Sequence[Run]) -> dict[str, Any]:
    """All of it as plain values for JSON; nothing in it depends on when and where it was made."""
    about = runs[0].about
    protocol = ("shape", "canvas", "held_out", "seed")
    return {
        "rows": [row.to_dict() for run in runs for row in run.told],
        "layers": [row.to_dict() for run in runs for row in run.rows],
        "data": about["data"],
        "split": about["data"]["split"],
        "pictures": about["pictures"],
        "protocol": {key: about[key] for key in protocol},
        "held_out": {run.classifier_name: run.about["held_out_pictures"] for run in runs},
        "reported": {run.classifier_name: run.about["reported"] for run in runs},
        "output": {run.classifier_name: run.about["output"] for run in runs},
        "concepts": {run.classifier_name: run.about["concepts"] for run in runs},
        "left_out": {run.classifier_name: run.about["left_out"] for run in runs},
        "failures": failures_of(run.about for run in runs),
    }


def lines(runs: Sequence[Run]) -> list[dict[str, str]]:
    """The rows as people read them; beside them the paper's errors, where the data are the paper's."""
    beside = runs[0].dataset_name == LOCALIZED_DATA
    return [_columns(row, beside_paper=beside) for run in runs for row in run.told]


def _columns(row: Row, *, beside_paper: bool) -> dict[str, str]:
    paper = f"{LOCALIZATION[row.method].error:.1f}" if row.method in LOCALIZATION else NOTHING
    return {
        "model": row.model,
        "method": row.method,
        "layer": row.layer,
        "alpha": f"{row.alpha:g}",
        "error %": str(row.error),
        "largest component": _at(row.rules["largest"]),
        "t x max": _at(row.rules["max"]),
        "MaxBoxAcc": f"{row.max_box_acc:.1f}",
        "MaxBoxAccV2": f"{row.v2_mean:.1f}",
        **({"paper's error": paper} if beside_paper else {}),
    }


def sentences(run: Run) -> list[str]:
    """What was measured, and what was left out and why."""
    about, row = run.about, run.rows[0]
    measured = (
        f"{run.classifier_name} on {run.dataset_name} {run.split}: errors on {row.error.total} pairs of a picture and "
        f"a category, in {about['reported']} pictures, with 95 % intervals; pictures held out to choose thresholds on: "
        f"{about['held_out_pictures']}; MaxBoxAcc and MaxBoxAccV2 take the best threshold of the reported pictures"
    )
    empty = [f"maps of {one.method} at {one.layer} without any box: {one.empty}" for one in run.told if one.empty]
    missing = "; ".join(left_out_lines(about["left_out"]))
    several = len(run.rows) - len(run.told)
    chosen = ["the layer of each method was chosen on the held-out pictures too (rows.csv has all)"] if several else []
    return [measured, *chosen, *empty, *([f"left out: {missing}"] if missing else [])]


def left_out_lines(left_out: Mapping[str, Any]) -> list[str]:
    """What was left out and why, for people to read.

    Example:
        >>> left_out_lines({"unknown": {}, "difficult": 0, "empty": 2, "unreadable": {"cam at conv5": "..."}})
        ['pictures with nothing to look for: 2', 'methods that cannot be read there (rows.json says why): cam at conv5']
    """
    unreadable = ", ".join(left_out["unreadable"])
    said = [f"methods that cannot be read there (rows.json says why): {unreadable}"] if unreadable else []
    return [*left_out_words(left_out), *said]


def write_tables(runs: Sequence[Run], out: Path) -> list[Path]:
    """Write ``rows.json``, ``rows.csv``, ``curves.csv`` and ``table.md``; the same runs give the same bytes."""
    rows = [row for run in runs for row in run.rows]
    texts = {
        "rows.csv": csv_table([_flat(row) for row in rows]),
        "curves.csv": csv_table([line for row in rows for line in _curves(row)]),
        "table.md": _markdown(runs),
    }
    written = [save_json(answer(runs), out / "rows.json")]
    return [*written, *(save_text(text, out / name) for name, text in texts.items())]


def _at(result: RuleResult) -> str:
    return f"{100 * result.error.value:.1f} at {result.threshold:g}"


def _flat(row: Row) -> Line:
    """A row of the table without lists, for spreadsheets."""
    line = row.to_dict()
    rules, v2 = line.pop("rules"), line.pop("max_box_acc_v2")
    low, high = line.pop("error_interval")
    del rules["paper"]  # that is the line itself
    return {
        **line,
        "error_low": low,
        "error_high": high,
        **{f"{rule}_{key}": told[key] for rule, told in rules.items() for key in ("threshold", "error")},
        **{f"max_box_acc_v2_{overlap}": value for overlap, value in v2.items()},
    }


def _curves(row: Row) -> Iterator[Line]:
    for rule, result in row.rules.items():
        for threshold, error in zip(RULES[rule].thresholds, result.curve, strict=True):
            place = {"model": row.model, "method": row.method, "layer": row.layer}
            yield {**place, "rule": rule, "threshold": threshold, "error": round(error, 2)}


def _markdown(runs: Sequence[Run]) -> str:
    said = "\n".join(f"- {sentence}" for run in runs for sentence in sentences(run))
    return "\n\n".join([markdown_table(lines(runs)), said, f"The paper's own ({LOCALIZED_ON}):", _published()]) + "\n"


def _published() -> str:
    """The paper's table, as it has it: also what there is no method for here."""
    lines = [
        {
            "method": WORDS.get(method, method.capitalize()),
            "alpha": NOTHING if paper.alpha is None else f"{paper.alpha:g}",
            "error %": f"{paper.error:.1f}",
        }
        for method, paper in LOCALIZATION.items()
    ]
    return markdown_table(lines)
