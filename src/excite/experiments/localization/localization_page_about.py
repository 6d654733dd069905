"""What was measured in localisation, and what was not, in words for its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.localization.localization_page_words import ALPHA
from excite.experiments.localization.report import left_out_lines
from excite.experiments.report.page import facts_list, lines_or_nothing, methods_of, told_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from excite.experiments.localization.scores import Run
    from excite.experiments.report.html import Html

__all__ = ["measured"]


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
    about = run.about
    width, height = about["canvas"]
    yield "data", f"{run.dataset_name}, split {run.split}, in {about['data']['folder']}"
    yield "the network sees", f"each picture in one piece, {_shape(about)}, and is told what to look for"
    above = f"above {ALPHA} times its mean; the box is then scaled back to the picture"
    yield (
        "box",
        f"the map is stretched to {width} x {height}, and the tightest box goes around all of it that is {above}",
    )
    yield "fits", "a box that overlaps a true box by at least half (intersection over union); the best true box counts"
    yield "error", "the share of pairs of a picture and a category in it whose box does not fit"
    yield ALPHA, "for each method and network, the one of 0, 0.5, 1 ... 10 with the smallest error on held-out pictures"
    yield "95 % intervals", "Wilson's, for a share; of differences, from their spread over pictures"


def _shape(about: Mapping[str, Any]) -> str:
    return "in its own shape" if about["shape"] == "its own" else str(about["shape"])


def _of_one(run: Run) -> Iterator[tuple[str, str]]:
    """What was measured with one network, and what was not."""
    about = run.about
    chosen_on = len(run.records) - len(run.reported)
    yield "pictures", f"{about['pictures']} asked for, {len(run.records)} measured"
    drawn = f"{about['held_out']:.0%}, drawn by the seed {about['seed']}"
    yield "held out", f"{chosen_on} only chose thresholds ({drawn}); all numbers are of the other {len(run.reported)}"
    yield "pairs", f"{run.rows[0].error.total} of a picture and a category in it are reported on"
    yield "signal", f"starts from what the network says of {about['output']}"
    yield "left out", lines_or_nothing(left_out_lines(about["left_out"]))
    yield "could not be read", lines_or_nothing(about["failures"])
