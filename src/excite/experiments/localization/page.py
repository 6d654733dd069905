"""The HTML page of localisation: tables, figures and example images in one file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from excite.errors import DataError, ImageError
from excite.experiments.base import left_out_lines
from excite.experiments.localization.report import (
    ALPHA,
    LEVELS,
    MANNERS,
    PIECES,
    WAYS,
    curves_figure,
    errors_figure,
    pairs_of,
    sizes_figure,
    whole_picture,
)
from excite.experiments.localization.scores import RULES, best_layers, difference
from excite.experiments.published import LOCALIZATION, LOCALIZED_DATA, LOCALIZED_ON, WORDS
from excite.experiments.report import html
from excite.experiments.report.examples import (
    EXAMPLES,
    WIDTH,
    DrawnExample,
    Example,
    best_of_each_kind,
    dashed,
    example_strips,
    framed,
    recomputed_maps,
    strip,
)
from excite.experiments.report.figures import check_plots, main_method, methods_of, models_of
from excite.experiments.report.html import DASH, Html, element, joined
from excite.readouts.overlay import overlay

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.datasets import Box
    from excite.experiments.localization.report import Pair
    from excite.experiments.localization.scores import LocalizationRow, LocalizationRun
    from excite.experiments.report.examples import Rating
    from excite.jobs import Entry
    from excite.metrics.statistics import Share

    Fits = Sequence[bool]  # of the main method, and then of the others that use the image
    Rows = Sequence[LocalizationRow]


FILE = "localization.html"
MAIN = ("extent", "mwp")
CURVES = {"paper": f"{ALPHA}, in means of the map", "max": "t, in maxima of the map"}
KEY = (
    "Dashed: where the object is, as it was annotated. Solid: the box that was found, over the map it comes from; "
    "yellow is where that map is strongest. IoU is how much both boxes overlap: it fits from 0.5."
)
SEVERAL_LAYERS = (
    "Of a method that was read at several layers, the one with the smallest error on held-out images is shown."
)
SIZES = (
    "Fifths of the pairs, from the smallest objects to the largest (by their box; of several, the largest). Bars are "
    "95 % intervals; the other methods are the faint lines."
)
READING = (
    "A method makes a map of where a network sees a category, and the strong part of it is boxed. The box should fit "
    "the object as a whole: a map of an animal's head alone points at the animal, and yet gives a box that is too "
    "small. So this is another question than pointing. The threshold decides much; it was chosen for each method on "
    "images that are not counted. Two errors whose intervals overlap widely are not told apart by these images; "
    "the paired differences are surer."
)


def write(out: Path, runs: Sequence[LocalizationRun], *, command: str = "") -> Path:
    """Write the page; the same runs give the same bytes.

    Args:
        out: the folder for it.
        runs: the experiment of each network, on the same images.
        command: that makes the page again.
    """
    check_plots()
    run, shown = runs[0], {run.classifier_name: best_layers(run.rows) for run in runs}
    pairs = {run.classifier_name: pairs_of(run, shown[run.classifier_name]) for run in runs}
    rows = [row for each in shown.values() for row in each]
    main = main_method(rows, MAIN)
    sections = {
        "What was measured": html.measured(runs, _protocol(run), _details),
        "Errors": _errors(runs, shown, pairs, main),
        "The threshold": _thresholds(shown),
        "Other ways to find the box": joined(map(conventions_table, shown.values())),
        "How boxes miss": joined(manners_table(pairs[name], each) for name, each in shown.items()),
        "Small and large objects": _sizes(pairs, shown),
        "Layers": joined(layers_table(run.rows) for run in runs),
        "Examples": _examples(runs, rows, main),
        "How to read it": html.how_to_read(READING, command),
    }
    introduction = (
        f"How well does a box around what a network sees fit the object? Measured on {run.dataset_name} "
        f"{run.split}: {len(run.reported)} images, {rows[0].error.total} pairs of an image and a category "
        f"in it."
    )
    return html.write_page(out / FILE, "Localising objects", introduction, sections)


def _protocol(run: LocalizationRun) -> Iterator[tuple[str, str]]:
    """The facts that are the same for all networks."""
    about = run.about
    width, height = about["canvas"]
    shape = "in its own shape" if about["shape"] == "its own" else str(about["shape"])
    yield "the network sees", f"each image in one piece, {shape}, with the category as the cue"
    above = f"above {ALPHA} times its mean; the box is then scaled back to the image"
    box = f"the map is stretched to {width} x {height}, and the tightest box goes around all of it that is {above}"
    yield "box", box
    yield "fits", "a box that overlaps a true box by at least half (intersection over union); the best true box counts"
    yield "error", "the share of pairs of an image and a category in it whose box does not fit"
    yield ALPHA, "for each method and network, the one of 0, 0.5, 1 ... 10 with the smallest error on held-out images"
    yield "95 % intervals", "Wilson's, for a share; of differences, from their spread over images"


def _details(run: LocalizationRun) -> Iterator[tuple[str, str]]:
    """The facts of one network."""
    about = run.about
    chosen_on = len(run.records) - len(run.reported)
    yield "images", f"{about['pictures']} asked for, {len(run.records)} measured"
    drawn = f"{about['held_out']:.0%}, drawn by the seed {about['seed']}"
    yield "held out", f"{chosen_on} only chose thresholds ({drawn}); all numbers are of the other {len(run.reported)}"
    yield "pairs", f"{run.rows[0].error.total} of an image and a category in it are reported on"
    yield "signal", f"starts from what the network says of {about['output']}"
    yield "left out", html.lines_or_nothing(left_out_lines(about["left_out"]))
    yield "could not be read", html.lines_or_nothing(about["failures"])


def _errors(
    runs: Sequence[LocalizationRun], shown: Mapping[str, Rows], pairs: Mapping[str, Sequence[Pair]], main: str
) -> Html:
    rows = [row for each in shown.values() for row in each]
    data = runs[0].dataset_name
    whole = {name: whole_picture(each) for name, each in pairs.items()}
    figure = html.drawing(errors_figure(rows), "Errors of all methods with their 95 % intervals")
    notes = [SEVERAL_LAYERS] if len(rows) < sum(len(run.rows) for run in runs) else []
    for run in runs:
        notes += _difference(run, shown[run.classifier_name], main)
    notes += [
        f"{row.model}: {row.empty} of {row.error.total} maps of {row.method} are empty and have no box: errors"
        for row in rows
        if row.empty
    ]
    missing = [name for name in LOCALIZATION if name not in methods_of(rows)] if data == LOCALIZED_DATA else []
    others = ", ".join(f"{WORDS.get(name, name.title())} {LOCALIZATION[name].error:.1f}" for name in missing)
    notes += [f"The paper also has, with {LOCALIZED_ON}: {others}"] if others else []
    both = element("div", errors_table(rows, whole, data), figure, class_="beside")
    return joined([both, html.bullets(notes)])


def _difference(run: LocalizationRun, rows: Rows, main: str) -> list[str]:
    """The difference of the main method to the best of the others, on the same images."""
    mains = [row for row in rows if row.method == main]
    others = [row for row in rows if row.method != main]
    if not mains or not others:
        return []
    other = min(others, key=lambda row: row.error.value)
    gap = difference(run.records, run.reported, *((row.method, row.layer) for row in (mains[0], other)))
    against = f"{run.classifier_name}: {main} against {other.method}, the best of the others"
    paired = f"paired over images, 95 % interval; below 0, {main} is better; p = {gap.p:.2g}"
    return [f"{against}: {html.difference_words(gap)} of error ({paired})"]


def errors_table(rows: Rows, whole: Mapping[str, Share], data: str) -> Html:
    """The paper's table with methods as rows and networks as columns, its own numbers beside them.

    Args:
        rows: of each network and method at most one.
        whole: for each network the error of the whole image as the box.
        data: the format of the data; the paper's numbers are of one only.
    """
    found = {(row.model, row.method): row for row in rows}
    models = models_of(rows)
    beside = data == LOCALIZED_DATA
    errors = {model: [100 * row.error.value for row in rows if row.model == model] for model in models}
    best = {model: html.best_two(values, highest=False) for model, values in errors.items()}

    def cells(model: str, method: str) -> list[str]:
        row = found.get((model, method))
        if row is None:
            return [DASH] * 3
        return [html.estimate_cell(row.error.percent, best[model]), f"{row.alpha:g}", element("small", row.layer)]

    def paper(method: str) -> list[str]:
        known = LOCALIZATION.get(method)
        if known is None:
            return [DASH, DASH]
        return [f"{known.error:.1f}", DASH if known.alpha is None else f"{known.alpha:g}"]

    def line(method: str) -> list[str]:
        return [method, *(cell for model in models for cell in cells(model, method)), *paper(method)[: 2 * beside]]

    blind = [cell for model in models for cell in (html.estimate_cell(whole[model].percent), DASH, DASH)]
    return html.table(
        "Error in percent, with 95 % intervals. Best in bold, second best underlined."
        + " The paper's numbers are of another network, on all images." * beside,
        ["method", *["error", ALPHA, "read at"] * len(models), *["error", ALPHA] * beside],
        map(line, methods_of(rows)),
        groups=[("", 1), *((model, 3) for model in models), *[(f"paper: {LOCALIZED_ON}", 2)] * beside],
        foot=[["the whole image", *blind, *[DASH] * 2 * beside]],
    )


def _thresholds(shown: Mapping[str, Rows]) -> Html:
    """The error at every threshold, by the paper's rule and by shares of the maximum."""
    chosen = [f"{WORDS[name]} {known.alpha:g}" for name, known in LOCALIZATION.items() if known.alpha is not None]
    paper = f"The paper's {ALPHA} ({LOCALIZED_ON}): {', '.join(chosen)}."
    parts = [element("p", f"A large open mark is at the threshold that held-out images chose. {paper}")]
    for name, rows in shown.items():
        drawn = []
        for rule, axis in CURVES.items():
            figure = curves_figure(rows, rule, RULES[rule].thresholds, axis)
            alt = f"{name}: error of each method by threshold, {WAYS[rule]}"
            drawn.append(html.captioned(figure, alt, WAYS[rule]))
        parts += [element("h3", name)] * (len(shown) > 1) + [element("div", *drawn, class_="beside")]
    return joined(parts)


