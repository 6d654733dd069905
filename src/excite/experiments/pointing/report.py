"""The tables of the Pointing Game: for the terminal, for programs, and for papers."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

from excite.errors import DataError, ImageError
from excite.experiments.base import failures_of, left_out_words, place_of
from excite.experiments.pointing.scores import wins
from excite.experiments.report.examples import Drawn, Example, best_of_each_kind, outline, outlined, shown_again
from excite.experiments.report.figures import (
    INK,
    LOOKS,
    aside,
    check_plots,
    dots,
    legend,
    line,
    panels_of_methods,
    plain,
    tens_around,
)
from excite.experiments.report.html import csv_table, markdown_table
from excite.experiments.report.page import methods_of, models_of
from excite.io.files import save_json, save_text
from excite.metrics.statistics import RESAMPLES
from excite.readouts.overlay import overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from excite.experiments.base import Place
    from excite.experiments.pointing.scores import Row, Run, Score
    from excite.experiments.report.examples import Rating
    from excite.jobs import Entry
    from excite.metrics.statistics import Estimate

    Line = Mapping[str, Any]
    Hits = Sequence[bool]  # of the main method, and then of the others that can see


def answer(runs: Sequence[Run]) -> dict[str, Any]:
    """All of it as plain values for JSON; nothing in it depends on when and where it was made."""
    about = runs[0].about
    return {
        "rows": [row.to_dict() for run in runs for row in run.rows],
        "data": about["data"],
        "split": about["data"]["split"],
        "pictures": about["pictures"],
        "protocol": {key: about[key] for key in ("protocol", "tolerance", "inclusive", "difficult")},
        "output": {run.classifier_name: run.about["output"] for run in runs},
        "concepts": {run.classifier_name: run.about["concepts"] for run in runs},
        "wins": {run.classifier_name: wins(run.rows) for run in runs},
        "left_out": {run.classifier_name: run.about["left_out"] for run in runs},
        "failures": failures_of(run.about for run in runs),
    }


def columns(row: Row) -> dict[str, str]:
    """A row as people read it."""
    return {
        "model": row.model,
        "method": row.method,
        "layer": row.layer,
        "all %": _with_interval(row.all),
        "difficult %": "-" if row.difficult is None else _with_interval(row.difficult),
        "empty maps": str(row.empty),
    }


def by_network(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Methods by networks, All / Difficult, as in the paper's Table 1; each layer of a method has its own line."""
    lines: dict[str, dict[str, str]] = {}
    for run in runs:
        for row in run.rows:
            several = sum(other.method == row.method for other in run.rows) > 1
            name = f"{row.method} at {row.layer}" if several else row.method
            lines.setdefault(name, {})[run.classifier_name] = _both(row)
    names = [run.classifier_name for run in runs]
    return [
        {"all / difficult %": name, **{model: line.get(model, "-") for model in names}} for name, line in lines.items()
    ]


def sentences(run: Run) -> list[str]:
    """What was measured, who wins, and what was left out and why."""
    row, left_out = run.rows[0], run.about["left_out"]
    hard = row.difficult.pairs if row.difficult else 0
    measured = (
        f"{run.classifier_name} on {run.dataset_name} {run.split}: {len(run.records)} images, {row.all.pairs} pairs "
        f"of an image and one of {len(row.all.categories)} categories, {hard} of them difficult; means over "
        f"categories, with 95 % intervals from {RESAMPLES} resamples of the images"
    )
    won = ", ".join(f"{method} {count}" for method, count in wins(run.rows).items())
    missing = "; ".join(left_out_lines(left_out))
    return [
        measured,
        f"categories won (where several are best, each counts): {won}",
        *([f"left out: {missing}"] if missing else []),
    ]


def left_out_lines(left_out: Mapping[str, Any]) -> list[str]:
    """What was left out and why, for people to read.

    Example:
        >>> nothing = {"unknown": {}, "difficult": 0, "empty": 0, "unreadable": {}, "no_difficult_pairs": []}
        >>> left_out_lines({**nothing, "no_pairs": ["cow", "sheep"]})
        ['categories without any pair: cow, sheep']
    """
    said = {
        "categories without any pair": left_out["no_pairs"],
        "categories without a difficult pair, no part of that mean": left_out["no_difficult_pairs"],
        "methods that cannot be read there (rows.json says why)": left_out["unreadable"],
    }
    return [*left_out_words(left_out), *(f"{reason}: {', '.join(what)}" for reason, what in said.items() if what)]


