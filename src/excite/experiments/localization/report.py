"""Tables, figures and the page of localisation, and how found boxes lie beside the true ones."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from PIL import Image

from excite.experiments.base import left_out_lines, method_layer
from excite.experiments.localization.scores import RULES, LocalizationRun, best_layers, difference
from excite.experiments.published import LOCALIZATION, LOCALIZED_DATA, LOCALIZED_ON, WORDS
from excite.experiments.report import figures, tables
from excite.experiments.report.examples import EXAMPLES, WIDTH, Example, MapCases, dashed, framed, rows_to_show
from excite.experiments.report.page import Report
from excite.experiments.report.tables import DASH, NOTHING, Cell, Table, main_method, methods_of, models_of
from excite.io.text import markdown_list
from excite.metrics.boxes import ALPHAS, MATCH, as_boxes, box_areas, box_iou, shared_areas
from excite.metrics.statistics import Share
from excite.readouts.overlay import overlay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.attention import AttentionMap
    from excite.datasets import Box
    from excite.experiments.localization.scores import LocalizationRow, RuleResult
    from excite.experiments.report.examples import Rating
    from excite.experiments.report.tables import Lines
    from excite.jobs import Entry

    Fits = Sequence[bool]  # of the main method, and then of the others that use the image
    Rows = Sequence[LocalizationRow]

MAIN = ("extent", "mwp")
ALPHA, TIMES = "\N{GREEK SMALL LETTER ALPHA}", "\N{MULTIPLICATION SIGN}"
LEVELS = {"mean": f"{ALPHA} {TIMES} mean", "max": f"t {TIMES} max", "range": f"t {TIMES} range"}
"""The level of a rule's threshold."""

PIECES = {"all": "around all", "largest": "largest piece", "any": "best piece"}
"""The pixels that a rule boxes."""

WAYS = {name: f"{LEVELS[rule.of]}, {PIECES[rule.region]}" for name, rule in RULES.items()}
"""Both together, for each rule."""

CURVES = {"paper": f"{ALPHA}, in means of the map", "max": "t, in maxima of the map"}
ACROSS, SMALL = 5, (1.9, 1.75)  # small panels side by side, at most, and the inches of each
MANNERS = ("fits", "too small", "too large", "elsewhere", "no box")
MOSTLY = 0.7  # of a box within another
GROUPS = 5  # of pairs by size


class LocalizationReport(Report[LocalizationRun]):
    """The localisation of one or several networks."""

    name = "localization"

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
        beside = self.first.dataset_name == LOCALIZED_DATA
        return [("", [_columns(row, beside_paper=beside) for run in self.runs for row in run.told])]

    def sentences(self) -> list[str]:
        """What was measured, and what was left out and why."""
        told = []
        for run in self.runs:
            about, missing = run.about, "; ".join(left_out_lines(run.about["left_out"]))
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
        """All rows, and the error at every threshold."""
        rows = [row for run in self.runs for row in run.rows]
        curves = [
            {**row.names, "rule": rule, "threshold": threshold, "error": round(error, 2)}
            for row in rows
            for rule, result in row.rules.items()
            for threshold, error in zip(RULES[rule].thresholds, result.curve, strict=True)
        ]
        return {"rows.csv": [_flat(row) for row in rows], "curves.csv": curves}

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

    def content(self) -> dict[str, Any]:
        """What the page shows; of a method that was read at several layers the best on held-out images."""
        data = self.first.dataset_name
        best = {run.classifier_name: best_layers(run.rows) for run in self.runs}
        pairs = {run.classifier_name: pairs_of(run, best[run.classifier_name]) for run in self.runs}
        rows = [row for each in best.values() for row in each]
        main = main_method(rows, MAIN)
        seen = self.runs[:NETWORKS]
        drawn, unshown = rows_to_show([row for run in seen for row in best[run.classifier_name]], main)
        sizes = {name: sizes_figure(pairs[name], each) for name, each in best.items()}
        named = {name: (WORDS.get(name, name.title()), paper) for name, paper in LOCALIZATION.items()}
        missing = [named[name] for name in named if name not in methods_of(rows)]
        return {
            "rows": rows,
            "pairs": pairs,
            "several_layers": len(rows) < sum(len(run.rows) for run in self.runs),
            "left_out": left_out_lines,
            "beside_paper": data == LOCALIZED_DATA,
            "errors": errors_table(rows, {name: whole_picture(each) for name, each in pairs.items()}, data),
            "errors_figure": errors_figure(rows),
            "leads": [
                (run, own, other, difference(run.records, run.reported, own.key, other.key))
                for run, own, other in self.rivals(best, main, lambda row: row.error.value)
            ],
            "not_measured": [f"{name} {paper.error:.1f}" for name, paper in missing],
            "paper_on": LOCALIZED_ON,
            "paper_alphas": [f"{name} {paper.alpha:g}" for name, paper in named.values() if paper.alpha is not None],
            "curves": {name: {WAYS[rule]: curves_figure(each, rule) for rule in CURVES} for name, each in best.items()},
            "conventions": {name: conventions_table(each) for name, each in best.items()},
            "manners": {name: manners_table(pairs[name], each) for name, each in best.items()},
            "sizes": {name: figure for name, figure in sizes.items() if figure is not None},
            "layers": {run.classifier_name: layers_table(run.rows) for run in self.runs},
            "unshown": unshown,
            "cases": BoxCases().strips(seen, drawn),
            "unseen": [run.classifier_name for run in self.runs[NETWORKS:]],
        }


