"""The page of the Pointing Game's results: one HTML file with its tables, figures and images inside."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from excite.experiments.pointing.report import KINDS, choose, draw, layers_figure, left_out_lines, scores_figure
from excite.experiments.pointing.run import PROTOCOLS
from excite.experiments.pointing.scores import best_rows, difference, hits_within, wins
from excite.experiments.published import CONTRAST, POINTING, WORDS
from excite.experiments.report.figures import check_plots
from excite.experiments.report.html import Html, drawing, element, joined, page, table
from excite.experiments.report.page import (
    DASH,
    bullets,
    facts_list,
    first_two,
    headed_strips,
    how_to_read,
    lines_or_nothing,
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
from excite.experiments.report.page import main_method as first_wanted
from excite.metrics.statistics import RESAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from excite.experiments.pointing.scores import Row, Run, Score
    from excite.experiments.published import Published
    from excite.experiments.report.examples import Example
    from excite.jobs import Entry


# What was measured in a Pointing Game, and what was not, in words for its page.

DIFFICULT = {
    "the paper's rule": "objects that together cover less than a quarter of the image, with another category in it",
}


def measured(runs: Sequence[Run], *, tolerance: float, inclusive: bool) -> Html:
    """A list of facts."""
    facts = [
        *_game(runs[0], tolerance, inclusive=inclusive),
        ("networks", ", ".join(run.classifier_name for run in runs)),
        ("methods", ", ".join(dict.fromkeys(row.method for run in runs for row in run.rows))),
        *told_once({run.classifier_name: _played(run) for run in runs}),
    ]
    return facts_list(facts)


def _game(run: Run, tolerance: float, *, inclusive: bool) -> Iterator[tuple[str, str]]:
    """What is the same for all networks."""
    about = run.about
    yield "data", f"{run.dataset_name}, split {run.split}, in {about['data']['folder']}"
    mode = PROTOCOLS[about["protocol"]].mode
    yield "protocol", f"{about['protocol']}: the highest point of the map, stretched ({mode}) to the image's own size"
    edge = "up to and including" if inclusive else "less than"
    yield "hit", f"a point {edge} {tolerance:g} pixels beside an object of the category"
    yield "Difficult", DIFFICULT.get(about["difficult"], about["difficult"])
    yield "score", "the share of hits in each category, and the mean of these shares"
    yield "95 % intervals", f"bootstrap over images, {RESAMPLES} resamples"


def _played(run: Run) -> Iterator[tuple[str, str]]:
    """What was played with one network, and what was not."""
    about, row = run.about, run.rows[0]
    hard = 0 if row.difficult is None else row.difficult.pairs
    yield "pictures", f"{about['pictures']} asked for, {len(run.records)} played"
    yield "pairs", f"{row.all.pairs} of an image and a category in it, {hard} of them Difficult"
    yield "signal", f"starts from what the network says of {about['output']}"
    yield "left out", lines_or_nothing(left_out_lines(about["left_out"]))
    yield "could not be read", lines_or_nothing(about["failures"])


# The examples of the Pointing Game's page: photographs, and the methods' maps over them.

EXAMPLES = 12


def examples(runs: Sequence[Run], rows: Sequence[Row], main: str, is_hit: Callable[[float | None], bool]) -> Html:
    """Best and worst cases of each network, a dozen in all.

    Args:
        runs: the games.
        rows: of each network and method the one to show.
        main: the method whose best and worst cases they are.
        is_hit: whether a point so far beside an object, or nowhere, hits it.
    """
    pointing = [row for row in rows if row.empty < row.all.pairs]
    names = [run.classifier_name for run in runs]
    shown = {name: worth_a_look([row for row in pointing if row.model == name], main) for name in names}
    parts = without([row for row in rows if row not in shown[row.model]])
    each = max(1, EXAMPLES // len(KINDS) // len(runs))
    for run in runs:
        of = f"{run.classifier_name}: " if len(runs) > 1 else ""
        if shown[run.classifier_name]:
            parts += _cases(run, shown[run.classifier_name], is_hit, each, of)
    return joined(parts)


def _cases(run: Run, rows: Sequence[Row], is_hit: Callable[[float | None], bool], each: int, of: str) -> Iterator[Html]:
    """For each kind of case a heading and its examples, or that there is none."""

    def hits(found: Entry) -> bool:
        return is_hit(found["distance"])

    def strip_of(example: Example) -> Html:
        about = f"{example.image}, {100 * example.share:.1f} % of the image"
        return strip(draw(run, example), example.category, about, lambda found: _verdict(found, hit=hits(found)))

    chosen = choose(run.records, [(row.method, row.layer) for row in rows], hits, each)
    for kind, found in chosen.items():
        yield from headed_strips(found, of + kind.format(main=rows[0].method), strip_of)


def _verdict(found: Entry, *, hit: bool) -> str:
    """By a sign and in words: not by colour."""
    if found["distance"] is None:
        return "✗ points nowhere"
    verdict = "✓ hit" if hit else "✗ missed"
    return f"{verdict}, {found['distance']:.0f} px beside" if found["distance"] else verdict


# The tables of the Pointing Game's page.

MAIN = ("excite", "c-mwp")
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


def main_method(rows: Sequence[Row]) -> str:
    """The method that the others are compared with: ours, or else the paper's, or else the first.

    Example:
        >>> from excite.experiments.pointing.scores import Row, Score
        >>> main_method([Row("vgg16", name, "1", Score(1, 0, 2, 9, {}), None, empty=0) for name in ("mwp", "c-mwp")])
        'c-mwp'
    """
    return first_wanted(rows, MAIN)


def scores_table(rows: Sequence[Row]) -> Html:
    """The paper's Table 1, methods and networks; of each at most one row."""
    found = {(row.model, row.method): row for row in rows}
    models = models_of(rows)
    columns = {model: [row for row in rows if row.model == model] for model in models}
    ranks = {
        model: (first_two(_values(row.all for row in column)), first_two(_values(row.difficult for row in column)))
        for model, column in columns.items()
    }

    def cells(model: str, method: str) -> list[str]:
        row = found.get((model, method))
        if row is None:
            return [DASH] * 3
        every, hard = ranks[model]
        return [_ranked(row.all, every), _ranked(row.difficult, hard), element("small", row.layer)]

    return table(
        "Mean accuracy over categories in percent, with 95 % intervals. Best in bold, second best underlined.",
        ["method", *["All", "Difficult", "read at"] * len(models)],
        [[method, *(cell for model in models for cell in cells(model, method))] for method in methods_of(rows)],
        groups=[("", 1), *((model, 3) for model in models)],
    )


