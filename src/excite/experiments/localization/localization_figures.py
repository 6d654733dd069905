"""The figures of localisation, drawn with matplotlib (the extra ``plots``) for the page of its results."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from excite.experiments.localization.localization_page_words import WAYS
from excite.experiments.report.figure_parts import (
    NAMES,
    OPEN,
    dots,
    legend,
    line,
    line_style,
    panel,
    panels_of_methods,
    tens_around,
)
from excite.experiments.report.figures import FAINT, INK, LOOKS, check_plots, plain
from excite.experiments.report.page import DASH, in_percent, methods_of, models_of
from excite.metrics.statistics import Share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.experiments.localization.localization_page_fits import Pair
    from excite.experiments.localization.scores import Row

__all__ = ["curves_figure", "errors_figure", "size_groups", "sizes_figure"]

GROUPS = 5
ACROSS, SMALL = 5, (1.9, 1.75)  # at most so many small panels side by side, and the inches of each
DOTS = {"paper": f"{WAYS['paper']} (the paper's)", "max-largest": WAYS["max-largest"]}


def errors_figure(rows: Sequence[Row]) -> Any:
    """Each method's error by the paper's rule and by the one that is common today, a panel for each network.

    Args:
        rows: at most one for each network and method.

    Returns:
        a figure of matplotlib.
    """
    methods = methods_of(rows)
    figure, panels = panels_of_methods(methods, models_of(rows), "error [%]")
    shown = {rule: [in_percent(row.rules[rule].error) for row in rows] for rule in DOTS}
    for model, axes in panels.items():
        for offset, rule, look in zip((-0.13, 0.13), DOTS, LOOKS, strict=False):
            both = zip(rows, shown[rule], strict=True)
            placed = [(methods.index(row.method) + offset, error) for row, error in both if row.model == model]
            dots(axes, placed, DOTS[rule], look)
        axes.set_xlim(*tens_around(error for errors in shown.values() for error in errors))
    legend(figure, next(iter(panels.values())), columns=1)
    return figure


def curves_figure(rows: Sequence[Row], rule: str, thresholds: Sequence[float], name: str) -> Any:
    """The error at each threshold, a line for each method; a large open mark is at the threshold that was chosen.

    A method whose maps are all empty is not drawn.

    Args:
        rows: of one network, at most one for each method.
        rule: which way to find the box.
        thresholds: what is tried by that rule.
        name: what they are called.
    """
    figure, axes = panel()
    for k in _boxing(rows):
        row, found = rows[k], rows[k].rules[rule]
        style = {**line_style(k), "markersize": 4, "markevery": (k % 2, max(2, len(thresholds) // 10))}
        axes.plot(thresholds, found.curve, label=row.method, **style)
        chosen = found.curve[thresholds.index(found.threshold)]
        axes.plot([found.threshold], [chosen], color=style["color"], marker=style["marker"], **OPEN)
    axes.set_xlabel(name, color=INK)
    axes.set_ylabel("error [%]", color=INK)
    axes.set_ylim(None, 101)
    legend(figure, axes, columns=NAMES)
    return figure


def sizes_figure(pairs: Sequence[Pair], rows: Sequence[Row]) -> Any:
    """The error on small and on large objects with 95 % intervals, a panel for each method before all the others.

    Args:
        pairs: with what each row found in them.
        rows: of one network, at most one for each method.

    Returns:
        a figure of matplotlib, or None where there are too few pairs to be told apart by size. A method whose maps are
        all empty is not drawn.
    """
    groups = size_groups(pairs)
    if len(groups) < GROUPS:
        return None
    errors = {k: [in_percent(_error(group, k)) for _, group in groups] for k in _boxing(rows)}
    if not errors:
        return None
    figure, panels = _small_panels(len(errors))
    places = range(len(groups))
    for k, axes in zip(errors, panels, strict=True):
        plain(axes)
        for others in errors.values():
            axes.plot(places, [error.value for error in others], color=FAINT, linewidth=1)
        line(axes, places, errors[k], rows[k].method, k)
        axes.set_title(rows[k].method, fontsize=9, color=INK, parse_math=False)
        axes.set_xticks(places, [sizes for sizes, _ in groups], rotation=60)
        axes.tick_params(labelsize=7.5)
    panels[0].set_ylim(-3, 103)
    figure.supxlabel("the object's box, in percent of the picture", fontsize=9, color=INK)
    figure.supylabel("error [%]", fontsize=9, color=INK)
    return figure


def size_groups(pairs: Sequence[Pair]) -> list[tuple[str, Sequence[Pair]]]:
    """Fifths of the pairs, from the smallest objects to the largest, each with the sizes in it.

    Example:
        >>> from excite.experiments.localization.localization_page_fits import Pair
        >>> pairs = [Pair(str(side), (10, 10), "cat", ((0, 0, 10, side),), ()) for side in range(1, 11)]
        >>> [sizes.split(DASH) for sizes, _ in size_groups(pairs)]
        [['10', '20'], ['30', '40'], ['50', '60'], ['70', '80'], ['90', '100']]
    """
    ordered = sorted(pairs, key=lambda pair: pair.share)
    ends = [round(k * len(ordered) / GROUPS) for k in range(GROUPS + 1)]
    parts = [ordered[start:end] for start, end in pairwise(ends) if end > start]
    return [(f"{100 * part[0].share:.0f}{DASH}{100 * part[-1].share:.0f}", part) for part in parts]


def _boxing(rows: Sequence[Row]) -> list[int]:
    """The numbers of the rows that have boxes at all."""
    return [k for k, row in enumerate(rows) if row.empty < row.error.total]


def _error(pairs: Sequence[Pair], row: int) -> Share:
    return Share(sum(pair.found[row].manner != "fits" for pair in pairs), len(pairs))


def _small_panels(count: int) -> tuple[Any, list[Any]]:
    """So many panels that share their axes, in rows."""
    check_plots()
    from matplotlib.figure import Figure

    down = math.ceil(count / ACROSS)
    across = math.ceil(count / down)
    size = 0.6 + SMALL[0] * across, 0.6 + SMALL[1] * down
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    for spare in panels[count:]:
        spare.set_axis_off()
    for above in panels[max(0, count - across) : across * (down - 1)]:
        above.tick_params(labelbottom=True)  # there is no panel below it
    return figure, list(panels[:count])
