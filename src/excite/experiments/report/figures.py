"""Figures of the experiments, drawn with matplotlib (the extra ``plots``)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from excite.errors import DataError, shortened, visible
from excite.experiments.report.tables import MethodRow, methods_of, models_of
from excite.io.files import atomic_write
from excite.metrics.statistics import Estimate

# Colours that can be told apart with any colour blindness, after Okabe and Ito, and markers for prints without colour
LOOKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#56B4E9", "v"), ("#E69F00", "P"))
DASHES = ("-", "--", ":", "-.")  # for more methods than looks
INK, FAINT = "#333333", "#DDDDDD"
SIZE = (5.6, 4.4)  # inches: two figures fit side by side
NAMES = 4  # of a legend that fit side by side below it
OPEN = {"markersize": 11, "markeredgewidth": 2, "markerfacecolor": "none", "linestyle": "none", "zorder": 4}
"""A large open marker, at the chosen value."""


AnyRow = TypeVar("AnyRow", bound=MethodRow)


def check_plots() -> None:
    """Raise a `DataError` if matplotlib is missing: before hours of work."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        raise DataError("figures are drawn with matplotlib: pip install 'excite[plots]'") from None


def new_figure(width: float, height: float) -> Any:
    """An empty figure of that many inches."""
    check_plots()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_png(figure: Any, path: Path) -> Path:
    """Write a figure; the same figure gives the same bytes."""
    return atomic_write(path, lambda file: figure.savefig(file, format="png", dpi=160, metadata={"Software": "excite"}))


def label_of(name: str) -> str:
    """A name in a figure, which has no letters for control characters; of one or several lines."""
    return "\n".join(shortened(visible(line)) for line in name.split("\n"))


def style_axes(axes: Any, *, grid: str = "y") -> None:
    """Faint grid lines, and no frame at the top and right."""
    axes.grid(axis=grid, color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_color(INK)
    axes.tick_params(colors=INK, labelsize=9)


def interval_figure(
    rows: Sequence[AnyRow],
    measure: str,
    series: Mapping[str, Callable[[AnyRow], Estimate | None]],
    *,
    shared: Sequence[AnyRow] = (),
    columns: int = len(LOOKS),
) -> Any:
    """Methods from top to bottom, two estimates of each from left to right, a panel for each network.

    ``series`` gives, by label, the estimate of a row; None is not drawn. ``shared`` are rows without a network, drawn
    in every panel. ``columns`` are those of the legend, at most.
    """
    every = [*rows, *shared]
    methods, models = methods_of(every), models_of(rows)
    figure = new_figure(1.5 + 3.0 * len(models), 1.5 + 0.34 * len(methods))
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    panels[0].set_yticks(range(len(methods)), methods)
    panels[0].set_ylim(len(methods) - 0.5, -0.5)  # the first on top
    limits = tens_around(found for row in every for value in series.values() if (found := value(row)) is not None)
    for axes, model in zip(panels, models, strict=True):
        axes.set_title(label_of(model), fontsize=10, color=INK, parse_math=False)
        axes.set_xlabel(measure, color=INK)
        style_axes(axes, grid="x")
        there = [row for row in every if row.model in {model, ""}]
        for offset, (label, value), (colour, marker) in zip((-0.13, 0.13), series.items(), LOOKS, strict=False):
            placed = [(methods.index(row.method) + offset, found) for row in there if (found := value(row)) is not None]
            if placed:
                heights, values = zip(*placed, strict=True)
                style = {"color": colour, "marker": marker, "markersize": 5.5, "linestyle": "none", "elinewidth": 1.3}
                xs = [value.value for value in values]
                axes.errorbar(xs, heights, xerr=error_bars(values), label=label, capsize=2, **style)
        axes.set_xlim(*limits)
    legend(figure, panels[0], columns=columns)
    return figure


def curves_figure(
    xs: Sequence[float],
    curves: Iterable[tuple[int, str, Sequence[float], float | None]],
    names: tuple[str, str],
    *,
    sparse: bool = False,
) -> tuple[Any, Any]:
    """A figure of curves over the same values, and its axes; a large open marker is at the chosen value."""
    figure = new_figure(*SIZE)
    axes = figure.add_subplot()
    style_axes(axes)
    for number, label, heights, chosen in curves:
        style = line_style(number)
        if sparse:
            style |= {"markersize": 4, "markevery": (number % 2, max(2, len(xs) // 10))}
        axes.plot(xs, heights, label=label, **style)
        if chosen is not None:
            mark = {"color": style["color"], "marker": style["marker"], **OPEN}
            axes.plot([chosen], [heights[xs.index(chosen)]], **mark)
    axes.set_xlabel(names[0], color=INK)
    axes.set_ylabel(names[1], color=INK)
    legend(figure, axes, columns=NAMES)
    return figure, axes


def line(axes: Any, xs: Sequence[float], values: Sequence[Estimate], label: str, number: int) -> None:
    """Values from left to right with their intervals, in the line style of that number."""
    style = {**line_style(number), "elinewidth": 1, "capsize": 2}
    axes.errorbar(xs, [value.value for value in values], yerr=error_bars(values), label=label, **style)


def line_style(number: int) -> dict[str, Any]:
    """The style of the first, second ... line, which differ in colour, marker and dashes."""
    colour, marker = LOOKS[number % len(LOOKS)]
    dashes = DASHES[number // len(LOOKS) % len(DASHES)]
    return {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.6, "linestyle": dashes}


def error_bars(values: Sequence[Estimate]) -> list[list[float]]:
    """The lengths of the intervals below and above; never negative, as the bootstrap may not hold the value itself."""
    below = [max(0.0, value.value - value.low) for value in values]
    return [below, [max(0.0, value.high - value.value) for value in values]]


def name_layers(axes: Any, layers: Sequence[str], *, long: int) -> None:
    """Layers as ticks; turned where the first line of one has more than ``long`` letters."""
    longest = max(len(layer.partition("\n")[0]) for layer in layers)
    turned = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if longest > long else {}
    axes.set_xticks(range(len(layers)), map(label_of, layers), parse_math=False, **turned)


def legend(figure: Any, axes: Any, *, columns: int = len(LOOKS)) -> None:
    """A legend below all panels with at most that many columns."""
    handles, names = axes.get_legend_handles_labels()
    style = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handlelength": 2.8, "columnspacing": 1.5}
    figure.legend(handles, names, loc="outside lower center", ncols=min(columns, max(2, len(names))), **style)


def tens_around(values: Iterable[Estimate]) -> tuple[float, float]:
    """Axis limits at the tens around all intervals."""
    ends = [(value.low, value.high) for value in values]
    lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
    return 10 * math.floor(lowest / 10) - 1, 10 * math.ceil(highest / 10) + 1
