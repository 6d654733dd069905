"""The HTML page of grounding: tables, figures and example images in one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.datasets.phrases import union
from excite.errors import DataError, ImageError
from excite.experiments.grounding.measure import OWN
from excite.experiments.grounding.report import (
    all_rows,
    gammas_figure,
    left_out_lines,
    ranks_figure,
    recalls_figure,
    shares_of_time,
    time_words,
)
from excite.experiments.grounding.run import MAIN
from excite.experiments.grounding.scores import RANKS
from excite.experiments.published import GROUNDED_DATA, GROUNDED_ON, published_groups, published_ranks
from excite.experiments.report import html
from excite.experiments.report.examples import EXAMPLES, Example, best_of_each_kind, headed_strips
from excite.experiments.report.figures import check_plots, main_method
from excite.experiments.report.html import DASH, Html, element, joined
from excite.grounding.scoring import SAME
from excite.metrics.phrases import phrase_class
from excite.metrics.statistics import RESAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from PIL import Image

    from excite.experiments.grounding.run import GroundingRun
    from excite.experiments.grounding.scores import GroundingRow, Lead
    from excite.experiments.report.examples import Rating
    from excite.jobs import Entry
    from excite.metrics.statistics import Estimate

    Hits = Sequence[bool]  # of the main method, and then of the others


FILE = "grounding.html"
MOST_TOLD = 5  # gammas that are listed one by one: the paper's
BOXES, WIDTH, TOO_LATE = 5, 900, 10
BLIND = "center"
OWN_NAME = "the proposals' own scores"
TRUTHS = {
    "union": "with the smallest box around all that the phrase refers to",
    "any": "with any of the boxes that the phrase refers to",
}
CHOSEN = "Where gamma goes from 0 to 1, a large open mark is at the one that the held-out images chose."
READING = (
    "A phrase is read word by word: the map of each word that the network knows tells where it sees it, and their mean "
    "is the map of the phrase. Proposed regions are ranked by how much of the map they hold for their size. R@N is the "
    "share of phrases with a right box among the first N; mAP ranks the boxes of all mentions of a group, or of a "
    "phrase, together; pointing asks only whether the highest point of the map lies in what is meant. The proposals' "
    "own scores look at no phrase, so what is above them was found by reading. Phrases without any word that the "
    "network knows are asked as well: all that it finds in the image stands for them. Two numbers whose intervals "
    "overlap widely are not told apart by these images; the paired differences are surer."
)


def write(out: Path, runs: Sequence[GroundingRun], *, command: str = "") -> Path:
    """Write the page; runs on the same records give the same bytes.

    Args:
        out: the folder for it.
        runs: the experiment of each network, on the same images.
        command: that makes the page again.
    """
    check_plots()
    run, rows = runs[0], all_rows(runs)
    main = main_method([row for run in runs for row in run.rows], MAIN)
    sections = {
        "What was measured": html.measured(runs, _protocol(run), _details),
        "Recall": _recall(runs),
        "Small instances": scores_table(rows, small=True),
        "How many boxes, and which gamma": _curves(runs),
        "Groups": groups_table(rows),
        "The paper's tables": published_tables(run.dataset_name),
        "Examples": joined(part for each in runs for part in _cases(each, main, len(runs))),
        "How to read it": html.how_to_read(READING, command),
    }
    introduction = (
        f"Which region of an image does a phrase refer to? Measured on {run.dataset_name} {run.split}: "
        f"{run.about['reported']} images, {run.about['phrases']} phrases."
    )
    return html.write_page(out / FILE, "Grounding phrases", introduction, sections)


def _protocol(run: GroundingRun) -> Iterator[tuple[str, str]]:
    """The facts that are the same for all networks."""
    about, protocol = run.about, run.about["protocol"]
    yield "the network sees", f"each image with its shorter side at {protocol['side']} pixels, where it can"
    words = "; its head counts more, and words for places and colours weigh it" if protocol["hints"] else ""
    yield "map of a phrase", f"the mean of the maps of those of its words that the network knows{words}"
    made = f"{protocol['proposals']}, {about['proposals']:.0f} in an image on average"
    yield "proposals", f"{made}; one of them is right for {about['reach']:.1f} % of the phrases"
    trust = f"; the last proposal counts {protocol['trust']:.0%} less than the first" if protocol["trust"] else ""
    yield "score", f"the sum of the map in a region, divided by its area to the power of gamma{trust}"
    yield "told once", f"boxes that overlap by more than {SAME:g}: the best of them"
    yield "right", f"a box that overlaps by at least half {TRUTHS[protocol['truth']]}"
    yield "gamma", _gamma(run)
    yield "small", "what has to be matched covers less than a quarter of the image"
    yield "95 % intervals", f"bootstrap over images, {RESAMPLES} resamples"


def _gamma(run: GroundingRun) -> str:
    about, protocol = run.about, run.about["protocol"]
    if isinstance(protocol["gamma"], float):
        return f"{protocol['gamma']:g} for all, so that all images are reported on"
    tried = ", ".join(f"{gamma:g}" for gamma in protocol["gamma"])
    if len(protocol["gamma"]) > MOST_TOLD:
        first, second, *_, last = protocol["gamma"]
        tried = f"{first:g}, {second:g} ... {last:g}"
    drawn = f"{protocol['held_out']:.0%}, drawn by the seed {protocol['seed']}"
    return (
        f"for each method and network the best of {tried} on {about['held_out_pictures']} held-out images "
        f"({drawn}); all numbers are of the other {about['reported']}"
    )


def _details(run: GroundingRun) -> Iterator[tuple[str, str]]:
    """The facts of one network."""
    about = run.about
    small = run.shared[0].small
    yield "images", f"{about['pictures']} asked for, {about['reported']} reported on"
    yield "phrases", f"{about['phrases']}, {0 if small is None else small.phrases} of them small"
    data = [f"{why}: {count}" for why, count in about["left_out"]["data"].items()]
    yield "left out of the data", html.lines_or_nothing(data)
    yield "not known or not there", html.lines_or_nothing(left_out_lines(about["left_out"]))
    yield "where the time went", time_words(shares_of_time([run])[run.classifier_name])
    yield "could not be read", html.lines_or_nothing(about["failures"])


def _recall(runs: Sequence[GroundingRun]) -> Html:
    rows, shared = [row for run in runs for row in run.rows], runs[0].shared
    figure = html.drawing(recalls_figure(rows, shared), "R@1 of all methods with their 95 % intervals")
    missing = [
        f"{row.method} has no result for {row.missing} of {row.all.phrases} phrases: these count as missed"
        for row in shared
        if row.missing
    ]
    compared = leads_table([lead for run in runs for lead in run.leads])
    both = element("div", figure, compared, class_="beside")
    return joined([scores_table(all_rows(runs)), both, html.bullets(missing)])


def scores_table(rows: Sequence[GroundingRow], *, small: bool = False) -> Html:
    """The paper's table: a line for each ranking; empty where there are no phrases.

    Args:
        rows: of all networks, and those without one.
        small: only over small instances.
    """
    scored = [(row, row.small if small else row.all) for row in rows]
    there = [(row, scores) for row, scores in scored if scores is not None]
    if not there:
        return Html("")
    columns = [_estimates([scores.recalls[rank] for _, scores in there]) for rank in RANKS]
    columns.append(html.marked_column([scores.map_group for _, scores in there], zeros=False))
    columns.append(html.marked_column([scores.map_phrase for _, scores in there], zeros=False))
    columns.append(_estimates([scores.pointing for _, scores in there]))
    several = _several(rows)
    body = [
        [
            *_names(row, several=several),
            DASH if row.chosen.gamma is None else f"{row.chosen.gamma:g}",
            *(column[k] for column in columns),
            element("small", row.layer or DASH),
        ]
        for k, (row, _) in enumerate(there)
    ]
    of = "instances below a quarter of the image" if small else "all phrases"
    network = ["network"] * several
    return html.table(
        f"In percent over {of} ({there[0][1].phrases}), with 95 % intervals. Best in bold, second best underlined.",
        ["method", *network, "gamma", *(f"R@{rank}" for rank in RANKS), "group", "phrase", "pointing", "read at"],
        body,
        groups=[("", 2 + several), ("recall", len(RANKS)), ("mAP", 2), ("", 2)],
    )


def _estimates(values: Sequence[Estimate | None]) -> list[str]:
    """A column of values with their intervals, the best two marked."""
    best = html.best_two(value.value for value in values if value is not None and value.value)
    return [html.estimate_cell(value, best) for value in values]


def _several(rows: Sequence[GroundingRow] | Sequence[Lead]) -> bool:
    """Whether they are of several networks."""
    return len({row.model for row in rows if row.model}) > 1


def _names(row: GroundingRow, *, several: bool) -> list[str]:
    """The first cells of a row: its method, and its network if there are several."""
    return [called(row.method), *([row.model or DASH] * several)]


def called(method: str) -> str:
    """The name of a ranking in tables."""
    return OWN_NAME if method == OWN else method


def leads_table(leads: Sequence[Lead]) -> Html:
    """The lead of the main method over everything else; empty where there is nothing else."""
    if not leads:
        return Html("")
    several = _several(leads)
    return html.table(
        f"By how many points {leads[0].method} is better in R@1, with 95 % intervals, paired over images.",
        [f"{leads[0].method} over", *(["network"] * several), "all phrases", "small instances"],
        [
            [called(lead.over), *([lead.model] * several), *(_points(each) for each in (lead.r1, lead.r1_small))]
            for lead in leads
        ],
    )


def _points(gap: Estimate | None) -> str:
    if gap is None:
        return DASH
    return joined([f"{gap.value:+.1f}", element("small", f"{gap.low:+.1f} to {gap.high:+.1f}")])


def _curves(runs: Sequence[GroundingRun]) -> Html:
    searched = any(row.chosen.curve for run in runs for row in run.rows)
    parts = [element("p", CHOSEN)] if searched else []
    for run in runs:
        name = run.classifier_name
        figure = ranks_figure([*run.rows, *run.shared])
        drawn = [html.captioned(figure, f"{name}: recall of each method by number of boxes")]
        gammas = gammas_figure(run.rows)
        if gammas is not None:
            drawn.append(html.captioned(gammas, f"{name}: recall of each method by gamma, on held-out images"))
        parts += [element("h3", name)] * (len(runs) > 1) + [element("div", *drawn, class_="beside")]
    return joined(parts)


def groups_table(rows: Sequence[GroundingRow]) -> Html:
    """Recall at 5 of each group and their mean; empty where the data have no groups."""
    groups = [group for group in rows[0].groups if any(row.groups[group] is not None for row in rows)]
    if not groups:
        return Html("")
    several = _several(rows)
    best = {group: max(row.groups[group] or 0.0 for row in rows) for group in groups}
    means = html.marked_column([row.group_mean or 0.0 for row in rows])
    body = [
        [*_names(row, several=several), *(html.heat(row.groups[group], best[group]) for group in groups), mean]
        for row, mean in zip(rows, means, strict=True)
    ]
    return html.table(
        "Recall at 5 of each group in percent, the best in bold. The mean is over groups, so rare ones count as much "
        "as common ones.",
        ["method", *(["network"] * several), *groups, "mean"],
        body,
    )


def published_tables(data: str) -> Html:
    """The paper's two tables, whatever the data."""
    other = "" if data == GROUNDED_DATA else " Other images, other phrases and another network: only the order of "
    other += "" if data == GROUNDED_DATA else "the methods can be compared."
    captions = {
        f"{GROUNDED_ON}: all phrases / small instances, in percent.{other}": published_ranks(),
        "Recall at 5 of each group, and their mean.": published_groups(),
    }
    return joined(
        html.table(caption, list(lines[0]), [list(line.values()) for line in lines])
        for caption, lines in captions.items()
    )


