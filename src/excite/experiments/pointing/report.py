"""Tables, figures and the page of the Pointing Game."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from excite.experiments.base import failures_of, left_out_lines, method_layer
from excite.experiments.pointing.run import PROTOCOLS
from excite.experiments.pointing.scores import best_rows, difference, hits_within, wins
from excite.experiments.published import CONTRAST, POINTING, WORDS
from excite.experiments.report import figures, tables
from excite.experiments.report.examples import (
    EXAMPLES,
    Cases,
    Example,
    map_panels,
    outline,
    outlined,
    recomputed_maps,
    rows_to_show,
)
from excite.experiments.report.figures import main_method, methods_of, models_of
from excite.experiments.report.page import write_page
from excite.experiments.report.tables import DASH, Cell, Table
from excite.io.text import markdown_list
from excite.metrics.statistics import RESAMPLES
from excite.readouts.overlay import overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from excite.experiments.pointing.scores import PointingRow, PointingRun, Score
    from excite.experiments.report.examples import Panel
    from excite.jobs import Entry

    Hits = Sequence[bool]  # of the main method, and then of the others that use the image

FILE = "pointing.html"
MAIN = ("excite", "c-mwp")
SMALL = 0.25  # of the image, as in the Difficult subset
LONG_NAME = 8  # letters of a layer that fit side by side
SUBSETS: dict[str, Callable[[PointingRow], Score | None]] = {
    "All": lambda row: row.all,
    "Difficult": lambda row: row.difficult,
}
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


def answer(runs: Sequence[PointingRun]) -> dict[str, Any]:
    """All results as plain values for JSON, independent of time and machine."""
    about = runs[0].about
    return {
        "rows": [row.to_dict() for run in runs for row in run.rows],
        "data": about["data"],
        "split": about["data"]["split"],
        "pictures": about["pictures"],
        "protocol": {key: about[key] for key in ("protocol", "tolerance", "inclusive", "difficult")},
        **tables.per_network(runs, "output", "concepts"),
        "wins": {run.classifier_name: wins(run.rows) for run in runs},
        **tables.per_network(runs, "left_out"),
        "failures": failures_of(run.about for run in runs),
    }


def columns(row: PointingRow) -> dict[str, str]:
    """A row of the table in the terminal."""
    return {
        "model": row.model,
        "method": row.method,
        "layer": row.layer,
        "all %": str(row.all),
        "difficult %": str(row.difficult or tables.NOTHING),
        "empty maps": str(row.empty),
    }


def by_network(runs: Sequence[PointingRun]) -> list[dict[str, str]]:
    """Methods by networks, All / Difficult, as in the paper's Table 1; each layer of a method has its own line."""
    lines: dict[str, dict[str, str]] = {}
    for run in runs:
        for row in run.rows:
            several = sum(other.method == row.method for other in run.rows) > 1
            name = f"{row.method} at {row.layer}" if several else row.method
            hard = tables.shown(None if row.difficult is None else row.difficult.value)
            lines.setdefault(name, {})[run.classifier_name] = f"{row.all.value:.1f} / {hard}"
    names = [run.classifier_name for run in runs]
    return [
        {"all / difficult %": name, **{model: line.get(model, tables.NOTHING) for model in names}}
        for name, line in lines.items()
    ]


def sentences(run: PointingRun) -> list[str]:
    """What was measured, the number of wins, and what was left out and why."""
    row = run.rows[0]
    hard = row.difficult.pairs if row.difficult else 0
    measured = (
        f"{run.classifier_name} on {run.dataset_name} {run.split}: {len(run.records)} images, {row.all.pairs} pairs "
        f"of an image and one of {len(row.all.categories)} categories, {hard} of them difficult; means over "
        f"categories, with 95 % intervals from {RESAMPLES} resamples of the images"
    )
    won = ", ".join(f"{method} {count}" for method, count in wins(run.rows).items())
    missing = "; ".join(left_out_lines(run.about["left_out"]))
    return [
        measured,
        f"categories won (where several are best, each counts): {won}",
        *([f"left out: {missing}"] if missing else []),
    ]


