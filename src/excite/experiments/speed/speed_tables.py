"""The tables of the speed benchmark: the headline, the peers, and everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.report.tables import csv_table, markdown_table
from excite.experiments.speed.report import case_of
from excite.experiments.speed.timing import C_MWP, COMPILED, FORWARD, GRADIENT, MWP
from excite.io.files import save_json, save_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from excite.experiments.speed.report import Row

__all__ = ["about", "columns", "headline", "page", "write_tables"]

SURE = 0.95
OURS = (FORWARD, MWP, C_MWP, COMPILED)  # beside which the others stand
CROWDS = ("pictures", "compiled", "concepts", "endurance")
_WORDS = """\
Times are multiples of the plain forward pass in the same round: the median of rounds, with its 95 % interval.
limit: 1 + 2 x the share of the forward pass's multiply-adds above the layer.
x c-mwp: how many times as long as excite's c-MWP for as many concepts, in the same rounds.
x compiled: the same beside its compiled maps (excite.compile).
MB: the most memory beside the loaded network after its plain forward pass.
Weights named random do not change what is computed.
Peers run on torchvision's network of the same kind, or a copy of ours; excite beside them on that same network.
""".splitlines()


def headline(rows: Sequence[Row]) -> list[dict[str, str]]:
    """A line for each network: one picture, one concept, where maps are read unasked; beside what could be at best."""
    lines = []
    for ours in rows:
        if (ours["group"], ours["method"], ours["concepts"], ours["batch"]) == ("pictures", C_MWP, 1, 1):
            same = {case_of(row): row for row in rows if row["network"] == ours["network"] and row["batch"] == 1}
            gradient = next((row for case, row in same.items() if case.method == GRADIENT), None)
            compiled = next((row for case, row in same.items() if (case.method, case.concepts) == (COMPILED, 1)), None)
            further = [row for row in same.values() if row["method"] == C_MWP and row["each_further"] is not None]
            lines.append(
                {
                    "network": ours["network"],
                    "layer": ours["layer"],
                    "picture": ours["size"],
                    "weights": ours["weights"],
                    "c-mwp": _ratio(ours),
                    "compiled": _ratio(compiled) if compiled else "",
                    "limit": _number(ours["limit"]),
                    "x limit": _number(ours["ratio_to_forward"] and ours["ratio_to_forward"] / ours["limit"]),
                    "limit in time": _number(ours["above_time"] and 1 + 2 * ours["above_time"]),
                    "input gradient": _ratio(gradient) if gradient else "",
                    "each further concept": _number(further[0]["each_further"]) if further else "",
                    "MB": _megabytes(ours),
                    "MB of gradient": _megabytes(gradient) if gradient else "",
                }
            )
    return lines


def columns(row: Mapping[str, object]) -> dict[str, str]:
    """A row as people read it.

    Example:
        >>> from excite.experiments.speed.report import FIELDS
        >>> columns({**dict.fromkeys(FIELDS), "network": "vgg16", "ratio_to_forward": 2.0, "low": 1.5, "high": 2.25,
        ...          "confidence": 0.97, "rounds": 6})["x forward"]
        '2.00 (1.50-2.25)'
    """
    return {
        "network": str(row["network"]),
        "method": str(row["method"]),
        "layer": str(row["layer"] or ""),
        "concepts": str(row["concepts"]),
        "batch": str(row["batch"]),
        "x forward": _ratio(row),
        "rounds": str(row["rounds"] or ""),
        "x c-mwp": _times(row),
        "x compiled": "" if row["method"] in OURS or row["times_compiled"] is None else f"{row['times_compiled']:.1f}",
        "each further": _number(row["each_further"]),
        "limit": _number(row["limit"]),
        "MB": _megabytes(row),
        "note": str(row["note"] or ""),
    }


def about(rows: Sequence[Row], facts: Mapping[str, object]) -> list[str]:
    """What has to be known to read the tables."""
    unsure = sum(row["confidence"] is not None and row["confidence"] < SURE for row in rows)
    said = [*_WORDS]
    said[0] = f"torch {facts['torch']} on {facts['device']}, {facts['threads']} threads. {said[0]}"
    if unsure:
        said.append(f"{unsure} rows with less than six rounds have an interval that is less sure than 95 %, marked ~.")
    return said


def page(rows: Sequence[Row], facts: Mapping[str, object]) -> str:
    """All tables as Markdown."""
    groups = {
        "Many concepts and pictures": [row for row in rows if row["group"] in CROWDS],
        "Layer by layer": [row for row in rows if row["group"] == "layers"],
        "Beside other packages": [row for row in rows if row["group"] == "peers"],
    }
    parts = ["# Speed", *about(rows, facts)]
    top = headline(rows)
    if top:
        parts += ["## One picture, one concept", markdown_table(top)]
    for title, chosen in groups.items():
        if chosen:
            parts += [f"## {title}", markdown_table([columns(row) for row in chosen])]
    return "\n\n".join(parts) + "\n"


def write_tables(rows: Sequence[Row], facts: Mapping[str, object], out: Path) -> list[Path]:
    """Write the tables for people, for spreadsheets and for programs; the files that were written."""
    return [
        save_text(page(rows, facts), out / "speed.md"),
        save_text(csv_table(rows), out / "speed.csv"),
        save_json(list(rows), out / "speed.json"),
    ]


def _ratio(row: Mapping[str, object]) -> str:
    if row["ratio_to_forward"] is None:
        return "-"
    return f"{row['ratio_to_forward']:.2f} ({_mark(row)}{row['low']:.2f}-{row['high']:.2f})"


def _times(row: Mapping[str, object]) -> str:
    if row["times_c_mwp"] is None or row["method"] in OURS:
        return ""
    return f"{row['times_c_mwp']:.1f} ({_mark(row)}{row['times_low']:.1f}-{row['times_high']:.1f})"


def _number(value: object) -> str:
    return "" if value is None else f"{value:.2f}"


def _megabytes(row: Mapping[str, object]) -> str:
    return "" if row["peak_mb"] is None else f"{row['peak_mb']:.0f}"


def _mark(row: Mapping[str, object]) -> str:
    """What is put before an interval that is less sure than 95 %."""
    return "" if float(str(row["confidence"])) >= SURE else "~"
