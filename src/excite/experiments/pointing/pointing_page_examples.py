"""The examples of the Pointing Game's page: photographs, and the methods' maps over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.pointing.pointing_examples import KINDS, choose, draw
from excite.experiments.report.html import Html, joined
from excite.experiments.report.page_strips import headed_strips, strip, without, worth_a_look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from excite.experiments.pointing.pointing_examples import Example
    from excite.experiments.pointing.scores import Row, Run
    from excite.jobs.ledger_init import Entry

__all__ = ["examples"]

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
        about = f"{example.image}, {100 * example.share:.1f} % of the picture"
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