def _columns(row: LocalizationRow, *, beside_paper: bool) -> dict[str, str]:
    paper = f"{LOCALIZATION[row.method].error:.1f}" if row.method in LOCALIZATION else NOTHING

    def at(result: RuleResult) -> str:
        return f"{100 * result.error.value:.1f} at {result.threshold:g}"

    return {
        **row.names,
        "alpha": f"{row.alpha:g}",
        "error %": str(row.error),
        "largest component": at(row.rules["largest"]),
        "t x max": at(row.rules["max"]),
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
    """A pair of an image and a category; its share is that of the largest object, by its box.

    Its maps are what each method found at its own threshold: ``method``, ``layer``, ``box`` (None where nothing is
    above it), ``overlap`` (the IoU with the best true box) and ``manner``, one of `MANNERS`.
    """

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
    """How a box lies relative to the true box that it overlaps most: one of `MANNERS`.

    A box that does not fit is too small where most of it lies within the object, too large where most of the object
    lies within it, and elsewhere otherwise. Whether it fits may be known already.
    """
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


def whole_picture(pairs: Sequence[BoxExample]) -> Share:
    """The error of the whole image as the box: a baseline."""
    misses = [manner((0, 0, *pair.size), pair.truth) != "fits" for pair in pairs]
    return Share(sum(misses), len(misses))


def size_groups(pairs: Sequence[BoxExample]) -> list[tuple[str, Sequence[BoxExample]]]:
    """Fifths of the pairs, from the smallest objects to the largest, each with its range of sizes in percent."""
    ordered = sorted(pairs, key=lambda pair: pair.share)
    ends = [round(k * len(ordered) / GROUPS) for k in range(GROUPS + 1)]
    parts = [ordered[start:end] for start, end in pairwise(ends) if end > start]
    return [(f"{100 * part[0].share:.0f}{DASH}{100 * part[-1].share:.0f}", part) for part in parts]


def errors_table(rows: Rows, whole: Mapping[str, Share], data: str) -> Table:
    """The paper's table with methods as rows and networks as columns, its own numbers beside them.

    ``whole`` is for each network the error of the whole image as the box.
    """
    found = {(row.model, row.method): row for row in rows}
    methods, models = methods_of(rows), models_of(rows)
    beside = data == LOCALIZED_DATA
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
    blind = [cell for model in models for cell in (tables.estimate_cell(whole[model].percent), DASH, DASH)]
    return Table(
        ["method", *["error", ALPHA, "read at"] * len(models), *["error", ALPHA] * beside],
        list(zip(methods, *columns, strict=True)),
        groups=[("", 1), *((model, 3) for model in models), *[(f"paper: {LOCALIZED_ON}", 2)] * beside],
        foot=[["the whole image", *blind, *[DASH] * 2 * beside]],
    )


def conventions_table(rows: Rows) -> Table:
    """The same maps boxed by other rules, and by the measures of other publications; of one network."""
    enough = list(rows[0].max_box_acc_v2)
    columns = []
    for way in WAYS:
        cells = tables.ranked([100 * row.rules[way].error.value for row in rows], highest=False)
        chosen = [f"at {row.rules[way].threshold:g}" for row in rows]
        columns.append([replace(cell, small=at) for cell, at in zip(cells, chosen, strict=True)])
    columns.append(tables.ranked([row.max_box_acc for row in rows]))
    columns += [tables.ranked([row.max_box_acc_v2[each] for row in rows]) for each in enough]
    columns.append(tables.ranked([row.v2_mean for row in rows]))
    levels, pieces = Counter(LEVELS[rule.of] for rule in RULES.values()), [PIECES[RULES[way].region] for way in WAYS]
    return Table(
        ["method", *pieces, "IoU 0.5", *(f"IoU {each:g}" for each in enough), "mean"],
        list(zip(methods_of(rows), *columns, strict=True)),
        groups=[("", 1), *levels.items(), ("MaxBoxAcc", 1), ("MaxBoxAccV2", len(enough) + 1)],
    )


def manners_table(pairs: Sequence[BoxExample], rows: Rows) -> Table:
    """How the boxes of each method lie relative to the objects, in percent of the pairs; of one network."""
    body: list[list[Cell | str]] = []
    for k, row in enumerate(rows):
        counts = Counter(pair.maps[k]["manner"] for pair in pairs)
        body.append([row.method, *tables.heated([100 * counts[each] / len(pairs) for each in MANNERS], best=False)])
    return Table(["method", *MANNERS], body)


def layers_table(rows: Rows) -> Table | None:
    """The error at every layer; None where each method was read at one. Of one network."""
    if len(rows) == len(methods_of(rows)):
        return None
    body: list[list[Cell | str]]
    body = [[row.method, row.layer, tables.estimate_cell(row.error.percent), f"{row.alpha:g}"] for row in rows]
    return Table(["method", "read at", "error", ALPHA], body)


def errors_figure(rows: Rows) -> Any:
    """Each method's error by the paper's rule and by the one that is common today, a panel for each network."""
    series = {
        f"{WAYS['paper']} (the paper's)": lambda row: row.rules["paper"].error.percent,
        WAYS["max-largest"]: lambda row: row.rules["max-largest"].error.percent,
    }
    return figures.interval_figure(rows, "error [%]", series, columns=1)


def curves_figure(rows: Rows, rule: str) -> Any:
    """The error at each threshold of a rule; a large open marker is at the chosen one. Empty maps are not drawn."""
    results = [(k, row.method, row.rules[rule]) for k, row in enumerate(rows) if not row.all_empty]
    curves = [(k, method, result.curve, result.threshold) for k, method, result in results]
    figure, axes = figures.curves_figure(RULES[rule].thresholds, curves, (CURVES[rule], "error [%]"), sparse=True)
    axes.set_ylim(None, 101)
    return figure


def sizes_figure(pairs: Sequence[BoxExample], rows: Rows) -> Any:
    """The error on small and on large objects with 95 % intervals, a panel for each method before all the others.

    None where there are too few pairs. A method whose maps are all empty is not drawn.
    """
    groups = size_groups(pairs)
    drawn = [k for k, row in enumerate(rows) if not row.all_empty]
    if len(groups) < GROUPS or not drawn:
        return None
    errors = {
        k: [Share(sum(pair.maps[k]["manner"] != "fits" for pair in group), len(group)).percent for _, group in groups]
        for k in drawn
    }
    figure, panels = _small_panels(len(errors))
    xs = range(len(groups))
    for k, axes in zip(errors, panels, strict=True):
        figures.style_axes(axes)
        for others in errors.values():
            axes.plot(xs, [error.value for error in others], color=figures.FAINT, linewidth=1)
        figures.line(axes, xs, errors[k], rows[k].method, k)
        axes.set_title(rows[k].method, fontsize=9, color=figures.INK, parse_math=False)
        axes.set_xticks(xs, [sizes for sizes, _ in groups], rotation=60)
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


def _all_fit(example: BoxExample, fits: Fits) -> float | None:
    """The smaller the object, the harder it was."""
    return example.share if all(fits) else None


def _only_main_fits(example: BoxExample, fits: Fits) -> float | None:
    """The more of the others do not fit, the better; of equals, the better fit."""
    main, *others = fits
    return sum(others) - min(example.maps[0]["overlap"], 0.99) if main and not all(others) else None


def _misses(manner: str) -> Rating[BoxExample]:
    """The smaller the IoU, the better the case."""

    def rate(example: BoxExample, _: Fits) -> float | None:
        main = example.maps[0]
        return float(main["overlap"]) if main["manner"] == manner else None

    return rate


class BoxCases(MapCases[BoxExample]):
    """Boxes that fit, and the ways in which they do not."""

    kinds: ClassVar = {
        "Every method that looks fits the object": _all_fit,
        "{main} fits where others do not": _only_main_fits,
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

    def drawn(
        self, _run: LocalizationRun, example: BoxExample, picture: Image.Image, maps: Sequence[AttentionMap]
    ) -> list[Image.Image]:
        """The photograph and each method's map over it: true boxes dashed, the found box solid.

        All are drawn at the width at which they are shown, so that lines look the same on large and on small images.
        """
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
