"""What was measured in a Pointing Game, and what was not, in words for its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.pointing.pointing_protocol import PROTOCOLS
from excite.experiments.pointing.report import left_out_lines
from excite.experiments.report.page import facts_list, lines_or_nothing, told_once
from excite.metrics.pointing_bootstrap import RESAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.experiments.pointing.scores import Run
    from excite.experiments.report.html import Html

__all__ = ["measured"]

DIFFICULT = {
    "the paper's rule": "objects that together cover less than a quarter of the picture, with another category in it",
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
    yield "protocol", f"{about['protocol']}: the highest point of the map, stretched ({mode}) to the picture's own size"
    edge = "up to and including" if inclusive else "less than"
    yield "hit", f"a point {edge} {tolerance:g} pixels beside an object of the category"
    yield "Difficult", DIFFICULT.get(about["difficult"], about["difficult"])
    yield "score", "the share of hits in each category, and the mean of these shares"
    yield "95 % intervals", f"bootstrap over pictures, {RESAMPLES} resamples"


def _played(run: Run) -> Iterator[tuple[str, str]]:
    """What was played with one network, and what was not."""
    about, row = run.about, run.rows[0]
    hard = 0 if row.difficult is None else row.difficult.pairs
    yield "pictures", f"{about['pictures']} asked for, {len(run.records)} played"
    yield "pairs", f"{row.all.pairs} of a picture and a category in it, {hard} of them Difficult"
    yield "signal", f"starts from what the network says of {about['output']}"
    yield "left out", lines_or_nothing(left_out_lines(about["left_out"]))
    yield "could not be read", lines_or_nothing(about["failures"])
