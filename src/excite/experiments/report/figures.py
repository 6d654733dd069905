"""The figures of the experiments, drawn with matplotlib (the extra ``plots``)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from excite.errors import DataError
from excite.io.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.experiments.layer_sweep import LayerReport, Row


# Colours that people with any colour blindness can tell apart, after Okabe and Ito, and marks for prints without colour
LOOKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#56B4E9", "v"), ("#E69F00", "P"))
INK, FAINT = "#333333", "#DDDDDD"
LONG_NAME = 11  # letters that fit side by side


def check_plots() -> None:
    """Whether figures can be drawn: asked before hours of work for them."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        raise DataError("figures are drawn with matplotlib: pip install 'excite[plots]'") from None


def layer_figure(report: LayerReport, title: str, path: Path) -> Path:
    """Draw how good each layer is, a line for each method with 95 % intervals; the recommended one is marked.

    Example:
        >>> layer_figure(report, "VOC val", Path("layers.png"))  # doctest: +SKIP
        PosixPath('layers.png')
    """
    check_plots()
    from matplotlib.figure import Figure

    layers = list(dict.fromkeys(row.layer for row in report.rows))
    sizes = {row.layer: row.size for row in report.rows}
    figure = Figure(figsize=(max(5.5, 0.85 * len(layers) + 1.5), 4.4), layout="constrained")
    axes = figure.add_subplot()
    for offset, look, rows in _lines(report):
        places = [layers.index(row.layer) + offset for row in rows]
        _line(axes, places, rows, report, look)
    labels = [f"{layer}\n{sizes[layer][0]}x{sizes[layer][1]}" for layer in layers]
    turned: dict[str, Any] = (
        {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if max(map(len, layers)) > LONG_NAME else {}
    )
    axes.set_xticks(range(len(layers)), labels, **turned)
    _tidy(axes, title, report)
    figure.legend(loc="outside lower center", ncols=len(LOOKS) + 1, frameon=False, fontsize=9)
    return atomic_write(path, lambda file: figure.savefig(file, format="png", dpi=160, metadata={"Software": "excite"}))


def _lines(report: LayerReport) -> Iterator[tuple[float, tuple[str, str], list[Row]]]:
    """For each method how far it is moved aside (so that intervals do not hide each other), its look and its rows."""
    methods = list(dict.fromkeys(row.method for row in report.rows))
    for k, method in enumerate(methods):
        offset = 0.14 * (k - (len(methods) - 1) / 2)
        yield offset, LOOKS[k % len(LOOKS)], [row for row in report.rows if row.method == method]


def _line(axes: Any, places: Sequence[float], rows: Sequence[Row], report: LayerReport, look: tuple[str, str]) -> None:
    colour, marker = look
    shares = [report.measure(row) for row in rows]
    values = [100 * share.value for share in shares]
    below = [100 * (share.value - share.interval[0]) for share in shares]
    above = [100 * (share.interval[1] - share.value) for share in shares]
    style = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.6, "elinewidth": 1.2, "capsize": 2.5}
    axes.errorbar(places, values, yerr=[below, above], label=rows[0].method, zorder=2, **style)
    for place, value, row in zip(places, values, rows, strict=True):
        if row is report.recommended:
            ring = {"s": 190, "facecolors": "none", "edgecolors": INK, "linewidths": 1.8, "zorder": 3}
            axes.scatter([place], [value], label=f"recommended: {row.layer}, {row.method}", **ring)


def _tidy(axes: Any, title: str, report: LayerReport) -> None:
    """Names for everything, and nothing that is not needed."""
    total = report.recommended.pointing.total
    pointing = report.by == "pointing"
    axes.set_ylabel("targets hit [%]" if pointing else "boxes that miss the object [%]", color=INK)
    axes.set_xlabel("layer, and the size of the map of a square image", color=INK)
    axes.set_title(f"{title}\n{total} targets that no choice was made on; bars: 95 % intervals", fontsize=10, color=INK)
    axes.set_ylim(*_limits(report))
    plain(axes)
    axes.tick_params(axis="x", labelsize=8)


