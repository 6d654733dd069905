"""Tables and the figure of the speed benchmark; a row for each case, with its measurements or a reason."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from statistics import median
from typing import Any

from excite.errors import visible
from excite.experiments.report import figures
from excite.experiments.report.tables import csv_table, markdown_table
from excite.experiments.speed.timing import C_MWP, COMPILED, FORWARD, GRADIENT, MWP, Case, Rounds, TimedNetwork, Timing
from excite.io.files import save_json, save_text
from excite.metrics.statistics import Estimate, median_interval

TableRow = dict[str, Any]

FIELDS = tuple(
    """
    network layer method concepts batch ratio_to_forward peak_mb low high confidence rounds seconds forward_seconds
    each_further times_c_mwp times_low times_high limit above above_time group size weights note
    """.split()
)
SURE = 0.95
OURS = (FORWARD, MWP, C_MWP, COMPILED)
LINES = (C_MWP, MWP)  # of the figure
TITLES = {"layers": "Layer by layer", "peers": "Beside other packages"}  # of groups; all others have one table
WORDS = """\
Times are multiples of the plain forward pass in the same round: the median of rounds, with its 95 % interval.
limit: 1 + 2 x the share of the forward pass's multiply-adds above the layer.
x c-mwp: how many times as long as excite's c-MWP for as many concepts, in the same rounds.
MB: the most memory beside the loaded network after its plain forward pass.
Weights named random do not change what is computed.
""".splitlines()


def row(case: Case, network: TimedNetwork, group: str, **values: object) -> TableRow:
    """A row with all `FIELDS`; those that are not given are None."""
    known = {**asdict(case), "group": group, "size": network.size, "weights": network.weights, **values}
    return {field: known.get(field) for field in FIELDS}


def group_rows(rounds: Rounds, network: TimedNetwork, group: str, batch: int) -> list[TableRow]:
    """The rows of one group: the forward pass, each case, and those that failed."""
    timings = rounds.timings
    values = {Case(network.name, "", FORWARD, batch=batch): _numbers(rounds.forwards)}
    for case, timing in timings.items():
        values[case] = _numbers(timing) | _further(case, timings) | _beside(case, timings)
    values |= {case: {"note": why} for case, why in rounds.failed.items()}
    return [row(case, network, group, **its) for case, its in values.items()]


def merged(rows: Iterable[TableRow]) -> list[TableRow]:
    """All rows in order, each case once, with memory joined to the times of the same cases."""
    found: dict[Case, TableRow] = {}
    for each in sorted(rows, key=lambda row: row["group"] == "memory"):
        known = found.setdefault(Case(*(each[field.name] for field in fields(Case))), dict(each))
        if each["group"] == "memory":
            known |= {"peak_mb": each["peak_mb"], "note": known["note"] or each["note"]}
    return list(found.values())


def _numbers(timing: Timing) -> TableRow:
    interval = median_interval(timing.ratios)
    return {
        "ratio_to_forward": round(median(timing.ratios), 4),
        "low": round(interval.low, 4),
        "high": round(interval.high, 4),
        "confidence": round(interval.confidence, 3),
        "rounds": len(timing.seconds),
        "seconds": round(median(timing.seconds), 5),
        "forward_seconds": round(median(timing.forwards), 5),
    }


def _further(case: Case, timings: Mapping[Case, Timing]) -> TableRow:
    """The cost of each concept after the first, where the first was timed in the same rounds."""
    first = timings.get(Case(case.network, case.layer, case.method, 1, case.batch))
    if case.concepts == 1 or first is None:
        return {}
    pairs = zip(first.ratios, timings[case].ratios, strict=True)
    return {"each_further": round(median((more - one) / (case.concepts - 1) for one, more in pairs), 4)}


def _beside(case: Case, timings: Mapping[Case, Timing]) -> TableRow:
    """The time relative to our c-MWP for as many concepts, where exactly one such was timed in the same rounds."""
    asked = (C_MWP, case.concepts, case.batch)
    ours = [timing for other, timing in timings.items() if (other.method, other.concepts, other.batch) == asked]
    if len(ours) != 1:
        return {}
    times = [mine / others for mine, others in zip(timings[case].seconds, ours[0].seconds, strict=True)]
    interval = median_interval(times)
    found = {"times_c_mwp": median(times), "times_low": interval.low, "times_high": interval.high}
    return {name: round(value, 3) for name, value in found.items()}


def headline(rows: Sequence[TableRow]) -> list[dict[str, str]]:
    """A line for each network: one image, one concept, at the default layer, beside the limit."""
    lines = []
    for ours in rows:
        if (ours["group"], ours["method"], ours["concepts"], ours["batch"]) != ("pictures", C_MWP, 1, 1):
            continue
        same = [row for row in rows if row["network"] == ours["network"] and row["batch"] == 1]
        single = {row["method"]: row for row in reversed(same) if row["concepts"] == 1}
        further = [row["each_further"] for row in same if row["method"] == C_MWP and row["each_further"] is not None]
        line = {
            "network": ours["network"],
            "layer": ours["layer"],
            "picture": ours["size"],
            "weights": ours["weights"],
            "c-mwp": _ratio(ours),
            "compiled": _ratio(single.get(COMPILED)),
            "limit": _number(ours["limit"]),
            "x limit": _number(ours["ratio_to_forward"] and ours["ratio_to_forward"] / ours["limit"]),
            "limit in time": _number(ours["above_time"] and 1 + 2 * ours["above_time"]),
            "input gradient": _ratio(single.get(GRADIENT)),
            "each further concept": _number(next(iter(further), None)),
            "MB": _megabytes(ours),
            "MB of gradient": _megabytes(single.get(GRADIENT)),
        }
        lines.append(line)
    return lines


def columns(row: Mapping[str, object]) -> dict[str, str]:
    """A row of the table in the terminal."""
    return {
        "network": str(row["network"]),
        "method": str(row["method"]),
        "layer": str(row["layer"] or ""),
        "concepts": str(row["concepts"]),
        "batch": str(row["batch"]),
        "x forward": _ratio(row),
        "rounds": str(row["rounds"] or ""),
        "x c-mwp": "" if row["method"] in OURS else _interval(row, "times_c_mwp", "times_low", "times_high", 1),
        "each further": _number(row["each_further"]),
        "limit": _number(row["limit"]),
        "MB": _megabytes(row),
        "note": str(row["note"] or ""),
    }


def about(rows: Sequence[TableRow], facts: Mapping[str, object]) -> list[str]:
    """The explanation of the tables."""
    unsure = sum(row["confidence"] is not None and row["confidence"] < SURE for row in rows)
    mark = f"{unsure} rows with less than six rounds have an interval that is less sure than 95 %, marked ~."
    first, *others = [*WORDS, *([mark] if unsure else [])]
    return [f"torch {facts['torch']} on {facts['device']}, {facts['threads']} threads. {first}", *others]


def page(rows: Sequence[TableRow], facts: Mapping[str, object]) -> str:
    """All tables as Markdown."""
    tables = {"One image, one concept": headline(rows)}
    for title in ("Many concepts and images", *TITLES.values()):
        tables[title] = [columns(row) for row in rows if TITLES.get(row["group"], "Many concepts and images") == title]
    parts = ["# Speed", *about(rows, facts)]
    for title, lines in tables.items():
        parts += [f"## {title}", markdown_table(lines)] if lines else []
    return "\n\n".join(parts) + "\n"


def write_tables(rows: Sequence[TableRow], facts: Mapping[str, object], out: Path) -> list[Path]:
    """Write ``speed.md``, ``speed.csv`` and ``speed.json``."""
    return [
        save_text(page(rows, facts), out / "speed.md"),
        save_text(csv_table(rows), out / "speed.csv"),
        save_json(list(rows), out / "speed.json"),
    ]


def _ratio(row: Mapping[str, object] | None) -> str:
    return "" if row is None else _interval(row, "ratio_to_forward", "low", "high", 2) or "-"


def _interval(row: Mapping[str, object], value: str, low: str, high: str, digits: int) -> str:
    """A value with its interval, which has a mark if its confidence is below 95 %."""
    if row[value] is None:
        return ""
    mark = "" if float(str(row["confidence"])) >= SURE else "~"
    return f"{row[value]:.{digits}f} ({mark}{row[low]:.{digits}f}-{row[high]:.{digits}f})"


def _number(value: object) -> str:
    return "" if value is None else f"{value:.2f}"


def _megabytes(row: Mapping[str, object] | None) -> str:
    return "" if row is None or row["peak_mb"] is None else f"{row['peak_mb']:.0f}"


def speed_figure(rows: Sequence[TableRow], path: Path) -> Path | None:
    """Draw the paper's figure, the cost of a map that ends at each layer; None where there are no such rows."""
    # One image, one concept, on excite's own networks; the default layer comes from the headline.
    single = [row for row in rows if row["batch"] == row["concepts"] == 1 and row["group"] in {"pictures", "layers"}]
    shown = [row for row in single if row["ratio_to_forward"] is not None and row["method"] in {*LINES, GRADIENT}]
    networks = list(dict.fromkeys(row["network"] for row in shown if row["method"] in LINES))
    if not networks:
        return None
    most = max(len({row["layer"] for row in shown if row["network"] == network}) for network in networks)
    figure = figures.new_figure(max(4.0, 0.42 * most) * len(networks), 4.8)
    panels = figure.subplots(1, len(networks), squeeze=False)[0]
    for axes, network in zip(panels, networks, strict=True):
        _panel(axes, network, [row for row in shown if row["network"] == network])
    panels[0].set_ylabel("time, in plain forward passes", color=figures.INK)
    figure.suptitle("One image, one concept: what a map costs that ends at each layer", fontsize=11, color=figures.INK)
    figures.legend(figure, panels[0])
    return figures.save_png(figure, path)


