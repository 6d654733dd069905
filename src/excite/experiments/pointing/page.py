"""The HTML page of the Pointing Game: tables, figures and example images in one file."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from excite.errors import DataError, ImageError
from excite.experiments.base import left_out_lines, method_layer
from excite.experiments.pointing.report import layers_figure, scores_figure
from excite.experiments.pointing.run import PROTOCOLS
from excite.experiments.pointing.scores import best_rows, difference, hits_within, wins
from excite.experiments.published import CONTRAST, POINTING, WORDS
from excite.experiments.report import html
from excite.experiments.report.examples import (
    EXAMPLES,
    DrawnExample,
    Example,
    best_of_each_kind,
    example_strips,
    outline,
    outlined,
    recomputed_maps,
    strip,
)
from excite.experiments.report.figures import check_plots, main_method, methods_of, models_of
from excite.experiments.report.html import DASH, Html, element, joined
from excite.metrics.statistics import RESAMPLES
from excite.readouts.overlay import overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from excite.experiments.base import MethodLayer
    from excite.experiments.pointing.scores import PointingRow, PointingRun
    from excite.experiments.published import Published
    from excite.experiments.report.examples import Rating
    from excite.jobs import Entry

    Hits = Sequence[bool]  # of the main method, and then of the others that use the image


FILE = "pointing.html"
MAIN = ("excite", "c-mwp")
SMALL = 0.25  # of the image, as in the Difficult subset
DIFFICULT = {
    "the paper's rule": "objects that together cover less than a quarter of the image, with another category in it",
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
SEVERAL_LAYERS = (
    "Of a method that was read at several layers, the best is shown. It was chosen on these very images, so its "
    "score is a little too good."
)
READING = (
    "A method makes a map of where a network sees a category; its highest point should lie on an object of it. All "
    "counts every pair of an image and a category in it; Difficult only those whose objects are small and not alone, "
    "where pointing at what is large or in the middle does not help. Two scores whose intervals overlap widely are not "
    "told apart by these images."
)


def write(
    out: Path, runs: Sequence[PointingRun], *, tolerance: float, inclusive: bool = True, command: str = ""
) -> Path:
    """Write the page; the same runs give the same bytes.

    Args:
        out: the folder for it.
        runs: the game of each network, on the same images.
        tolerance: the largest distance in pixels of a hit.
        inclusive: whether exactly that distance is a hit.
        command: that makes the page again.
    """
    check_plots()
    run, rows = runs[0], best_rows(row for run in runs for row in run.rows)
    main = main_method(rows, MAIN)
    is_hit = hits_within(tolerance, inclusive=inclusive)
    edge = f"{'up to and including' if inclusive else 'less than'} {tolerance:g}"
    sections = {
        "What was measured": html.measured(runs, _protocol(run, edge), _details),
        "Scores": _scores(runs, rows, _differences(runs, rows, main, tolerance, inclusive=inclusive)),
        "Contrast, and the paper's order": joined([contrast_table(rows), html.bullets(orders(rows))]),
        "Layers": joined(_layers(each) for each in runs),
        "Categories": joined(
            categories_table([row for row in rows if row.model == model]) for model in models_of(rows)
        ),
        "Examples": _examples(runs, rows, main, is_hit),
        "How to read it": html.how_to_read(READING, command),
    }
    introduction = (
        f"Where does a network see what it was asked for? Measured on {run.dataset_name} {run.split}: "
        f"{len(run.records)} images, {rows[0].all.pairs} pairs of an image and a category in it."
    )
    return html.write_page(out / FILE, "The Pointing Game", introduction, sections)


def _protocol(run: PointingRun, edge: str) -> Iterator[tuple[str, str]]:
    """The facts that are the same for all networks."""
    name, difficult = run.about["protocol"], run.about["difficult"]
    mode = PROTOCOLS[name].mode
    yield "protocol", f"{name}: the highest point of the map, stretched ({mode}) to the image's own size"
    yield "hit", f"a point {edge} pixels beside an object of the category"
    yield "Difficult", DIFFICULT.get(difficult, difficult)
    yield "score", "the share of hits in each category, and the mean of these shares"
    yield "95 % intervals", f"bootstrap over images, {RESAMPLES} resamples"


def _details(run: PointingRun) -> Iterator[tuple[str, str]]:
    """The facts of one network."""
    about, row = run.about, run.rows[0]
    hard = 0 if row.difficult is None else row.difficult.pairs
    yield "images", f"{about['pictures']} asked for, {len(run.records)} played"
    yield "pairs", f"{row.all.pairs} of an image and a category in it, {hard} of them Difficult"
    yield "signal", f"starts from what the network says of {about['output']}"
    yield "left out", html.lines_or_nothing(left_out_lines(about["left_out"]))
    yield "could not be read", html.lines_or_nothing(about["failures"])


def _scores(runs: Sequence[PointingRun], rows: Sequence[PointingRow], differences: Iterable[str]) -> Html:
    notes = [SEVERAL_LAYERS] if len(rows) < sum(len(run.rows) for run in runs) else []
    empty = [
        f"{row.model}: {row.empty} of {row.all.pairs} maps of {row.method} are empty and point nowhere: misses"
        for row in rows
        if row.empty
    ]
    figure = html.drawing(scores_figure(rows), "Scores of all methods with their 95 % intervals")
    both = element("div", scores_table(rows), figure, class_="beside")
    return joined([both, html.bullets([*notes, *differences, *empty]), published_table(runs[0].dataset_name)])


def _differences(
    runs: Sequence[PointingRun], rows: Sequence[PointingRow], main: str, tolerance: float, *, inclusive: bool
) -> Iterator[str]:
    """The lead of the main method over the best of the others, on the same images."""
    for run in runs:
        found = {row.method: row for row in rows if row.model == run.classifier_name}
        own = found.pop(main, None)
        if own is None or not found:
            continue
        other = max(found.values(), key=lambda row: row.all.value)
        both = (own.method, own.layer), (other.method, other.layer)
        gap = difference(run.records, *both, tolerance, inclusive=inclusive)
        hard = "" if gap.difficult is None else f", {html.difference_words(gap.difficult)} on Difficult ones"
        yield (
            f"{run.classifier_name}: {own.method} against {other.method}, the best of the others: "
            f"{html.difference_words(gap.all)} on all pairs{hard} (paired over images, 95 % intervals)"
        )


def _layers(run: PointingRun) -> Html:
    figure, name = layers_figure(run.rows), run.classifier_name
    if figure is None:
        return Html("")
    return joined([element("h3", name), html.drawing(figure, f"Scores of each method at each layer of {name}")])


def scores_table(rows: Sequence[PointingRow]) -> Html:
    """The paper's Table 1, methods and networks; of each at most one row."""
    found = {(row.model, row.method): row for row in rows}
    models = models_of(rows)
    columns = {model: [row for row in rows if row.model == model] for model in models}
    best = {
        model: (
            html.best_two(row.all.value for row in column),
            html.best_two(row.difficult.value for row in column if row.difficult is not None),
        )
        for model, column in columns.items()
    }

    def cells(model: str, method: str) -> list[str]:
        row = found.get((model, method))
        if row is None:
            return [DASH] * 3
        every, hard = best[model]
        return [
            html.estimate_cell(row.all, every),
            html.estimate_cell(row.difficult, hard),
            element("small", row.layer),
        ]

    return html.table(
        "Mean accuracy over categories in percent, with 95 % intervals. Best in bold, second best underlined.",
        ["method", *["All", "Difficult", "read at"] * len(models)],
        [[method, *(cell for model in models for cell in cells(model, method))] for method in methods_of(rows)],
        groups=[("", 1), *((model, 3) for model in models)],
    )


