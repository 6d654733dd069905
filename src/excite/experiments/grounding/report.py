"""Tables and figures of grounding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.base import failures_of
from excite.experiments.grounding.measure import GAMMAS, PAPERS_GAMMAS
from excite.experiments.grounding.scores import CURVE, RANKS
from excite.experiments.published import GROUNDED_DATA, GROUNDED_ON, published_groups, published_ranks
from excite.experiments.report import figures, tables
from excite.experiments.report.tables import NOTHING, shown
from excite.io.text import for_markdown, markdown_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.experiments.grounding.run import GroundingRun
    from excite.experiments.grounding.scores import GroundingRow, RankingScores
    from excite.metrics.statistics import Estimate


GROUP_TITLE = "recall at 5 of each group"


def all_rows(runs: Sequence[GroundingRun]) -> list[GroundingRow]:
    """The rows of all networks; those without a network are the same for all, and listed once."""
    own, *others = runs[0].shared
    return [own, *(row for run in runs for row in run.rows), *others]


def answer(runs: Sequence[GroundingRun]) -> dict[str, Any]:
    """All results as plain values for JSON, independent of time and machine."""
    about = runs[0].about
    return {
        "rows": [row.to_dict() for row in all_rows(runs)],
        "groups": [group_values(row) for row in all_rows(runs)] if runs[0].groups else [],
        "leads": [lead.to_dict() for run in runs for lead in run.leads],
        "gammas": [line for run in runs for line in _gammas(run)],
        "data": about["data"],
        "split": about["data"]["split"],
        "pictures": about["pictures"],
        "held_out": about["held_out_pictures"],
        "reported": about["reported"],
        "phrases": about["phrases"],
        "protocol": about["protocol"],
        "proposals": round(about["proposals"], 1),
        "reach": round(about["reach"], 2),
        **tables.per_network(runs, "layers", "left_out"),
        "failures": failures_of(run.about for run in runs),
    }


def group_values(row: GroundingRow) -> dict[str, Any]:
    """The recall at 5 of each group and their mean, as plain values."""
    recalls = {**row.groups, "mean": row.group_mean}
    names = {"model": row.model, "method": row.method}
    return names | {group: None if value is None else round(value, 2) for group, value in recalls.items()}


def _gammas(run: GroundingRun) -> Iterator[dict[str, Any]]:
    """The mean recall of each method at each gamma, on the held-out images."""
    for row in run.rows:
        for gamma, recall in zip(GAMMAS, row.chosen.curve, strict=False):
            yield {"model": row.model, "method": row.method, "gamma": gamma, "mean_recall": round(recall, 2)}


def shares_of_time(runs: Sequence[GroundingRun]) -> dict[str, dict[str, float]]:
    """For each network the percentage of time of each step; not reproducible, so no part of `answer`."""
    shares = {}
    for run in runs:
        seconds = run.about["seconds"]
        total = sum(seconds.values()) or 1.0
        shares[run.classifier_name] = {step: round(100 * spent / total, 1) for step, spent in seconds.items()}
    return shares


def time_words(shares: Mapping[str, float]) -> str:
    """The percentages of time of one network in words."""
    return ", ".join(f"{step} {share:g} %" for step, share in shares.items())


def lines(runs: Sequence[GroundingRun], *, small: bool = False) -> list[dict[str, str]]:
    """The rows of the table in the terminal, over all phrases or over small instances."""
    scored = [(row, row.small if small else row.all) for row in all_rows(runs)]
    return [_columns(row, scores) for row, scores in scored if scores is not None]


def _columns(row: GroundingRow, scores: RankingScores) -> dict[str, str]:
    gamma = row.chosen.gamma
    return {
        "model": row.model or NOTHING,
        "method": row.method,
        "gamma": NOTHING if gamma is None else f"{gamma:g}",
        **{f"R@{rank}": str(scores.recalls[rank]) for rank in RANKS},
        "mAP group": shown(scores.map_group),
        "mAP phrase": shown(scores.map_phrase),
        "pointing": str(scores.pointing or NOTHING),
    }


def _group_lines(runs: Sequence[GroundingRun]) -> list[dict[str, str]]:
    """Recall at 5 of each group; empty where the data have no groups."""
    if not runs[0].groups:
        return []
    return [
        {
            "model": row.model or NOTHING,
            "method": row.method,
            **{group: shown(value) for group, value in row.groups.items()},
            "mean": shown(row.group_mean),
        }
        for row in all_rows(runs)
    ]


def titled_tables(runs: Sequence[GroundingRun]) -> dict[str, list[dict[str, str]]]:
    """All further tables by title; with the paper's where the data are the paper's."""
    titled = {
        "small instances, below a quarter of the image": lines(runs, small=True),
        GROUP_TITLE: _group_lines(runs),
    }
    if runs[0].dataset_name == GROUNDED_DATA:
        titled |= _paper_tables()
    return {title: table for title, table in titled.items() if table}


def _paper_tables() -> dict[str, list[dict[str, str]]]:
    return {
        f"the paper's own ({GROUNDED_ON}), all phrases / small instances": published_ranks(),
        f"the paper's {GROUP_TITLE}": published_groups(),
    }


def sentences(runs: Sequence[GroundingRun]) -> list[str]:
    """What was measured, and what was left out and why."""
    run, about = runs[0], runs[0].about
    protocol, own = about["protocol"], runs[0].shared[0]
    small = 0 if own.small is None else own.small.phrases
    held = about["held_out_pictures"]
    chosen = f"; images held out to choose gamma on: {held}" if held else ""
    truth = "the box around all that a phrase refers to" if protocol["truth"] == "union" else "any of its boxes"
    measured = (
        f"{run.dataset_name} {run.split}: {own.all.phrases} phrases, {small} of them small, in {about['reported']} "
        f"images, with 95 % intervals{chosen}; right is a box that overlaps by a half with {truth}"
    )
    proposed = f"proposals: {protocol['proposals']}, {about['proposals']:.0f} in an image; one of them is right for "
    proposed += f"{about['reach']:.1f} % of the phrases"
    missing = [
        f"{row.method} has no result for {row.missing} of {row.all.phrases} phrases: misses"
        for row in run.shared
        if row.missing
    ]
    data = "; ".join(f"{why}: {count}" for why, count in about["left_out"]["data"].items())
    left_out = [f"left out of the data: {data}"] if data else []
    networks = [f"{run.classifier_name}: {line}" for run in runs for line in left_out_lines(run.about["left_out"])]
    return [measured, proposed, *missing, *left_out, *networks]


def left_out_lines(left_out: Mapping[str, Any]) -> list[str]:
    """What one network left out and why, as sentences."""
    more = left_out["skipped_in_all"] - sum(left_out["skipped"].values())
    reasons = {
        "phrases without a word that it knows, for which its own findings stand": left_out["unknown"],
        "words skipped most": _counted(left_out["skipped"]) + (f" and others ({more})" if more else ""),
        "images without proposals, whose phrases are misses": left_out["without_proposals"],
        "maps without any evidence, which find nothing": _counted(left_out["empty"]),
        "methods that cannot be read there (rows.json says why)": ", ".join(left_out["unreadable"]),
    }
    return [f"{reason}: {what}" for reason, what in reasons.items() if what]


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


def write_tables(runs: Sequence[GroundingRun], out: Path) -> list[Path]:
    """Write ``rows.json``, ``rows.csv``, ``groups.csv`` (if there are groups), ``curves.csv`` and ``table.md``."""
    rows = all_rows(runs)
    curves = [
        {"model": row.model, "method": row.method, "boxes": number, "recall": round(recall, 2)}
        for row in rows
        for number, recall in zip(CURVE, row.all.curve, strict=True)
    ]
    texts = {
        "rows.csv": tables.csv_table([tables.flat(row.to_dict()) for row in rows]),
        **({"groups.csv": tables.csv_table([group_values(row) for row in rows])} if runs[0].groups else {}),
        "curves.csv": tables.csv_table(curves),
        "table.md": _markdown(runs),
    }
    return tables.write_tables(out, answer(runs), texts)


def _markdown(runs: Sequence[GroundingRun]) -> str:
    """All tables, in any case with the paper's."""
    parts = [tables.markdown_table(lines(runs))]
    for title, table in (titled_tables(runs) | _paper_tables()).items():
        parts += [for_markdown(f"{title[0].upper()}{title[1:]}:"), tables.markdown_table(table)]
    return "\n\n".join([*parts, markdown_list(sentences(runs))]) + "\n"