def _panel(axes: Any, network: str, rows: Sequence[TableRow]) -> None:
    """Layers from top to bottom, left to right."""
    above = {row["layer"]: row["above"] for row in rows if row["method"] in LINES}
    layers = sorted(above, key=lambda layer: above[layer])
    for number, method in enumerate(LINES):
        chosen = sorted((row for row in rows if row["method"] == method), key=lambda row: layers.index(row["layer"]))
        values = [Estimate(row["ratio_to_forward"], row["low"], row["high"]) for row in chosen]
        figures.line(axes, [layers.index(row["layer"]) for row in chosen], values, method, number)
    for row in rows:
        if row["method"] == GRADIENT:
            style = {**figures.line_style(2), "marker": None, "label": "input gradient"}
            axes.axhline(row["ratio_to_forward"], **style)
            axes.axhspan(row["low"], row["high"], color=style["color"], alpha=0.15, linewidth=0)
    limits = [1 + 2 * above[layer] for layer in layers]
    axes.plot(range(len(layers)), limits, color=figures.INK, linestyle="--", linewidth=1.3, label="arithmetic limit")
    usual = {row["layer"] for row in rows if row["group"] == "pictures"}
    turned = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(layers)), map(visible, layers), parse_math=False, **turned)
    for tick, layer in zip(axes.get_xticklabels(), layers, strict=True):
        tick.set_fontweight("bold" if layer in usual else "normal")
    axes.set_title(visible(f"{network}, {rows[0]['size']}"), fontsize=10, color=figures.INK, parse_math=False)
    axes.set_xlabel("layer, from top to bottom (bold: read unasked)", color=figures.INK)
    axes.set_ylim(bottom=0)
    figures.style_axes(axes)
    axes.tick_params(axis="x", labelsize=8)