def write_tables(runs: Sequence[Run], out: Path) -> list[Path]:
    """Write ``rows.json``, ``rows.csv``, ``categories.csv`` and ``table.md``; the same runs give the same bytes."""
    rows = [row for run in runs for row in run.rows]
    texts = {
        "rows.csv": csv_table([_flat(row) for row in rows]),
        "categories.csv": csv_table([line for row in rows for line in _categories(row)]),
        "table.md": _markdown(runs),
    }
    written = [save_json(answer(runs), out / "rows.json")]
    return [*written, *(save_text(text, out / name) for name, text in texts.items())]


def _flat(row: Row) -> Line:
    """A row of the table without lists, for spreadsheets."""
    line = row.to_dict()
    for subset in ("all", "difficult"):
        low, high = line.pop(f"{subset}_interval") or (None, None)
        line |= {f"{subset}_low": low, f"{subset}_high": high}
    return line


def _categories(row: Row) -> list[Line]:
    hard = row.difficult.categories if row.difficult else {}
    return [
        {
            "model": row.model,
            "method": row.method,
            "layer": row.layer,
            "category": category,
            "hits": share.count,
            "pairs": share.total,
            "difficult_hits": hard[category].count if category in hard else 0,
            "difficult_pairs": hard[category].total if category in hard else 0,
        }
        for category, share in row.all.categories.items()
    ]


def _markdown(runs: Sequence[Run]) -> str:
    tables = [[columns(row) for run in runs for row in run.rows]] + ([by_network(runs)] if len(runs) > 1 else [])
    said = [f"- {sentence}" for run in runs for sentence in sentences(run)]
    about = runs[0].about
    edge = "up to" if about["inclusive"] else "less than"
    rule = f"A point {edge} {about['tolerance']:g} pixels beside an object hits it (protocol: {about['protocol']})."
    return "\n\n".join([*map(markdown_table, tables), "\n".join(said), rule]) + "\n"


def _with_interval(score: Estimate) -> str:
    return f"{score.value:.1f} ({score.low:.1f}-{score.high:.1f})"


def _both(row: Row) -> str:
    hard = "-" if row.difficult is None else f"{row.difficult.value:.1f}"
    return f"{row.all.value:.1f} / {hard}"


# The figures of the Pointing Game, drawn with matplotlib (the extra ``plots``) for the page of its results.

SUBSETS = {"all": "All", "difficult": "Difficult"}
LONG_NAME = 8  # letters of a layer that fit side by side


def scores_figure(rows: Sequence[Row]) -> Any:
    """Each method's score on all and on Difficult pairs with 95 % intervals, a panel for each network.

    Args:
        rows: at most one for each network and method.

    Returns:
        a figure of matplotlib.
    """
    methods = methods_of(rows)
    figure, panels = panels_of_methods(methods, models_of(rows), "mean accuracy [%]")
    for model, axes in panels.items():
        for offset, subset, look in ((-0.13, "all", LOOKS[0]), (0.13, "difficult", LOOKS[1])):
            placed = [(methods.index(row.method) + offset, _score(row, subset)) for row in rows if row.model == model]
            dots(axes, [(place, score) for place, score in placed if score is not None], SUBSETS[subset], look)
        axes.set_xlim(*tens_around(_scores(rows)))
    legend(figure, next(iter(panels.values())))
    return figure


def layers_figure(rows: Sequence[Row]) -> Any:
    """How good each method is at each layer, a panel for all and one for Difficult pairs.

    Args:
        rows: of one network.

    Returns:
        a figure of matplotlib, or None where no method was read at several layers. One whose maps are all empty is not
        drawn.
    """
    lines = [list(group) for _, group in groupby(sorted(rows, key=_place_in(rows)), key=lambda row: row.method)]
    lines = [each for each in lines if len(each) > 1 and any(row.empty < row.all.pairs for row in each)]
    if not lines:
        return None
    check_plots()
    from matplotlib.figure import Figure

    drawn = [row for each in lines for row in each]
    layers = list(dict.fromkeys(row.layer for row in drawn))
    subsets = [subset for subset in SUBSETS if any(_score(row, subset) for row in drawn)]
    figure = Figure(figsize=(1.5 + len(subsets) * max(3.2, 0.62 * len(layers)), 4.2), layout="constrained")
    panels = figure.subplots(1, len(subsets), sharey=True, squeeze=False)[0]
    for axes, subset in zip(panels, subsets, strict=True):
        for k, each in enumerate(lines):
            _line(axes, each, layers, subset, k, aside(k, len(lines)))
        axes.set_title(SUBSETS[subset], fontsize=10, color=INK)
        _name_layers(axes, layers)
        plain(axes)
    panels[0].set_ylabel("mean accuracy [%]", color=INK)
    panels[0].set_ylim(*tens_around(_scores(drawn)))
    legend(figure, panels[0])
    return figure


