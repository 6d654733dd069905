"""Tables, figures and the page of localisation, and how found boxes lie beside the true ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, ClassVar

from PIL import Image

from excite.datasets import Box
from excite.experiments.base import method_layer
from excite.experiments.localization.run import (
    RULES,
    Difference,
    LocalizationRow,
    LocalizationRun,
    best_layers,
    difference,
    differences,
)
from excite.experiments.published import LOCALIZATION, LOCALIZED_DATA, LOCALIZED_ON, WORDS
from excite.experiments.report import figures, tables
from excite.experiments.report.examples import (
    EXAMPLES,
    WIDTH,
    Example,
    Kinds,
    MapCases,
    Maps,
    Rating,
    Strip,
    dashed,
    framed,
    rows_to_show,
)
from excite.experiments.report.page import Report
from excite.experiments.report.tables import DASH, NOTHING, Cell, Lines, Table, estimate_fields, main_method, methods_of
from excite.io.text import markdown_list
from excite.jobs import Entry
from excite.metrics.boxes import ALPHAS, MATCH, as_boxes, box_areas, box_iou, shared_areas
from excite.metrics.statistics import Share
from excite.readouts.overlay import overlay

Rows = Sequence[LocalizationRow]

MAIN = ("extent", "mwp")
ALPHA, TIMES = "\N{GREEK SMALL LETTER ALPHA}", "\N{MULTIPLICATION SIGN}"
# The level of a rule's threshold, the pixels that it boxes, and both together
LEVELS = {"mean": f"{ALPHA} {TIMES} mean", "max": f"t {TIMES} max", "range": f"t {TIMES} range"}
PIECES = {"all": "around all", "largest": "largest piece", "any": "best piece"}
WAYS = {name: f"{LEVELS[rule.of]}, {PIECES[rule.region]}" for name, rule in RULES.items()}
CURVES = {"paper": f"{ALPHA}, in means of the map", "max": "t, in maxima of the map"}
ACROSS, SMALL = 5, (1.9, 1.75)  # small panels side by side, at most, and the inches of each
MANNERS = ("fits", "too small", "too large", "elsewhere", "no box")
MOSTLY = 0.7  # of a box within another
GROUPS = 5  # of pairs by size


class LocalizationReport(Report[LocalizationRun]):
    """The localisation of one or several networks."""

    name = "localization"

    def __init__(self, runs: Sequence[LocalizationRun]) -> None:
        super().__init__(runs)
        self.best = {run.classifier_name: best_layers(run.rows) for run in runs}  # on the page
        self.rows = [row for rows in self.best.values() for row in rows]
        self.main = main_method(self.rows, MAIN)
        self.beside_paper = self.first.dataset_name == LOCALIZED_DATA
        self.seen = runs[:NETWORKS]  # with examples

    @cached_property
    def pairs(self) -> dict[str, list[BoxExample]]:
        """The reported pairs of each network."""
        return {run.classifier_name: pairs_of(run, self.best[run.classifier_name]) for run in self.runs}

    def answer(self) -> dict[str, Any]:
        """All results as plain values for JSON, independent of time and machine."""
        return {
            "rows": [row.to_dict() for run in self.runs for row in run.told],
            "layers": [row.to_dict() for run in self.runs for row in run.rows],
            "data": self.about["data"],
            "split": self.about["data"]["split"],
            "pictures": self.about["pictures"],
            "protocol": {key: self.about[key] for key in ("shape", "canvas", "held_out", "seed")},
            "held_out": self.per_network("held_out_pictures")["held_out_pictures"],
            **self.per_network("reported", "output", "concepts", "left_out"),
            "failures": self.failures(),
        }

    def tables(self) -> list[tuple[str, Lines]]:
        """A line for each row, with the paper's errors where the data are the paper's."""
        return [("", [_columns(row, beside_paper=self.beside_paper) for run in self.runs for row in run.told])]

    def sentences(self) -> list[str]:
        """What was measured, and what was left out and why."""
        told = []
        for run in self.runs:
            about, missing = run.about, "; ".join(self.left_out(run))
            told.append(
                f"{run.classifier_name} on {run.dataset_name} {run.split}: errors on {run.rows[0].error.total} pairs "
                f"of an image and a category, in {about['reported']} images, with 95 % intervals; images held out to "
                f"choose thresholds on: {about['held_out_pictures']}; MaxBoxAcc and MaxBoxAccV2 take the best "
                "threshold of the reported images"
            )
            if len(run.told) < len(run.rows):
                told.append("the layer of each method was chosen on the held-out images too (rows.csv has all)")
            empty = [row for row in run.told if row.empty]
            told += [f"maps of {row.method} at {row.layer} without any box: {row.empty}" for row in empty]
            told += [f"left out: {missing}"] if missing else []
        return told

    def spreadsheets(self) -> dict[str, Lines]:
        """All rows, the error at every threshold, and the difference of each pair of rows of a network."""
        rows = [row for run in self.runs for row in run.rows]
        curves = [
            {**row.names, "rule": rule, "threshold": threshold, "error": round(error, 2)}
            for row in rows
            for rule, result in row.rules.items()
            for threshold, error in zip(RULES[rule].thresholds, result.curve, strict=True)
        ]
        found = {"rows.csv": [_flat(row) for row in rows], "curves.csv": curves}
        return found | tables.differences_csv(pair for run in self.runs for pair in self._differences(run))

    @staticmethod
    def _differences(run: LocalizationRun) -> Iterator[tuple[LocalizationRow, LocalizationRow, dict[str, Any]]]:
        """Each pair of rows of a network, with the error of the first less that of the other, in points."""
        pairs = list(combinations(run.rows, 2))
        found = differences(run.records, run.reported, [(one.key, other.key) for one, other in pairs])
        for (one, other), gap in zip(pairs, found, strict=True):
            yield one, other, {**estimate_fields("error", gap), "p": f"{gap.p:.4f}"}

    def markdown(self) -> list[str]:
        """The table, the sentences, and the paper's table."""
        published = [
            {
                "method": WORDS.get(method, method.capitalize()),
                "alpha": NOTHING if paper.alpha is None else f"{paper.alpha:g}",
                "error %": f"{paper.error:.1f}",
            }
            for method, paper in LOCALIZATION.items()
        ]
        ((_, lines),) = self.tables()
        own, papers = tables.markdown_table(lines), tables.markdown_table(published)
        return [own, markdown_list(self.sentences()), f"The paper's own ({LOCALIZED_ON}):", papers]

    def leads(self) -> Iterator[tuple[LocalizationRow, LocalizationRow, Difference]]:
        """For each network the lead of the main method over the best of the others."""
        for run, own, other in self.rivals(self.rows, self.main, lambda row: row.error.value):
            yield own, other, difference(run.records, run.reported, own.key, other.key)

    def examples(self) -> tuple[dict[str, list[Strip]], list[str]]:
        """The best and worst cases, and the methods that are not shown."""
        rows, unshown = rows_to_show([row for run in self.seen for row in self.best[run.classifier_name]], self.main)
        return BoxCases().strips(self.seen, rows), unshown

    def errors_table(self) -> Table:
        """The paper's table with methods as rows and networks as columns, its own numbers beside them."""
        found = {(row.model, row.method): row for row in self.rows}
        methods, models, beside = methods_of(self.rows), tables.models_of(self.rows), self.beside_paper
        columns: list[Sequence[Cell | str]] = []
        for model in models:
            there = [found.get((model, method)) for method in methods]
            columns.append(tables.ranked([row.error.percent if row else None for row in there], highest=False))
            columns.append([f"{row.alpha:g}" if row else DASH for row in there])
            columns.append([Cell("", row.layer) if row else DASH for row in there])
        if beside:
            paper = [LOCALIZATION.get(method) for method in methods]
            columns.append([f"{known.error:.1f}" if known else DASH for known in paper])
            columns.append([DASH if known is None or known.alpha is None else f"{known.alpha:g}" for known in paper])
        whole = []  # the error of the whole image as the box
        for model in models:
            misses = [manner((0, 0, *pair.size), pair.truth) != "fits" for pair in self.pairs[model]]
            whole.append(tables.estimate_cell(Share(sum(misses), len(misses)).percent))
        return Table(
            ["method", *["error", ALPHA, "read at"] * len(models), *["error", ALPHA] * beside],
            list(zip(methods, *columns, strict=True)),
            groups=[("", 1), *((model, 3) for model in models), *[(f"paper: {LOCALIZED_ON}", 2)] * beside],
            foot=[["the whole image", *(cell for one in whole for cell in (one, DASH, DASH)), *[DASH] * 2 * beside]],
        )

    def errors_figure(self) -> Any:
        """Each method's error by the paper's rule and by the one that is common today, a panel for each network."""
        series = {
            f"{WAYS['paper']} (the paper's)": lambda row: row.rules["paper"].error.percent,
            WAYS["max-largest"]: lambda row: row.rules["max-largest"].error.percent,
        }
        return figures.interval_figure(self.rows, "error [%]", series, columns=1)

    def conventions_table(self, model: str) -> Table:
        """The same maps boxed by other rules, and by the measures of other publications."""
        rows = self.best[model]
        enough, columns = list(rows[0].max_box_acc_v2), []
        for way in WAYS:
            cells = tables.ranked([100 * row.rules[way].error.value for row in rows], highest=False)
            chosen = [f"at {row.rules[way].threshold:g}" for row in rows]
            columns.append([replace(cell, small=at) for cell, at in zip(cells, chosen, strict=True)])
        columns.append(tables.ranked([row.max_box_acc for row in rows]))
        columns += [tables.ranked([row.max_box_acc_v2[each] for row in rows]) for each in enough]
        columns.append(tables.ranked([row.v2_mean for row in rows]))
        levels = Counter(LEVELS[rule.of] for rule in RULES.values())
        pieces = [PIECES[rule.region] for rule in RULES.values()]
        return Table(
            ["method", *pieces, "IoU 0.5", *(f"IoU {each:g}" for each in enough), "mean"],
            list(zip(methods_of(rows), *columns, strict=True)),
            groups=[("", 1), *levels.items(), ("MaxBoxAcc", 1), ("MaxBoxAccV2", len(enough) + 1)],
        )

    def manners_table(self, model: str) -> Table:
        """How the boxes of each method lie relative to the objects, in percent of the pairs."""
        pairs = self.pairs[model]
        body: list[list[Cell | str]] = []
        for k, row in enumerate(self.best[model]):
            counts = Counter(pair.maps[k]["manner"] for pair in pairs)
            body.append([row.method, *tables.heated([100 * counts[each] / len(pairs) for each in MANNERS], best=False)])
        return Table(["method", *MANNERS], body)

    def layers_table(self, run: LocalizationRun) -> Table | None:
        """The error at every layer; None where each method was read at one."""
        if len(run.rows) == len(methods_of(run.rows)):
            return None
        body: list[list[Cell | str]]
        body = [[row.method, row.layer, tables.estimate_cell(row.error.percent), f"{row.alpha:g}"] for row in run.rows]
        return Table(["method", "read at", "error", ALPHA], body)

    def curves(self, model: str) -> Iterator[tuple[str, Any]]:
        """The error at each threshold of two rules; a large open marker is at the chosen one. No empty maps."""
        for rule, axis in CURVES.items():
            results = [(k, row.method, row.rules[rule]) for k, row in enumerate(self.best[model]) if not row.all_empty]
            curves = [(k, method, result.curve, result.threshold) for k, method, result in results]
            figure, axes = figures.curves_figure(RULES[rule].thresholds, curves, (axis, "error [%]"), sparse=True)
            axes.set_ylim(None, 101)
            yield WAYS[rule], figure

    def sizes(self) -> dict[str, Any]:
        """The figures of the networks with enough pairs."""
        drawn = {model: sizes_figure(self.pairs[model], rows) for model, rows in self.best.items()}
        return {model: figure for model, figure in drawn.items() if figure is not None}


