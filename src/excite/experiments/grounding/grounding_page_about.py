"""What was measured in grounding, and what was not, in words for its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.grounding.report import left_out_lines, shares_of_time
from excite.experiments.report.page import facts_list, lines_or_nothing, methods_of, told_once
from excite.grounding.scoring import SAME
from excite.metrics.pointing_bootstrap import RESAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.experiments.grounding.grounding_run import Run
    from excite.experiments.report.html import Html

__all__ = ["measured"]

MOST_TOLD = 5  # gammas that are told one by one: the paper's

TRUTHS = {
    "union": "with the smallest box around all that the phrase refers to",
    "any": "with any of the boxes that the phrase refers to",
}


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
    about, protocol = run.about, run.about["protocol"]
    yield "data", f"{run.dataset_name}, split {run.split}, in {about['data']['folder']}"
    yield "the network sees", f"each picture with its shorter side at {protocol['side']} pixels, where it can"
    words = "; its head counts more, and words for places and colours weigh it" if protocol["hints"] else ""
    yield "map of a phrase", f"the mean of the maps of those of its words that the network knows{words}"
    made = f"{protocol['proposals']}, {about['proposals']:.0f} in a picture on average"
    yield "proposals", f"{made}; one of them is right for {about['reach']:.1f} % of the phrases"
    trust = f"; the last proposal counts {protocol['trust']:.0%} less than the first" if protocol["trust"] else ""
    yield "score", f"the sum of the map in a region, divided by its area to the power of gamma{trust}"
    yield "told once", f"boxes that overlap by more than {SAME:g}: the best of them"
    yield "right", f"a box that overlaps by at least half {TRUTHS[protocol['truth']]}"
    yield "gamma", _gamma(run)
    yield "small", "what has to be matched covers less than a quarter of the picture"
    yield "95 % intervals", f"bootstrap over pictures, {RESAMPLES} resamples"


def _gamma(run: Run) -> str:
    about, protocol = run.about, run.about["protocol"]
    if isinstance(protocol["gamma"], float):
        return f"{protocol['gamma']:g} for all, so that all pictures are reported on"
    tried = ", ".join(f"{gamma:g}" for gamma in protocol["gamma"])
    if len(protocol["gamma"]) > MOST_TOLD:
        first, second, *_, last = protocol["gamma"]
        tried = f"{first:g}, {second:g} ... {last:g}"
    drawn = f"{protocol['held_out']:.0%}, drawn by the seed {protocol['seed']}"
    return (
        f"for each method and network the best of {tried} on {about['held_out_pictures']} held-out pictures "
        f"({drawn}); all numbers are of the other {about['reported']}"
    )


def _of_one(run: Run) -> Iterator[tuple[str, str]]:
    """What was measured with one network, and what was not."""
    about = run.about
    small = run.shared[0].small
    yield "pictures", f"{about['pictures']} asked for, {about['reported']} reported on"
    yield "phrases", f"{about['phrases']}, {0 if small is None else small.phrases} of them small"
    yield "left out of the data", lines_or_nothing([f"{why}: {n}" for why, n in about["left_out"]["data"].items()])
    yield "not known or not there", lines_or_nothing(left_out_lines(about["left_out"]))
    (shares,) = shares_of_time([run]).values()
    yield "where the time went", ", ".join(f"{step} {share:g} %" for step, share in shares.items())
    yield "could not be read", lines_or_nothing(about["failures"])
