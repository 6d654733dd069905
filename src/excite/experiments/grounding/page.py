"""The page of grounding's results: one HTML file with its tables, figures and images inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
)
from excite.experiments.grounding.run import MAIN
from excite.experiments.grounding.scores import RANKS
from excite.experiments.published import GROUNDED_DATA, GROUNDED_ON, published_groups, published_ranks
from excite.experiments.report.examples import Example, best_of_each_kind
from excite.experiments.report.figures import check_plots
from excite.experiments.report.html import Html, drawing, element, joined, page, picture, table
from excite.experiments.report.page import (
    DASH,
    bullets,
    facts_list,
    first_two,
    headed_strips,
    how_to_read,
    lines_or_nothing,
    main_method,
    marked,
    methods_of,
    ranked,
    save_page,
    told_once,
)
from excite.grounding.scoring import SAME
from excite.metrics.phrases import phrase_class
from excite.metrics.statistics import RESAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from PIL import Image

    from excite.experiments.grounding.run import Run
    from excite.experiments.grounding.scores import Lead, Marks, Row
    from excite.experiments.report.examples import Rating
    from excite.jobs import Entry
    from excite.metrics.statistics import Estimate

    Hits = Sequence[bool]  # of the main method, and then of the others


# What was measured in grounding, and what was not, in words for its page.

MOST_TOLD = 5  # gammas that are told one by one: the paper's

TRUTHS = {
    "union": "with the smallest box around all that the phrase refers to",
    "any": "with any of the boxes that the phrase refers to",
}


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
    about, protocol = run.about, run.about["protocol"]
    yield "data", f"{run.dataset_name}, split {run.split}, in {about['data']['folder']}"
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


def _gamma(run: Run) -> str:
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


def _of_one(run: Run) -> Iterator[tuple[str, str]]:
    """What was measured with one network, and what was not."""
    about = run.about
    small = run.shared[0].small
    yield "pictures", f"{about['pictures']} asked for, {about['reported']} reported on"
    yield "phrases", f"{about['phrases']}, {0 if small is None else small.phrases} of them small"
    yield "left out of the data", lines_or_nothing([f"{why}: {n}" for why, n in about["left_out"]["data"].items()])
    yield "not known or not there", lines_or_nothing(left_out_lines(about["left_out"]))
    (shares,) = shares_of_time([run]).values()
    yield "where the time went", ", ".join(f"{step} {share:g} %" for step, share in shares.items())
    yield "could not be read", lines_or_nothing(about["failures"])


# The tables of grounding's page.

OWN_NAME = "the proposals' own scores"


def marks_table(rows: Sequence[Row], *, small: bool = False) -> Html:
    """The paper's table: a line for each way to rank boxes; nothing where there is nothing small.

    Args:
        rows: of all networks, and those that need none.
        small: only over phrases that refer to something small.
    """
    found = [(row, row.small if small else row.all) for row in rows]
    there = [(row, marks) for row, marks in found if marks is not None]
    if not there:
        return Html("")
    columns = [_estimates([marks for _, marks in there], _recall(rank)) for rank in RANKS]
    columns += [_numbers([marks.map_group for _, marks in there]), _numbers([marks.map_phrase for _, marks in there])]
    columns.append(_estimates([marks for _, marks in there], lambda marks: marks.pointing))
    several = len({row.model for row in rows if row.model}) > 1
    body = [
        [
            called(row.method),
            *([row.model or DASH] * several),
            DASH if row.chosen.gamma is None else f"{row.chosen.gamma:g}",
            *(column[k] for column in columns),
            element("small", row.layer or DASH),
        ]
        for k, (row, _) in enumerate(there)
    ]
    of = "instances below a quarter of the image" if small else "all phrases"
    return table(
        f"In percent over {of} ({there[0][1].phrases}), with 95 % intervals. Best in bold, second best underlined.",
        [
            "method",
            *(["network"] * several),
            "gamma",
            *(f"R@{rank}" for rank in RANKS),
            "group",
            "phrase",
            "pointing",
            "read at",
        ],
        body,
        groups=[("", 2 + several), ("recall", len(RANKS)), ("mAP", 2), ("", 2)],
    )


def leads_table(leads: Sequence[Lead]) -> Html:
    """How much better the main method is than everything else; nothing where there is nothing else."""
    if not leads:
        return Html("")
    several = len({lead.model for lead in leads}) > 1
    return table(
        f"By how many points {leads[0].method} is better in R@1, with 95 % intervals, paired over images.",
        [f"{leads[0].method} over", *(["network"] * several), "all phrases", "small instances"],
        [
            [called(lead.over), *([lead.model] * several), *(_points(each) for each in (lead.r1, lead.r1_small))]
            for lead in leads
        ],
    )


def groups_table(rows: Sequence[Row]) -> Html:
    """Recall at 5 of each group and their mean; nothing where the data know no groups."""
    groups = [group for group in rows[0].groups if any(row.groups[group] is not None for row in rows)]
    if not groups:
        return Html("")
    several = len({row.model for row in rows if row.model}) > 1
    best = {group: max(row.groups[group] or 0.0 for row in rows) for group in groups}
    means = [row.group_mean or 0.0 for row in rows]
    body = [
        [
            called(row.method),
            *([row.model or DASH] * several),
            *(_heat(row.groups[group], best[group]) for group in groups),
            marked(mean, first_two(means)),
        ]
        for row, mean in zip(rows, means, strict=True)
    ]
    return table(
        "Recall at 5 of each group in percent, the best in bold. The mean is over groups, so rare ones count as much "
        "as common ones.",
        ["method", *(["network"] * several), *groups, "mean"],
        body,
    )


def published_tables(data: str) -> Html:
    """The paper's two tables, whatever the data: there is nothing else to compare with."""
    other = "" if data == GROUNDED_DATA else " Other images, other phrases and another network: only the order of "
    other += "" if data == GROUNDED_DATA else "the methods can be compared."
    ranks, groups = published_ranks(), published_groups()
    return joined(
        [
            table(
                f"{GROUNDED_ON}: all phrases / small instances, in percent.{other}",
                list(ranks[0]),
                [list(line.values()) for line in ranks],
            ),
            table(
                "Recall at 5 of each group, and their mean.", list(groups[0]), [list(each.values()) for each in groups]
            ),
        ]
    )