def published_table(data: str) -> Html:
    """What others have published for this format of data; empty where nobody has."""
    columns = POINTING.get(data, ())
    if not columns:
        return Html("")
    sources = [column.source for column in columns]
    return table(
        f"Published, All / Difficult: other networks, on {columns[0].data}. What differs from the table above is not "
        "only the method.",
        ["method", *(column.network for column in columns)],
        [[name, *(_published(column, method) for column in columns)] for method, name in WORDS.items()],
        groups=[("", 1), *((source, sources.count(source)) for source in dict.fromkeys(sources))],
    )


def contrast_table(rows: Sequence[Row]) -> Html:
    """The paper's table on contrastive attention; empty where none of the variants of the full method was played.

    Args:
        rows: of each network and method at most one.
    """
    played = set(methods_of(rows))
    if not played & (VARIANTS.keys() - {"c-mwp"}):
        return Html("")
    found = {(row.model, row.method): row for row in rows}
    shown = {method: both for method, both in VARIANTS.items() if method in CONTRAST or method in played}

    def cells(model: str) -> list[str]:
        return [_variant(found.get((model, name)), found.get((model, plain))) for name, (_, plain) in shown.items()]

    return table(
        "Mean accuracy in percent on Difficult pairs (the paper's: VOC07 test); in brackets, that of the method "
        "without the contrast.",
        ["network", *(heading for heading, _ in shown.values())],
        [[model, *cells(model)] for model in models_of(rows)],
        foot=[["paper: GoogleNet", *(CONTRAST.get(method, DASH) for method in shown)]],
    )


