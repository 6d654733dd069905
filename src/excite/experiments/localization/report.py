"""The tables of localisation: for the terminal, for programs, and for papers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from excite.experiments.base import failures_of, left_out_words, place_of
from excite.experiments.layer_sweep import ENOUGH_OVERLAP
from excite.experiments.localization.scores import RULES
from excite.experiments.published import LOCALIZATION, LOCALIZED_DATA, LOCALIZED_ON, WORDS
from excite.experiments.report.figures import (
    FAINT,
    INK,
    LOOKS,
    NAMES,
    OPEN,
    check_plots,
    dots,
    legend,
    line,
    line_style,
    panel,
    panels_of_methods,
    plain,
    tens_around,
)
from excite.experiments.report.html import Html, csv_table, element, markdown_table, table
from excite.experiments.report.page import DASH, in_percent, methods_of, models_of
from excite.io.files import save_json, save_text
from excite.metrics.boxes import ALPHAS, overlap
from excite.metrics.statistics import Share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.datasets import Box
    from excite.experiments.localization.scores import Row, RuleResult, Run
    from excite.jobs import Entry

    Line = Mapping[str, Any]


NOTHING = "-"


def answer(runs: Sequence[Run]) -> dict[str, Any]:
    """All of it as plain values for JSON; nothing in it depends on when and where it was made."""
    about = runs[0].about
    protocol = ("shape", "canvas", "held_out", "seed")
    return {
        "rows": [row.to_dict() for run in runs for row in run.told],
        "layers": [row.to_dict() for run in runs for row in run.rows],
        "data": about["data"],
        "split": about["data"]["split"],
        "pictures": about["pictures"],
        "protocol": {key: about[key] for key in protocol},
        "held_out": {run.classifier_name: run.about["held_out_pictures"] for run in runs},
        "reported": {run.classifier_name: run.about["reported"] for run in runs},
        "output": {run.classifier_name: run.about["output"] for run in runs},
        "concepts": {run.classifier_name: run.about["concepts"] for run in runs},
        "left_out": {run.classifier_name: run.about["left_out"] for run in runs},
        "failures": failures_of(run.about for run in runs),
    }


def lines(runs: Sequence[Run]) -> list[dict[str, str]]:
    """The rows as people read them; beside them the paper's errors, where the data are the paper's."""
    beside = runs[0].dataset_name == LOCALIZED_DATA
    return [_columns(row, beside_paper=beside) for run in runs for row in run.told]


def _columns(row: Row, *, beside_paper: bool) -> dict[str, str]:
    paper = f"{LOCALIZATION[row.method].error:.1f}" if row.method in LOCALIZATION else NOTHING
    return {
        "model": row.model,
        "method": row.method,
        "layer": row.layer,
        "alpha": f"{row.alpha:g}",
        "error %": str(row.error),
        "largest component": _at(row.rules["largest"]),
        "t x max": _at(row.rules["max"]),
        "MaxBoxAcc": f"{row.max_box_acc:.1f}",
        "MaxBoxAccV2": f"{row.v2_mean:.1f}",
        **({"paper's error": paper} if beside_paper else {}),
    }


def sentences(run: Run) -> list[str]:
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


def left_out_lines(left_out: Mapping[str, Any]) -> list[str]:
    """What was left out and why, for people to read.

    Example:
        >>> left_out_lines({"unknown": {}, "difficult": 0, "empty": 2, "unreadable": {"cam at conv5": "..."}})
        ['pictures with nothing to look for: 2', 'methods that cannot be read there (rows.json says why): cam at conv5']
    """
    unreadable = ", ".join(left_out["unreadable"])
    said = [f"methods that cannot be read there (rows.json says why): {unreadable}"] if unreadable else []
    return [*left_out_words(left_out), *said]


def write_tables(runs: Sequence[Run], out: Path) -> list[Path]:
    """Write ``rows.json``, ``rows.csv``, ``curves.csv`` and ``table.md``; the same runs give the same bytes."""
    rows = [row for run in runs for row in run.rows]
    texts = {
        "rows.csv": csv_table([_flat(row) for row in rows]),
        "curves.csv": csv_table([line for row in rows for line in _curves(row)]),
        "table.md": _markdown(runs),
    }
    written = [save_json(answer(runs), out / "rows.json")]
    return [*written, *(save_text(text, out / name) for name, text in texts.items())]


def _at(result: RuleResult) -> str:
    return f"{100 * result.error.value:.1f} at {result.threshold:g}"


def _flat(row: Row) -> Line:
    """A row of the table without lists, for spreadsheets."""
    line = row.to_dict()
    rules, v2 = line.pop("rules"), line.pop("max_box_acc_v2")
    low, high = line.pop("error_interval")
    del rules["paper"]  # that is the line itself
    return {
        **line,
        "error_low": low,
        "error_high": high,
        **{f"{rule}_{key}": told[key] for rule, told in rules.items() for key in ("threshold", "error")},
        **{f"max_box_acc_v2_{overlap}": value for overlap, value in v2.items()},
    }


def _curves(row: Row) -> Iterator[Line]:
    for rule, result in row.rules.items():
        for threshold, error in zip(RULES[rule].thresholds, result.curve, strict=True):
            place = {"model": row.model, "method": row.method, "layer": row.layer}
            yield {**place, "rule": rule, "threshold": threshold, "error": round(error, 2)}


def _markdown(runs: Sequence[Run]) -> str:
    said = "\n".join(f"- {sentence}" for run in runs for sentence in sentences(run))
    return "\n\n".join([markdown_table(lines(runs)), said, f"The paper's own ({LOCALIZED_ON}):", _published()]) + "\n"


def _published() -> str:
    """The paper's table, as it has it: also what there is no method for here."""
    lines = [
        {
            "method": WORDS.get(method, method.capitalize()),
            "alpha": NOTHING if paper.alpha is None else f"{paper.alpha:g}",
            "error %": f"{paper.error:.1f}",
        }
        for method, paper in LOCALIZATION.items()
    ]
    return markdown_table(lines)


