"""The page of the Pointing Game's results: one HTML file with its tables, figures and pictures inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.pointing.pointing_figures import layers_figure, scores_figure
from excite.experiments.pointing.pointing_page_about import measured
from excite.experiments.pointing.pointing_page_examples import examples
from excite.experiments.pointing.pointing_page_tables import (
    categories_table,
    contrast_table,
    main_method,
    orders,
    published_table,
    scores_table,
)
from excite.experiments.pointing.scores import best_rows, difference, hits_within
from excite.experiments.report.figures import check_plots
from excite.experiments.report.html import drawing, element, joined, page
from excite.experiments.report.page import bullets, how_to_read, points, save_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from excite.experiments.pointing.scores import Run
    from excite.experiments.report.html import Html

__all__ = ["FILE", "write"]

FILE = "pointing.html"
SEVERAL_LAYERS = (
    "Of a method that was read at several layers, the best is shown. It was chosen on these very pictures, so its "
    "score is a little too good."
)
READING = (
    "A method makes a map of where a network sees a category; its highest point should lie on an object of it. All "
    "counts every pair of a picture and a category in it; Difficult only those whose objects are small and not alone, "
    "where pointing at what is large or in the middle does not help. Two scores whose intervals overlap widely are not "
    "told apart by these pictures."
)


def write(out: Path, runs: Sequence[Run], *, tolerance: float, inclusive: bool = True, command: str = "") -> Path:
    """Write the page; the same runs give the same bytes.

    Args:
        out: the folder for it.
        runs: the game of each network, on the same pictures.
        tolerance: how many pixels beside an object a point may lie and still hit it.
        inclusive: whether exactly so many still is a hit.
        command: what to type to get it again.

    Returns:
        The path of the page.

    Example:
        >>> write(Path("out"), [game.run(records)], tolerance=15)  # doctest: +SKIP
        PosixPath('out/pointing.html')
    """
    check_plots()
    text = _Page(runs, tolerance, inclusive=inclusive).text(command)
    return save_page(text, out / FILE)


class _Page:
    """The sections of the page; one that has nothing to show is left out."""

    def __init__(self, runs: Sequence[Run], tolerance: float, *, inclusive: bool) -> None:
        self.runs = runs
        self.tolerance = tolerance
        self.inclusive = inclusive
        self.rows = best_rows(row for run in runs for row in run.rows)
        self.main = main_method(self.rows)

    def text(self, command: str) -> str:
        run = self.runs[0]
        is_hit = hits_within(self.tolerance, inclusive=self.inclusive)
        sections = {
            "What was measured": measured(self.runs, tolerance=self.tolerance, inclusive=self.inclusive),
            "Scores": self._scores(),
            "Contrast, and the paper's order": joined([contrast_table(self.rows), bullets(orders(self.rows))]),
            "Layers": self._layers(),
            "Categories": self._categories(),
            "Examples": examples(self.runs, self.rows, self.main, is_hit),
            "How to read it": how_to_read(READING, command),
        }
        introduction = (
            f"Where does a network see what it was asked for? Measured on {run.dataset_name} {run.split}: "
            f"{len(run.records)} pictures, {self.rows[0].all.pairs} pairs of a picture and a category in it."
        )
        return page("The Pointing Game", introduction, [each for each in sections.items() if each[1]])

    def _scores(self) -> Html:
        several = len(self.rows) < sum(len(run.rows) for run in self.runs)
        notes = [SEVERAL_LAYERS] if several else []
        empty = [
            f"{row.model}: {row.empty} of {row.all.pairs} maps of {row.method} are empty and point nowhere: misses"
            for row in self.rows
            if row.empty
        ]
        figure = drawing(scores_figure(self.rows), "Scores of all methods with their 95 % intervals")
        both = element("div", scores_table(self.rows), figure, class_="beside")
        said = bullets([*notes, *self._differences(), *empty])
        return joined([both, said, published_table(self.runs[0].dataset_name)])

    def _differences(self) -> Iterator[str]:
        """How the main method stands against the best of the others, on the same pictures."""
        for run in self.runs:
            rows = {row.method: row for row in self.rows if row.model == run.classifier_name}
            main = rows.pop(self.main, None)
            if main is None or not rows:
                continue
            other = max(rows.values(), key=lambda row: row.all.value)
            both = (main.method, main.layer), (other.method, other.layer)
            gap = difference(run.records, *both, self.tolerance, inclusive=self.inclusive)
            hard = "" if gap.difficult is None else f", {points(gap.difficult)} on Difficult ones"
            yield (
                f"{run.classifier_name}: {main.method} against {other.method}, the best of the others: "
                f"{points(gap.all)} on all pairs{hard} (paired over pictures, 95 % intervals)"
            )

    def _layers(self) -> Html:
        drawn = {run.classifier_name: layers_figure(run.rows) for run in self.runs}
        return joined(
            joined([element("h3", name), drawing(figure, f"Scores of each method at each layer of {name}")])
            for name, figure in drawn.items()
            if figure is not None
        )

    def _categories(self) -> Html:
        models = [run.classifier_name for run in self.runs]
        return joined(categories_table([row for row in self.rows if row.model == model]) for model in models)
