"""The examples of grounding's page: pictures with ranked boxes, the maps of words, and the words in their colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.grounding.grounding_examples import KINDS, WIDTH, choose, draw
from excite.experiments.report.html import Html, element, joined, picture
from excite.experiments.report.page_strips import headed_strips

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.experiments.grounding.grounding_examples import Asked
    from excite.experiments.grounding.grounding_rows import Row
    from excite.experiments.grounding.grounding_run import Run

__all__ = ["examples"]

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
        return _figure(run, row, example)

    for kind, found in chosen.items():
        yield from headed_strips(found, of + kind.format(main=row.method), shown)


def _figure(run: Run, row: Row, example: Asked) -> Html:
    """An example: its picture, and in words what is to be seen."""
    text, sentence = example.phrase["text"], example.phrase["sentence"]
    about = f"{example.image}, {100 * example.share:.1f} % of the picture"
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