# How found boxes lie beside what they should fit, pair by pair: what an error alone does not tell.

MANNERS = ("fits", "too small", "too large", "elsewhere", "no box")
MOSTLY = 0.7  # of a box within another: two boxes that hold as much of each other fit


@dataclass(frozen=True)
class Found:
    """What one method found in a pair, at the threshold that was chosen for it.

    Attributes:
        box: None where nothing is above the threshold.
        overlap: with the true box that it fits best.
        manner: one of `MANNERS`.
    """

    box: Box | None
    overlap: float
    manner: str


@dataclass(frozen=True)
class Pair:
    """An image and a category in it, with what some methods found there.

    Attributes:
        image: the image's name.
        size: its width and height.
        category: what was to be found,
        truth: and where it is.
        found: for each row that was asked for, in its order.
    """

    image: str
    size: tuple[int, int]
    category: str
    truth: tuple[Box, ...]
    found: tuple[Found, ...]

    @property
    def share(self) -> float:
        """How much of the image the object covers by its box; of several, the largest.

        Example:
            >>> Pair("1", (10, 10), "cat", ((0, 0, 5, 5), (0, 0, 1, 1)), ()).share
            0.25
        """
        return max(map(_area, self.truth)) / (self.size[0] * self.size[1])


def pairs_of(run: Run, rows: Sequence[Row]) -> list[Pair]:
    """The pairs that are reported on, with what these rows found at their thresholds."""
    places = [((row.method, row.layer), ALPHAS.index(row.alpha)) for row in rows]
    return [_pair(record, target, places) for record in reported(run) for target in record["targets"]]


def reported(run: Run) -> Iterator[Entry]:
    """The records of the images on which nothing was chosen."""
    return (record for record in run.records if record["image"] in run.reported)


def manner(box: Box | None, truth: Sequence[Box]) -> str:
    """In which way a box fits, or does not fit, the true box that it overlaps most.

    A box that does not fit is too small where it lies within the object and too large where the object lies within it,
    for the most part; elsewhere is all the rest.

    Example:
        >>> [manner(box, [(0, 0, 10, 10)]) for box in ((0, 0, 9, 9), (0, 0, 3, 3), (0, 0, 30, 9), (8, 8, 20, 20), None)]
        ['fits', 'too small', 'too large', 'elsewhere', 'no box']
    """
    if box is None:
        return "no box"
    true = max(truth, key=lambda one: overlap(box, one))
    return "fits" if overlap(box, true) >= ENOUGH_OVERLAP else _miss(box, true)


def whole_picture(pairs: Sequence[Pair]) -> Share:
    """How often the whole image, taken for the box, does not fit: what a method has to be better than.

    Example:
        >>> whole_picture([Pair("1", (10, 10), "cat", ((0, 0, 10, side),), ()) for side in (9, 5, 2)])
        Share(count=1, total=3)
    """
    misses = [manner((0, 0, *pair.size), pair.truth) != "fits" for pair in pairs]
    return Share(sum(misses), len(misses))


