"""The page of localisation's results: one HTML file with its tables, figures and images inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PIL import Image

from excite.errors import DataError, ImageError
from excite.experiments.localization.report import (
    ALPHA,
    LEVELS,
    PIECES,
    WAYS,
    curves_figure,
    errors_figure,
    left_out_lines,
    manners_table,
    pairs_of,
    sizes_figure,
    whole_picture,
)
from excite.experiments.localization.scores import RULES, best_layers, difference
from excite.experiments.published import LOCALIZATION, LOCALIZED_DATA, LOCALIZED_ON, WORDS
from excite.experiments.report.examples import Drawn, Example, best_of_each_kind, dashed, framed, shown_again
from excite.experiments.report.figures import check_plots
from excite.experiments.report.html import Html, drawing, element, joined, page, table
from excite.experiments.report.page import (
    DASH,
    WIDTH,
    bullets,
    facts_list,
    first_two,
    headed_strips,
    how_to_read,
    in_percent,
    lines_or_nothing,
    main_method,
    marked,
    methods_of,
    models_of,
    points,
    ranked,
    save_page,
    strip,
    told_once,
    without,
    worth_a_look,
)
from excite.readouts.overlay import overlay

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from excite.datasets import Box
    from excite.experiments.localization.report import Pair
    from excite.experiments.localization.scores import Row, Run
    from excite.experiments.report.examples import Rating
    from excite.jobs import Entry
    from excite.metrics.statistics import Share

    Fits = Sequence[bool]  # of the main method, and then of the others that look at the image


# What was measured in localisation, and what was not, in words for its page.


def measured(runs: Sequence[Run]) -> Html:
    """A list of facts."""
    return facts_list(
        [
            *_protocol(runs[0]),
            ("networks", ", ".join(run.classifier_name for run in runs)),
            ("methods", ", ".join(methods_of(row for run in runs for row in run.rows))),
            *told_once({run.classifier_name: _of_one(run) for run in runs}),
        ]
    )


def _protocol(run: Run) -> Iterator[tuple[str, str]]:
    """What is the same for all networks."""
    about = run.about
    width, height = about["canvas"]
    yield "data", f"{run.dataset_name}, split {run.split}, in {about['data']['folder']}"
    yield "the network sees", f"each image in one piece, {_shape(about)}, and is told what to look for"
    above = f"above {ALPHA} times its mean; the box is then scaled back to the image"
    yield (
        "box",
        f"the map is stretched to {width} x {height}, and the tightest box goes around all of it that is {above}",
    )
    yield "fits", "a box that overlaps a true box by at least half (intersection over union); the best true box counts"
    yield "error", "the share of pairs of an image and a category in it whose box does not fit"
    yield ALPHA, "for each method and network, the one of 0, 0.5, 1 ... 10 with the smallest error on held-out images"
    yield "95 % intervals", "Wilson's, for a share; of differences, from their spread over images"


def _shape(about: Mapping[str, Any]) -> str:
    return "in its own shape" if about["shape"] == "its own" else str(about["shape"])


def _of_one(run: Run) -> Iterator[tuple[str, str]]:
    """What was measured with one network, and what was not."""
    about = run.about
    chosen_on = len(run.records) - len(run.reported)
    yield "pictures", f"{about['pictures']} asked for, {len(run.records)} measured"
    drawn = f"{about['held_out']:.0%}, drawn by the seed {about['seed']}"
    yield "held out", f"{chosen_on} only chose thresholds ({drawn}); all numbers are of the other {len(run.reported)}"
    yield "pairs", f"{run.rows[0].error.total} of an image and a category in it are reported on"
    yield "signal", f"starts from what the network says of {about['output']}"
    yield "left out", lines_or_nothing(left_out_lines(about["left_out"]))
    yield "could not be read", lines_or_nothing(about["failures"])


# The tables of localisation's page.


def errors_table(rows: Sequence[Row], whole: Mapping[str, Share], data: str) -> Html:
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
    best = {model: first_two(values, highest=False) for model, values in errors.items()}

    def cells(model: str, method: str) -> list[str]:
        row = found.get((model, method))
        if row is None:
            return [DASH] * 3
        return [ranked(in_percent(row.error), best[model]), f"{row.alpha:g}", element("small", row.layer)]

    def line(method: str) -> list[str]:
        return [method, *(cell for model in models for cell in cells(model, method)), *_paper(method)[: 2 * beside]]

    blind = [cell for model in models for cell in (ranked(in_percent(whole[model]), []), DASH, DASH)]
    return table(
        "Error in percent, with 95 % intervals. Best in bold, second best underlined."
        + " The paper's numbers are of another network, on all images." * beside,
        ["method", *["error", ALPHA, "read at"] * len(models), *["error", ALPHA] * beside],
        map(line, methods_of(rows)),
        groups=[("", 1), *((model, 3) for model in models), *[(f"paper: {LOCALIZED_ON}", 2)] * beside],
        foot=[["the whole image", *blind, *[DASH] * 2 * beside]],
    )


def others_published(rows: Sequence[Row], data: str) -> list[str]:
    """What the paper has and this page has not."""
    there = methods_of(rows)
    missing = [name for name in LOCALIZATION if name not in there] if data == LOCALIZED_DATA else []
    told = ", ".join(f"{WORDS.get(name, name.title())} {LOCALIZATION[name].error:.1f}" for name in missing)
    return [f"The paper also has, with {LOCALIZED_ON}: {told}"] if told else []


def papers_alphas() -> str:
    """Which thresholds the paper chose.

    Example:
        >>> papers_alphas().endswith("LRP 1, CAM 1, c-MWP 0, MWP 1.5.")
        True
    """
    told = [f"{WORDS[name]} {known.alpha:g}" for name, known in LOCALIZATION.items() if known.alpha is not None]
    return f"The paper's {ALPHA} ({LOCALIZED_ON}): {', '.join(told)}."


def _paper(method: str) -> list[str]:
    """The paper's error and threshold."""
    known = LOCALIZATION.get(method)
    if known is None:
        return [DASH, DASH]
    return [f"{known.error:.1f}", DASH if known.alpha is None else f"{known.alpha:g}"]


