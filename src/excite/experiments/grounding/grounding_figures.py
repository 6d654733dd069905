"""The figures of grounding, drawn with matplotlib (the extra ``plots``) for the page of its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.grounding.grounding_marks import CURVE
from excite.experiments.grounding.measure import GAMMAS, PAPERS_GAMMAS
from excite.experiments.report.figure_parts import (
    NAMES,
    OPEN,
    dots,
    legend,
    line_style,
    panel,
    panels_of_methods,
    tens_around,
)
from excite.experiments.report.figures import INK, LOOKS
from excite.experiments.report.page import methods_of, models_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.experiments.grounding.grounding_rows import Row
    from excite.metrics.statistics import Estimate

__all__ = ["gammas_figure", "ranks_figure", "recalls_figure"]


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
    """The mean of R@1, R@5 and R@10 on held-out pictures by gamma; a large open mark is at the one that was chosen.

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