def write_tables(runs: Sequence[PointingRun], out: Path) -> list[Path]:
    """Write ``rows.json``, ``rows.csv``, ``categories.csv`` and ``table.md``."""
    rows = [row for run in runs for row in run.rows]
    texts = {
        "rows.csv": tables.csv_table([tables.flat(row.to_dict(), last=True) for row in rows]),
        "categories.csv": tables.csv_table([line for row in rows for line in _categories(row)]),
        "table.md": _markdown(runs),
    }
    return tables.write_tables(out, answer(runs), texts)


def _categories(row: PointingRow) -> Iterator[dict[str, Any]]:
    hard = row.difficult.categories if row.difficult else {}
    for category, share in row.all.categories.items():
        difficult = hard.get(category)
        yield {
            "model": row.model,
            "method": row.method,
            "layer": row.layer,
            "category": category,
            "hits": share.count,
            "pairs": share.total,
            "difficult_hits": difficult.count if difficult else 0,
            "difficult_pairs": difficult.total if difficult else 0,
        }


def _markdown(runs: Sequence[PointingRun]) -> str:
    parts = [[columns(row) for run in runs for row in run.rows]] + ([by_network(runs)] if len(runs) > 1 else [])
    lines = markdown_list(sentence for run in runs for sentence in sentences(run))
    about = runs[0].about
    edge = "up to" if about["inclusive"] else "less than"
    rule = f"A point {edge} {about['tolerance']:g} pixels beside an object hits it (protocol: {about['protocol']})."
    return "\n\n".join([*map(tables.markdown_table, parts), lines, rule]) + "\n"


def write(out: Path, runs: Sequence[PointingRun], *, command: str = "") -> Path:
    """Write the page, with the command that makes it again; the same runs give the same bytes."""
    figures.check_plots()
    about, data = runs[0].about, runs[0].dataset_name
    rows = best_rows(row for run in runs for row in run.rows)
    main = main_method(rows, MAIN)
    shown, unshown = rows_to_show(rows, main)
    is_hit = hits_within(about["tolerance"], inclusive=about["inclusive"])
    return write_page(
        out / FILE,
        "pointing.html",
        runs=runs,
        rows=rows,
        mode=PROTOCOLS[about["protocol"]].mode,
        difficult=DIFFICULT.get(about["difficult"], about["difficult"]),
        resamples=RESAMPLES,
        left_out=left_out_lines,
        scores=scores_table(rows),
        scores_figure=figures.interval_figure(rows, "mean accuracy [%]", SUBSETS),
        notes=list(_notes(runs, rows, main)),
        published=published_table(data),
        published_on=POINTING[data][0].data if data in POINTING else "",
        contrast=contrast_table(rows),
        orders=orders(rows),
        layers={run.classifier_name: layers_figure(run.rows) for run in runs},
        categories={model: categories_table([row for row in rows if row.model == model]) for model in models_of(rows)},
        unshown=unshown,
        cases=PointingCases(is_hit).strips(runs, shown, most=EXAMPLES, named=len(runs) > 1),
        command=command,
    )


def _notes(runs: Sequence[PointingRun], rows: Sequence[PointingRow], main: str) -> Iterator[str]:
    """How layers were chosen, the lead of the main method over the best of the others, and empty maps."""
    if len(rows) < sum(len(run.rows) for run in runs):
        yield SEVERAL_LAYERS
    for run in runs:
        found = {row.method: row for row in rows if row.model == run.classifier_name}
        own = found.pop(main, None)
        if own is not None and found:
            other = max(found.values(), key=lambda row: row.all.value)
            both = (own.method, own.layer), (other.method, other.layer)
            gap = difference(run.records, *both, run.about["tolerance"], inclusive=run.about["inclusive"])
            hard = "" if gap.difficult is None else f", {tables.difference_words(gap.difficult)} on Difficult ones"
            yield (
                f"{run.classifier_name}: {own.method} against {other.method}, the best of the others: "
                f"{tables.difference_words(gap.all)} on all pairs{hard} (paired over images, 95 % intervals)"
            )
    for row in rows:
        if row.empty:
            count = f"{row.empty} of {row.all.pairs}"
            yield f"{row.model}: {count} maps of {row.method} are empty and point nowhere: misses"


