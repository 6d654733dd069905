"""Examples of grounding to look at: which ones, as the records tell, and drawn anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.datasets.phrases import union
from excite.errors import DataError, ImageError
from excite.experiments.report.cases import Example, best_of_each_kind
from excite.metrics.phrase_classes import phrase_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image

    from excite.experiments.grounding.grounding_rows import Row
    from excite.experiments.grounding.grounding_run import Run
    from excite.experiments.report.cases import Rating
    from excite.jobs.ledger_init import Entry

    Hits = Sequence[bool]  # of the main method, and then of the others

__all__ = ["KINDS", "Asked", "choose", "draw"]

BOXES, WIDTH, TOO_LATE = 5, 900, 10


@dataclass(frozen=True)
class Asked(Example):
    """A phrase of a picture; its category is what the phrase is called as a class, so that these take turns.

    Attributes:
        number: which phrase of the picture it is, from 0.
        phrase: what the record tells of it.
        hits: the ranks of the first right box of each method, the main one first.
    """

    number: int
    phrase: Entry
    hits: tuple[int | None, ...]


def _only_main_hits(example: Asked, hits: Hits) -> float | None:
    """The more of the others miss, the better; of equals, the longer phrase has more to see."""
    main, *others = hits
    known = example.phrase["known"] and not all(others)
    return sum(others) - 0.01 * min(len(example.phrase["text"]), 60) if main and known else None


def _small_hit(example: Asked, hits: Hits) -> float | None:
    """Something small that was found at once."""
    return example.share if hits[0] and example.phrase["known"] else None


def _points_right(example: Asked, hits: Hits) -> float | None:
    """The map points at it, but no box among the first ten fits."""
    found, rank = example.maps[0], example.hits[0]
    late = rank is None or rank > TOO_LATE
    return -example.share if not hits[0] and late and found["pointed"]["any"] else None


def _points_wrong(example: Asked, hits: Hits) -> float | None:
    """Neither the maximum nor a box: the larger, the worse."""
    found, rank = example.maps[0], example.hits[0]
    late = rank is None or rank > TOO_LATE
    return -example.share if not hits[0] and late and not found["pointed"]["union"] else None


KINDS: dict[str, Rating[Asked]] = {
    "{main} finds at once what others do not": _only_main_hits,
    "{main} finds something small at once": _small_hit,
    "{main} points at it, but has no right box among the first ten": _points_right,
    "{main} looks elsewhere": _points_wrong,
}
"""Best and worst cases: a heading, and a rating (the lowest first) or None for what is no such case."""


def choose(records: Sequence[Entry], methods: Sequence[str], truth: str, each: int) -> dict[str, list[Asked]]:
    """The best examples of each kind: of a picture at most one, and the phrases take turns.

    Args:
        records: a record for each picture.
        methods: the main one first.
        truth: one of `excite.experiments.grounding.grounding_facts.TRUTHS`.
        each: how many of each kind.
    """
    candidates = [
        _example(record, number, phrase, methods, truth)
        for record in records
        for number, phrase in enumerate(record["phrases"])
    ]
    firsts = [[hit == 1 for hit in example.hits] for example in candidates]
    return best_of_each_kind(candidates, firsts, KINDS, each)


def draw(run: Run, row: Row, example: Asked) -> Image.Image | str:
    """The picture with the first boxes and the right one, and the maps of the words; or why it cannot be shown.

    A picture that vanished since it was measured is no reason to have no page.
    """
    try:
        grounded, phrase = run.show(example.image, example.number, row.method, row.chosen.gamma or 0.0, BOXES)
    except (ImageError, DataError) as error:
        return str(error)
    boxes = [union(phrase.boxes)] if run.about["protocol"]["truth"] == "union" else phrase.boxes
    return grounded.figure(true_boxes=boxes, width=WIDTH)


def _example(record: Entry, number: int, phrase: Entry, methods: Sequence[str], truth: str) -> Asked:
    found = {one["method"]: one for one in phrase["found"]}
    width, height = record["size"]
    area = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in phrase["boxes"]) / (width * height)
    maps = tuple(found[method] for method in methods)
    hits = tuple(one["hits"][truth] for one in maps)
    called = phrase_class(phrase["text"])
    return Asked(record["image"], (width, height), called, area, maps, number, phrase, hits)