def called(method: str) -> str:
    """How people call a method, or what is none.

    Example:
        >>> called("c-mwp"), called("proposals")
        ('c-mwp', "the proposals' own scores")
    """
    return OWN_NAME if method == OWN else method


def _points(gap: Estimate | None) -> str:
    if gap is None:
        return DASH
    return joined([f"{gap.value:+.1f}", element("small", f"{gap.low:+.1f} to {gap.high:+.1f}")])


def _recall(rank: int) -> Callable[[Marks], Estimate | None]:
    return lambda marks: marks.recalls[rank]


def _estimates(marks: Sequence[Marks], measure: Callable[[Marks], Estimate | None]) -> list[str]:
    """A column of values with their intervals, the best two marked."""
    values = [measure(each) for each in marks]
    best = first_two(value.value for value in values if value is not None and value.value)
    return [DASH if value is None else ranked(value, best) for value in values]


def _numbers(values: Sequence[float | None]) -> list[str]:
    best = first_two(value for value in values if value)  # nothing is best at nought
    return [DASH if value is None else marked(value, best) for value in values]


def _heat(value: float | None, best: float) -> str:
    if value is None:
        return DASH
    number = element("strong", f"{value:.1f}") if value == best > 0 else f"{value:.1f}"
    return element("span", number, class_="heat", style=f"--share: {0.7 * value:.0f}%")


# Examples of grounding to look at: which ones, as the records tell, and drawn anew.

BOXES, WIDTH, TOO_LATE = 5, 900, 10


@dataclass(frozen=True)
class Asked(Example):
    """A phrase of an image; its category is what the phrase is called as a class, so that these take turns.

    Attributes:
        number: which phrase of the image it is, from 0.
        phrase: what the record tells of it.
        hits: the ranks of the first right box of each method, the main one first.
    """

    number: int
    phrase: Entry
    hits: tuple[int | None, ...]