def _columns(row: LocalizationRow, *, beside_paper: bool) -> dict[str, str]:
    paper = f"{LOCALIZATION[row.method].error:.1f}" if row.method in LOCALIZATION else NOTHING
    at = {name: f"{100 * result.error.value:.1f} at {result.threshold:g}" for name, result in row.rules.items()}
    return {
        **row.names,
        "alpha": f"{row.alpha:g}",
        "error %": str(row.error),
        "largest component": at["largest"],
        "t x max": at["max"],
        "MaxBoxAcc": f"{row.max_box_acc:.1f}",
        "MaxBoxAccV2": f"{row.v2_mean:.1f}",
        **({"paper's error": paper} if beside_paper else {}),
    }


def _flat(row: LocalizationRow) -> dict[str, Any]:
    """A row of the table without lists, for spreadsheets."""
    line = row.to_dict()
    rules, v2 = line.pop("rules"), line.pop("max_box_acc_v2")
    del rules["paper"]  # that is the line itself
    return {
        **tables.flat(line, last=True),
        **{f"{rule}_{key}": result[key] for rule, result in rules.items() for key in ("threshold", "error")},
        **{f"max_box_acc_v2_{overlap}": value for overlap, value in v2.items()},
    }


@dataclass(frozen=True)
class BoxExample(Example):
    """A pair of an image and a category; its share is that of the largest object, by its box."""

    truth: tuple[Box, ...]  # the true boxes


