"""Tables, figures and the page of the Pointing Game."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from excite.experiments.base import left_out_lines, method_layer
from excite.experiments.pointing.run import PROTOCOLS
from excite.experiments.pointing.scores import PointingRun, best_rows, difference, hits_within, wins
from excite.experiments.published import CONTRAST, POINTING, WORDS
from excite.experiments.report import figures, tables
from excite.experiments.report.examples import Example, MapCases, outline, outlined, rows_to_show
from excite.experiments.report.page import Report
from excite.experiments.report.tables import DASH, NOTHING, Cell, Table, main_method, methods_of, models_of
from excite.io.text import markdown_list
from excite.metrics.statistics import RESAMPLES
from excite.readouts.overlay import overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from PIL import Image

    from excite.attention import AttentionMap
    from excite.experiments.pointing.scores import PointingRow, Score
    from excite.experiments.report.tables import Lines
    from excite.jobs import Entry

    Hits = Sequence[bool]  # of the main method, and then of the others that use the image
    Rows = Sequence[PointingRow]

INTERVALS = f"with 95 % intervals from {RESAMPLES} resamples of the images"
MAIN = ("excite", "c-mwp")
SMALL = 0.25  # of the image, as in the Difficult subset
LONG_NAME = 8  # letters of a layer that fit side by side
SUBSETS: dict[str, Callable[[PointingRow], Score | None]] = {
    "All": lambda row: row.all,
    "Difficult": lambda row: row.difficult,
}
VARIANTS = {  # heading, and the method without the contrast
    "c-mwp": ("full", ""),
    "c-mwp-post-norm": ("post-norm", ""),
    "c-mwp-no-norm": ("w/o norm", ""),
    "c-grad": ("c-Grad", "grad"),
    "c-guided": ("c-Deconv (guided)", "guided"),
    "c-deconv": ("c-Deconv (Zeiler)", "deconv"),
    "c-cam": ("c-CAM", "cam"),
}
ORDERS = (("c-mwp", "mwp", "guided"), ("c-mwp", "c-mwp-post-norm", "c-mwp-no-norm"), ("c-guided", "guided"))


class PointingReport(Report[PointingRun]):
    """The Pointing Game of one or several networks."""

    name = "pointing"

    def __init__(self, runs: Sequence[PointingRun]) -> None:
        super().__init__(runs)
        self.rows = [row for run in runs for row in run.rows]

    def answer(self) -> dict[str, Any]:
        """All results as plain values for JSON, independent of time and machine."""
        return {
            "rows": [row.to_dict() for row in self.rows],
            "data": self.about["data"],
            "split": self.about["data"]["split"],
            "pictures": self.about["pictures"],
            "protocol": {key: self.about[key] for key in ("protocol", "tolerance", "inclusive", "difficult")},
            **self.per_network("output", "concepts"),
            "wins": {run.classifier_name: wins(run.rows) for run in self.runs},
            **self.per_network("left_out"),
            "failures": self.failures(),
        }

    def tables(self) -> list[tuple[str, Lines]]:
        """A line for each row; of several networks, methods by networks as well."""
        lines = [
            {
                **row.names,
                "all %": str(row.all),
                "difficult %": str(row.difficult or NOTHING),
                "empty maps": str(row.empty),
            }
            for row in self.rows
        ]
        return [("", lines), *([("", self._by_network())] if self.several else [])]

    def _by_network(self) -> Lines:
        """Methods by networks, All / Difficult, as in the paper's Table 1; each layer of a method has its own line."""
        lines: dict[str, dict[str, str]] = {}
        for run in self.runs:
            for row in run.rows:
                several = sum(other.method == row.method for other in run.rows) > 1
                name = f"{row.method} at {row.layer}" if several else row.method
                hard = tables.shown(row.difficult and row.difficult.value)
                lines.setdefault(name, {})[run.classifier_name] = f"{row.all.value:.1f} / {hard}"
        models = [run.classifier_name for run in self.runs]
        return [
            {"all / difficult %": name, **{model: line.get(model, NOTHING) for model in models}}
            for name, line in lines.items()
        ]

    def sentences(self) -> list[str]:
        """What was measured, the number of wins, and what was left out and why."""
        told = []
        for run in self.runs:
            row, missing = run.rows[0], "; ".join(left_out_lines(run.about["left_out"]))
            hard = row.difficult.pairs if row.difficult else 0
            won = ", ".join(f"{method} {count}" for method, count in wins(run.rows).items())
            pairs = f"{row.all.pairs} pairs of an image and one of {len(row.all.categories)} categories, {hard} of them"
            on = f"{run.classifier_name} on {run.dataset_name} {run.split}: {len(run.records)} images"
            told += [
                f"{on}, {pairs} difficult; means over categories, {INTERVALS}",
                f"categories won (where several are best, each counts): {won}",
                *([f"left out: {missing}"] if missing else []),
            ]
        return told

    def spreadsheets(self) -> dict[str, Lines]:
        """All rows, and the hits of each category."""
        return {
            "rows.csv": [tables.flat(row.to_dict(), last=True) for row in self.rows],
            "categories.csv": [line for row in self.rows for line in _categories(row)],
        }

    def markdown(self) -> list[str]:
        """The tables, the sentences, and the rule of a hit."""
        edge = "up to" if self.about["inclusive"] else "less than"
        beside = f"{self.about['tolerance']:g} pixels beside an object"
        rule = f"A point {edge} {beside} hits it (protocol: {self.about['protocol']})."
        return [*(tables.markdown_table(lines) for _, lines in self.tables()), markdown_list(self.sentences()), rule]

    def content(self) -> dict[str, Any]:
        """What the page shows; of a method that was read at several layers the best."""
        about, data, rows = self.about, self.first.dataset_name, best_rows(self.rows)
        main, inclusive = main_method(rows, MAIN), about["inclusive"]
        seen, unshown = rows_to_show(rows, main)
        models = {model: [row for row in rows if row.model == model] for model in models_of(rows)}
        return {
            "rows": rows,
            "several_layers": len(rows) < len(self.rows),
            "mode": PROTOCOLS[about["protocol"]].mode,
            "left_out": left_out_lines,
            "scores": scores_table(rows),
            "scores_figure": figures.interval_figure(rows, "mean accuracy [%]", SUBSETS),
            "leads": [
                (run, own, other, difference(run.records, own.key, other.key, about["tolerance"], inclusive=inclusive))
                for run, own, other in self.rivals(models, main, lambda row: -row.all.value)
            ],
            "published": published_table(data),
            "published_on": POINTING[data][0].data if data in POINTING else "",
            "contrast": contrast_table(rows),
            "orders": list(orders(rows)),
            "layers": {run.classifier_name: layers_figure(run.rows) for run in self.runs},
            "categories": {model: categories_table(there) for model, there in models.items()},
            "unshown": unshown,
            "cases": PointingCases(hits_within(about["tolerance"], inclusive=inclusive)).strips(self.runs, seen),
        }


