"""What the checks say, for people: a page, and Markdown for documentation."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from excite.experiments.checks.run import CHECKS
from excite.experiments.report.figures import INK, LOOKS, check_plots, plain
from excite.experiments.report.html import Html, drawing, element, joined, markdown_table, page, table
from excite.experiments.report.page import facts_list, how_to_read, save_page
from excite.io.files import atomic_write, save_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from excite.experiments.checks.base import Panel, Verdict
    from excite.experiments.checks.run import SanityReport


# The curves of the checks, drawn with matplotlib (the extra ``plots``).


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


# What the checks say, for people: a page, and Markdown for documentation.

READING = (
    "A check holds, is doubtful or fails. Figures are means over images with 95 % intervals; a rank correlation is 1 "
    "for maps that put all places in the same order and 0 for maps that have nothing to do with each other."
)


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


def write_markdown(report: SanityReport, command: str, path: Path) -> Path:
    """Write `markdown` to a file."""
    return save_text(markdown(report, command), path)


def write_figure(report: SanityReport, path: Path) -> Path | None:
    """Draw the curves; None where the checks that were made have none."""
    figure = curves_figure(report.verdicts.values(), report.method)
    if figure is None:
        return None
    about = {"Software": "excite"}
    return atomic_write(path, lambda file: figure.savefig(file, format="png", dpi=160, metadata=about))


def write_page(report: SanityReport, facts: list[tuple[str, str]], command: str, path: Path) -> Path:
    """The report as a page of one file."""
    figure = curves_figure(report.verdicts.values(), report.method)
    sections = [("Summary", element("p", element("strong", report.summary())))]
    if figure is not None:
        titles = [panel.title for verdict in report.verdicts.values() for panel in verdict.panels]
        sections.append(("Curves", drawing(figure, f"Curves: {', '.join(titles)}")))
    sections += [(CHECKS[name].question, _section(verdict)) for name, verdict in report.verdicts.items()]
    sections.append(("How to read this", joined([facts_list(facts), how_to_read(READING, command)])))
    title = f"Can these maps be relied on? {report.model}, {report.method}"
    return save_page(page(title, f"Checked on {report.pictures} images.", sections), path)


def _section(verdict: Verdict) -> Html:
    columns = list(verdict.rows[0])
    rows = [[row[column] for column in columns] for row in verdict.rows]
    words = element("p", element("strong", verdict.standing.capitalize()), ". ", " ".join(verdict.sentences))
    return joined([words, table("Over all images", columns, rows)])
