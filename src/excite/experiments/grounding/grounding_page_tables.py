"""The tables of grounding's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.grounding.grounding_facts import OWN
from excite.experiments.grounding.grounding_marks import RANKS
from excite.experiments.published_grounding import (
    GROUNDED_DATA,
    GROUNDED_ON,
    published_groups,
    published_ranks,
)
from excite.experiments.report.html import Html, element, joined, table
from excite.experiments.report.page import DASH, first_two, marked, ranked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.experiments.grounding.grounding_marks import Marks
    from excite.experiments.grounding.grounding_rows import Lead, Row
    from excite.metrics.statistics import Estimate

__all__ = ["called", "groups_table", "leads_table", "marks_table", "published_tables"]

OWN_NAME = "the proposals' own scores"


def marks_table(rows: Sequence[Row], *, small: bool = False) -> Html:
    """The paper's table: a line for each way to rank boxes; nothing where there is nothing small.

    Args:
        rows: of all networks, and those that need none.
        small: only over phrases that refer to something small.
    """
    found = [(row, row.small if small else row.all) for row in rows]
    there = [(row, marks) for row, marks in found if marks is not None]
    if not there:
        return Html("")
    columns = [_estimates([marks for _, marks in there], _recall(rank)) for rank in RANKS]
    columns += [_numbers([marks.map_group for _, marks in there]), _numbers([marks.map_phrase for _, marks in there])]
    columns.append(_estimates([marks for _, marks in there], lambda marks: marks.pointing))
    several = len({row.model for row in rows if row.model}) > 1
    body = [
        [
            called(row.method),
            *([row.model or DASH] * several),
            DASH if row.chosen.gamma is None else f"{row.chosen.gamma:g}",
            *(column[k] for column in columns),
            element("small", row.layer or DASH),
        ]
        for k, (row, _) in enumerate(there)
    ]
    of = "instances below a quarter of the picture" if small else "all phrases"
    return table(
        f"In percent over {of} ({there[0][1].phrases}), with 95 % intervals. Best in bold, second best underlined.",
        [
            "method",
            *(["network"] * several),
            "gamma",
            *(f"R@{rank}" for rank in RANKS),
            "group",
            "phrase",
            "pointing",
            "read at",
        ],
        body,
        groups=[("", 2 + several), ("recall", len(RANKS)), ("mAP", 2), ("", 2)],
    )


def leads_table(leads: Sequence[Lead]) -> Html:
    """How much better the main method is than everything else; nothing where there is nothing else."""
    if not leads:
        return Html("")
    several = len({lead.model for lead in leads}) > 1
    return table(
        f"By how many points {leads[0].method} is better in R@1, with 95 % intervals, paired over pictures.",
        [f"{leads[0].method} over", *(["network"] * several), "all phrases", "small instances"],
        [
            [called(lead.over), *([lead.model] * several), *(_points(each) for each in (lead.r1, lead.r1_small))]
            for lead in leads
        ],
    )


def groups_table(rows: Sequence[Row]) -> Html:
    """Recall at 5 of each group and their mean; nothing where the data know no groups."""
    groups = [group for group in rows[0].groups if any(row.groups[group] is not None for row in rows)]
    if not groups:
        return Html("")
    several = len({row.model for row in rows if row.model}) > 1
    best = {group: max(row.groups[group] or 0.0 for row in rows) for group in groups}
    means = [row.group_mean or 0.0 for row in rows]
    body = [
        [
            called(row.method),
            *([row.model or DASH] * several),
            *(_heat(row.groups[group], best[group]) for group in groups),
            marked(mean, first_two(means)),
        ]
        for row, mean in zip(rows, means, strict=True)
    ]
    return table(
        "Recall at 5 of each group in percent, the best in bold. The mean is over groups, so rare ones count as much "
        "as common ones.",
        ["method", *(["network"] * several), *groups, "mean"],
        body,
    )


def published_tables(data: str) -> Html:
    """The paper's two tables, whatever the data: there is nothing else to compare with."""
    other = "" if data == GROUNDED_DATA else " Other pictures, other phrases and another network: only the order of "
    other += "" if data == GROUNDED_DATA else "the methods can be compared."
    ranks, groups = published_ranks(), published_groups()
    return joined(
        [
            table(
                f"{GROUNDED_ON}: all phrases / small instances, in percent.{other}",
                list(ranks[0]),
                [list(line.values()) for line in ranks],
            ),
            table(
                "Recall at 5 of each group, and their mean.", list(groups[0]), [list(each.values()) for each in groups]
            ),
        ]
    )


def called(method: str) -> str:
    """How people call a method, or what is none.

    Example:
        >>> called("c-mwp"), called("proposals")
        ('c-mwp', "the proposals' own scores")
    """
    return OWN_NAME if method == OWN else method


def _points(gap: Estimate | None) -> str:
    if gap is None:
        return DASH
    return joined([f"{gap.value:+.1f}", element("small", f"{gap.low:+.1f} to {gap.high:+.1f}")])


def _recall(rank: int) -> Callable[[Marks], Estimate | None]:
    return lambda marks: marks.recalls[rank]


def _estimates(marks: Sequence[Marks], measure: Callable[[Marks], Estimate | None]) -> list[str]:
    """A column of values with their intervals, the best two marked."""
    values = [measure(each) for each in marks]
    best = first_two(value.value for value in values if value is not None and value.value)
    return [DASH if value is None else ranked(value, best) for value in values]


def _numbers(values: Sequence[float | None]) -> list[str]:
    best = first_two(value for value in values if value)  # nothing is best at nought
    return [DASH if value is None else marked(value, best) for value in values]


def _heat(value: float | None, best: float) -> str:
    if value is None:
        return DASH
    number = element("strong", f"{value:.1f}") if value == best > 0 else f"{value:.1f}"
    return element("span", number, class_="heat", style=f"--share: {0.7 * value:.0f}%")