def published_table(data: str) -> Html:
    """The published results for this format of data; empty where there are none."""
    columns = POINTING.get(data, ())
    if not columns:
        return Html("")
    sources = [column.source for column in columns]
    return html.table(
        f"Published, All / Difficult: other networks, on {columns[0].data}. What differs from the table above is not "
        "only the method.",
        ["method", *(column.network for column in columns)],
        [[name, *(_published(column, method) for column in columns)] for method, name in WORDS.items()],
        groups=[("", 1), *((source, sources.count(source)) for source in dict.fromkeys(sources))],
    )


def _published(column: Published, method: str) -> str:
    if method not in column.scores:
        return DASH
    every, hard = column.scores[method]
    return f"{every:.1f} / {hard:.1f}"


def contrast_table(rows: Sequence[PointingRow]) -> Html:
    """The paper's table on contrastive attention; empty where no variant of the full method was measured.

    Args:
        rows: of each network and method at most one.
    """
    there = set(methods_of(rows))
    if not there & (VARIANTS.keys() - {"c-mwp"}):
        return Html("")
    found = {(row.model, row.method): row for row in rows}
    shown = {method: both for method, both in VARIANTS.items() if method in CONTRAST or method in there}

    def cells(model: str) -> list[str]:
        return [_variant(found.get((model, name)), found.get((model, plain))) for name, (_, plain) in shown.items()]

    return html.table(
        "Mean accuracy in percent on Difficult pairs (the paper's: VOC07 test); in brackets, that of the method "
        "without the contrast.",
        ["network", *(heading for heading, _ in shown.values())],
        [[model, *cells(model)] for model in models_of(rows)],
        foot=[["paper: GoogleNet", *(CONTRAST.get(method, DASH) for method in shown)]],
    )