def plain(axes: Any, *, grid: str = "y") -> None:
    """Faint lines to read values by, and nothing that is not needed."""
    axes.grid(axis=grid, color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_color(INK)
    axes.tick_params(colors=INK, labelsize=9)


def _limits(report: LayerReport) -> tuple[float, float]:
    """The tens around all intervals: there are no bars that would have to start at nought."""
    ends = [100 * end for row in report.rows for end in report.measure(row).interval]
    return 10 * math.floor(min(ends) / 10), min(100.0, 10 * math.ceil(max(ends) / 10)) + 1


# What the figures of several experiments have in common: panels, marks and lines, drawn with matplotlib.

SIZE = (5.6, 4.4)  # inches: two stand side by side
NAMES = 4  # that fit side by side below it
OPEN = {"markersize": 11, "markeredgewidth": 2, "markerfacecolor": "none", "linestyle": "none", "zorder": 4}
"""A large open mark, at what was chosen."""

STYLES = ("-", "--", ":", "-.")  # when there are more methods than looks


class Sided(Protocol):
    """A value with the ends of its interval, in percent."""

    @property
    def value(self) -> float:
        """The value itself."""

    @property
    def low(self) -> float:
        """Where its interval starts."""

    @property
    def high(self) -> float:
        """Where its interval ends."""


def panel() -> tuple[Any, Any]:
    """An empty figure of one panel, two of which stand side by side, and its axes.

    Example:
        >>> figure, axes = panel()
    """
    check_plots()
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    plain(axes)
    return figure, axes


def panels_of_methods(methods: Sequence[str], models: Sequence[str], measure: str) -> tuple[Any, Mapping[str, Any]]:
    """An empty figure with a panel for each network: methods from top to bottom, a measure from left to right.

    Returns:
        the figure, and for each network its axes; the first method's place is 0, the second one's 1.

    Example:
        >>> figure, panels = panels_of_methods(["mwp", "c-mwp"], ["resnet50"], "error [%]")
        >>> panels["resnet50"].get_xlabel()
        'error [%]'
    """
    check_plots()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 + 3.0 * len(models), 1.5 + 0.34 * len(methods)), layout="constrained")
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        axes.set_title(model, fontsize=10, color=INK, parse_math=False)
        axes.set_xlabel(measure, color=INK)
        plain(axes, grid="x")
    panels[0].set_yticks(range(len(methods)), methods)
    panels[0].set_ylim(len(methods) - 0.5, -0.5)  # the first on top
    return figure, dict(zip(models, panels, strict=True))


def dots(axes: Any, placed: Sequence[tuple[float, Sided]], label: str, look: tuple[str, str]) -> None:
    """A mark for each value with its interval from left to right."""
    if not placed:
        return
    places, values = zip(*placed, strict=True)
    colour, marker = look
    style = {"color": colour, "marker": marker, "markersize": 5.5, "linestyle": "none", "elinewidth": 1.3, "capsize": 2}
    axes.errorbar([value.value for value in values], places, xerr=_reach(values), label=label, **style)


def line(axes: Any, places: Sequence[float], values: Sequence[Sided], label: str, number: int) -> None:
    """Values from left to right with their intervals; the number says which look the line has."""
    style = {**line_style(number), "elinewidth": 1, "capsize": 2}
    axes.errorbar(places, [value.value for value in values], yerr=_reach(values), label=label, **style)


def line_style(number: int) -> dict[str, Any]:
    """How the line of the first, the second ... method looks: told apart by colour, by mark and by dashes.

    Example:
        >>> line_style(0)["linestyle"], line_style(7)["linestyle"]
        ('-', '--')
    """
    colour, marker = LOOKS[number % len(LOOKS)]
    dashes = STYLES[number // len(LOOKS) % len(STYLES)]
    return {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.6, "linestyle": dashes}


def aside(number: int, lines: int) -> float:
    """How far a line of so many is moved aside, so that intervals do not hide each other.

    Example:
        >>> [aside(k, 3) for k in range(3)]
        [-0.07, 0.0, 0.07]
    """
    return min(0.07, 0.5 / lines) * (number - (lines - 1) / 2)


def legend(figure: Any, axes: Any, *, columns: int = len(LOOKS)) -> None:
    """Below all panels, so that it hides nothing; at most so many names side by side."""
    handles, names = axes.get_legend_handles_labels()
    style = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handlelength": 2.8, "columnspacing": 1.5}
    figure.legend(handles, names, loc="outside lower center", ncols=min(columns, max(2, len(names))), **style)


def tens_around(values: Iterable[Sided]) -> tuple[float, float]:
    """The tens around all intervals: there are no bars that would have to start at nought."""
    ends = [(value.low, value.high) for value in values]
    lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
    return 10 * math.floor(lowest / 10) - 1, 10 * math.ceil(highest / 10) + 1


def _reach(values: Sequence[Sided]) -> list[list[float]]:
    """How far the intervals reach below and above; the mean of a resample may be off the mean itself."""
    below = [max(0.0, value.value - value.low) for value in values]
    return [below, [max(0.0, value.high - value.value) for value in values]]