def orders(rows: Sequence[Row]) -> list[str]:
    """Whether what the paper found better is better here too, where it was played.

    Example:
        >>> from excite.experiments.pointing.scores import Row, Score
        >>> scores = {"c-mwp": 88, "mwp": 80, "guided": 70}
        >>> orders([Row("vgg16", name, "1", Score(at, 0, 100, 9, {}), None, empty=0) for name, at in scores.items()])
        ['vgg16: c-mwp > mwp > guided holds on all pairs']
    """
    found = {(row.model, row.method): row for row in rows}
    said = []
    for model in models_of(rows):
        for order in ORDERS:
            ranked = [found[model, method] for method in order if (model, method) in found]
            if len(ranked) == len(order):
                said.append(f"{model}: {' > '.join(order)} {_holds(ranked)}")
    return said


def categories_table(rows: Sequence[Row]) -> Html:
    """How often each method hits the objects of each category, and how many categories it wins; of one network."""
    won = wins(rows)
    first = rows[0].all.categories
    body = []
    for category in first:
        values = [100 * row.all.categories[category].value for row in rows]
        body.append([category, str(first[category].total), *(_heat(value, max(values)) for value in values)])
    means = ["mean", str(rows[0].all.pairs), *(_shown(row.all.value) for row in rows)]
    return table(
        f"{rows[0].model}: hits per category in percent of its pairs, the best in bold. Where several are best, each "
        "of them wins the category.",
        ["category", "pairs", *(row.method for row in rows)],
        body,
        foot=[means, ["categories won", str(len(first)), *(str(won[row.method]) for row in rows)]],
    )


def _shown(value: float) -> str:
    return f"{value:.1f}"


def _values(scores: Iterable[Score | None]) -> Iterator[float]:
    return (score.value for score in scores if score is not None)


def _ranked(score: Score | None, best: Sequence[str]) -> str:
    return DASH if score is None else ranked(score, best)


def _published(column: Published, method: str) -> str:
    if method not in column.scores:
        return DASH
    every, hard = column.scores[method]
    return f"{every:.1f} / {hard:.1f}"


def _variant(row: Row | None, plain: Row | None) -> str:
    """A score on Difficult pairs, and in brackets that of the method without the contrast."""
    if row is None:
        return DASH
    score = DASH if row.difficult is None else _shown(row.difficult.value)
    if row.empty == row.all.pairs:
        score = "zero everywhere"
    return score if plain is None or plain.difficult is None else f"{score} ({_shown(plain.difficult.value)})"


def _holds(ranked: Sequence[Row]) -> str:
    """On which pairs each is better than the next."""
    every = all(one.all.value > other.all.value for one, other in pairwise(ranked))
    hard = [row.difficult.value for row in ranked if row.difficult is not None]
    if len(hard) < len(ranked):
        return f"{'holds' if every else 'does not hold'} on all pairs"
    difficult = all(one > other for one, other in pairwise(hard))
    if every == difficult:
        return f"{'holds' if every else 'does not hold'}, on all pairs and on Difficult ones"
    return f"holds on {'all' if every else 'Difficult'} pairs, but not on {'Difficult' if every else 'all'} ones"


def _heat(value: float, best: float) -> Html:
    number = element("strong", _shown(value)) if value == best > 0 else _shown(value)
    return element("span", number, class_="heat", style=f"--share: {0.7 * value:.0f}%")


# The page of the Pointing Game's results: one HTML file with its tables, figures and images inside.

