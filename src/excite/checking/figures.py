"""The curves of the checks, drawn with matplotlib (the extra ``plots``)."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from excite.benchmarks.plots import INK, LOOKS, check_plots, plain
from excite.checking.checks import CHECKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from excite.checking.check import Verdict

__all__ = ["curves_figure"]


def curves_figure(verdicts: Mapping[str, Verdict], method: str) -> Any:
    """A panel for each check that has curves; the checked method is drawn thick. None where no check has any."""
    check_plots()
    from matplotlib.figure import Figure

    shown = [name for name, verdict in verdicts.items() if verdict.curves]
    if not shown:
        return None
    figure = Figure(figsize=(4.3 * len(shown), 4.4), layout="constrained")
    names = dict.fromkeys([method, *(line for name in shown for line in verdicts[name].curves)])
    looks = dict(zip(names, cycle(LOOKS), strict=False))
    for axes, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        _panel(axes, name, verdicts[name], looks, method)
    handles = {
        label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    return figure


def _panel(axes: Any, name: str, verdict: Verdict, looks: Mapping[str, tuple[str, str]], method: str) -> None:
    for line, points in verdict.curves.items():
        colour, marker = looks[line]
        across, up = zip(*points, strict=True)
        thick = 2.6 if line == method else 1.3
        axes.plot(across, up, color=colour, marker=marker, markersize=3.5, linewidth=thick, label=line)
    axes.set_title(CHECKS[name].question, fontsize=10, color=INK)
    axes.set_xlabel(CHECKS[name].axes[0], fontsize=9, color=INK)
    axes.set_ylabel(CHECKS[name].axes[1], fontsize=9, color=INK)
    axes.set_ylim(min(0.0, axes.get_ylim()[0]), max(1.02, axes.get_ylim()[1]))
    plain(axes)
