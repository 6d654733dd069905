"""What was measured in a Pointing Game, and what was not, in words for its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.benchmarks.html import Html, element
from excite.benchmarks.pointing_bootstrap import RESAMPLES
from excite.benchmarks.pointing_protocol import PROTOCOLS
from excite.benchmarks.pointing_report import left_out_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.benchmarks.pointing_tally import Run

__all__ = ["measured"]

MOST_LINES = 20
DIFFICULT = {
    "the paper's rule": "objects that together cover less than a quarter of the picture, with another category in it",
}


def measured(runs: Sequence[Run], *, tolerance: float, inclusive: bool) -> Html:
    """A list of facts."""
    facts = [
        *_game(runs[0], tolerance, inclusive=inclusive),
        ("networks", ", ".join(run.classifier_name for run in runs)),
        ("methods", ", ".join(dict.fromkeys(row.method for run in runs for row in run.rows))),
        *_of_each(runs),
    ]
    return element("dl", *(part for name, content in facts for part in (element("dt", name), element("dd", content))))


def _of_each(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """Facts about each network's game, said once where they are the same."""
    played = {run.classifier_name: dict(_played(run)) for run in runs}
    for name in next(iter(played.values())):
        contents = {model: facts[name] for model, facts in played.items()}
        if len(set(contents.values())) == 1:
            yield name, next(iter(contents.values()))
        else:
            yield from ((f"{name}, {model}", content) for model, content in contents.items())


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
    yield "left out", _lines(left_out_lines(about["left_out"]))
    yield "could not be read", _lines(about["failures"])


def _lines(lines: Sequence[str]) -> str:
    if not lines:
        return "nothing"
    more = [f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return element("ul", *(element("li", line) for line in [*lines[:MOST_LINES], *more]))