@dataclass(frozen=True)
class PhraseExample(Example):
    """A phrase of an image; its category is its `phrase_class`, so that these take turns.

    Attributes:
        number: of the phrase, from 0.
        phrase: its record.
        hits: the ranks of the first right box of each method, the main one first.
    """

    number: int
    phrase: Entry
    hits: tuple[int | None, ...]

    @property
    def late(self) -> bool:
        """Whether the main method has no right box among the first ten."""
        return self.hits[0] is None or self.hits[0] > TOO_LATE


def _only_main_hits(example: PhraseExample, hits: Hits) -> float | None:
    """The more of the others miss, the better; of equals, the longer phrase."""
    main, *others = hits
    known = example.phrase["known"] and not all(others)
    return sum(others) - 0.01 * min(len(example.phrase["text"]), 60) if main and known else None


def _small_hit(example: PhraseExample, hits: Hits) -> float | None:
    return example.share if hits[0] and example.phrase["known"] else None


def _points_right(example: PhraseExample, _: Hits) -> float | None:
    """The maximum lies in the object, but no box among the first ten fits."""
    return -example.share if example.late and example.maps[0]["pointed"]["any"] else None


def _points_wrong(example: PhraseExample, _: Hits) -> float | None:
    """Neither the maximum nor a box: the larger the object, the better the case."""
    return -example.share if example.late and not example.maps[0]["pointed"]["union"] else None