def recalls_figure(rows: Sequence[GroundingRow], shared: Sequence[GroundingRow]) -> Any:
    """R@1 of each method over all phrases and over small instances with 95 % intervals, a panel for each network.

    Args:
        rows: of the networks, at most one for each network and method.
        shared: those without a network; they are in every panel.
    """
    series: dict[str, Callable[[GroundingRow], Estimate | None]] = {
        "all phrases": lambda row: row.all.recalls[1],
        "small instances": lambda row: None if row.small is None else row.small.recalls[1],
    }
    return figures.interval_figure(rows, "R@1 [%]", series, shared=shared)


def ranks_figure(rows: Sequence[GroundingRow]) -> Any:
    """The share of phrases with a right box among the first 1, 2 ... 10, a line for each row."""
    curves = [(k, row.method, row.all.curve, None) for k, row in enumerate(rows)]
    figure, axes = figures.curves_figure(CURVE, curves, ("first boxes that count, N", "R@N [%]"))
    axes.set_xticks(CURVE)
    axes.set_ylim(0, None)
    return figure


def gammas_figure(rows: Sequence[GroundingRow]) -> Any:
    """The mean of R@1, R@5 and R@10 on held-out images by gamma, with a large open marker at the chosen one.

    None where no gamma was searched.
    """
    curves = [(k, row.method, row.chosen.curve, row.chosen.gamma) for k, row in enumerate(rows) if row.chosen.curve]
    if not curves:
        return None
    names = "gamma: 0 for the largest regions, 1 for the densest", "mean of R@1, R@5 and R@10 [%]"
    figure, axes = figures.curves_figure(GAMMAS, curves, names)
    axes.set_xticks(PAPERS_GAMMAS)
    return figure
