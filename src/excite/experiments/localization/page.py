"""The page of localisation's results: one HTML file with its tables, figures and pictures inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.experiments.localization.localization_figures import curves_figure, errors_figure, sizes_figure
from excite.experiments.localization.localization_page_about import measured
from excite.experiments.localization.localization_page_examples import examples
from excite.experiments.localization.localization_page_fits import manners_table, pairs_of, whole_picture
from excite.experiments.localization.localization_page_tables import (
    conventions_table,
    errors_table,
    layers_table,
    others_published,
    papers_alphas,
)
from excite.experiments.localization.localization_page_words import ALPHA, WAYS
from excite.experiments.localization.localization_rules import RULES
from excite.experiments.localization.scores import best_layers, difference
from excite.experiments.report.figures import check_plots
from excite.experiments.report.html import Html, drawing, element, joined, page
from excite.experiments.report.page import bullets, how_to_read, main_method, points, save_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from excite.experiments.localization.scores import Row, Run

__all__ = ["FILE", "MAIN", "write"]

FILE = "localization.html"
MAIN = ("extent", "mwp")
CURVES = {"paper": f"{ALPHA}, in means of the map", "max": "t, in maxima of the map"}
SEVERAL_LAYERS = (
    "Of a method that was read at several layers, the one with the smallest error on held-out pictures is shown."
)
SIZES = (
    "Fifths of the pairs, from the smallest objects to the largest (by their box; of several, the largest). Bars are "
    "95 % intervals; the other methods are the faint lines."
)
READING = (
    "A method makes a map of where a network sees a category, and the strong part of it is boxed. The box should fit "
    "the object as a whole: a map of an animal's head alone points at the animal, and yet gives a box that is too "
    "small. So this is another question than pointing. The threshold decides much; it was chosen for each method on "
    "pictures that are not counted. Two errors whose intervals overlap widely are not told apart by these pictures; "
    "the paired differences are surer."
)


def write(out: Path, runs: Sequence[Run], *, command: str = "") -> Path:
    """Write the page; the same runs give the same bytes.

    Args:
        out: the folder for it.
        runs: the experiment of each network, on the same pictures.
        command: what to type to get it again.

    Returns:
        The path of the page.

    Example:
        >>> write(Path("out"), [boxing.run(records)])  # doctest: +SKIP
        PosixPath('out/localization.html')
    """
    check_plots()
    return save_page(_Page(runs).text(command), out / FILE)


class _Page:
    """The sections of the page; one that has nothing to show is left out."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.shown = {run.classifier_name: best_layers(run.rows) for run in runs}
        self.pairs = {run.classifier_name: pairs_of(run, self.shown[run.classifier_name]) for run in runs}
        self.rows = [row for rows in self.shown.values() for row in rows]
        self.main = main_method(self.rows, MAIN)

    def text(self, command: str) -> str:
        run = self.runs[0]
        sections = {
            "What was measured": measured(self.runs),
            "Errors": self._errors(),
            "The threshold": self._thresholds(),
            "Other ways to find the box": joined(map(conventions_table, self.shown.values())),
            "How boxes miss": joined(manners_table(self.pairs[name], rows) for name, rows in self.shown.items()),
            "Small and large objects": self._sizes(),
            "Layers": joined(layers_table(run.rows) for run in self.runs),
            "Examples": examples(self.runs, self.rows, self.main),
            "How to read it": how_to_read(READING, command),
        }
        introduction = (
            f"How well does a box around what a network sees fit the object? Measured on {run.dataset_name} "
            f"{run.split}: {len(run.reported)} pictures, {self.rows[0].error.total} pairs of a picture and a category "
            f"in it."
        )
        return page("Localising objects", introduction, [each for each in sections.items() if each[1]])

    def _errors(self) -> Html:
        several = len(self.rows) < sum(len(run.rows) for run in self.runs)
        data = self.runs[0].dataset_name
        whole = {name: whole_picture(pairs) for name, pairs in self.pairs.items()}
        figure = drawing(errors_figure(self.rows), "Errors of all methods with their 95 % intervals")
        both = element("div", errors_table(self.rows, whole, data), figure, class_="beside")
        notes = [SEVERAL_LAYERS] if several else []
        return joined(
            [both, bullets([*notes, *self._differences(), *self._empty(), *others_published(self.rows, data)])]
        )

    def _differences(self) -> Iterator[str]:
        """How the main method stands against the best of the others, on the same pictures."""
        for run in self.runs:
            rows = self.shown[run.classifier_name]
            mains = [row for row in rows if row.method == self.main]
            others = [row for row in rows if row.method != self.main]
            if not mains or not others:
                continue
            other = min(others, key=lambda row: row.error.value)
            gap = difference(run.records, run.reported, _place(mains[0]), _place(other))
            yield (
                f"{run.classifier_name}: {self.main} against {other.method}, the best of the others: {points(gap)} of "
                f"error (paired over pictures, 95 % interval; below 0, {self.main} is better; p = {gap.p:.2g})"
            )

    def _empty(self) -> Iterator[str]:
        return (
            f"{row.model}: {row.empty} of {row.error.total} maps of {row.method} are empty and have no box: errors"
            for row in self.rows
            if row.empty
        )

    def _thresholds(self) -> Html:
        """The error at every threshold, by the paper's way and by shares of the maximum."""
        said = element("p", f"A large open mark is at the threshold that held-out pictures chose. {papers_alphas()}")
        return joined([said, *(self._curves(name, rows) for name, rows in self.shown.items())])

    def _curves(self, name: str, rows: Sequence[Row]) -> Html:
        drawn = []
        for rule, axis in CURVES.items():
            figure = curves_figure(rows, rule, RULES[rule].thresholds, axis)
            drawn.append(_figure(figure, f"{name}: error of each method by threshold, {WAYS[rule]}", WAYS[rule]))
        heading = [element("h3", name)] if len(self.runs) > 1 else []
        return joined([*heading, element("div", *drawn, class_="beside")])

    def _sizes(self) -> Html:
        drawn = []
        for name, rows in self.shown.items():
            figure = sizes_figure(self.pairs[name], rows)
            if figure is not None:
                drawn.append(_figure(figure, f"{name}: error of each method by the size of the object", name))
        if not drawn:
            return Html("")
        said = SIZES
        return joined([element("p", said), element("div", *drawn, class_="beside")])


def _figure(figure: Any, alt: str, caption: str) -> Html:
    return element("figure", element("figcaption", caption), drawing(figure, alt))


def _place(row: Row) -> tuple[str, str]:
    return row.method, row.layer