KINDS: dict[str, Rating[PhraseExample]] = {
    "{main} finds at once what others do not": _only_main_hits,
    "{main} finds something small at once": _small_hit,
    "{main} points at it, but has no right box among the first ten": _points_right,
    "{main} looks elsewhere": _points_wrong,
}
"""Ratings of best and worst cases by heading."""


def _cases(run: GroundingRun, main: str, networks: int) -> Iterator[Html]:
    """For each kind of case a heading and its examples; a dozen for all networks."""
    row = next((row for row in run.rows if row.method == main), run.rows[0])
    others = [other.method for other in run.rows if other.method not in {row.method, BLIND}]
    each = max(1, EXAMPLES // len(KINDS) // networks)
    chosen = choose(run.records, [row.method, *others], run.about["protocol"]["truth"], each)
    of = f"{run.classifier_name}: " if networks > 1 else ""
    for kind, found in chosen.items():
        figures = [_example_figure(run, row, example) for example in found]
        yield from headed_strips(of + kind.format(main=row.method), figures)


def choose(records: Sequence[Entry], methods: Sequence[str], truth: str, each: int) -> dict[str, list[PhraseExample]]:
    """The best examples of each kind: at most one of an image, and the phrases take turns.

    Args:
        records: one for each image.
        methods: the main one first.
        truth: one of `excite.experiments.grounding.measure.TRUTHS`.
        each: number of each kind.
    """
    candidates = [
        _example(record, number, phrase, methods, truth)
        for record in records
        for number, phrase in enumerate(record["phrases"])
    ]
    firsts = [[hit == 1 for hit in example.hits] for example in candidates]
    return best_of_each_kind(candidates, firsts, KINDS, each)


def _example(record: Entry, number: int, phrase: Entry, methods: Sequence[str], truth: str) -> PhraseExample:
    found = {one["method"]: one for one in phrase["found"]}
    width, height = record["size"]
    area = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in phrase["boxes"]) / (width * height)
    maps = tuple(found[method] for method in methods)
    hits = tuple(one["hits"][truth] for one in maps)
    category = phrase_class(phrase["text"])
    return PhraseExample(record["image"], (width, height), category, area, maps, number, phrase, hits)


