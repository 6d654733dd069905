"""What grounding found, for the terminal and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.base import failures_of
from excite.experiments.grounding.measure import GAMMAS, PAPERS_GAMMAS
from excite.experiments.grounding.scores import CURVE, RANKS
from excite.experiments.published import GROUNDED_DATA, GROUNDED_ON, published_groups, published_ranks
from excite.experiments.report.figures import (
    INK,
    LOOKS,
    NAMES,
    OPEN,
    dots,
    legend,
    line_style,
    panel,
    panels_of_methods,
    tens_around,
)
from excite.experiments.report.html import csv_table, markdown_table
from excite.experiments.report.page import methods_of, models_of
from excite.io.files import save_json, save_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.experiments.grounding.run import Run
    from excite.experiments.grounding.scores import Marks, Row
    from excite.metrics.statistics import Estimate


NOTHING = "-"
GROUP_TITLE = "recall at 5 of each group"


def all_rows(runs: Sequence[Run]) -> list[Row]:
    """The rows of all networks; those that need none are the same for all, and told once."""
    own, *others = runs[0].shared
    return [own, *(row for run in runs for row in run.rows), *others]


def answer(runs: Sequence[Run]) -> dict[str, Any]:
    """All of it as plain values for JSON; nothing in it depends on when and where it was made."""
    about = runs[0].about
    told = ("layers", "left_out")
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
        **{key: {run.classifier_name: run.about[key] for run in runs} for key in told},
        "failures": failures_of(run.about for run in runs),
    }


def shares_of_time(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """For each network which percentage of the time each step took; of the clock, so no part of `answer`."""
    shares = {}
    for run in runs:
        seconds = run.about["seconds"]
        total = sum(seconds.values()) or 1.0
        shares[run.classifier_name] = {step: round(100 * spent / total, 1) for step, spent in seconds.items()}
    return shares


def lines(runs: Sequence[Run], *, small: bool = False) -> list[dict[str, str]]:
    """The rows as people read them, over all phrases or over those that refer to something small."""
    marked = [(row, row.small if small else row.all) for row in all_rows(runs)]
    return [_columns(row, marks) for row, marks in marked if marks is not None]


def _group_lines(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Recall at 5 of each group, as people read it; nothing where the data know no groups."""
    if not runs[0].groups:
        return []
    return [
        {
            "model": row.model or NOTHING,
            "method": row.method,
            **{group: _shown(value) for group, value in row.groups.items()},
            "mean": _shown(row.group_mean),
        }
        for row in all_rows(runs)
    ]


def titled_tables(runs: Sequence[Run]) -> dict[str, list[dict[str, str]]]:
    """All tables beside the first that there are, by their titles; the paper's where the data are the paper's."""
    tables = {
        "small instances, below a quarter of the image": lines(runs, small=True),
        GROUP_TITLE: _group_lines(runs),
    }
    if runs[0].dataset_name == GROUNDED_DATA:
        tables |= paper_tables()
    return {title: table for title, table in tables.items() if table}


def sentences(runs: Sequence[Run]) -> list[str]:
    """What was measured, and what was left out and why."""
    run, about = runs[0], runs[0].about
    protocol, marks = about["protocol"], runs[0].shared[0]
    small = 0 if marks.small is None else marks.small.phrases
    held = about["held_out_pictures"]
    chosen = f"; images held out to choose gamma on: {held}" if held else ""
    truth = "the box around all that a phrase refers to" if protocol["truth"] == "union" else "any of its boxes"
    measured = (
        f"{run.dataset_name} {run.split}: {marks.all.phrases} phrases, {small} of them small, in {about['reported']} "
        f"pictures, with 95 % intervals{chosen}; right is a box that overlaps by a half with {truth}"
    )
    proposed = f"proposals: {protocol['proposals']}, {about['proposals']:.0f} in an image; one of them is right for "
    proposed += f"{about['reach']:.1f} % of the phrases"
    missing = [
        f"{row.method} has no result for {row.missing} of {row.all.phrases} phrases: misses"
        for row in run.shared
        if row.missing
    ]
    data = "; ".join(f"{why}: {count}" for why, count in about["left_out"]["data"].items())
    told = [f"left out of the data: {data}"] if data else []
    networks = [f"{run.classifier_name}: {line}" for run in runs for line in left_out_lines(run.about["left_out"])]
    return [measured, proposed, *missing, *told, *networks]


def times(runs: Sequence[Run]) -> list[str]:
    """Where the time went, for people to read."""
    return [
        f"{model}: where the time went: {', '.join(f'{step} {share:g} %' for step, share in shares.items())}"
        for model, shares in shares_of_time(runs).items()
    ]


def left_out_lines(left_out: Mapping[str, Any]) -> list[str]:
    """What a network could not do, for people to read.

    Example:
        >>> skipped = {"skipped": {"hat": 3}, "skipped_in_all": 3}
        >>> left_out_lines({"unknown": 2, **skipped, "without_proposals": 0, "empty": {}, "unreadable": {}})
        ['phrases without a word that it knows, for which its own findings stand: 2', 'words skipped most: hat (3)']
    """
    said = {
        "phrases without a word that it knows, for which its own findings stand": left_out["unknown"],
        "words skipped most": _counted(left_out["skipped"]) + _and_more(left_out),
        "pictures without proposals, whose phrases are misses": left_out["without_proposals"],
        "maps without any evidence, which find nothing": _counted(left_out["empty"]),
        "methods that cannot be read there (rows.json says why)": ", ".join(left_out["unreadable"]),
    }
    return [f"{reason}: {what}" for reason, what in said.items() if what]


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


