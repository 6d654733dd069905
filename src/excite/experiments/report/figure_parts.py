"""What the figures of several experiments have in common: panels, marks and lines, drawn with matplotlib."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from excite.experiments.report.figures import INK, LOOKS, check_plots, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "NAMES",
    "OPEN",
    "Sided",
    "aside",
    "dots",
    "legend",
    "line",
    "line_style",
    "panel",
    "panels_of_methods",
    "tens_around",
]

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