def _categories(row: PointingRow) -> Iterator[dict[str, Any]]:
    hard = row.difficult.categories if row.difficult else {}
    for category, share in row.all.categories.items():
        difficult = hard.get(category)
        yield {
            **row.names,
            "category": category,
            "hits": share.count,
            "pairs": share.total,
            "difficult_hits": difficult.count if difficult else 0,
            "difficult_pairs": difficult.total if difficult else 0,
        }


def scores_table(rows: Rows) -> Table:
    """The paper's Table 1, methods and networks; of each at most one row."""
    found = {(row.model, row.method): row for row in rows}
    methods, models = methods_of(rows), models_of(rows)
    columns: list[list[Cell]] = []
    for model in models:
        there = [found.get((model, method)) for method in methods]
        columns += [tables.ranked([score(row) if row else None for row in there]) for score in SUBSETS.values()]
        columns.append([Cell("", row.layer) if row else Cell(DASH) for row in there])
    return Table(
        ["method", *[*SUBSETS, "read at"] * len(models)],
        list(zip(methods, *columns, strict=True)),
        groups=[("", 1), *((model, 3) for model in models)],
    )


def published_table(data: str) -> Table | None:
    """The published results for this format of data; None where there are none."""
    published = POINTING.get(data)
    if published is None:
        return None
    sources = [column.source for column in published]
    scores = {method: [column.scores.get(method) for column in published] for method in WORDS}
    return Table(
        ["method", *(column.network for column in published)],
        [
            [WORDS[method], *(DASH if one is None else f"{one[0]:.1f} / {one[1]:.1f}" for one in line)]
            for method, line in scores.items()
        ],
        groups=[("", 1), *((source, sources.count(source)) for source in dict.fromkeys(sources))],
    )