def conventions_table(rows: Rows) -> Html:
    """The same maps boxed by other rules, and by the measures of other publications; of one network."""
    enough = list(rows[0].max_box_acc_v2)
    columns = [
        html.marked_column([100 * row.rules[way].error.value for row in rows], highest=False) for way in WAYS
    ] + [
        html.marked_column(values)
        for values in (
            [row.max_box_acc for row in rows],
            *([row.max_box_acc_v2[each] for row in rows] for each in enough),
            [row.v2_mean for row in rows],
        )
    ]

    def cells(k: int, row: LocalizationRow) -> list[str]:
        chosen = [element("small", f"at {row.rules[way].threshold:g}") for way in WAYS]
        chosen += [Html("")] * (len(columns) - len(WAYS))
        return [joined([column[k], at]) for column, at in zip(columns, chosen, strict=True)]

    return html.table(
        f"{rows[0].model}. On the left, the error in percent by each way to find a box, at the threshold that held-out "
        "images chose; the range of a map goes from its smallest to its largest value. On the right, how many boxes "
        "fit, in percent, at the best of all thresholds: chosen on the very images, as others report it. Best in "
        "bold, second best underlined.",
        ["method", *(PIECES[way] for way in WAYS), "IoU 0.5", *(f"IoU {each:g}" for each in enough), "mean"],
        [[row.method, *cells(k, row)] for k, row in enumerate(rows)],
        groups=[
            ("", 1),
            *((level, len(ways)) for level, ways in LEVELS.items()),
            ("MaxBoxAcc", 1),
            ("MaxBoxAccV2", len(enough) + 1),
        ],
    )


