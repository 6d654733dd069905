"""The paper's speed figure: what a map costs that ends at each layer, drawn with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.report.figure_parts import legend, line_style
from excite.experiments.report.figures import INK, check_plots, plain
from excite.experiments.speed.timing import C_MWP, GRADIENT, MWP
from excite.io.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from excite.experiments.speed.report import Row

__all__ = ["speed_figure"]

LINES = (C_MWP, MWP)


def speed_figure(rows: Sequence[Row], path: Path) -> Path | None:
    """Draw a panel for each network; None where nothing was measured that it could show.

    Example:
        >>> speed_figure(rows, Path("speed.png"))  # doctest: +SKIP
        PosixPath('speed.png')
    """
    check_plots()
    from matplotlib.figure import Figure

    shown = [row for row in rows if _is_shown(row)]
    networks = list(dict.fromkeys(row["network"] for row in shown if row["method"] in LINES))
    if not networks:
        return None
    most = max(len({row["layer"] for row in shown if row["network"] == network}) for network in networks)
    figure = Figure(figsize=(max(4.0, 0.42 * most) * len(networks), 4.8), layout="constrained")
    panels = figure.subplots(1, len(networks), squeeze=False)[0]
    for axes, network in zip(panels, networks, strict=True):
        _panel(axes, network, [row for row in shown if row["network"] == network])
    panels[0].set_ylabel("time, in plain forward passes", color=INK)
    figure.suptitle("One picture, one concept: what a map costs that ends at each layer", fontsize=11, color=INK)
    legend(figure, panels[0])
    return atomic_write(path, lambda file: figure.savefig(file, format="png", dpi=160, metadata={"Software": "excite"}))


def _is_shown(row: Row) -> bool:
    """One picture, one concept, on excite's own networks; the layer read unasked comes from the headline's rounds."""
    single = row["batch"] == 1 and row["concepts"] == 1 and row["group"] in {"pictures", "layers"}
    return single and row["ratio_to_forward"] is not None and row["method"] in {*LINES, GRADIENT}


def _panel(axes: Any, network: str, rows: Sequence[Row]) -> None:
    """Layers from top to bottom, left to right: the less of the network lies above, the cheaper."""
    above = {row["layer"]: row["above"] for row in rows if row["method"] in LINES}
    layers = sorted(above, key=lambda layer: above[layer])
    for number, method in enumerate(LINES):
        chosen = sorted((row for row in rows if row["method"] == method), key=lambda row: layers.index(row["layer"]))
        _line(axes, [layers.index(row["layer"]) for row in chosen], chosen, method, number)
    for row in rows:
        if row["method"] == GRADIENT:
            style = {**line_style(2), "marker": None, "label": "input gradient"}
            axes.axhline(row["ratio_to_forward"], **style)
            axes.axhspan(row["low"], row["high"], color=style["color"], alpha=0.15, linewidth=0)
    limits = [1 + 2 * above[layer] for layer in layers]
    axes.plot(range(len(layers)), limits, color=INK, linestyle="--", linewidth=1.3, label="arithmetic limit")
    usual = {row["layer"] for row in rows if row["group"] == "pictures"}
    axes.set_xticks(range(len(layers)), layers, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
    for tick, layer in zip(axes.get_xticklabels(), layers, strict=True):
        tick.set_fontweight("bold" if layer in usual else "normal")
    axes.set_title(f"{network}, {rows[0]['size']}", fontsize=10, color=INK, parse_math=False)
    axes.set_xlabel("layer, from top to bottom (bold: read unasked)", color=INK)
    axes.set_ylim(bottom=0)
    plain(axes)
    axes.tick_params(axis="x", labelsize=8)


def _line(axes: Any, places: Sequence[int], rows: Sequence[Row], label: str, number: int) -> None:
    values = [row["ratio_to_forward"] for row in rows]
    below = [max(0.0, row["ratio_to_forward"] - row["low"]) for row in rows]
    beyond = [max(0.0, row["high"] - row["ratio_to_forward"]) for row in rows]
    axes.errorbar(places, values, yerr=[below, beyond], label=label, elinewidth=1, capsize=2, **line_style(number))