def contrast_table(rows: Rows) -> Table | None:
    """The paper's table on contrastive attention; None where no variant of the full method was measured."""
    there = set(methods_of(rows))
    if not there & (VARIANTS.keys() - {"c-mwp"}):
        return None
    found = {(row.model, row.method): row for row in rows}
    variants = {method: both for method, both in VARIANTS.items() if method in CONTRAST or method in there}

    def cells(model: str) -> list[str]:
        return [_variant(found.get((model, name)), found.get((model, plain))) for name, (_, plain) in variants.items()]

    return Table(
        ["network", *(heading for heading, _ in variants.values())],
        [[model, *cells(model)] for model in models_of(rows)],
        foot=[["paper: GoogleNet", *(CONTRAST.get(method, DASH) for method in variants)]],
    )


def _variant(row: PointingRow | None, plain: PointingRow | None) -> str:
    """A score on Difficult pairs, and in brackets that of the method without the contrast."""
    if row is None:
        return DASH
    score = DASH if row.difficult is None else f"{row.difficult.value:.1f}"
    if row.all_empty:
        score = "zero everywhere"
    return score if plain is None or plain.difficult is None else f"{score} ({plain.difficult.value:.1f})"


def orders(rows: Rows) -> Iterator[tuple[str, Sequence[str], bool, bool | None]]:
    """The paper's orders of methods that were measured: does each hold on all pairs, and on Difficult ones, if any?"""
    found = {(row.model, row.method): row for row in rows}
    for model in models_of(rows):
        for order in ORDERS:
            there = [found[model, method] for method in order if (model, method) in found]
            if len(there) == len(order):
                every = all(one.all.value > other.all.value for one, other in pairwise(there))
                hard = [row.difficult.value for row in there if row.difficult is not None]
                difficult = all(one > other for one, other in pairwise(hard)) if len(hard) == len(order) else None
                yield model, order, every, difficult


def categories_table(rows: Rows) -> Table:
    """The share of hits of each method in each category, and its number of wins; of one network."""
    won, first = wins(rows), rows[0].all.categories
    shares = {category: [100 * row.all.categories[category].value for row in rows] for category in first}
    return Table(
        ["category", "pairs", *(row.method for row in rows)],
        [[category, str(first[category].total), *tables.heated(values)] for category, values in shares.items()],
        foot=[
            ["mean", str(rows[0].all.pairs), *(f"{row.all.value:.1f}" for row in rows)],
            ["categories won", str(len(first)), *(str(won[row.method]) for row in rows)],
        ],
    )


