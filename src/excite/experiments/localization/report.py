"""Tables and figures of localisation, and how found boxes lie beside the true ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from excite.experiments.base import failures_of, left_out_lines, method_layer
from excite.experiments.localization.scores import RULES
from excite.experiments.published import LOCALIZATION, LOCALIZED_DATA, LOCALIZED_ON, WORDS
from excite.experiments.report import figures, tables
from excite.io.text import markdown_list
from excite.metrics.boxes import ALPHAS, MATCH, box_iou
from excite.metrics.statistics import Share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.datasets import Box
    from excite.experiments.localization.scores import LocalizationRow, LocalizationRun, RuleResult
    from excite.jobs import Entry


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

MANNERS = ("fits", "too small", "too large", "elsewhere", "no box")
MOSTLY = 0.7  # of a box within another
GROUPS = 5  # of pairs by size
ACROSS, SMALL = 5, (1.9, 1.75)  # small panels side by side, at most, and the inches of each


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


@dataclass(frozen=True)
class FoundBox:
    """The box of one method in a pair, at the threshold chosen for it.

    Attributes:
        box: None where nothing is above the threshold.
        overlap: its IoU with the best true box.
        manner: one of `MANNERS`.
    """

    box: Box | None
    overlap: float
    manner: str


@dataclass(frozen=True)
class Pair:
    """An image and a category in it, with the boxes of some methods.

    Attributes:
        image: the image's name.
        size: its width and height.
        category: of the objects.
        truth: their boxes.
        found: for each row, in their order.
    """

    image: str
    size: tuple[int, int]
    category: str
    truth: tuple[Box, ...]
    found: tuple[FoundBox, ...]

    @property
    def share(self) -> float:
        """The share of the image that the largest object covers by its box."""
        return max(map(_area, self.truth)) / (self.size[0] * self.size[1])


def pairs_of(run: LocalizationRun, rows: Sequence[LocalizationRow]) -> list[Pair]:
    """The reported pairs, with the boxes of these rows at their thresholds."""
    keys = [((row.method, row.layer), ALPHAS.index(row.alpha)) for row in rows]
    pairs = []
    for record in run.records:
        for target in record["targets"] if record["image"] in run.reported else ():
            maps = {method_layer(found): found for found in target["maps"]}
            truth = tuple(_box(box) for box in target["truth"])
            size = (record["size"][0], record["size"][1])
            found = tuple(_found(maps[key], at, truth) for key, at in keys)
            pairs.append(Pair(record["image"], size, target["category"], truth, found))
    return pairs


def _found(one: Entry, at: int, truth: Sequence[Box]) -> FoundBox:
    """Whether it fits is as measured: at the limit, rounding must not turn a fit into an error here."""
    box = None if one["boxes"][at] is None else _box(one["boxes"][at])
    measured = one["overlaps"]["paper"][at]
    if box is None or measured >= MATCH:
        return FoundBox(box, measured, "no box" if box is None else "fits")
    return FoundBox(box, measured, _miss(box, truth[int(box_iou([box], truth)[0].argmax())]))


def manner(box: Box | None, truth: Sequence[Box]) -> str:
    """How a box lies relative to the true box that it overlaps most: one of `MANNERS`.

    A box that does not fit is too small where most of it lies within the object, too large where most of the object
    lies within it, and elsewhere otherwise.

    Example:
        >>> [manner(box, [(0, 0, 10, 10)]) for box in ((0, 0, 9, 9), (0, 0, 3, 3), (0, 0, 30, 9), (8, 8, 20, 20), None)]
        ['fits', 'too small', 'too large', 'elsewhere', 'no box']
    """
    if box is None:
        return "no box"
    overlaps = box_iou([box], truth)[0]
    return "fits" if overlaps.max() >= MATCH else _miss(box, truth[int(overlaps.argmax())])


def _miss(box: Box, true: Box) -> str:
    width = min(box[2], true[2]) - max(box[0], true[0])
    shared = max(width, 0.0) * max(min(box[3], true[3]) - max(box[1], true[1]), 0.0)
    if shared >= MOSTLY * _area(box):
        return "too small"
    return "too large" if shared >= MOSTLY * _area(true) else "elsewhere"


def _box(values: Sequence[float]) -> Box:
    x0, y0, x1, y1 = values
    return x0, y0, x1, y1


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def whole_picture(pairs: Sequence[Pair]) -> Share:
    """The error of the whole image as the box: a baseline.

    Example:
        >>> whole_picture([Pair("1", (10, 10), "cat", ((0, 0, 10, side),), ()) for side in (9, 5, 2)])
        Share(count=1, total=3)
    """
    misses = [manner((0, 0, *pair.size), pair.truth) != "fits" for pair in pairs]
    return Share(sum(misses), len(misses))


def errors_figure(rows: Sequence[LocalizationRow]) -> Any:
    """Each method's error by the paper's rule and by the one that is common today, a panel for each network."""
    series = {
        f"{WAYS['paper']} (the paper's)": lambda row: row.rules["paper"].error.percent,
        WAYS["max-largest"]: lambda row: row.rules["max-largest"].error.percent,
    }
    return figures.interval_figure(rows, "error [%]", series, columns=1)


def curves_figure(rows: Sequence[LocalizationRow], rule: str, thresholds: Sequence[float], name: str) -> Any:
    """The error at each threshold, a line for each method with a large open marker at the chosen threshold.

    Args:
        rows: of one network, at most one for each method; those whose maps are all empty are not drawn.
        rule: the rule of boxes.
        thresholds: of that rule.
        name: of the thresholds.
    """
    results = [(k, row.method, row.rules[rule]) for k, row in enumerate(rows) if not row.all_empty]
    curves = [(k, method, result.curve, result.threshold) for k, method, result in results]
    figure, axes = figures.curves_figure(thresholds, curves, (name, "error [%]"), sparse=True)
    axes.set_ylim(None, 101)
    return figure


def sizes_figure(pairs: Sequence[Pair], rows: Sequence[LocalizationRow]) -> Any:
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
        k: [Share(sum(pair.found[k].manner != "fits" for pair in group), len(group)).percent for _, group in groups]
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


def size_groups(pairs: Sequence[Pair]) -> list[tuple[str, Sequence[Pair]]]:
    """Fifths of the pairs, from the smallest objects to the largest, each with its range of sizes in percent."""
    ordered = sorted(pairs, key=lambda pair: pair.share)
    ends = [round(k * len(ordered) / GROUPS) for k in range(GROUPS + 1)]
    parts = [ordered[start:end] for start, end in pairwise(ends) if end > start]
    return [(f"{100 * part[0].share:.0f}\N{EN DASH}{100 * part[-1].share:.0f}", part) for part in parts]


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