def _variant(row: PointingRow | None, plain: PointingRow | None) -> str:
    """A score on Difficult pairs, and in brackets that of the method without the contrast."""
    if row is None:
        return DASH
    score = DASH if row.difficult is None else f"{row.difficult.value:.1f}"
    if row.all_empty:
        score = "zero everywhere"
    return score if plain is None or plain.difficult is None else f"{score} ({plain.difficult.value:.1f})"


def orders(rows: Sequence[PointingRow]) -> list[str]:
    """Whether the paper's order of methods holds, where they were measured.

    Example:
        >>> from excite.experiments.pointing.scores import PointingRow, Score
        >>> scores = {name: Score(at, 0, 100, 9, {}) for name, at in (("c-mwp", 88), ("mwp", 80), ("guided", 70))}
        >>> orders([PointingRow("vgg16", name, "1", score, None, empty=0) for name, score in scores.items()])
        ['vgg16: c-mwp > mwp > guided holds on all pairs']
    """
    found = {(row.model, row.method): row for row in rows}
    lines = []
    for model in models_of(rows):
        for order in ORDERS:
            ranked = [found[model, method] for method in order if (model, method) in found]
            if len(ranked) == len(order):
                lines.append(f"{model}: {' > '.join(order)} {_holds(ranked)}")
    return lines


def _holds(ranked: Sequence[PointingRow]) -> str:
    """On which pairs each is better than the next."""
    every = all(one.all.value > other.all.value for one, other in pairwise(ranked))
    hard = [row.difficult.value for row in ranked if row.difficult is not None]
    if len(hard) < len(ranked):
        return f"{'holds' if every else 'does not hold'} on all pairs"
    difficult = all(one > other for one, other in pairwise(hard))
    if every == difficult:
        return f"{'holds' if every else 'does not hold'}, on all pairs and on Difficult ones"
    return f"holds on {'all' if every else 'Difficult'} pairs, but not on {'Difficult' if every else 'all'} ones"


def categories_table(rows: Sequence[PointingRow]) -> Html:
    """The share of hits of each method in each category, and its number of wins; of one network."""
    won = wins(rows)
    first = rows[0].all.categories
    body = []
    for category in first:
        values = [100 * row.all.categories[category].value for row in rows]
        body.append([category, str(first[category].total), *(html.heat(value, max(values)) for value in values)])
    means = ["mean", str(rows[0].all.pairs), *(f"{row.all.value:.1f}" for row in rows)]
    return html.table(
        f"{rows[0].model}: hits per category in percent of its pairs, the best in bold. Where several are best, each "
        "of them wins the category.",
        ["category", "pairs", *(row.method for row in rows)],
        body,
        foot=[means, ["categories won", str(len(first)), *(str(won[row.method]) for row in rows)]],
    )