def _only_main_hits(example: Asked, hits: Hits) -> float | None:
    """The more of the others miss, the better; of equals, the longer phrase has more to see."""
    main, *others = hits
    known = example.phrase["known"] and not all(others)
    return sum(others) - 0.01 * min(len(example.phrase["text"]), 60) if main and known else None


def _small_hit(example: Asked, hits: Hits) -> float | None:
    """Something small that was found at once."""
    return example.share if hits[0] and example.phrase["known"] else None


def _points_right(example: Asked, hits: Hits) -> float | None:
    """The map points at it, but no box among the first ten fits."""
    found, rank = example.maps[0], example.hits[0]
    late = rank is None or rank > TOO_LATE
    return -example.share if not hits[0] and late and found["pointed"]["any"] else None


def _points_wrong(example: Asked, hits: Hits) -> float | None:
    """Neither the maximum nor a box: the larger, the worse."""
    found, rank = example.maps[0], example.hits[0]
    late = rank is None or rank > TOO_LATE
    return -example.share if not hits[0] and late and not found["pointed"]["union"] else None


KINDS: dict[str, Rating[Asked]] = {
    "{main} finds at once what others do not": _only_main_hits,
    "{main} finds something small at once": _small_hit,
    "{main} points at it, but has no right box among the first ten": _points_right,
    "{main} looks elsewhere": _points_wrong,
}
"""Best and worst cases: a heading, and a rating (the lowest first) or None for what is no such case."""


def choose(records: Sequence[Entry], methods: Sequence[str], truth: str, each: int) -> dict[str, list[Asked]]:
    """The best examples of each kind: of an image at most one, and the phrases take turns.

    Args:
        records: a record for each image.
        methods: the main one first.
        truth: one of `excite.experiments.grounding.measure.TRUTHS`.
        each: how many of each kind.
    """
    candidates = [
        _example(record, number, phrase, methods, truth)
        for record in records
        for number, phrase in enumerate(record["phrases"])
    ]
    firsts = [[hit == 1 for hit in example.hits] for example in candidates]
    return best_of_each_kind(candidates, firsts, KINDS, each)


def draw(run: Run, row: Row, example: Asked) -> Image.Image | str:
    """The image with the first boxes and the right one, and the maps of the words; or why it cannot be shown.

    An image that vanished since it was measured is no reason to have no page.
    """
    try:
        grounded, phrase = run.show(example.image, example.number, row.method, row.chosen.gamma or 0.0, BOXES)
    except (ImageError, DataError) as error:
        return str(error)
    boxes = [union(phrase.boxes)] if run.about["protocol"]["truth"] == "union" else phrase.boxes
    return grounded.figure(true_boxes=boxes, width=WIDTH)


def _example(record: Entry, number: int, phrase: Entry, methods: Sequence[str], truth: str) -> Asked:
    found = {one["method"]: one for one in phrase["found"]}
    width, height = record["size"]
    area = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in phrase["boxes"]) / (width * height)
    maps = tuple(found[method] for method in methods)
    hits = tuple(one["hits"][truth] for one in maps)
    called = phrase_class(phrase["text"])
    return Asked(record["image"], (width, height), called, area, maps, number, phrase, hits)


# The examples of grounding's page: images with ranked boxes, the maps of words, and the words in their colours.

EXAMPLES = 12
BLIND = "center"