def pairs_of(run: LocalizationRun, rows: Rows) -> list[BoxExample]:
    """The reported pairs, with the boxes of these rows at their thresholds."""
    keys = [(row.key, ALPHAS.index(row.alpha)) for row in rows]
    pairs = []
    for record in run.records:
        for target in record["targets"] if record["image"] in run.reported else ():
            maps = {method_layer(found): found for found in target["maps"]}
            width, height = record["size"]
            found = tuple(_found(maps[key], at, target["truth"]) for key, at in keys)
            share = float(box_areas(as_boxes(target["truth"])).max()) / (width * height)
            facts = (record["image"], (width, height), target["category"], share, found)
            pairs.append(BoxExample(*facts, tuple(map(tuple, target["truth"]))))
    return pairs


def _found(one: Entry, at: int, truth: Sequence[Box]) -> Entry:
    """Whether it fits is as measured: at the limit, rounding must not turn a fit into an error here."""
    box, overlap = one["boxes"][at], one["overlaps"]["paper"][at]
    how = manner(box, truth, fits=overlap >= MATCH)
    return {"method": one["method"], "layer": one["layer"], "box": box, "overlap": overlap, "manner": how}


def manner(box: Sequence[float] | None, truth: Sequence[Box], *, fits: bool | None = None) -> str:
    """How a box lies relative to the true box that it overlaps most: one of `MANNERS`."""
    if box is None:
        return "no box"
    overlaps = box_iou([box], truth)[0]
    if overlaps.max() >= MATCH if fits is None else fits:
        return "fits"
    both = as_boxes([box, truth[int(overlaps.argmax())]])
    inside, (own, true) = shared_areas(both[:1], both[1:])[0][0, 0], box_areas(both)
    if inside >= MOSTLY * own:
        return "too small"
    return "too large" if inside >= MOSTLY * true else "elsewhere"


