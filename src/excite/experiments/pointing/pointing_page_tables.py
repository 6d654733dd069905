"""The tables of the Pointing Game's page."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from excite.experiments.pointing.scores import wins
from excite.experiments.published import CONTRAST, POINTING, WORDS
from excite.experiments.report.html import Html, element, table
from excite.experiments.report.page import DASH, first_two, methods_of, models_of, ranked
from excite.experiments.report.page import main_method as first_wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from excite.experiments.pointing.scores import Row, Score
    from excite.experiments.published import Published

__all__ = [
    "categories_table",
    "contrast_table",
    "main_method",
    "orders",
    "published_table",
    "scores_table",
]

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