def manners_table(pairs: Sequence[Pair], rows: Rows) -> Html:
    """How the boxes of each method lie relative to the objects, in percent of the pairs; of one network."""
    body = []
    for k, row in enumerate(rows):
        counts = Counter(pair.found[k].manner for pair in pairs)
        body.append([row.method, *(html.heat(100 * counts[each] / len(pairs)) for each in MANNERS)])
    return html.table(
        f"{rows[0].model}: how the boxes lie, in percent of {len(pairs)} pairs. Too small: most of the box is on "
        "the object. Too large: most of the object is in the box. Elsewhere: neither.",
        ["method", *MANNERS],
        body,
    )


def _sizes(pairs: Mapping[str, Sequence[Pair]], shown: Mapping[str, Rows]) -> Html:
    drawn = []
    for name, rows in shown.items():
        figure = sizes_figure(pairs[name], rows)
        if figure is not None:
            drawn.append(html.captioned(figure, f"{name}: error of each method by the size of the object", name))
    return joined([element("p", SIZES), element("div", *drawn, class_="beside")]) if drawn else Html("")


def layers_table(rows: Rows) -> Html:
    """The error at every layer; empty where each method was read at one. Of one network."""
    if len(rows) == len(methods_of(rows)):
        return Html("")
    return html.table(
        f"{rows[0].model}: the error in percent at each layer, with 95 % intervals.",
        ["method", "read at", "error", ALPHA],
        [[row.method, row.layer, html.estimate_cell(row.error.percent), f"{row.alpha:g}"] for row in rows],
    )


