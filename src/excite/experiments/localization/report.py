"""Tables, figures and the page of localisation, and how found boxes lie beside the true ones."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from PIL import Image

from excite.experiments.base import failures_of, left_out_lines
from excite.experiments.localization.pairs import GROUPS, MANNERS, BoxExample, pairs_of, size_groups, whole_picture
from excite.experiments.localization.scores import RULES, best_layers, difference
from excite.experiments.published import LOCALIZATION, LOCALIZED_DATA, LOCALIZED_ON, WORDS
from excite.experiments.report import figures, tables
from excite.experiments.report.examples import (
    EXAMPLES,
    WIDTH,
    Cases,
    dashed,
    framed,
    map_panels,
    recomputed_maps,
    rows_to_show,
)
from excite.experiments.report.figures import main_method, methods_of, models_of
from excite.experiments.report.page import write_page
from excite.experiments.report.tables import DASH, Cell, Table
from excite.io.text import markdown_list
from excite.metrics.statistics import Share
from excite.readouts.overlay import overlay

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.datasets import Box
    from excite.experiments.localization.scores import LocalizationRow, LocalizationRun, RuleResult
    from excite.experiments.report.examples import Panel, Rating
    from excite.jobs import Entry

    Fits = Sequence[bool]  # of the main method, and then of the others that use the image
    Rows = Sequence[LocalizationRow]

FILE = "localization.html"
MAIN = ("extent", "mwp")
ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
TIMES = "\N{MULTIPLICATION SIGN}"
LEVELS = {
    f"{ALPHA} {TIMES} mean": ("paper", "largest"),
    f"t {TIMES} max": ("max",),
    f"t {TIMES} range": ("max-largest", "any"),
}
"""The level of a threshold, and the rules that use it."""

PIECES = {
    "paper": "around all",
    "largest": "largest piece",
    "max": "around all",
    "max-largest": "largest piece",
    "any": "best piece",
}
"""The boxed pixels of each rule."""

WAYS = {rule: f"{level}, {PIECES[rule]}" for level, rules in LEVELS.items() for rule in rules}
"""Both together, for each rule."""

ACROSS, SMALL = 5, (1.9, 1.75)  # small panels side by side, at most, and the inches of each
CURVES = {"paper": f"{ALPHA}, in means of the map", "max": "t, in maxima of the map"}
SEVERAL_LAYERS = (
    "Of a method that was read at several layers, the one with the smallest error on held-out images is shown."
)


def answer(runs: Sequence[LocalizationRun]) -> dict[str, Any]:
    """All results as plain values for JSON, independent of time and machine."""
    about = runs[0].about
    return {
        "rows": [row.to_dict() for run in runs for row in run.told],
        "layers": [row.to_dict() for run in runs for row in run.rows],
        "data": about["data"],
        "split": about["data"]["split"],
        "pictures": about["pictures"],
        "protocol": {key: about[key] for key in ("shape", "canvas", "held_out", "seed")},
        "held_out": {run.classifier_name: run.about["held_out_pictures"] for run in runs},
        **tables.per_network(runs, "reported", "output", "concepts", "left_out"),
        "failures": failures_of(run.about for run in runs),
    }


def lines(runs: Sequence[LocalizationRun]) -> list[dict[str, str]]:
    """The rows of the table in the terminal, with the paper's errors where the data are the paper's."""
    beside = runs[0].dataset_name == LOCALIZED_DATA
    return [_columns(row, beside_paper=beside) for run in runs for row in run.told]


def _columns(row: LocalizationRow, *, beside_paper: bool) -> dict[str, str]:
    paper = f"{LOCALIZATION[row.method].error:.1f}" if row.method in LOCALIZATION else tables.NOTHING

    def at(result: RuleResult) -> str:
        return f"{100 * result.error.value:.1f} at {result.threshold:g}"

    return {
        "model": row.model,
        "method": row.method,
        "layer": row.layer,
        "alpha": f"{row.alpha:g}",
        "error %": str(row.error),
        "largest component": at(row.rules["largest"]),
        "t x max": at(row.rules["max"]),
        "MaxBoxAcc": f"{row.max_box_acc:.1f}",
        "MaxBoxAccV2": f"{row.v2_mean:.1f}",
        **({"paper's error": paper} if beside_paper else {}),
    }


def sentences(run: LocalizationRun) -> list[str]:
    """What was measured, and what was left out and why."""
    about, row = run.about, run.rows[0]
    measured = (
        f"{run.classifier_name} on {run.dataset_name} {run.split}: errors on {row.error.total} pairs of an image and "
        f"a category, in {about['reported']} images, with 95 % intervals; images held out to choose thresholds on: "
        f"{about['held_out_pictures']}; MaxBoxAcc and MaxBoxAccV2 take the best threshold of the reported images"
    )
    empty = [f"maps of {one.method} at {one.layer} without any box: {one.empty}" for one in run.told if one.empty]
    missing = "; ".join(left_out_lines(about["left_out"]))
    several = len(run.rows) - len(run.told)
    chosen = ["the layer of each method was chosen on the held-out images too (rows.csv has all)"] if several else []
    return [measured, *chosen, *empty, *([f"left out: {missing}"] if missing else [])]


def write_tables(runs: Sequence[LocalizationRun], out: Path) -> list[Path]:
    """Write ``rows.json``, ``rows.csv``, ``curves.csv`` and ``table.md``."""
    rows = [row for run in runs for row in run.rows]
    texts = {
        "rows.csv": tables.csv_table([_flat(row) for row in rows]),
        "curves.csv": tables.csv_table([line for row in rows for line in _curves(row)]),
        "table.md": _markdown(runs),
    }
    return tables.write_tables(out, answer(runs), texts)


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


def _curves(row: LocalizationRow) -> Iterator[Mapping[str, Any]]:
    for rule, result in row.rules.items():
        for threshold, error in zip(RULES[rule].thresholds, result.curve, strict=True):
            key = {"model": row.model, "method": row.method, "layer": row.layer}
            yield {**key, "rule": rule, "threshold": threshold, "error": round(error, 2)}


def _markdown(runs: Sequence[LocalizationRun]) -> str:
    published = [
        {
            "method": WORDS.get(method, method.capitalize()),
            "alpha": tables.NOTHING if paper.alpha is None else f"{paper.alpha:g}",
            "error %": f"{paper.error:.1f}",
        }
        for method, paper in LOCALIZATION.items()
    ]
    said = markdown_list(sentence for run in runs for sentence in sentences(run))
    both = [tables.markdown_table(each) for each in (lines(runs), published)]
    return "\n\n".join([both[0], said, f"The paper's own ({LOCALIZED_ON}):", both[1]]) + "\n"


def write(out: Path, runs: Sequence[LocalizationRun], *, command: str = "") -> Path:
    """Write the page, with the command that makes it again; the same runs give the same bytes."""
    figures.check_plots()
    data = runs[0].dataset_name
    shown = {run.classifier_name: best_layers(run.rows) for run in runs}
    pairs = {run.classifier_name: pairs_of(run, shown[run.classifier_name]) for run in runs}
    rows = [row for each in shown.values() for row in each]
    main = main_method(rows, MAIN)
    seen = runs[:NETWORKS]
    drawn, unshown = rows_to_show([row for run in seen for row in shown[run.classifier_name]], main)
    sizes = {name: sizes_figure(pairs[name], each) for name, each in shown.items()}
    return write_page(
        out / FILE,
        "localization.html",
        runs=runs,
        pairs=pairs,
        left_out=left_out_lines,
        beside_paper=data == LOCALIZED_DATA,
        errors=errors_table(rows, {name: whole_picture(each) for name, each in pairs.items()}, data),
        errors_figure=errors_figure(rows),
        notes=list(_notes(runs, shown, main)),
        paper_on=LOCALIZED_ON,
        paper_alphas=[f"{WORDS[name]} {one.alpha:g}" for name, one in LOCALIZATION.items() if one.alpha is not None],
        curves={name: {WAYS[rule]: curves_figure(each, rule) for rule in CURVES} for name, each in shown.items()},
        conventions={name: conventions_table(each) for name, each in shown.items()},
        manners={name: manners_table(pairs[name], each) for name, each in shown.items()},
        sizes={name: figure for name, figure in sizes.items() if figure is not None},
        layers={run.classifier_name: layers_table(run.rows) for run in runs},
        unshown=unshown,
        cases=BoxCases().strips(seen, drawn, most=EXAMPLES, named=len(runs) > 1),
        unseen=[run.classifier_name for run in runs[NETWORKS:]],
        command=command,
    )


def _notes(runs: Sequence[LocalizationRun], shown: Mapping[str, Rows], main: str) -> Iterator[str]:
    """How layers were chosen, the lead of the main method, empty maps, and what else the paper has."""
    rows = [row for each in shown.values() for row in each]
    if len(rows) < sum(len(run.rows) for run in runs):
        yield SEVERAL_LAYERS
    for run in runs:
        found = {row.method: row for row in shown[run.classifier_name]}
        own = found.pop(main, None)
        if own is not None and found:
            other = min(found.values(), key=lambda row: row.error.value)
            gap = difference(run.records, run.reported, (own.method, own.layer), (other.method, other.layer))
            yield (
                f"{run.classifier_name}: {main} against {other.method}, the best of the others: "
                f"{tables.difference_words(gap)} of error (paired over images, 95 % interval; below 0, {main} is "
                f"better; p = {gap.p:.2g})"
            )
    for row in rows:
        if row.empty:
            count = f"{row.empty} of {row.error.total}"
            yield f"{row.model}: {count} maps of {row.method} are empty and have no box: errors"
    missing = [name for name in LOCALIZATION if name not in methods_of(rows)]
    if missing and runs[0].dataset_name == LOCALIZED_DATA:
        others = ", ".join(f"{WORDS.get(name, name.title())} {LOCALIZATION[name].error:.1f}" for name in missing)
        yield f"The paper also has, with {LOCALIZED_ON}: {others}"


def errors_table(rows: Rows, whole: Mapping[str, Share], data: str) -> Table:
    """The paper's table with methods as rows and networks as columns, its own numbers beside them.

    Args:
        rows: of each network and method at most one.
        whole: for each network the error of the whole image as the box.
        data: the format of the data; the paper's numbers are of one only.
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
    levels = [(level, len(ways)) for level, ways in LEVELS.items()]
    return Table(
        ["method", *(PIECES[way] for way in WAYS), "IoU 0.5", *(f"IoU {each:g}" for each in enough), "mean"],
        list(zip(methods_of(rows), *columns, strict=True)),
        groups=[("", 1), *levels, ("MaxBoxAcc", 1), ("MaxBoxAccV2", len(enough) + 1)],
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

    Args:
        pairs: with the boxes of each row.
        rows: of one network, at most one for each method; those whose maps are all empty are not drawn.

    Returns:
        a figure of matplotlib, or None where there are too few pairs.
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


class BoxCases(Cases[BoxExample]):
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

    def panels(self, run: LocalizationRun, example: BoxExample) -> Iterator[Panel]:
        """The photograph and each method's map over it: true boxes dashed, the found box solid.

        All are drawn at the width at which they are shown, so that lines look the same on large and on small images.
        """
        picture, shown = recomputed_maps(run.show, example)
        scale = WIDTH / picture.width
        photograph = picture.resize((WIDTH, max(1, round(scale * picture.height))), Image.Resampling.LANCZOS)
        truth = [_scaled(box, scale) for box in example.truth]
        images = [dashed(photograph, truth)]
        for one, found in zip(shown, example.maps, strict=True):
            panel = overlay(photograph, one.values)
            panel = panel if found["box"] is None else framed(panel, _scaled(found["box"], scale))
            images.append(dashed(panel, truth))
        return map_panels(example, self.words(run, example), images, _verdict)


NETWORKS = EXAMPLES // len(BoxCases.kinds)  # that can have an example of each kind


def _verdict(found: Entry) -> str:
    if found["box"] is None:
        return "✗ no box"
    return f"{'✓' if found['manner'] == 'fits' else '✗'} {found['manner']}, IoU {found['overlap']:.2f}"


def _scaled(box: Box, scale: float) -> Box:
    x0, y0, x1, y1 = (scale * side for side in box)
    return x0, y0, x1, y1