def layers_figure(rows: Rows) -> Any:
    """The score of each method at each layer of one network, a panel for all and one for Difficult pairs.

    None where no method was read at several layers. A method whose maps are all empty is not drawn.
    """
    by_method = [[row for row in rows if row.method == method] for method in methods_of(rows)]
    lines = [each for each in by_method if len(each) > 1 and not all(row.all_empty for row in each)]
    if not lines:
        return None
    drawn = [row for each in lines for row in each]
    layers = list(dict.fromkeys(row.layer for row in drawn))
    subsets = {name: score for name, score in SUBSETS.items() if any(score(row) for row in drawn)}
    figure = figures.new_figure(1.5 + len(subsets) * max(3.2, 0.62 * len(layers)), 4.2)
    panels = figure.subplots(1, len(subsets), sharey=True, squeeze=False)[0]
    scores: list[Score] = []
    for axes, (name, score) in zip(panels, subsets.items(), strict=True):
        for k, each in enumerate(lines):
            offset = min(0.07, 0.5 / len(lines)) * (k - (len(lines) - 1) / 2)  # so that intervals do not overlap
            found = [(layers.index(row.layer) + offset, value) for row in each if (value := score(row)) is not None]
            xs, values = zip(*found, strict=True)
            figures.line(axes, xs, values, each[0].method, k)
            scores += values
        axes.set_title(name, fontsize=10, color=figures.INK)
        figures.name_layers(axes, layers, long=LONG_NAME)
        axes.set_xlabel("layer", color=figures.INK)
        figures.style_axes(axes)
    panels[0].set_ylabel("mean accuracy [%]", color=figures.INK)
    panels[0].set_ylim(*figures.tens_around(scores))
    figures.legend(figure, panels[0])
    return figure


def _all_hit(example: Example, hits: Hits) -> float | None:
    return example.share if all(hits) and example.share < SMALL else None


def _only_main_hits(example: Example, hits: Hits) -> float | None:
    """The more of the others miss, the better; of equals, the smaller object."""
    main, *others = hits
    return sum(others) + min(example.share, 0.99) if main and not all(others) else None


def _main_misses(example: Example, hits: Hits) -> float | None:
    """The farther, in diagonals of the image, the better the case; empty maps come last."""
    return None if hits[0] else -(example.maps[0]["distance"] or 0.0) / math.hypot(*example.size)


class PointingCases(MapCases[Example]):
    """Hits and misses; ``is_hit`` decides on a distance."""

    kinds: ClassVar = {
        "Every method that looks hits a small object": _all_hit,
        "{main} hits where others miss": _only_main_hits,
        "{main} misses, by the most": _main_misses,
    }

    def __init__(self, is_hit: Callable[[float | None], bool]) -> None:
        self.is_hit = is_hit

    def candidates(self, run: PointingRun, rows: Rows) -> tuple[list[Example], list[list[bool]]]:
        """All pairs; neither the centre nor maps that are all empty use the image."""
        keys = [row.key for row in rows]
        found = []
        for record in run.records:
            for target in record["targets"]:
                maps = {method_layer(one): one for one in target["maps"]}
                width, height = record["size"]
                each = tuple(maps[key] for key in keys)
                found.append(Example(record["image"], (width, height), target["category"], target["share"], each))
        points = [any(example.maps[k]["point"] is not None for example in found) for k in range(len(keys))]
        seeing = [k for k, (method, _) in enumerate(keys) if k == 0 or (method != "center" and points[k])]
        return found, [[self.is_hit(example.maps[k]["distance"]) for k in seeing] for example in found]

    def words(self, _run: PointingRun, example: Example) -> tuple[str, str]:
        """The category, and the share of the image that its objects cover."""
        return example.category, f"{example.image}, {100 * example.share:.1f} % of the image"

    def drawn(
        self, run: PointingRun, example: Example, picture: Image.Image, maps: Sequence[AttentionMap]
    ) -> list[Image.Image]:
        """The photograph and each method's map over it, with the objects outlined and the points marked."""
        lines = outline(run.target(example.image, example.category).instances, example.size)
        points = [None if found["point"] is None else (found["point"][0], found["point"][1]) for found in example.maps]
        covered = [overlay(picture, found.values, point=point) for found, point in zip(maps, points, strict=True)]
        return [outlined(image, lines) for image in (picture, *covered)]

    def verdict(self, found: Entry) -> str:
        """Whether it is a hit, and how far beside it points."""
        if found["distance"] is None:
            return "✗ points nowhere"
        words = "✓ hit" if self.is_hit(found["distance"]) else "✗ missed"
        return f"{words}, {found['distance']:.0f} px beside" if found["distance"] else words