@dataclass(frozen=True)
class BoxExample(Example):
    """An example whose maps are the methods' boxes: ``method``, ``layer``, ``alpha``, and the `FoundBox`.

    Attributes:
        truth: the true boxes.
    """

    truth: tuple[Box, ...]


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


KINDS: dict[str, Rating[BoxExample]] = {
    "Every method that looks fits the object": _all_fit,
    "{main} fits where others do not": _only_main_fits,
    "{main} finds a part: its box is far too small": _misses("too small"),
    "{main} finds more than the object: its box is far too large": _misses("too large"),
    "{main} looks elsewhere": _misses("elsewhere"),
}
"""Ratings of best and worst cases by heading."""

NETWORKS = EXAMPLES // len(KINDS)  # that can have an example of each kind


def _examples(runs: Sequence[LocalizationRun], rows: Rows, main: str) -> Html:
    """Best and worst cases of the first networks, a dozen in all."""
    seen = runs[:NETWORKS]

    def cases(run: LocalizationRun, shown: Rows) -> dict[str, list[Html]]:
        chosen = choose(run, shown, EXAMPLES // len(KINDS) // len(seen))
        return {kind: [strip_of(run, example) for example in found] for kind, found in chosen.items()}

    def strip_of(run: LocalizationRun, example: BoxExample) -> Html:
        name = run.about["concepts"].get(example.category, example.category)
        about = f"{example.image}, {100 * example.share:.0f} % of the image"
        return strip(draw(run, example), name, about, verdict)

    def verdict(found: Entry) -> str:
        if found["box"] is None:
            return "✗ no box"
        return f"{'✓' if found['manner'] == 'fits' else '✗'} {found['manner']}, IoU {found['overlap']:.2f}"

    parts = [element("p", KEY), *example_strips(seen, rows, main, cases, named=len(runs) > 1)]
    unseen = ", ".join(run.classifier_name for run in runs[NETWORKS:])
    return joined(
        [*parts, *([element("p", f"There are no examples of {unseen} here.", class_="soft")] if unseen else [])]
    )


def choose(run: LocalizationRun, rows: Rows, each: int) -> dict[str, list[BoxExample]]:
    """The best examples of each kind among the reported images.

    Args:
        run: one network's experiment.
        rows: the methods, each with the layer to show it at; the main one first.
        each: number of each kind.
    """
    examples = [_example(pair, rows) for pair in pairs_of(run, rows)]
    looking = [k for k, row in enumerate(rows) if k == 0 or row.method != "center"]
    fits = [[example.maps[k]["manner"] == "fits" for k in looking] for example in examples]
    return best_of_each_kind(examples, fits, KINDS, each)


def _example(pair: Pair, rows: Rows) -> BoxExample:
    maps = tuple(
        {"method": row.method, "layer": row.layer, "alpha": row.alpha, **vars(found)}
        for row, found in zip(rows, pair.found, strict=True)
    )
    return BoxExample(pair.image, pair.size, pair.category, pair.share, maps, pair.truth)


def draw(run: LocalizationRun, example: BoxExample) -> DrawnExample[BoxExample]:
    """The photograph and each method's map over it: true boxes dashed, the found box solid.

    All are drawn at the width at which they are shown, so that lines look the same on large and on small images. An
    image that vanished or changed since it was measured does not prevent the page.
    """
    try:
        picture, shown = recomputed_maps(run.show, example)
    except (ImageError, DataError) as error:
        return DrawnExample(example, trouble=str(error))
    scale = WIDTH / picture.width
    photograph = picture.resize((WIDTH, max(1, round(scale * picture.height))), Image.Resampling.LANCZOS)
    truth = [_scaled(box, scale) for box in example.truth]
    panels = []
    for one, found in zip(shown, example.maps, strict=True):
        panel = overlay(photograph, one.values)
        panels.append(dashed(panel if found["box"] is None else framed(panel, _scaled(found["box"], scale)), truth))
    return DrawnExample(example, dashed(photograph, truth), tuple(panels))


def _scaled(box: Box, scale: float) -> Box:
    x0, y0, x1, y1 = (scale * side for side in box)
    return x0, y0, x1, y1