FILE = "pointing.html"
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


def write(out: Path, runs: Sequence[Run], *, tolerance: float, inclusive: bool = True, command: str = "") -> Path:
    """Write the page; the same runs give the same bytes.

    Args:
        out: the folder for it.
        runs: the game of each network, on the same images.
        tolerance: how many pixels beside an object a point may lie and still hit it.
        inclusive: whether exactly so many still is a hit.
        command: what to type to get it again.

    Returns:
        The path of the page.

    Example:
        >>> write(Path("out"), [game.run(records)], tolerance=15)  # doctest: +SKIP
        PosixPath('out/pointing.html')
    """
    check_plots()
    text = _Page(runs, tolerance, inclusive=inclusive).text(command)
    return save_page(text, out / FILE)


class _Page:
    """The sections of the page; one that has nothing to show is left out."""

    def __init__(self, runs: Sequence[Run], tolerance: float, *, inclusive: bool) -> None:
        self.runs = runs
        self.tolerance = tolerance
        self.inclusive = inclusive
        self.rows = best_rows(row for run in runs for row in run.rows)
        self.main = main_method(self.rows)

    def text(self, command: str) -> str:
        run = self.runs[0]
        is_hit = hits_within(self.tolerance, inclusive=self.inclusive)
        sections = {
            "What was measured": measured(self.runs, tolerance=self.tolerance, inclusive=self.inclusive),
            "Scores": self._scores(),
            "Contrast, and the paper's order": joined([contrast_table(self.rows), bullets(orders(self.rows))]),
            "Layers": self._layers(),
            "Categories": self._categories(),
            "Examples": examples(self.runs, self.rows, self.main, is_hit),
            "How to read it": how_to_read(READING, command),
        }
        introduction = (
            f"Where does a network see what it was asked for? Measured on {run.dataset_name} {run.split}: "
            f"{len(run.records)} images, {self.rows[0].all.pairs} pairs of an image and a category in it."
        )
        return page("The Pointing Game", introduction, [each for each in sections.items() if each[1]])

    def _scores(self) -> Html:
        several = len(self.rows) < sum(len(run.rows) for run in self.runs)
        notes = [SEVERAL_LAYERS] if several else []
        empty = [
            f"{row.model}: {row.empty} of {row.all.pairs} maps of {row.method} are empty and point nowhere: misses"
            for row in self.rows
            if row.empty
        ]
        figure = drawing(scores_figure(self.rows), "Scores of all methods with their 95 % intervals")
        both = element("div", scores_table(self.rows), figure, class_="beside")
        said = bullets([*notes, *self._differences(), *empty])
        return joined([both, said, published_table(self.runs[0].dataset_name)])

    def _differences(self) -> Iterator[str]:
        """How the main method stands against the best of the others, on the same images."""
        for run in self.runs:
            rows = {row.method: row for row in self.rows if row.model == run.classifier_name}
            main = rows.pop(self.main, None)
            if main is None or not rows:
                continue
            other = max(rows.values(), key=lambda row: row.all.value)
            both = (main.method, main.layer), (other.method, other.layer)
            gap = difference(run.records, *both, self.tolerance, inclusive=self.inclusive)
            hard = "" if gap.difficult is None else f", {points(gap.difficult)} on Difficult ones"
            yield (
                f"{run.classifier_name}: {main.method} against {other.method}, the best of the others: "
                f"{points(gap.all)} on all pairs{hard} (paired over images, 95 % intervals)"
            )

    def _layers(self) -> Html:
        drawn = {run.classifier_name: layers_figure(run.rows) for run in self.runs}
        return joined(
            joined([element("h3", name), drawing(figure, f"Scores of each method at each layer of {name}")])
            for name, figure in drawn.items()
            if figure is not None
        )

    def _categories(self) -> Html:
        models = [run.classifier_name for run in self.runs]
        return joined(categories_table([row for row in self.rows if row.model == model]) for model in models)
