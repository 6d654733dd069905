"""Tables, figures and the page of the Pointing Game."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any, ClassVar

from PIL import Image

from excite.experiments.base import method_layer
from excite.experiments.pointing.run import (
    PROTOCOLS,
    Difference,
    PointingRow,
    PointingRun,
    Score,
    best_rows,
    difference,
    differences,
    hits_within,
    wins,
)
from excite.experiments.published import CONTRAST, POINTING, WORDS, pair_words
from excite.experiments.report import figures, tables
from excite.experiments.report.examples import Example, Kinds, MapCases, Maps, Strip, outline, outlined, rows_to_show
from excite.experiments.report.page import Report
from excite.experiments.report.tables import DASH, NOTHING, Cell, Lines, Table, estimate_fields, main_method, methods_of
from excite.io.text import markdown_list
from excite.jobs import Entry
from excite.metrics.statistics import RESAMPLES
from excite.readouts.overlay import overlay

Rows = Sequence[PointingRow]

INTERVALS = f"with 95 % intervals from {RESAMPLES} resamples of the images"
MAIN = ("excite", "c-mwp")
SMALL = 0.25  # of the image, as in the Difficult subset
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
        self.best = best_rows(self.rows)  # on the page
        self.found = {(row.model, row.method): row for row in self.best}
        self.methods, self.models = methods_of(self.best), tables.models_of(self.best)
        self.main, self.mode = main_method(self.best, MAIN), PROTOCOLS[self.about["protocol"]].mode
        self.tolerance = {"tolerance": self.about["tolerance"], "inclusive": self.about["inclusive"]}

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
                hard = tables.shown(row.difficult.value if row.difficult else None)
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
            row, missing = run.rows[0], "; ".join(self.left_out(run))
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
        """All rows, the hits of each category, and the difference of each pair of rows of a network."""
        return {
            "rows.csv": [tables.flat(row.to_dict(), last=True) for row in self.rows],
            "categories.csv": [
                {
                    **row.names,
                    "category": category,
                    "hits": share.count,
                    "pairs": share.total,
                    "difficult_hits": hard.count if hard else 0,
                    "difficult_pairs": hard.total if hard else 0,
                }
                for row in self.rows
                for category, share in row.all.categories.items()
                for hard in [row.difficult and row.difficult.categories.get(category)]
            ],
            **tables.differences_csv(line for run in self.runs for line in self._differences(run)),
        }

    def _differences(self, run: PointingRun) -> Iterator[tuple[PointingRow, PointingRow, dict[str, Any]]]:
        """Each pair of rows of a network, with the lead of the first in points."""
        pairs = list(combinations(run.rows, 2))
        found = differences(run.records, [(one.key, other.key) for one, other in pairs], **self.tolerance)
        for (one, other), lead in zip(pairs, found, strict=True):
            yield one, other, estimate_fields("all", lead.all) | estimate_fields("difficult", lead.difficult)

    def markdown(self) -> list[str]:
        """The tables, the sentences, and the rule of a hit."""
        edge = "up to" if self.about["inclusive"] else "less than"
        beside = f"{self.about['tolerance']:g} pixels beside an object"
        rule = f"A point {edge} {beside} hits it (protocol: {self.about['protocol']})."
        return [*(tables.markdown_table(lines) for _, lines in self.tables()), markdown_list(self.sentences()), rule]

    def leads(self) -> Iterator[tuple[PointingRow, PointingRow, Difference]]:
        """For each network the lead of the main method over the best of the others."""
        for run, own, other in self.rivals(self.best, self.main, lambda row: -row.all.value):
            yield own, other, difference(run.records, own.key, other.key, **self.tolerance)

    def examples(self) -> tuple[dict[str, list[Strip]], list[str]]:
        """The best and worst cases, and the methods that are not shown."""
        rows, unshown = rows_to_show(self.best, self.main)
        return PointingCases(hits_within(**self.tolerance)).strips(self.runs, rows), unshown

    def scores_table(self) -> Table:
        """The paper's Table 1, methods and networks."""
        columns: list[list[Cell]] = []
        for model in self.models:
            there = [self.found.get((model, method)) for method in self.methods]
            columns += [tables.ranked([score(row) if row else None for row in there]) for score in SUBSETS.values()]
            columns.append([Cell("", row.layer) if row else Cell(DASH) for row in there])
        return Table(
            ["method", *[*SUBSETS, "read at"] * len(self.models)],
            list(zip(self.methods, *columns, strict=True)),
            groups=[("", 1), *((model, 3) for model in self.models)],
        )

    def scores_figure(self) -> Any:
        """The same with intervals."""
        return figures.interval_figure(self.best, "mean accuracy [%]", SUBSETS)

    def published_table(self) -> Table | None:
        """The published results for this format of data; None where there are none."""
        published = POINTING.get(self.first.dataset_name)
        if published is None:
            return None
        sources = [column.source for column in published]
        scores = [{method: pair_words(pair) for method, pair in column.scores.items()} for column in published]
        return Table(
            ["method", *(column.network for column in published)],
            [[name, *(column.get(method, DASH) for column in scores)] for method, name in WORDS.items()],
            groups=[("", 1), *((source, sources.count(source)) for source in dict.fromkeys(sources))],
        )

    def contrast_table(self) -> Table | None:
        """The paper's table on contrastive attention; None where no variant of the full method was measured."""
        if not set(self.methods) & (VARIANTS.keys() - {"c-mwp"}):
            return None
        shown = [method for method in VARIANTS if method in CONTRAST or method in self.methods]
        return Table(
            ["network", *(VARIANTS[method][0] for method in shown)],
            [[model, *(self._variant(model, method) for method in shown)] for model in self.models],
            foot=[["paper: GoogleNet", *(CONTRAST.get(method, DASH) for method in shown)]],
        )

    def _variant(self, model: str, method: str) -> str:
        """A score on Difficult pairs, and in brackets that of the method without the contrast."""
        row, plain = self.found.get((model, method)), self.found.get((model, VARIANTS[method][1]))
        if row is None:
            return DASH
        score = DASH if row.difficult is None else f"{row.difficult.value:.1f}"
        if row.all_empty:
            score = "zero everywhere"
        return score if plain is None or plain.difficult is None else f"{score} ({plain.difficult.value:.1f})"

    def orders(self) -> Iterator[tuple[str, Sequence[str], bool, bool | None]]:
        """The paper's orders of methods that were measured: does each hold on all pairs, and on Difficult ones?"""
        for model in self.models:
            for order in ORDERS:
                there = [self.found[model, method] for method in order if (model, method) in self.found]
                if len(there) == len(order):
                    hard = [row.difficult.value for row in there if row.difficult is not None]
                    every = _falls([row.all.value for row in there])
                    yield model, order, every, _falls(hard) if len(hard) == len(order) else None

    def categories_table(self, model: str) -> Table:
        """The share of hits of each method in each category, and its number of wins."""
        rows = [row for row in self.best if row.model == model]
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

    def layers_figure(self, run: PointingRun) -> Any:
        """The score of each method at each layer of one network, a panel for all and one for Difficult pairs."""
        by_method = [[row for row in run.rows if row.method == method] for method in methods_of(run.rows)]
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
            figures.name_layers(axes, layers, long=8)  # letters that fit side by side
            axes.set_xlabel("layer", color=figures.INK)
            figures.style_axes(axes)
        panels[0].set_ylabel("mean accuracy [%]", color=figures.INK)
        panels[0].set_ylim(*figures.tens_around(scores))
        figures.legend(figure, panels[0])
        return figure


def _falls(values: Sequence[float]) -> bool:
    return all(one > other for one, other in pairwise(values))


class PointingCases(MapCases[Example]):
    """Hits, of small objects first, and misses, the farthest first (in diagonals); ``is_hit`` decides on a distance."""

    kinds: ClassVar[Kinds[Example]] = {
        "Every method that looks hits a small object": lambda example, hits: (
            example.share if all(hits) and example.share < SMALL else None
        ),
        "{main} hits where others miss": lambda example, hits: (
            sum(hits[1:]) + min(example.share, 0.99) if hits[0] and not all(hits) else None
        ),
        "{main} misses, by the most": lambda example, hits: (
            None if hits[0] else -(example.maps[0]["distance"] or 0.0) / math.hypot(*example.size)
        ),
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

    def drawn(self, run: PointingRun, example: Example, picture: Image.Image, maps: Maps) -> list[Image.Image]:
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
