"""What the checks say, for people: a page, and Markdown for documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.checks.checks import CHECKS
from excite.experiments.checks.figures import curves_figure
from excite.experiments.report.html import Html, drawing, element, joined, page, table
from excite.experiments.report.page import facts_list, how_to_read, save_page
from excite.experiments.report.tables import markdown_table
from excite.io.files import atomic_write, save_text

if TYPE_CHECKING:
    from pathlib import Path

    from excite.experiments.checks.base import Verdict
    from excite.experiments.checks.run import SanityReport

__all__ = ["markdown", "text", "write_figure", "write_markdown", "write_page"]

READING = (
    "A check holds, is doubtful or fails. Figures are means over pictures with 95 % intervals; a rank correlation is 1 "
    "for maps that put all places in the same order and 0 for maps that have nothing to do with each other."
)


def text(report: SanityReport) -> list[str]:
    """The report as lines for a terminal: each check's standing and sentences, and then the summary.

    Example:
        >>> text(report)[-1]  # doctest: +SKIP
        'Yes: the maps of c-mwp at blocks.14 of efficientnet-lite0 passed all 6 checks on 8 pictures.'
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
    return save_page(page(title, f"Checked on {report.pictures} pictures.", sections), path)


def _section(verdict: Verdict) -> Html:
    columns = list(verdict.rows[0])
    rows = [[row[column] for column in columns] for row in verdict.rows]
    words = element("p", element("strong", verdict.standing.capitalize()), ". ", " ".join(verdict.sentences))
    return joined([words, table("Over all pictures", columns, rows)])