def scores_table(rows: Sequence[PointingRow]) -> Table:
    """The paper's Table 1, methods and networks; of each at most one row."""
    found = {(row.model, row.method): row for row in rows}
    methods, models = methods_of(rows), models_of(rows)
    columns: list[list[Cell]] = []
    for model in models:
        there = [found.get((model, method)) for method in methods]
        columns += [tables.ranked([score(row) if row else None for row in there]) for score in SUBSETS.values()]
        columns.append([Cell("", row.layer) if row else Cell(DASH) for row in there])
    return Table(
        ["method", *[*SUBSETS, "read at"] * len(models)],
        list(zip(methods, *columns, strict=True)),
        groups=[("", 1), *((model, 3) for model in models)],
    )


def published_table(data: str) -> Table | None:
    """The published results for this format of data; None where there are none."""
    published = POINTING.get(data)
    if published is None:
        return None
    sources = [column.source for column in published]

    def score(found: tuple[float, float] | None) -> str:
        return DASH if found is None else f"{found[0]:.1f} / {found[1]:.1f}"

    return Table(
        ["method", *(column.network for column in published)],
        [[name, *(score(column.scores.get(method)) for column in published)] for method, name in WORDS.items()],
        groups=[("", 1), *((source, sources.count(source)) for source in dict.fromkeys(sources))],
    )