def _and_more(left_out: Mapping[str, Any]) -> str:
    """How often further words were skipped than those that are named."""
    more = left_out["skipped_in_all"] - sum(left_out["skipped"].values())
    return f" and others ({more})" if more else ""


def _columns(row: Row, marks: Marks) -> dict[str, str]:
    gamma = row.chosen.gamma
    return {
        "model": row.model or NOTHING,
        "method": row.method,
        "gamma": NOTHING if gamma is None else f"{gamma:g}",
        **{f"R@{rank}": _sided(marks.recalls[rank]) for rank in RANKS},
        "mAP group": _shown(marks.map_group),
        "mAP phrase": _shown(marks.map_phrase),
        "pointing": NOTHING if marks.pointing is None else _sided(marks.pointing),
    }


def _sided(estimate: Estimate) -> str:
    return f"{estimate.value:.1f} ({estimate.low:.1f}-{estimate.high:.1f})"


def _shown(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}"


def group_values(row: Row) -> dict[str, Any]:
    """The recall at 5 of each group and their mean, for programs."""
    recalls = {**row.groups, "mean": row.group_mean}
    place = {"model": row.model, "method": row.method}
    return place | {group: None if value is None else round(value, 2) for group, value in recalls.items()}


def _gammas(run: Run) -> Iterator[dict[str, Any]]:
    """The mean recall of each method at each gamma, on the held-out images."""
    for row in run.rows:
        for gamma, recall in zip(GAMMAS, row.chosen.curve, strict=False):
            yield {"model": row.model, "method": row.method, "gamma": gamma, "mean_recall": round(recall, 2)}


def paper_tables() -> dict[str, list[dict[str, str]]]:
    """The paper's two tables, by their titles."""
    return {
        f"the paper's own ({GROUNDED_ON}), all phrases / small instances": published_ranks(),
        f"the paper's {GROUP_TITLE}": published_groups(),
    }


# The tables of grounding as files: for programs, for spreadsheets, and for papers.


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


# The figures of grounding, drawn with matplotlib (the extra ``plots``) for the page of its results.


def recalls_figure(rows: Sequence[Row], shared: Sequence[Row]) -> Any:
    """R@1 of each method over all phrases and over small instances with 95 % intervals, a panel for each network.

    Args:
        rows: of the networks, at most one for each network and method.
        shared: those that need no network; they are in every panel.

    Returns:
        a figure of matplotlib.
    """
    methods = methods_of([*rows, *shared])
    figure, panels = panels_of_methods(methods, models_of(rows), "R@1 [%]")
    shown = [_firsts(row) for row in [*rows, *shared]]
    for model, axes in panels.items():
        for offset, subset, look in zip((-0.13, 0.13), ("all phrases", "small instances"), LOOKS, strict=False):
            there = [row for row in [*rows, *shared] if row.model in {model, ""}]
            placed = [(methods.index(row.method) + offset, _firsts(row).get(subset)) for row in there]
            dots(axes, [(place, estimate) for place, estimate in placed if estimate is not None], subset, look)
        axes.set_xlim(*tens_around(estimate for each in shown for estimate in each.values()))
    legend(figure, next(iter(panels.values())))
    return figure


def ranks_figure(rows: Sequence[Row]) -> Any:
    """How many phrases have a right box among the first 1, 2 ... 10, a line for each row."""
    figure, axes = panel()
    for k, row in enumerate(rows):
        axes.plot(CURVE, row.all.curve, label=row.method, **line_style(k))
    axes.set_xticks(CURVE)
    axes.set_xlabel("first boxes that count, N", color=INK)
    axes.set_ylabel("R@N [%]", color=INK)
    axes.set_ylim(0, None)
    legend(figure, axes, columns=NAMES)
    return figure


def gammas_figure(rows: Sequence[Row]) -> Any:
    """The mean of R@1, R@5 and R@10 on held-out images by gamma; a large open mark is at the one that was chosen.

    Returns:
        a figure of matplotlib, or None where no gamma was searched.
    """
    searched = [(k, row) for k, row in enumerate(rows) if row.chosen.curve]
    if not searched:
        return None
    figure, axes = panel()
    for k, row in searched:
        style = line_style(k)
        axes.plot(GAMMAS, row.chosen.curve, label=row.method, **style)
        best = row.chosen.curve[GAMMAS.index(row.chosen.gamma)]
        axes.plot([row.chosen.gamma], [best], color=style["color"], marker=style["marker"], **OPEN)
    axes.set_xticks(PAPERS_GAMMAS)
    axes.set_xlabel("gamma: 0 for the largest regions, 1 for the densest", color=INK)
    axes.set_ylabel("mean of R@1, R@5 and R@10 [%]", color=INK)
    legend(figure, axes, columns=NAMES)
    return figure


def _firsts(row: Row) -> Mapping[str, Estimate]:
    """R@1 over all phrases, and over small instances where there are any."""
    small = {} if row.small is None else {"small instances": row.small.recalls[1]}
    return {"all phrases": row.all.recalls[1], **small}
