"""The tables of localisation's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.localization.localization_page_words import ALPHA, LEVELS, PIECES, WAYS
from excite.experiments.published import LOCALIZATION, LOCALIZED_DATA, LOCALIZED_ON, WORDS
from excite.experiments.report.html import Html, element, joined, table
from excite.experiments.report.page import DASH, first_two, in_percent, marked, methods_of, models_of, ranked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.experiments.localization.scores import Row
    from excite.metrics.statistics import Share

__all__ = ["conventions_table", "errors_table", "layers_table", "others_published", "papers_alphas"]


def errors_table(rows: Sequence[Row], whole: Mapping[str, Share], data: str) -> Html:
    """The paper's table with methods as rows and networks as columns, its own numbers beside them.

    Args:
        rows: of each network and method at most one.
        whole: for each network the error of the whole picture as the box.
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
        + " The paper's numbers are of another network, on all pictures." * beside,
        ["method", *["error", ALPHA, "read at"] * len(models), *["error", ALPHA] * beside],
        map(line, methods_of(rows)),
        groups=[("", 1), *((model, 3) for model in models), *[(f"paper: {LOCALIZED_ON}", 2)] * beside],
        foot=[["the whole picture", *blind, *[DASH] * 2 * beside]],
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
        "fit, in percent, at the best of all thresholds: chosen on the very pictures, as others report it. Best in "
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
