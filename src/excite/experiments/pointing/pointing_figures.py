"""The figures of the Pointing Game, drawn with matplotlib (the extra ``plots``) for the page of its results."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from excite.experiments.report.figure_parts import aside, dots, legend, line, panels_of_methods, tens_around
from excite.experiments.report.figures import INK, LOOKS, check_plots, plain
from excite.experiments.report.page import methods_of, models_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.experiments.pointing.scores import Row, Score

__all__ = ["layers_figure", "scores_figure"]

SUBSETS = {"all": "All", "difficult": "Difficult"}
LONG_NAME = 8  # letters of a layer that fit side by side


def scores_figure(rows: Sequence[Row]) -> Any:
    """Each method's score on all and on Difficult pairs with 95 % intervals, a panel for each network.

    Args:
        rows: at most one for each network and method.

    Returns:
        a figure of matplotlib.
    """
    methods = methods_of(rows)
    figure, panels = panels_of_methods(methods, models_of(rows), "mean accuracy [%]")
    for model, axes in panels.items():
        for offset, subset, look in ((-0.13, "all", LOOKS[0]), (0.13, "difficult", LOOKS[1])):
            placed = [(methods.index(row.method) + offset, _score(row, subset)) for row in rows if row.model == model]
            dots(axes, [(place, score) for place, score in placed if score is not None], SUBSETS[subset], look)
        axes.set_xlim(*tens_around(_scores(rows)))
    legend(figure, next(iter(panels.values())))
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
    lines = [each for each in lines if len(each) > 1 and any(row.empty < row.all.pairs for row in each)]
    if not lines:
        return None
    check_plots()
    from matplotlib.figure import Figure

    drawn = [row for each in lines for row in each]
    layers = list(dict.fromkeys(row.layer for row in drawn))
    subsets = [subset for subset in SUBSETS if any(_score(row, subset) for row in drawn)]
    figure = Figure(figsize=(1.5 + len(subsets) * max(3.2, 0.62 * len(layers)), 4.2), layout="constrained")
    panels = figure.subplots(1, len(subsets), sharey=True, squeeze=False)[0]
    for axes, subset in zip(panels, subsets, strict=True):
        for k, each in enumerate(lines):
            _line(axes, each, layers, subset, k, aside(k, len(lines)))
        axes.set_title(SUBSETS[subset], fontsize=10, color=INK)
        _name_layers(axes, layers)
        plain(axes)
    panels[0].set_ylabel("mean accuracy [%]", color=INK)
    panels[0].set_ylim(*tens_around(_scores(drawn)))
    legend(figure, panels[0])
    return figure


def _place_in(rows: Sequence[Row]) -> Any:
    """By method, in the order in which they come; layers keep theirs."""
    methods = methods_of(rows)
    return lambda row: methods.index(row.method)


def _line(axes: Any, rows: Sequence[Row], layers: Sequence[str], subset: str, number: int, offset: float) -> None:
    """A method's scores from layer to layer, with their intervals; the number says which look it has."""
    found = [(layers.index(row.layer) + offset, score) for row in rows if (score := _score(row, subset)) is not None]
    places, scores = zip(*found, strict=True)
    line(axes, places, scores, rows[0].method, number)


def _name_layers(axes: Any, layers: Sequence[str]) -> None:
    turned = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if max(map(len, layers)) > LONG_NAME else {}
    axes.set_xticks(range(len(layers)), layers, parse_math=False, **turned)
    axes.set_xlabel("layer", color=INK)


def _score(row: Row, subset: str) -> Score | None:
    return row.all if subset == "all" else row.difficult


def _scores(rows: Sequence[Row]) -> Iterator[Score]:
    return (score for row in rows for score in (row.all, row.difficult) if score is not None)