def conventions_table(rows: Sequence[Row]) -> Html:
    """The same maps boxed in other ways, and as others measure them; of one network."""
    enough = list(rows[0].max_box_acc_v2)
    errors = [[100 * row.rules[way].error.value for row in rows] for way in WAYS]
    fitting = [
        [row.max_box_acc for row in rows],
        *([row.max_box_acc_v2[each] for row in rows] for each in enough),
        [row.v2_mean for row in rows],
    ]
    columns = [_marked(column, highest=False) for column in errors] + [_marked(column) for column in fitting]

    def cells(k: int, row: Row) -> list[str]:
        chosen = [element("small", f"at {row.rules[way].threshold:g}") for way in WAYS]
        chosen += [Html("")] * len(fitting)
        return [joined([column[k], at]) for column, at in zip(columns, chosen, strict=True)]

    return table(
        f"{rows[0].model}. On the left, the error in percent by each way to find a box, at the threshold that held-out "
        "pictures chose; the range of a map goes from its smallest to its largest value. On the right, how many boxes "
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


def layers_table(rows: Sequence[Row]) -> Html:
    """The error at every layer; nothing where each method was read at one. Of one network."""
    if len(rows) == len(methods_of(rows)):
        return Html("")
    return table(
        f"{rows[0].model}: the error in percent at each layer, with 95 % intervals.",
        ["method", "read at", "error", ALPHA],
        [[row.method, row.layer, ranked(in_percent(row.error), []), f"{row.alpha:g}"] for row in rows],
    )


def _marked(values: Sequence[float], *, highest: bool = True) -> list[str]:
    best = first_two(values, highest=highest)
    return [marked(value, best) for value in values]


# Examples of localisation to look at: which ones, as the records tell, and their boxes over maps made anew.


@dataclass(frozen=True)
class BoxExample(Example):
    """An example whose maps are the methods' boxes: each with ``method``, ``layer``, ``alpha``, and what it found.

    Attributes:
        truth: where the objects are.
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
    """The less the box and the object have in common, the worse."""

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
"""Best and worst cases: a heading, and a rating (the lowest first) or None for what is no such case."""


def choose(run: Run, rows: Sequence[Row], each: int) -> dict[str, list[BoxExample]]:
    """The best examples of each kind among the images that are reported on.

    Args:
        run: one network's experiment.
        rows: the methods, each with the layer to show it at; the main one first.
        each: how many of each kind.
    """
    examples = [_example(pair, rows) for pair in pairs_of(run, rows)]
    looking = [k for k, row in enumerate(rows) if k == 0 or row.method != "center"]
    fits = [[example.maps[k]["manner"] == "fits" for k in looking] for example in examples]
    return best_of_each_kind(examples, fits, KINDS, each)


def _example(pair: Pair, rows: Sequence[Row]) -> BoxExample:
    maps = tuple(
        {"method": row.method, "layer": row.layer, "alpha": row.alpha, **vars(found)}
        for row, found in zip(rows, pair.found, strict=True)
    )
    return BoxExample(pair.image, pair.size, pair.category, pair.share, maps, pair.truth)


def draw(run: Run, example: BoxExample) -> Drawn[BoxExample]:
    """The photograph and each method's map over it: the true boxes are dashed, and the one that was found is not.

    All are drawn at the width at which they are shown, so that lines look the same on large and on small images.
    An image that vanished or changed since it was measured is no reason to have no page.
    """
    try:
        picture, shown = shown_again(run.show, example)
    except (ImageError, DataError) as error:
        return Drawn(example, trouble=str(error))
    scale = WIDTH / picture.width
    photograph = picture.resize((WIDTH, max(1, round(scale * picture.height))), Image.Resampling.LANCZOS)
    truth = [_scaled(box, scale) for box in example.truth]
    panels = []
    for one, found in zip(shown, example.maps, strict=True):
        panel = overlay(photograph, one.values)
        panels.append(dashed(panel if found["box"] is None else framed(panel, _scaled(found["box"], scale)), truth))
    return Drawn(example, dashed(photograph, truth), tuple(panels))


def _scaled(box: Box, scale: float) -> Box:
    x0, y0, x1, y1 = (scale * side for side in box)
    return x0, y0, x1, y1


# The examples of localisation's page: photographs, and the methods' maps over them with their boxes.

EXAMPLES = 12
NETWORKS = EXAMPLES // len(KINDS)  # that can have an example of each kind
KEY = (
    "Dashed: where the object is, as it was annotated. Solid: the box that was found, over the map it comes from; "
    "yellow is where that map is strongest. IoU is how much both boxes overlap: it fits from 0.5."
)


def examples(runs: Sequence[Run], rows: Sequence[Row], main: str) -> Html:
    """Best and worst cases of the first networks, a dozen in all.

    Args:
        runs: the experiments.
        rows: of each network and method the one to show.
        main: the method whose best and worst cases they are.
    """
    seen = runs[:NETWORKS]
    boxing = [row for row in rows if row.empty < row.error.total]
    names = [run.classifier_name for run in seen]
    shown = {name: worth_a_look([row for row in boxing if row.model == name], main) for name in names}
    parts = [element("p", KEY), *without([row for row in rows if row.model in shown and row not in shown[row.model]])]
    for run in seen:
        of = f"{run.classifier_name}: " if len(runs) > 1 else ""
        if shown[run.classifier_name]:
            parts += _cases(run, shown[run.classifier_name], EXAMPLES // len(KINDS) // len(seen), of)
    unseen = ", ".join(run.classifier_name for run in runs[NETWORKS:])
    return joined(
        [*parts, *([element("p", f"There are no examples of {unseen} here.", class_="soft")] if unseen else [])]
    )


def _cases(run: Run, rows: Sequence[Row], each: int, of: str) -> Iterator[Html]:
    """For each kind of case a heading and its examples, or that there is none."""
    words = run.about["concepts"]

    def strip_of(example: BoxExample) -> Html:
        name = words.get(example.category, example.category)
        about = f"{example.image}, {100 * example.share:.0f} % of the image"
        return strip(draw(run, example), name, about, _verdict)

    for kind, found in choose(run, rows, each).items():
        yield from headed_strips(found, of + kind.format(main=rows[0].method), strip_of)


def _verdict(found: Entry) -> str:
    """By a sign and in words: not by colour."""
    if found["box"] is None:
        return "✗ no box"
    return f"{'✓' if found['manner'] == 'fits' else '✗'} {found['manner']}, IoU {found['overlap']:.2f}"


# The page of localisation's results: one HTML file with its tables, figures and images inside.

FILE = "localization.html"
MAIN = ("extent", "mwp")
CURVES = {"paper": f"{ALPHA}, in means of the map", "max": "t, in maxima of the map"}
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
    "pictures that are not counted. Two errors whose intervals overlap widely are not told apart by these images; "
    "the paired differences are surer."
)


def write(out: Path, runs: Sequence[Run], *, command: str = "") -> Path:
    """Write the page; the same runs give the same bytes.

    Args:
        out: the folder for it.
        runs: the experiment of each network, on the same images.
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
            f"{run.split}: {len(run.reported)} images, {self.rows[0].error.total} pairs of an image and a category "
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
        """How the main method stands against the best of the others, on the same images."""
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
                f"error (paired over images, 95 % interval; below 0, {self.main} is better; p = {gap.p:.2g})"
            )

    def _empty(self) -> Iterator[str]:
        return (
            f"{row.model}: {row.empty} of {row.error.total} maps of {row.method} are empty and have no box: errors"
            for row in self.rows
            if row.empty
        )

    def _thresholds(self) -> Html:
        """The error at every threshold, by the paper's way and by shares of the maximum."""
        said = element("p", f"A large open mark is at the threshold that held-out images chose. {papers_alphas()}")
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