def contrast_table(rows: Sequence[PointingRow]) -> Table | None:
    """The paper's table on contrastive attention; None where no variant of the full method was measured."""
    there = set(methods_of(rows))
    if not there & (VARIANTS.keys() - {"c-mwp"}):
        return None
    found = {(row.model, row.method): row for row in rows}
    shown = {method: both for method, both in VARIANTS.items() if method in CONTRAST or method in there}

    def cells(model: str) -> list[str]:
        return [_variant(found.get((model, name)), found.get((model, plain))) for name, (_, plain) in shown.items()]

    return Table(
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


def categories_table(rows: Sequence[PointingRow]) -> Table:
    """The share of hits of each method in each category, and its number of wins; of one network."""
    won, first = wins(rows), rows[0].all.categories
    shares = {category: [100 * row.all.categories[category].value for row in rows] for category in first}
    return Table(
        ["category", "pairs", *(row.method for row in rows)],
        [[category, str(first[category].total), *tables.heated(values)] for category, values in shares.items()],
        foot=[
            ["mean", str(rows[0].all.pairs), *(f"{row.all.value:.1f}" for row in rows)],
            ["categories won", str(len(first)), *(str(won[row.method]) for row in rows)],
        ],
    )


def layers_figure(rows: Sequence[PointingRow]) -> Any:
    """The score of each method at each layer of one network, a panel for all and one for Difficult pairs.

    None where no method was read at several layers. A method whose maps are all empty is not drawn.
    """
    by_method = [[row for row in rows if row.method == method] for method in methods_of(rows)]
    lines = [each for each in by_method if len(each) > 1 and not all(row.all_empty for row in each)]
    if not lines:
        return None
    drawn = [row for each in lines for row in each]
    layers = list(dict.fromkeys(row.layer for row in drawn))
    subsets = {name: score for name, score in SUBSETS.items() if any(score(row) for row in drawn)}
    figure = figures.new_figure(1.5 + len(subsets) * max(3.2, 0.62 * len(layers)), 4.2)
    panels = figure.subplots(1, len(subsets), sharey=True, squeeze=False)[0]
    scores: list[Score] = []
    for axes, (name, score) in zip(panels, subsets.items(), strict=True):
        for k, each in enumerate(lines):
            offset = min(0.07, 0.5 / len(lines)) * (k - (len(lines) - 1) / 2)  # so that intervals do not overlap
            found = [(layers.index(row.layer) + offset, value) for row in each if (value := score(row)) is not None]
            xs, values = zip(*found, strict=True)
            figures.line(axes, xs, values, each[0].method, k)
            scores += values
        axes.set_title(name, fontsize=10, color=figures.INK)
        figures.name_layers(axes, layers, long=LONG_NAME)
        axes.set_xlabel("layer", color=figures.INK)
        figures.style_axes(axes)
    panels[0].set_ylabel("mean accuracy [%]", color=figures.INK)
    panels[0].set_ylim(*figures.tens_around(scores))
    figures.legend(figure, panels[0])
    return figure


def _all_hit(example: Example, hits: Hits) -> float | None:
    return example.share if all(hits) and example.share < SMALL else None


def _only_main_hits(example: Example, hits: Hits) -> float | None:
    """The more of the others miss, the better; of equals, the smaller object."""
    main, *others = hits
    return sum(others) + min(example.share, 0.99) if main and not all(others) else None


def _main_misses(example: Example, hits: Hits) -> float | None:
    """The farther, in diagonals of the image, the better the case; empty maps come last."""
    return None if hits[0] else -(example.maps[0]["distance"] or 0.0) / math.hypot(*example.size)


class PointingCases(Cases[Example]):
    """Hits and misses; ``is_hit`` decides on a distance."""

    kinds: ClassVar = {
        "Every method that looks hits a small object": _all_hit,
        "{main} hits where others miss": _only_main_hits,
        "{main} misses, by the most": _main_misses,
    }

    def __init__(self, is_hit: Callable[[float | None], bool]) -> None:
        self.is_hit = is_hit

    def candidates(self, run: PointingRun, rows: Sequence[PointingRow]) -> tuple[list[Example], list[list[bool]]]:
        """All pairs; neither the centre nor maps that are all empty use the image."""
        keys = [(row.method, row.layer) for row in rows]
        found = []
        for record in run.records:
            for target in record["targets"]:
                maps = {method_layer(one): one for one in target["maps"]}
                width, height = record["size"]
                shown = tuple(maps[key] for key in keys)
                found.append(Example(record["image"], (width, height), target["category"], target["share"], shown))
        points = [any(example.maps[k]["point"] is not None for example in found) for k in range(len(keys))]
        seeing = [k for k, (method, _) in enumerate(keys) if k == 0 or (method != "center" and points[k])]
        return found, [[self.is_hit(example.maps[k]["distance"]) for k in seeing] for example in found]

    def words(self, _run: PointingRun, example: Example) -> tuple[str, str]:
        """The category, and the share of the image that its objects cover."""
        return example.category, f"{example.image}, {100 * example.share:.1f} % of the image"

    def panels(self, run: PointingRun, example: Example) -> Iterator[Panel]:
        """The photograph and each method's map over it, with the objects outlined and the points marked."""
        picture, shown = recomputed_maps(run.show, example)
        lines = outline(run.target(example.image, example.category).instances, example.size)
        points = [None if found["point"] is None else (found["point"][0], found["point"][1]) for found in example.maps]
        covered = [overlay(picture, found.values, point=point) for found, point in zip(shown, points, strict=True)]
        images = [outlined(image, lines) for image in (picture, *covered)]
        return map_panels(example, self.words(run, example), images, self._verdict)

    def _verdict(self, found: Entry) -> str:
        if found["distance"] is None:
            return "✗ points nowhere"
        words = "✓ hit" if self.is_hit(found["distance"]) else "✗ missed"
        return f"{words}, {found['distance']:.0f} px beside" if found["distance"] else words
