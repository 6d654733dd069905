"""The rows of all tables: one for each case, with what was measured of it or why nothing was."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from excite.experiments.speed.timing import C_MWP, COMPILED, FORWARD, Case, median_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from excite.experiments.speed.networks import Subject
    from excite.experiments.speed.speed_rounds import Rounds
    from excite.experiments.speed.timing import Timing

__all__ = ["FIELDS", "Row", "case_of", "failed_row", "group_rows", "merged", "row"]

Row = dict[str, Any]

FIELDS = (
    *("network", "layer", "method", "concepts", "batch", "ratio_to_forward", "peak_mb"),
    *("low", "high", "confidence", "rounds", "seconds", "forward_seconds", "each_further"),
    *(
        "times_c_mwp",
        "times_low",
        "times_high",
        "times_compiled",
        "limit",
        "above",
        "above_time",
        "group",
        "size",
        "weights",
        "note",
    ),
)


def row(case: Case, subject: Subject, group: str, **values: object) -> Row:
    """A row with nothing in it but what is given.

    Example:
        >>> row(Case("vgg16", "pool4", "c-mwp"), subject, "pictures", note="too large")["note"]  # doctest: +SKIP
        'too large'
    """
    known: Row = {"network": case.network, "layer": case.layer, "method": case.method}
    known |= {"concepts": case.concepts, "batch": case.batch}
    known |= {"group": group, "size": subject.size, "weights": subject.weights, **values}
    return {field: known.get(field) for field in FIELDS}


def failed_row(case: Case, subject: Subject, group: str, why: str) -> Row:
    """A row that says why there is no number.

    Example:
        >>> failed_row(Case("vgg16", "pool4", "torchray"), subject, "peers", "not installed")["note"]  # doctest: +SKIP
        'not installed'
    """
    return row(case, subject, group, note=why)


def group_rows(rounds: Rounds, subject: Subject, group: str, batch: int) -> list[Row]:
    """What the rounds of one group say: the forward pass, each case, and those that failed."""
    timings = rounds.timings
    forward = Case(subject.name, "", FORWARD, batch=batch)
    rows = [row(forward, subject, group, **_numbers(rounds.forwards))]
    for case, timing in timings.items():
        values = _numbers(timing) | _further(case, timings) | _beside(case, timings)
        rows.append(row(case, subject, group, **values))
    return rows + [failed_row(case, subject, group, why) for case, why in rounds.failed.items()]


def merged(rows: Iterable[Row]) -> list[Row]:
    """All rows in their order, those of memory joined to the times of the same cases.

    Example:
        >>> case = {"network": "vgg16", "layer": "pool4", "method": "mwp", "concepts": 1, "batch": 1, "note": None}
        >>> timed = {**case, "group": "pictures", "ratio_to_forward": 1.5, "peak_mb": None}
        >>> (row,) = merged([timed, {**case, "group": "memory", "peak_mb": 9}])
        >>> row["ratio_to_forward"], row["peak_mb"]
        (1.5, 9)
    """
    rows = list(rows)
    found = {case_of(each): dict(each) for each in reversed(rows) if each["group"] not in {"memory", "endurance"}}
    timed = dict(reversed(found.items()))
    alone = [each for each in rows if each["group"] == "endurance"]
    for each in rows:
        if each["group"] == "memory":
            match = timed.get(case_of(each))
            if match is None:
                alone.append(each)
            else:
                match["peak_mb"] = each["peak_mb"]
                match["note"] = match["note"] or each["note"]
    return [*timed.values(), *alone]


def case_of(each: Mapping[str, Any]) -> Case:
    """The case of a row.

    Example:
        >>> case_of({"network": "vgg16", "layer": "pool4", "method": "mwp", "concepts": 1, "batch": 8}).batch
        8
    """
    return Case(each["network"], each["layer"], each["method"], each["concepts"], each["batch"])


def _numbers(timing: Timing) -> Row:
    interval = timing.interval
    return {
        "ratio_to_forward": round(timing.value, 4),
        "low": round(interval.low, 4),
        "high": round(interval.high, 4),
        "confidence": round(interval.confidence, 3),
        "rounds": len(timing.seconds),
        "seconds": round(median(timing.seconds), 5),
        "forward_seconds": round(median(fmean(pair) for pair in timing.forwards), 5),
    }


def _further(case: Case, timings: Mapping[Case, Timing]) -> Row:
    """What each concept after the first costs, where the first was timed in the same rounds."""
    first = timings.get(Case(case.network, case.layer, case.method, 1, case.batch))
    if case.concepts == 1 or first is None:
        return {}
    return {"each_further": round(first.each_further(timings[case], case.concepts - 1), 4)}


def _beside(case: Case, timings: Mapping[Case, Timing]) -> Row:
    """How many times as long as our c-MWP for as many concepts it took, where that was timed in the same rounds."""
    found: Row = {}
    times = _times_ours(case, C_MWP, timings)
    if times:
        interval = median_interval(times)
        found = {
            "times_c_mwp": round(median(times), 3),
            "times_low": round(interval.low, 3),
            "times_high": round(interval.high, 3),
        }
    compiled = _times_ours(case, COMPILED, timings)
    return found | {"times_compiled": round(median(compiled), 3)} if compiled else found


def _times_ours(case: Case, method: str, timings: Mapping[Case, Timing]) -> list[float]:
    ours = [
        timing
        for other, timing in timings.items()
        if (other.method, other.concepts, other.batch) == (method, case.concepts, case.batch)
    ]
    return timings[case].times(ours[0]) if len(ours) == 1 else []
