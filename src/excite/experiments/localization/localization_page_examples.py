"""The examples of localisation's page: photographs, and the methods' maps over them with their boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.localization.localization_examples import KINDS, choose, draw
from excite.experiments.report.html import Html, element, joined
from excite.experiments.report.page_strips import headed_strips, strip, without, worth_a_look

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.experiments.localization.localization_examples import BoxExample
    from excite.experiments.localization.scores import Row, Run
    from excite.jobs.ledger_init import Entry

__all__ = ["examples"]

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
        about = f"{example.image}, {100 * example.share:.0f} % of the picture"
        return strip(draw(run, example), name, about, _verdict)

    for kind, found in choose(run, rows, each).items():
        yield from headed_strips(found, of + kind.format(main=rows[0].method), strip_of)


def _verdict(found: Entry) -> str:
    """By a sign and in words: not by colour."""
    if found["box"] is None:
        return "✗ no box"
    return f"{'✓' if found['manner'] == 'fits' else '✗'} {found['manner']}, IoU {found['overlap']:.2f}"