def examples(runs: Sequence[Run], main: str) -> Html:
    """Best and worst cases of each network, a dozen in all.

    Args:
        runs: the experiments.
        main: the method whose cases they are.
    """
    each = max(1, EXAMPLES // len(KINDS) // len(runs))
    return joined(part for run in runs for part in _cases(run, main, each, several=len(runs) > 1))


def _cases(run: Run, main: str, each: int, *, several: bool) -> Iterator[Html]:
    """For each kind of case a heading and its examples, or that there is none."""
    row = next((row for row in run.rows if row.method == main), run.rows[0])
    others = [other.method for other in run.rows if other.method not in {row.method, BLIND}]
    chosen = choose(run.records, [row.method, *others], run.about["protocol"]["truth"], each)
    of = f"{run.classifier_name}: " if several else ""

    def shown(example: Asked) -> Html:
        return _example_figure(run, row, example)

    for kind, found in chosen.items():
        yield from headed_strips(found, of + kind.format(main=row.method), shown)


def _example_figure(run: Run, row: Row, example: Asked) -> Html:
    """An example: its image, and in words what is to be seen."""
    text, sentence = example.phrase["text"], example.phrase["sentence"]
    about = f"{example.image}, {100 * example.share:.1f} % of the image"
    drawn = draw(run, row, example)
    if isinstance(drawn, str):
        return element("p", f"{text} in {about}: cannot be shown ({drawn})", class_="soft")
    said = [f"{name}: {_rank(hit)}" for name, hit in zip(_names(example), example.hits, strict=True)]
    skipped = example.phrase["skipped"]
    caption = [
        element("strong", f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}"),
        *([Html("<br>"), f"in: {sentence}"] if sentence and sentence != text else []),
        Html("<br>"),
        f"{about}. First right box: {', '.join(said)}.",
        *([f" Skipped: {', '.join(skipped)}."] if skipped else []),
    ]
    alt = f"the first boxes for {text} with the right one dashed, and the maps of its words"
    return element("figure", picture(drawn, alt, width=WIDTH), element("figcaption", *caption))


def _names(example: Asked) -> list[str]:
    return [found["method"] for found in example.maps]


def _rank(hit: int | None) -> str:
    return "none" if hit is None else f"number {hit}"


# The page of grounding's results: one HTML file with its tables, figures and images inside.

FILE = "grounding.html"
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


def write(out: Path, runs: Sequence[Run], *, command: str = "") -> Path:
    """Write the page; runs on the same records give the same bytes.

    Args:
        out: the folder for it.
        runs: the experiment of each network, on the same images.
        command: what to type to get it again.

    Returns:
        The path of the page.

    Example:
        >>> write(Path("out"), [asking.run(chosen, records)])  # doctest: +SKIP
        PosixPath('out/grounding.html')
    """
    check_plots()
    return save_page(_Page(runs).text(command), out / FILE)


class _Page:
    """The sections of the page; one that has nothing to show is left out."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.rows = [row for run in runs for row in run.rows]
        self.main = main_method(self.rows, MAIN)

    def text(self, command: str) -> str:
        run, rows = self.runs[0], all_rows(self.runs)
        sections = {
            "What was measured": measured(self.runs),
            "Recall": self._recall(),
            "Small instances": marks_table(rows, small=True),
            "How many boxes, and which gamma": self._curves(),
            "Groups": groups_table(rows),
            "The paper's tables": published_tables(run.dataset_name),
            "Examples": examples(self.runs, self.main),
            "How to read it": how_to_read(READING, command),
        }
        introduction = (
            f"Which region of an image does a phrase refer to? Measured on {run.dataset_name} {run.split}: "
            f"{run.about['reported']} images, {run.about['phrases']} phrases."
        )
        return page("Grounding phrases", introduction, [each for each in sections.items() if each[1]])

    def _recall(self) -> Html:
        figure = drawing(recalls_figure(self.rows, self.runs[0].shared), "R@1 of all methods with their 95 % intervals")
        missing = [
            f"{row.method} has no result for {row.missing} of {row.all.phrases} phrases: these count as missed"
            for row in self.runs[0].shared
            if row.missing
        ]
        compared = leads_table([lead for run in self.runs for lead in run.leads])
        both = element("div", figure, compared, class_="beside")
        return joined([marks_table(all_rows(self.runs)), both, bullets(missing)])

    def _curves(self) -> Html:
        parts: list[Html] = []
        for run in self.runs:
            name = run.classifier_name
            drawn = [
                _figure(ranks_figure([*run.rows, *run.shared]), f"{name}: recall of each method by number of boxes")
            ]
            gammas = gammas_figure(run.rows)
            if gammas is not None:
                drawn.append(_figure(gammas, f"{name}: recall of each method by gamma, on held-out images"))
            parts += [element("h3", name)] * (len(self.runs) > 1) + [element("div", *drawn, class_="beside")]
        searched = any(row.chosen.curve for row in self.rows)
        return joined([*([element("p", CHOSEN)] if searched else []), *parts])


def _figure(figure: Any, alt: str) -> Html:
    return element("figure", drawing(figure, alt))
