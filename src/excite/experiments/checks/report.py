"""The report of the checks: text, Markdown, a figure and a page."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from excite.experiments.checks.run import CHECKS
from excite.experiments.report.figures import INK, LOOKS, new_figure, save_png, style_axes
from excite.experiments.report.html import Html, drawing, element, facts_list, how_to_read, joined, table, write_page
from excite.experiments.report.tables import markdown_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from excite.experiments.checks.base import Panel, Verdict
    from excite.experiments.checks.run import SanityReport


READING = (
    "A check holds, is doubtful or fails. Figures are means over images with 95 % intervals; a rank correlation is 1 "
    "for maps that put all places in the same order and 0 for maps that have nothing to do with each other."
)


def curves_figure(verdicts: Iterable[Verdict], method: str) -> Any:
    """All panels of the checks, side by side; the checked method is drawn thick. None where there are none."""
    panels = [panel for verdict in verdicts for panel in verdict.panels]
    if not panels:
        return None
    names = dict.fromkeys([method, *(line for panel in panels for line in panel.lines)])
    looks = dict(zip(names, cycle(LOOKS), strict=False))
    figure = new_figure(3.6 * len(panels), 3.9)
    drawn: dict[str, Any] = {}
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        drawn |= _drawn(axes, panel, looks, method)
    shown = {name: drawn[name] for name in names if name in drawn}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=len(shown), frameon=False, fontsize=9)
    return figure


def _drawn(axes: Any, panel: Panel, looks: Mapping[str, tuple[str, str]], method: str) -> dict[str, Any]:
    """Draw a panel; the lines by name."""
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
    style_axes(axes)
    return lines


def text(report: SanityReport) -> list[str]:
    """The report as lines for a terminal: each check's standing and sentences, and then the summary.

    Example:
        >>> text(report)[-1]  # doctest: +SKIP
        'Yes: the maps of c-mwp at blocks.14 of efficientnet-lite0 passed all 6 checks on 8 images.'
    """
    lines = []
    for name, verdict in report.verdicts.items():
        first, *more = verdict.sentences
        lines.append(f"{verdict.standing:9} {name:14} {first}")
        lines += [f"{'':9} {'':14} {sentence}" for sentence in more]
    return [*lines, report.summary()]


def markdown(report: SanityReport, command: str) -> str:
    """The report as a section of a page of documentation.

    Example:
        >>> markdown(report, "excite check resnet50 photos").splitlines()[0]  # doctest: +SKIP
        '### resnet50, c-mwp at layer3'
    """
    parts = [f"### {report.model}, {report.method} at {report.layer}", report.summary(), f"Command: `{command}`"]
    for name, verdict in report.verdicts.items():
        parts += [f"**{CHECKS[name].question}** {verdict.standing.capitalize()}.", " ".join(verdict.sentences)]
        parts += [markdown_table(verdict.rows)] if name != "mass" else []
    return "\n\n".join(parts) + "\n"


def write_figure(report: SanityReport, path: Path) -> Path | None:
    """Draw the curves; None where the checks have none."""
    figure = curves_figure(report.verdicts.values(), report.method)
    return None if figure is None else save_png(figure, path)


def write_html(report: SanityReport, facts: list[tuple[str, str]], command: str, path: Path) -> Path:
    """Write the report as an HTML page."""
    figure = curves_figure(report.verdicts.values(), report.method)
    sections = {"Summary": element("p", element("strong", report.summary()))}
    if figure is not None:
        titles = [panel.title for verdict in report.verdicts.values() for panel in verdict.panels]
        sections["Curves"] = drawing(figure, f"Curves: {', '.join(titles)}")
    sections |= {CHECKS[name].question: _section(verdict) for name, verdict in report.verdicts.items()}
    sections["How to read this"] = joined([facts_list(facts), how_to_read(READING, command)])
    title = f"Can these maps be relied on? {report.model}, {report.method}"
    return write_page(path, title, f"Checked on {report.pictures} images.", sections)


def _section(verdict: Verdict) -> Html:
    columns = list(verdict.rows[0])
    rows = [[row[column] for column in columns] for row in verdict.rows]
    words = element("p", element("strong", verdict.standing.capitalize()), ". ", " ".join(verdict.sentences))
    return joined([words, table("Over all images", columns, rows)])