def sizes_figure(pairs: Sequence[BoxExample], rows: Rows) -> Any:
    """The error on fifths of the pairs, from the smallest objects to the largest, a panel for each method."""
    ordered = sorted(pairs, key=lambda pair: pair.share)
    ends = [round(k * len(ordered) / GROUPS) for k in range(GROUPS + 1)]
    groups = [ordered[start:end] for start, end in pairwise(ends) if end > start]
    drawn = [k for k, row in enumerate(rows) if not row.all_empty]
    if len(groups) < GROUPS or not drawn:
        return None
    errors = {
        k: [Share(sum(pair.maps[k]["manner"] != "fits" for pair in group), len(group)).percent for group in groups]
        for k in drawn
    }
    sizes = [f"{100 * group[0].share:.0f}{DASH}{100 * group[-1].share:.0f}" for group in groups]
    figure, panels = _small_panels(len(errors))
    xs = range(len(groups))
    for k, axes in zip(errors, panels, strict=True):
        figures.style_axes(axes)
        for others in errors.values():
            axes.plot(xs, [error.value for error in others], color=figures.FAINT, linewidth=1)
        figures.line(axes, xs, errors[k], rows[k].method, k)
        axes.set_title(rows[k].method, fontsize=9, color=figures.INK, parse_math=False)
        axes.set_xticks(xs, sizes, rotation=60)
        axes.tick_params(labelsize=7.5)
    panels[0].set_ylim(-3, 103)
    figure.supxlabel("the object's box, in percent of the image", fontsize=9, color=figures.INK)
    figure.supylabel("error [%]", fontsize=9, color=figures.INK)
    return figure


