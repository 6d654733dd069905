"""The curves of the checks, drawn with matplotlib (the extra ``plots``)."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from excite.experiments.report.figures import INK, LOOKS, check_plots, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from excite.experiments.checks.base import Panel, Verdict

__all__ = ["curves_figure"]


def curves_figure(verdicts: Iterable[Verdict], method: str) -> Any:
    """All panels of the checks, side by side; the checked method is drawn thick. None where there are none."""
    check_plots()
    from matplotlib.figure import Figure

    panels = [panel for verdict in verdicts for panel in verdict.panels]
    if not panels:
        return None
    names = dict.fromkeys([method, *(line for panel in panels for line in panel.lines)])
    looks = dict(zip(names, cycle(LOOKS), strict=False))
    figure = Figure(figsize=(3.6 * len(panels), 3.9), layout="constrained")
    drawn: dict[str, Any] = {}
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        drawn |= _drawn(axes, panel, looks, method)
    shown = {name: drawn[name] for name in names if name in drawn}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=len(shown), frameon=False, fontsize=9)
    return figure


def _drawn(axes: Any, panel: Panel, looks: Mapping[str, tuple[str, str]], method: str) -> dict[str, Any]:
    """Draw a panel, and tell its lines by name."""
    lines = {}
    for name, points in panel.lines.items():
        colour, marker = looks[name]
        across, up = zip(*points, strict=True)
        width, above = (2.6, 3) if name == method else (1.3, 2)
        style = {"color": colour, "marker": marker, "markersize": 3.5, "linewidth": width, "zorder": above}
        (lines[name],) = axes.plot(across, up, **style)
    axes.set_title(panel.title, fontsize=10, color=INK)
    axes.set_xlabel(panel.across, fontsize=9, color=INK)
    axes.set_ylabel(panel.up, fontsize=9, color=INK)
    axes.set_ylim(min(0.0, axes.get_ylim()[0]), axes.get_ylim()[1])
    plain(axes)
    return lines
