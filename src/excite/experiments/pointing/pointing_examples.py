"""Examples of the Pointing Game to look at: which ones, as the records tell, and their maps, made anew."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from excite.errors import DataError, ImageError
from excite.experiments.records import place_of
from excite.experiments.report.cases import Example, best_of_each_kind
from excite.experiments.report.examples import Drawn, outline, outlined, shown_again
from excite.readouts.overlay import overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from excite.experiments.pointing.scores import Run
    from excite.experiments.records import Place
    from excite.experiments.report.cases import Rating
    from excite.jobs.ledger_init import Entry

    Hits = Sequence[bool]  # of the main method, and then of the others that can see

__all__ = ["KINDS", "Example", "choose", "draw"]

SMALL = 0.25  # of the picture, as in the Difficult subset


def _all_hit(example: Example, hits: Hits) -> float | None:
    return example.share if all(hits) and example.share < SMALL else None


def _only_main_hits(example: Example, hits: Hits) -> float | None:
    """The more of the others miss, the better; of equals, the smaller object."""
    main, *others = hits
    return sum(others) + min(example.share, 0.99) if main and not all(others) else None


def _main_misses(example: Example, hits: Hits) -> float | None:
    """The farther, measured in diagonals of the picture, the worse. A map that points nowhere is not much to see."""
    return None if hits[0] else -(example.maps[0]["distance"] or 0.0) / math.hypot(*example.size)


KINDS: dict[str, Rating[Example]] = {
    "Every method that looks hits a small object": _all_hit,
    "{main} hits where others miss": _only_main_hits,
    "{main} misses, by the most": _main_misses,
}
"""Best and worst cases: a heading, and a rating (the lowest first) or None for what is no such case."""


def choose(
    records: Iterable[Entry], places: Sequence[Place], is_hit: Callable[[Entry], bool], each: int
) -> dict[str, list[Example]]:
    """The best examples of each kind: of a picture at most one, and the categories take turns.

    Args:
        records: a record for each picture.
        places: the methods, each with the layer to show it at; the main one first.
        is_hit: whether a map of a record points at what it was asked for.
        each: how many of each kind.

    Example:
        >>> found = {"method": "c-mwp", "layer": "1", "point": [3, 4], "distance": 0.0}
        >>> target = {"category": "cat", "share": 0.1, "maps": [found]}
        >>> record = {"image": "7", "size": [90, 60], "targets": [target]}
        >>> examples = choose([record], [("c-mwp", "1")], lambda found: True, each=1)
        >>> [(kind, [example.image for example in found]) for kind, found in examples.items()][0]
        ('Every method that looks hits a small object', ['7'])
    """
    candidates = [_example(record, target, places) for record in records for target in record["targets"]]
    seeing = [k for k in range(len(places)) if k == 0 or _can_see(k, candidates)]
    hits = [[is_hit(example.maps[k]) for k in seeing] for example in candidates]
    return best_of_each_kind(candidates, hits, KINDS, each)


def _example(record: Entry, target: Entry, places: Sequence[Place]) -> Example:
    maps = {place_of(found): found for found in target["maps"]}
    width, height = record["size"]
    shown = tuple(maps[place] for place in places)
    return Example(record["image"], (width, height), target["category"], target["share"], shown)


def _can_see(place: int, examples: Iterable[Example]) -> bool:
    """The centre does not look at the picture, and maps that are all empty do not point."""
    return any(
        example.maps[place]["method"] != "center" and example.maps[place]["point"] is not None for example in examples
    )


def draw(run: Run, example: Example) -> Drawn[Example]:
    """The photograph and each method's map over it, with the objects outlined and the points marked.

    A picture that vanished or changed since it was measured is no reason to have no page.
    """
    try:
        picture, shown = shown_again(run.show, example)
        lines = outline(run.target(example.image, example.category).instances, example.size)
    except (ImageError, DataError) as error:
        return Drawn(example, trouble=str(error))
    points = [None if found["point"] is None else (found["point"][0], found["point"][1]) for found in example.maps]
    covered = [overlay(picture, found.values, point=point) for found, point in zip(shown, points, strict=True)]
    return Drawn(example, outlined(picture, lines), tuple(outlined(panel, lines) for panel in covered))