def _small_panels(count: int) -> tuple[Any, list[Any]]:
    """Panels that share their axes, in rows."""
    down = math.ceil(count / ACROSS)
    across = math.ceil(count / down)
    figure = figures.new_figure(0.6 + SMALL[0] * across, 0.6 + SMALL[1] * down)
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    for spare in panels[count:]:
        spare.set_axis_off()
    for above in panels[max(0, count - across) : across * (down - 1)]:
        above.tick_params(labelbottom=True)  # there is no panel below it
    return figure, list(panels[:count])


def _misses(manner: str) -> Rating[BoxExample]:
    """The smaller the IoU, the better the case."""
    return lambda example, _: example.maps[0]["overlap"] if example.maps[0]["manner"] == manner else None


class BoxCases(MapCases[BoxExample]):
    """Boxes that fit, the smallest objects or best fits first, and the ways in which they do not."""

    kinds: ClassVar[Kinds[BoxExample]] = {
        "Every method that looks fits the object": lambda example, fits: example.share if all(fits) else None,
        "{main} fits where others do not": lambda example, fits: (
            sum(fits[1:]) - min(example.maps[0]["overlap"], 0.99) if fits[0] and not all(fits) else None
        ),
        "{main} finds a part: its box is far too small": _misses("too small"),
        "{main} finds more than the object: its box is far too large": _misses("too large"),
        "{main} looks elsewhere": _misses("elsewhere"),
    }

    def candidates(self, run: LocalizationRun, rows: Rows) -> tuple[list[BoxExample], list[list[bool]]]:
        """The reported pairs; the centre does not use the image."""
        found = pairs_of(run, rows)
        looking = [k for k, row in enumerate(rows) if k == 0 or row.method != "center"]
        return found, [[example.maps[k]["manner"] == "fits" for k in looking] for example in found]

    def words(self, run: LocalizationRun, example: BoxExample) -> tuple[str, str]:
        """The network's concept, and the share of the image that the object covers."""
        name = run.about["concepts"].get(example.category, example.category)
        return name, f"{example.image}, {100 * example.share:.0f} % of the image"

    def drawn(self, _run: Any, example: BoxExample, picture: Image.Image, maps: Maps) -> list[Image.Image]:
        """True boxes dashed, the found box solid; at the width of the page, so that lines look the same everywhere."""
        scale = WIDTH / picture.width
        photograph = picture.resize((WIDTH, max(1, round(scale * picture.height))), Image.Resampling.LANCZOS)
        truth = [_scaled(box, scale) for box in example.truth]
        images = [dashed(photograph, truth)]
        for one, found in zip(maps, example.maps, strict=True):
            panel = overlay(photograph, one.values)
            panel = panel if found["box"] is None else framed(panel, _scaled(found["box"], scale))
            images.append(dashed(panel, truth))
        return images

    def verdict(self, found: Entry) -> str:
        """How the box lies."""
        if found["box"] is None:
            return "✗ no box"
        return f"{'✓' if found['manner'] == 'fits' else '✗'} {found['manner']}, IoU {found['overlap']:.2f}"


NETWORKS = EXAMPLES // len(BoxCases.kinds)  # that can have an example of each kind


def _scaled(box: Sequence[float], scale: float) -> Box:
    x0, y0, x1, y1 = (scale * side for side in box)
    return x0, y0, x1, y1