def _all_hit(example: Example, hits: Hits) -> float | None:
    return example.share if all(hits) and example.share < SMALL else None


def _only_main_hits(example: Example, hits: Hits) -> float | None:
    """The more of the others miss, the better; of equals, the smaller object."""
    main, *others = hits
    return sum(others) + min(example.share, 0.99) if main and not all(others) else None


def _main_misses(example: Example, hits: Hits) -> float | None:
    """The farther, in diagonals of the image, the better the case; empty maps come last."""
    return None if hits[0] else -(example.maps[0]["distance"] or 0.0) / math.hypot(*example.size)


KINDS: dict[str, Rating[Example]] = {
    "Every method that looks hits a small object": _all_hit,
    "{main} hits where others miss": _only_main_hits,
    "{main} misses, by the most": _main_misses,
}
"""Ratings of best and worst cases by heading."""


def _examples(
    runs: Sequence[PointingRun], rows: Sequence[PointingRow], main: str, is_hit: Callable[[float | None], bool]
) -> Html:
    """Best and worst cases of each network, a dozen in all."""
    each = max(1, EXAMPLES // len(KINDS) // len(runs))

    def cases(run: PointingRun, shown: Sequence[PointingRow]) -> dict[str, list[Html]]:
        keys = [(row.method, row.layer) for row in shown]
        chosen = choose(run.records, keys, lambda found: is_hit(found["distance"]), each)
        return {kind: [strip_of(run, example) for example in found] for kind, found in chosen.items()}

    def strip_of(run: PointingRun, example: Example) -> Html:
        about = f"{example.image}, {100 * example.share:.1f} % of the image"
        return strip(draw(run, example), example.category, about, verdict)

    def verdict(found: Entry) -> str:
        if found["distance"] is None:
            return "✗ points nowhere"
        words = "✓ hit" if is_hit(found["distance"]) else "✗ missed"
        return f"{words}, {found['distance']:.0f} px beside" if found["distance"] else words

    return joined(example_strips(runs, rows, main, cases, named=len(runs) > 1))


def choose(
    records: Iterable[Entry], keys: Sequence[MethodLayer], is_hit: Callable[[Entry], bool], each: int
) -> dict[str, list[Example]]:
    """The best examples of each kind: at most one of an image, and the categories take turns.

    Args:
        records: one for each image.
        keys: the methods, each with the layer to show it at; the main one first.
        is_hit: whether the record of a map is a hit.
        each: number of each kind.
    """
    candidates = []
    for record in records:
        for target in record["targets"]:
            maps = {method_layer(found): found for found in target["maps"]}
            shown = tuple(maps[key] for key in keys)
            size = (record["size"][0], record["size"][1])
            candidates.append(Example(record["image"], size, target["category"], target["share"], shown))
    # neither the centre nor maps that are all empty use the image
    points = [any(example.maps[k]["point"] is not None for example in candidates) for k in range(len(keys))]
    seeing = [k for k, (method, _) in enumerate(keys) if k == 0 or (method != "center" and points[k])]
    hits = [[is_hit(example.maps[k]) for k in seeing] for example in candidates]
    return best_of_each_kind(candidates, hits, KINDS, each)


def draw(run: PointingRun, example: Example) -> DrawnExample[Example]:
    """The photograph and each method's map over it, with the objects outlined and the points marked.

    An image that vanished or changed since it was measured does not prevent the page.
    """
    try:
        picture, shown = recomputed_maps(run.show, example)
        lines = outline(run.target(example.image, example.category).instances, example.size)
    except (ImageError, DataError) as error:
        return DrawnExample(example, trouble=str(error))
    points = [None if found["point"] is None else (found["point"][0], found["point"][1]) for found in example.maps]
    covered = [overlay(picture, found.values, point=point) for found, point in zip(shown, points, strict=True)]
    return DrawnExample(example, outlined(picture, lines), tuple(outlined(panel, lines) for panel in covered))