def _example_figure(run: GroundingRun, row: GroundingRow, example: PhraseExample) -> Html:
    """The image of an example with a caption."""
    text, sentence = example.phrase["text"], example.phrase["sentence"]
    about = f"{example.image}, {100 * example.share:.1f} % of the image"
    drawn = draw(run, row, example)
    if isinstance(drawn, str):
        return element("p", f"{text} in {about}: cannot be shown ({drawn})", class_="soft")
    ranks = ["none" if hit is None else f"number {hit}" for hit in example.hits]
    firsts = [f"{found['method']}: {rank}" for found, rank in zip(example.maps, ranks, strict=True)]
    skipped = example.phrase["skipped"]
    caption = [
        element("strong", f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}"),
        *([Html("<br>"), f"in: {sentence}"] if sentence and sentence != text else []),
        Html("<br>"),
        f"{about}. First right box: {', '.join(firsts)}.",
        *([f" Skipped: {', '.join(skipped)}."] if skipped else []),
    ]
    alt = f"the first boxes for {text} with the right one dashed, and the maps of its words"
    return element("figure", html.picture(drawn, alt, width=WIDTH), element("figcaption", *caption))


def draw(run: GroundingRun, row: GroundingRow, example: PhraseExample) -> Image.Image | str:
    """The image with the first boxes and the right one, and the maps of the words; or why it cannot be shown.

    An image that vanished since it was measured does not prevent the page.
    """
    try:
        grounded, phrase = run.show(example.image, example.number, row.method, row.chosen.gamma or 0.0, BOXES)
    except (ImageError, DataError) as error:
        return str(error)
    boxes = [union(phrase.boxes)] if run.about["protocol"]["truth"] == "union" else phrase.boxes
    drawn: Image.Image = grounded.figure(true_boxes=boxes, width=WIDTH)
    return drawn
