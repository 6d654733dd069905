"""The page of grounding's results: one HTML file with its tables, figures and pictures inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.grounding.grounding_figures import gammas_figure, ranks_figure, recalls_figure
from excite.experiments.grounding.grounding_page_about import measured
from excite.experiments.grounding.grounding_page_examples import examples
from excite.experiments.grounding.grounding_page_tables import (
    groups_table,
    leads_table,
    marks_table,
    published_tables,
)
from excite.experiments.grounding.report import all_rows
from excite.experiments.grounding.run import MAIN
from excite.experiments.report.figures import check_plots
from excite.experiments.report.html import Html, drawing, element, joined, page
from excite.experiments.report.page import bullets, how_to_read, main_method, save_page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from excite.experiments.grounding.grounding_run import Run

__all__ = ["FILE", "write"]

FILE = "grounding.html"
CHOSEN = "Where gamma goes from 0 to 1, a large open mark is at the one that the held-out pictures chose."
READING = (
    "A phrase is read word by word: the map of each word that the network knows tells where it sees it, and their mean "
    "is the map of the phrase. Proposed regions are ranked by how much of the map they hold for their size. R@N is the "
    "share of phrases with a right box among the first N; mAP ranks the boxes of all mentions of a group, or of a "
    "phrase, together; pointing asks only whether the highest point of the map lies in what is meant. The proposals' "
    "own scores look at no phrase, so what is above them was found by reading. Phrases without any word that the "
    "network knows are asked as well: all that it finds in the picture stands for them. Two numbers whose intervals "
    "overlap widely are not told apart by these pictures; the paired differences are surer."
)


def write(out: Path, runs: Sequence[Run], *, command: str = "") -> Path:
    """Write the page; runs on the same records give the same bytes.

    Args:
        out: the folder for it.
        runs: the experiment of each network, on the same pictures.
        command: what to type to get it again.

    Returns:
        The path of the page.

    Example:
        >>> write(Path("out"), [asking.run(chosen, records)])  # doctest: +SKIP
        PosixPath('out/grounding.html')
    """
    check_plots()
    return save_page(_Page(runs).text(command), out / FILE)


class _Page:
    """The sections of the page; one that has nothing to show is left out."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.rows = [row for run in runs for row in run.rows]
        self.main = main_method(self.rows, MAIN)

    def text(self, command: str) -> str:
        run, rows = self.runs[0], all_rows(self.runs)
        sections = {
            "What was measured": measured(self.runs),
            "Recall": self._recall(),
            "Small instances": marks_table(rows, small=True),
            "How many boxes, and which gamma": self._curves(),
            "Groups": groups_table(rows),
            "The paper's tables": published_tables(run.dataset_name),
            "Examples": examples(self.runs, self.main),
            "How to read it": how_to_read(READING, command),
        }
        introduction = (
            f"Which region of a picture does a phrase refer to? Measured on {run.dataset_name} {run.split}: "
            f"{run.about['reported']} pictures, {run.about['phrases']} phrases."
        )
        return page("Grounding phrases", introduction, [each for each in sections.items() if each[1]])

    def _recall(self) -> Html:
        figure = drawing(recalls_figure(self.rows, self.runs[0].shared), "R@1 of all methods with their 95 % intervals")
        missing = [
            f"{row.method} has no result for {row.missing} of {row.all.phrases} phrases: these count as missed"
            for row in self.runs[0].shared
            if row.missing
        ]
        compared = leads_table([lead for run in self.runs for lead in run.leads])
        both = element("div", figure, compared, class_="beside")
        return joined([marks_table(all_rows(self.runs)), both, bullets(missing)])

    def _curves(self) -> Html:
        parts: list[Html] = []
        for run in self.runs:
            name = run.classifier_name
            drawn = [
                _figure(ranks_figure([*run.rows, *run.shared]), f"{name}: recall of each method by number of boxes")
            ]
            gammas = gammas_figure(run.rows)
            if gammas is not None:
                drawn.append(_figure(gammas, f"{name}: recall of each method by gamma, on held-out pictures"))
            parts += [element("h3", name)] * (len(self.runs) > 1) + [element("div", *drawn, class_="beside")]
        searched = any(row.chosen.curve for row in self.rows)
        return joined([*([element("p", CHOSEN)] if searched else []), *parts])


def _figure(figure: Any, alt: str) -> Html:
    return element("figure", drawing(figure, alt))
