"""The Pointing Game: does the maximum of a map lie on an object of the category that was asked for? (paper, 4.1)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from excite import __version__
from excite.datasets.difficult import is_difficult
from excite.errors import DataError
from excite.experiments.base import POINTING_METHODS, Comparison
from excite.experiments.pointing.scores import Run, tally
from excite.experiments.readable_layers import all_maps
from excite.images import read_image
from excite.metrics.boxes import area_share, distance
from excite.models.classifier import identity
from excite.readouts.point import maximum_point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.attention import AttentionMap
    from excite.datasets import Dataset, Sample, Target
    from excite.experiments.base import Task
    from excite.experiments.pointing.scores import Row
    from excite.jobs import Entry
    from excite.models import Classifier
    from excite.readouts.upsample import Mode


# What is done for each image of the Pointing Game: one look, and where each map points.
#
# What is written down are facts (the point, how far it lies from the truth), so that the tolerance may change without
# another look.


@dataclass(frozen=True, eq=False)
class Pointing:
    """The work done for each image.

    Attributes:
        classifier: who is asked.
        layers: for each method, by name, the layers at which it is read.
        mode: how maps are stretched over their image.
        difficult: the Difficult subset as pairs of an image's name and a category; None: by the paper's rule.
        question: all of that as text.
    """

    classifier: Classifier
    layers: Mapping[str, tuple[str, ...]]
    mode: Mode
    difficult: frozenset[tuple[str, str]] | None = None
    question: str = field(init=False)

    def __post_init__(self) -> None:
        facts = ["pointing", self.layers, self.mode, __version__, identity(self.classifier)]
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Task) -> str:
        """Changes when the image, its annotation, its Difficult pairs, the question or the program does."""
        listed = None if self.difficult is None else [self._listed(task.name, cue.target) for cue in task.cues]
        return task.key(json.dumps([self.question, listed]))

    def __call__(self, task: Task) -> dict[str, Any]:
        """One look at the image, and where each map points."""
        picture = read_image(task.sample.path)
        task.sample.check_size(picture.size)
        targets = [self._facts(task.sample, cue.target, picture.size) for cue in task.cues]
        for k, found in all_maps(self.classifier, picture, [cue.concept for cue in task.cues], self.layers):
            targets[k]["maps"].append(self._pointed(found, task.cues[k].target))
        return {"image": task.name, "size": list(picture.size), "targets": targets}

    def _facts(self, sample: Sample, target: Target, size: tuple[int, int]) -> dict[str, Any]:
        by_rule = self.difficult is None
        sized = replace(sample, size=size)  # an annotation need not say it
        return {
            "category": target.concept,
            "difficult": is_difficult(sized, target) if by_rule else self._listed(sample.name, target),
            "share": area_share(target, size),
            "maps": [],
        }

    def _listed(self, name: str, target: Target) -> bool:
        return self.difficult is not None and (name, target.concept) in self.difficult

    def _pointed(self, found: AttentionMap, target: Target) -> dict[str, Any]:
        point = maximum_point(found.values, found.image_size, self.mode)
        return {
            "method": found.method,
            "layer": found.layer,
            "point": None if point is None else list(point),
            "distance": None if point is None else distance(point, target, found.image_size),
        }


# Whose Pointing Game is played. What both have in common, and what is kept from neither, is in docs/pointing.md.


@dataclass(frozen=True)
class Protocol:
    """In what the published games differ.

    Attributes:
        name: what users type.
        mode: how a map is stretched over its image, before its maximum is taken.
        inclusive: whether a point that lies exactly the tolerance beside an object hits it.
        tolerance: how many pixels that is; None: by the data set's custom.
    """

    name: str
    mode: Mode
    inclusive: bool
    tolerance: float | None = None

    def tolerance_on(self, dataset: Dataset) -> float:
        """The tolerance, if it lets anything be a hit."""
        tolerance = dataset.tolerance if self.tolerance is None else self.tolerance
        if tolerance < 0 or (tolerance == 0 and not self.inclusive):
            raise DataError(f"with a tolerance of {tolerance:g} pixels nothing is a hit by {self.name!r}: give more")
        return tolerance


AUTHORS = Protocol("authors", mode="bicubic", inclusive=True)
TORCHRAY = Protocol("torchray", mode="bilinear", inclusive=False)
PROTOCOLS: Mapping[str, Protocol] = {protocol.name: protocol for protocol in (AUTHORS, TORCHRAY)}


def find_protocol(name: str, tolerance: float | None = None) -> Protocol:
    """The protocol of that name, with another tolerance where one is given.

    Example:
        >>> find_protocol("torchray").inclusive
        False
    """
    if name in PROTOCOLS:
        return replace(PROTOCOLS[name], tolerance=tolerance)
    close = get_close_matches(name, PROTOCOLS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise DataError(f"there is no protocol {name!r}{hint}: use one of {', '.join(PROTOCOLS)}")


# The Pointing Game: does the maximum of a map lie on an object of the category that was asked for? (paper, 4.1).


class PointingGame(Comparison):
    """Points at the objects of annotated images with several methods, and counts the hits.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        dataset: from `excite.datasets.open_dataset`.
        methods: names from `excite.METHODS`.
        layers: read all methods at these layers, where they can be; None for each method's own place.
        skip: leave out so many images first,
        limit: and take so many of the rest; None for all.
        difficult: the Difficult subset, as pairs of an image's name and a category; None: by the paper's rule.
        protocol: whose game.

    Attributes:
        places: where the methods are read, and why some cannot be.
        tolerance: how many pixels beside an object a point may lie.

    Example:
        >>> game = PointingGame(excite.load("head"), open_dataset("VOCdevkit"), limit=100)  # doctest: +SKIP
        >>> records = list(game.records(Path("out")))                                       # doctest: +SKIP
        >>> [(row.method, row.all.value, row.difficult.value) for row in game.rows(records)]  # doctest: +SKIP
    """

    def __init__(  # noqa: PLR0913 - all but two may be left out
        self,
        classifier: Classifier,
        dataset: Dataset,
        methods: Sequence[str] = tuple(POINTING_METHODS.split(",")),
        *,
        layers: Sequence[str] | None = None,
        skip: int = 0,
        limit: int | None = None,
        difficult: frozenset[tuple[str, str]] | None = None,
        protocol: Protocol = AUTHORS,
    ) -> None:
        super().__init__(classifier, dataset, methods, layers=layers, skip=skip, limit=limit)
        self.protocol = protocol
        self.tolerance = protocol.tolerance_on(dataset)
        self.listed = difficult
        self.work = Pointing(classifier, self.places.layers, protocol.mode, difficult)

    def rows(self, records: Sequence[Entry]) -> list[Row]:
        """What the records say; see `pointing_tally.tally`."""
        self.check_some_were_read(records)
        return tally(records, self.classifier.name, self.tolerance, inclusive=self.protocol.inclusive)

    def run(self, records: Sequence[Entry]) -> Run:
        """All that tables and figures need."""
        rows = self.rows(records)
        about = self.about()
        about["left_out"] |= _without_pairs(self, rows[0])
        dataset = self.dataset
        return Run(self.classifier.name, rows, records, dataset.name, dataset.split, about, self.show, self.target)

    def about(self) -> dict[str, Any]:
        """What was measured, and what was left out and why, as plain values for JSON."""
        return {
            **super().about(),
            "protocol": self.protocol.name,
            "tolerance": self.tolerance,
            "inclusive": self.protocol.inclusive,
            "difficult": "the paper's rule" if self.listed is None else "a list",
        }


def _without_pairs(game: PointingGame, row: Row) -> dict[str, list[str]]:
    """Categories that are no part of the means, because there was nothing to point at."""
    asked = row.all.categories
    hard = row.difficult.categories if row.difficult else {}
    never = [category for category in game.dataset.categories if category not in asked]
    return {
        "no_pairs": [category for category in never if category not in game.unknown],
        "no_difficult_pairs": [category for category in asked if category not in hard],
    }