def _place_in(rows: Sequence[Row]) -> Any:
    """By method, in the order in which they come; layers keep theirs."""
    methods = methods_of(rows)
    return lambda row: methods.index(row.method)


def _line(axes: Any, rows: Sequence[Row], layers: Sequence[str], subset: str, number: int, offset: float) -> None:
    """A method's scores from layer to layer, with their intervals; the number says which look it has."""
    found = [(layers.index(row.layer) + offset, score) for row in rows if (score := _score(row, subset)) is not None]
    places, scores = zip(*found, strict=True)
    line(axes, places, scores, rows[0].method, number)


def _name_layers(axes: Any, layers: Sequence[str]) -> None:
    turned = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if max(map(len, layers)) > LONG_NAME else {}
    axes.set_xticks(range(len(layers)), layers, parse_math=False, **turned)
    axes.set_xlabel("layer", color=INK)


def _score(row: Row, subset: str) -> Score | None:
    return row.all if subset == "all" else row.difficult


def _scores(rows: Sequence[Row]) -> Iterator[Score]:
    return (score for row in rows for score in (row.all, row.difficult) if score is not None)


# Examples of the Pointing Game to look at: which ones, as the records tell, and their maps, made anew.

SMALL = 0.25  # of the image, as in the Difficult subset


def _all_hit(example: Example, hits: Hits) -> float | None:
    return example.share if all(hits) and example.share < SMALL else None


def _only_main_hits(example: Example, hits: Hits) -> float | None:
    """The more of the others miss, the better; of equals, the smaller object."""
    main, *others = hits
    return sum(others) + min(example.share, 0.99) if main and not all(others) else None


def _main_misses(example: Example, hits: Hits) -> float | None:
    """The farther, measured in diagonals of the image, the worse. A map that points nowhere is not much to see."""
    return None if hits[0] else -(example.maps[0]["distance"] or 0.0) / math.hypot(*example.size)


KINDS: dict[str, Rating[Example]] = {
    "Every method that looks hits a small object": _all_hit,
    "{main} hits where others miss": _only_main_hits,
    "{main} misses, by the most": _main_misses,
}
"""Best and worst cases: a heading, and a rating (the lowest first) or None for what is no such case."""


def choose(
    records: Iterable[Entry], places: Sequence[Place], is_hit: Callable[[Entry], bool], each: int
) -> dict[str, list[Example]]:
    """The best examples of each kind: of an image at most one, and the categories take turns.

    Args:
        records: a record for each image.
        places: the methods, each with the layer to show it at; the main one first.
        is_hit: whether a map of a record points at what it was asked for.
        each: how many of each kind.

    Example:
        >>> found = {"method": "c-mwp", "layer": "1", "point": [3, 4], "distance": 0.0}
        >>> target = {"category": "cat", "share": 0.1, "maps": [found]}
        >>> record = {"image": "7", "size": [90, 60], "targets": [target]}
        >>> examples = choose([record], [("c-mwp", "1")], lambda found: True, each=1)
        >>> [(kind, [example.image for example in found]) for kind, found in examples.items()][0]
        ('Every method that looks hits a small object', ['7'])
    """
    candidates = [_example(record, target, places) for record in records for target in record["targets"]]
    seeing = [k for k in range(len(places)) if k == 0 or _can_see(k, candidates)]
    hits = [[is_hit(example.maps[k]) for k in seeing] for example in candidates]
    return best_of_each_kind(candidates, hits, KINDS, each)


def _example(record: Entry, target: Entry, places: Sequence[Place]) -> Example:
    maps = {place_of(found): found for found in target["maps"]}
    width, height = record["size"]
    shown = tuple(maps[place] for place in places)
    return Example(record["image"], (width, height), target["category"], target["share"], shown)


def _can_see(place: int, examples: Iterable[Example]) -> bool:
    """The centre does not look at the image, and maps that are all empty do not point."""
    return any(
        example.maps[place]["method"] != "center" and example.maps[place]["point"] is not None for example in examples
    )


def draw(run: Run, example: Example) -> Drawn[Example]:
    """The photograph and each method's map over it, with the objects outlined and the points marked.

    An image that vanished or changed since it was measured is no reason to have no page.
    """
    try:
        picture, shown = shown_again(run.show, example)
        lines = outline(run.target(example.image, example.category).instances, example.size)
    except (ImageError, DataError) as error:
        return Drawn(example, trouble=str(error))
    points = [None if found["point"] is None else (found["point"][0], found["point"][1]) for found in example.maps]
    covered = [overlay(picture, found.values, point=point) for found, point in zip(shown, points, strict=True)]
    return Drawn(example, outlined(picture, lines), tuple(outlined(panel, lines) for panel in covered))