def manners_table(pairs: Sequence[Pair], rows: Sequence[Row]) -> Html:
    """In which way the boxes of each method fit or do not fit, in percent of the pairs; of one network."""
    body = []
    for k, row in enumerate(rows):
        counts = Counter(pair.found[k].manner for pair in pairs)
        body.append([row.method, *(_heat(100 * counts[each] / len(pairs)) for each in MANNERS)])
    return table(
        f"{rows[0].model}: how the boxes lie, in percent of {len(pairs)} pairs. Too small: most of the box is on "
        "the object. Too large: most of the object is in the box. Elsewhere: neither.",
        ["method", *MANNERS],
        body,
    )


def _pair(record: Entry, target: Entry, places: Sequence[tuple[tuple[str, str], int]]) -> Pair:
    maps = {place_of(found): found for found in target["maps"]}
    truth = tuple(_box(box) for box in target["truth"])
    width, height = record["size"]
    found = tuple(_found(maps[place], at, truth) for place, at in places)
    return Pair(record["image"], (width, height), target["category"], truth, found)


def _found(one: Entry, at: int, truth: Sequence[Box]) -> Found:
    """Whether it fits is as it was measured: at the edge of it, rounding must not make another error of it here."""
    box = None if one["boxes"][at] is None else _box(one["boxes"][at])
    measured = one["overlaps"]["paper"][at]
    if box is None or measured >= ENOUGH_OVERLAP:
        return Found(box, measured, "no box" if box is None else "fits")
    return Found(box, measured, _miss(box, max(truth, key=lambda true: overlap(box, true))))


def _miss(box: Box, true: Box) -> str:
    both = _shared(box, true)
    if both >= MOSTLY * _area(box):
        return "too small"
    return "too large" if both >= MOSTLY * _area(true) else "elsewhere"


def _box(values: Sequence[float]) -> Box:
    x0, y0, x1, y1 = values
    return x0, y0, x1, y1


