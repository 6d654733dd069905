"""What grounding found, for the terminal and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.base import failures_of
from excite.experiments.grounding.grounding_marks import RANKS
from excite.experiments.grounding.measure import GAMMAS
from excite.experiments.published_grounding import (
    GROUNDED_DATA,
    GROUNDED_ON,
    published_groups,
    published_ranks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from excite.experiments.grounding.grounding_marks import Marks
    from excite.experiments.grounding.grounding_rows import Row
    from excite.experiments.grounding.grounding_run import Run
    from excite.metrics.statistics import Estimate

__all__ = [
    "all_rows",
    "answer",
    "group_values",
    "left_out_lines",
    "lines",
    "paper_tables",
    "sentences",
    "shares_of_time",
    "times",
    "titled_tables",
]

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
        "small instances, below a quarter of the picture": lines(runs, small=True),
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
    chosen = f"; pictures held out to choose gamma on: {held}" if held else ""
    truth = "the box around all that a phrase refers to" if protocol["truth"] == "union" else "any of its boxes"
    measured = (
        f"{run.dataset_name} {run.split}: {marks.all.phrases} phrases, {small} of them small, in {about['reported']} "
        f"pictures, with 95 % intervals{chosen}; right is a box that overlaps by a half with {truth}"
    )
    proposed = f"proposals: {protocol['proposals']}, {about['proposals']:.0f} in a picture; one of them is right for "
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
    """The mean recall of each method at each gamma, on the held-out pictures."""
    for row in run.rows:
        for gamma, recall in zip(GAMMAS, row.chosen.curve, strict=False):
            yield {"model": row.model, "method": row.method, "gamma": gamma, "mean_recall": round(recall, 2)}


def paper_tables() -> dict[str, list[dict[str, str]]]:
    """The paper's two tables, by their titles."""
    return {
        f"the paper's own ({GROUNDED_ON}), all phrases / small instances": published_ranks(),
        f"the paper's {GROUP_TITLE}": published_groups(),
    }
