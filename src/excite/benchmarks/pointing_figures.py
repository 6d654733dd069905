"""The figures of the Pointing Game, drawn with matplotlib (the extra ``plots``) for the page of its results."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

from excite.benchmarks.plots import INK, LOOKS, check_plots, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.benchmarks.pointing_tally import Row, Score

__all__ = ["layers_figure", "scores_figure"]

SUBSETS = {"all": "All", "difficult": "Difficult"}
LONG_NAME = 8  # letters of a layer that fit side by side
STYLES = ("-", "--", ":", "-.")  # when there are more methods than looks


def scores_figure(rows: Sequence[Row]) -> Any:
    """Each method's score on all and on Difficult pairs with 95 % intervals, a panel for each network.

    Args:
        rows: at most one for each network and method.

    Returns:
        a figure of matplotlib.
    """
    check_plots()
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(row.method for row in rows))
    models = list(dict.fromkeys(row.model for row in rows))
    size = 1.5 + 3.0 * len(models), 1.5 + 0.34 * len(methods)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        of_model = [row for row in rows if row.model == model]
        for offset, subset, look in ((-0.13, "all", LOOKS[0]), (0.13, "difficult", LOOKS[1])):
            _dots(axes, [(methods.index(row.method) + offset, row) for row in of_model], subset, look)
        axes.set_title(model, fontsize=10, color=INK, parse_math=False)
        axes.set_xlabel("mean accuracy [%]", color=INK)
        axes.set_xlim(*_limits(rows))
        plain(axes, grid="x")
    panels[0].set_yticks(range(len(methods)), methods)
    panels[0].set_ylim(len(methods) - 0.5, -0.5)  # the first on top
    _legend(figure, panels[0])
    return figure


def layers_figure(rows: Sequence[Row]) -> Any:
    """How good each method is at each layer, a panel for all and one for Difficult pairs.

    Args:
        rows: of one network.

    Returns:
        a figure of matplotlib, or None where no method was read at several layers. One whose maps are all empty is not
        drawn.
    """
    lines = [list(group) for _, group in groupby(sorted(rows, key=_place_in(rows)), key=lambda row: row.method)]
    lines = [line for line in lines if len(line) > 1 and any(row.empty < row.all.pairs for row in line)]
    if not lines:
        return None
    check_plots()
    from matplotlib.figure import Figure

    drawn = [row for line in lines for row in line]
    layers = list(dict.fromkeys(row.layer for row in drawn))
    subsets = [subset for subset in SUBSETS if any(_score(row, subset) for row in drawn)]
    figure = Figure(figsize=(1.5 + len(subsets) * max(3.2, 0.62 * len(layers)), 4.2), layout="constrained")
    panels = figure.subplots(1, len(subsets), sharey=True, squeeze=False)[0]
    for axes, subset in zip(panels, subsets, strict=True):
        for k, line in enumerate(lines):
            offset = min(0.07, 0.5 / len(lines)) * (
                k - (len(lines) - 1) / 2
            )  # so that intervals do not hide each other
            _line(axes, line, layers, subset, k, offset)
        axes.set_title(SUBSETS[subset], fontsize=10, color=INK)
        _name_layers(axes, layers)
        plain(axes)
    panels[0].set_ylabel("mean accuracy [%]", color=INK)
    panels[0].set_ylim(*_limits(drawn))
    _legend(figure, panels[0])
    return figure


def _place_in(rows: Sequence[Row]) -> Any:
    """By method, in the order in which they come; layers keep theirs."""
    methods = list(dict.fromkeys(row.method for row in rows))
    return lambda row: methods.index(row.method)


def _dots(axes: Any, placed: Sequence[tuple[float, Row]], subset: str, look: tuple[str, str]) -> None:
    """A mark for each score with its interval from left to right."""
    found = [(place, score) for place, row in placed if (score := _score(row, subset)) is not None]
    if not found:
        return
    places, scores = zip(*found, strict=True)
    colour, marker = look
    style = {"color": colour, "marker": marker, "markersize": 5.5, "linestyle": "none", "elinewidth": 1.3, "capsize": 2}
    axes.errorbar([score.value for score in scores], places, xerr=_reach(scores), label=SUBSETS[subset], **style)


def _line(axes: Any, rows: Sequence[Row], layers: Sequence[str], subset: str, number: int, offset: float) -> None:
    """A method's scores from layer to layer, with their intervals; the number says which look it has."""
    found = [(layers.index(row.layer), score) for row in rows if (score := _score(row, subset)) is not None]
    places, scores = zip(*found, strict=True)
    colour, marker = LOOKS[number % len(LOOKS)]
    style = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.6, "elinewidth": 1, "capsize": 2}
    style["linestyle"] = STYLES[number // len(LOOKS) % len(STYLES)]
    values = [score.value for score in scores]
    axes.errorbar([place + offset for place in places], values, yerr=_reach(scores), label=rows[0].method, **style)


def _name_layers(axes: Any, layers: Sequence[str]) -> None:
    turned = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if max(map(len, layers)) > LONG_NAME else {}
    axes.set_xticks(range(len(layers)), layers, parse_math=False, **turned)
    axes.set_xlabel("layer", color=INK)


def _legend(figure: Any, axes: Any) -> None:
    """Below all panels, so that it hides nothing."""
    handles, names = axes.get_legend_handles_labels()
    style = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handlelength": 2.8, "columnspacing": 1.5}
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(LOOKS), max(2, len(names))), **style)


def _score(row: Row, subset: str) -> Score | None:
    return row.all if subset == "all" else row.difficult


def _reach(scores: Sequence[Score]) -> list[list[float]]:
    """How far the intervals reach below and above; the mean of a resample may be off the mean itself."""
    below = [max(0.0, score.value - score.low) for score in scores]
    return [below, [max(0.0, score.high - score.value) for score in scores]]


def _limits(rows: Sequence[Row]) -> tuple[float, float]:
    """The tens around all intervals: there are no bars that would have to start at nought."""
    scores = [score for row in rows for score in (row.all, row.difficult) if score is not None]
    lowest, highest = min(score.low for score in scores), max(score.high for score in scores)
    return 10 * math.floor(lowest / 10) - 1, 10 * math.ceil(highest / 10) + 1