def _shared(one: Box, other: Box) -> float:
    """The area that two boxes have in common."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    return max(width, 0.0) * max(min(one[3], other[3]) - max(one[1], other[1]), 0.0)


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _heat(value: float) -> Html:
    return element("span", f"{value:.1f}", class_="heat", style=f"--share: {0.7 * value:.0f}%")


# What the page of localisation calls the ways to find a box.

ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
TIMES = "\N{MULTIPLICATION SIGN}"
LEVELS = {
    f"{ALPHA} {TIMES} mean": ("paper", "largest"),
    f"t {TIMES} max": ("max",),
    f"t {TIMES} range": ("max-largest", "any"),
}
"""What a pixel has to be above, and the rules of which this is so."""

PIECES = {
    "paper": "around all",
    "largest": "largest piece",
    "max": "around all",
    "max-largest": "largest piece",
    "any": "best piece",
}
"""What of all that is above is boxed."""

WAYS = {rule: f"{level}, {PIECES[rule]}" for level, rules in LEVELS.items() for rule in rules}
"""Both together, for each rule."""


# The figures of localisation, drawn with matplotlib (the extra ``plots``) for the page of its results.

GROUPS = 5
ACROSS, SMALL = 5, (1.9, 1.75)  # at most so many small panels side by side, and the inches of each
DOTS = {"paper": f"{WAYS['paper']} (the paper's)", "max-largest": WAYS["max-largest"]}


def errors_figure(rows: Sequence[Row]) -> Any:
    """Each method's error by the paper's rule and by the one that is common today, a panel for each network.

    Args:
        rows: at most one for each network and method.

    Returns:
        a figure of matplotlib.
    """
    methods = methods_of(rows)
    figure, panels = panels_of_methods(methods, models_of(rows), "error [%]")
    shown = {rule: [in_percent(row.rules[rule].error) for row in rows] for rule in DOTS}
    for model, axes in panels.items():
        for offset, rule, look in zip((-0.13, 0.13), DOTS, LOOKS, strict=False):
            both = zip(rows, shown[rule], strict=True)
            placed = [(methods.index(row.method) + offset, error) for row, error in both if row.model == model]
            dots(axes, placed, DOTS[rule], look)
        axes.set_xlim(*tens_around(error for errors in shown.values() for error in errors))
    legend(figure, next(iter(panels.values())), columns=1)
    return figure


def curves_figure(rows: Sequence[Row], rule: str, thresholds: Sequence[float], name: str) -> Any:
    """The error at each threshold, a line for each method; a large open mark is at the threshold that was chosen.

    A method whose maps are all empty is not drawn.

    Args:
        rows: of one network, at most one for each method.
        rule: which way to find the box.
        thresholds: what is tried by that rule.
        name: what they are called.
    """
    figure, axes = panel()
    for k in _boxing(rows):
        row, found = rows[k], rows[k].rules[rule]
        style = {**line_style(k), "markersize": 4, "markevery": (k % 2, max(2, len(thresholds) // 10))}
        axes.plot(thresholds, found.curve, label=row.method, **style)
        chosen = found.curve[thresholds.index(found.threshold)]
        axes.plot([found.threshold], [chosen], color=style["color"], marker=style["marker"], **OPEN)
    axes.set_xlabel(name, color=INK)
    axes.set_ylabel("error [%]", color=INK)
    axes.set_ylim(None, 101)
    legend(figure, axes, columns=NAMES)
    return figure


def sizes_figure(pairs: Sequence[Pair], rows: Sequence[Row]) -> Any:
    """The error on small and on large objects with 95 % intervals, a panel for each method before all the others.

    Args:
        pairs: with what each row found in them.
        rows: of one network, at most one for each method.

    Returns:
        a figure of matplotlib, or None where there are too few pairs to be told apart by size. A method whose maps are
        all empty is not drawn.
    """
    groups = size_groups(pairs)
    if len(groups) < GROUPS:
        return None
    errors = {k: [in_percent(_error(group, k)) for _, group in groups] for k in _boxing(rows)}
    if not errors:
        return None
    figure, panels = _small_panels(len(errors))
    places = range(len(groups))
    for k, axes in zip(errors, panels, strict=True):
        plain(axes)
        for others in errors.values():
            axes.plot(places, [error.value for error in others], color=FAINT, linewidth=1)
        line(axes, places, errors[k], rows[k].method, k)
        axes.set_title(rows[k].method, fontsize=9, color=INK, parse_math=False)
        axes.set_xticks(places, [sizes for sizes, _ in groups], rotation=60)
        axes.tick_params(labelsize=7.5)
    panels[0].set_ylim(-3, 103)
    figure.supxlabel("the object's box, in percent of the image", fontsize=9, color=INK)
    figure.supylabel("error [%]", fontsize=9, color=INK)
    return figure


def size_groups(pairs: Sequence[Pair]) -> list[tuple[str, Sequence[Pair]]]:
    """Fifths of the pairs, from the smallest objects to the largest, each with the sizes in it.

    Example:
        >>> from excite.experiments.localization.report import Pair
        >>> pairs = [Pair(str(side), (10, 10), "cat", ((0, 0, 10, side),), ()) for side in range(1, 11)]
        >>> [sizes.split(DASH) for sizes, _ in size_groups(pairs)]
        [['10', '20'], ['30', '40'], ['50', '60'], ['70', '80'], ['90', '100']]
    """
    ordered = sorted(pairs, key=lambda pair: pair.share)
    ends = [round(k * len(ordered) / GROUPS) for k in range(GROUPS + 1)]
    parts = [ordered[start:end] for start, end in pairwise(ends) if end > start]
    return [(f"{100 * part[0].share:.0f}{DASH}{100 * part[-1].share:.0f}", part) for part in parts]


def _boxing(rows: Sequence[Row]) -> list[int]:
    """The numbers of the rows that have boxes at all."""
    return [k for k, row in enumerate(rows) if row.empty < row.error.total]


def _error(pairs: Sequence[Pair], row: int) -> Share:
    return Share(sum(pair.found[row].manner != "fits" for pair in pairs), len(pairs))


def _small_panels(count: int) -> tuple[Any, list[Any]]:
    """So many panels that share their axes, in rows."""
    check_plots()
    from matplotlib.figure import Figure

    down = math.ceil(count / ACROSS)
    across = math.ceil(count / down)
    size = 0.6 + SMALL[0] * across, 0.6 + SMALL[1] * down
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    for spare in panels[count:]:
        spare.set_axis_off()
    for above in panels[max(0, count - across) : across * (down - 1)]:
        above.tick_params(labelbottom=True)  # there is no panel below it
    return figure, list(panels[:count])
