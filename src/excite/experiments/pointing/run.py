"""The Pointing Game: does the maximum of a map lie on an object of the queried category? (paper, 4.1).

Records hold facts (the point, its distance to the truth), so that the tolerance may change without another forward
pass. The protocols of the published games are compared in docs/pointing.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from excite.datasets.difficult import is_difficult
from excite.errors import DataError
from excite.experiments import POINTING_METHODS
from excite.experiments.base import Comparison, Measurement
from excite.experiments.pointing.scores import PointingRun, tally
from excite.experiments.readable_layers import all_maps
from excite.images import read_image
from excite.metrics.boxes import area_share, distance
from excite.readouts.box import maximum_point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.attention import AttentionMap
    from excite.datasets import Dataset, Sample, Target
    from excite.experiments.base import ImageTask
    from excite.experiments.pointing.scores import PointingRow
    from excite.jobs import Entry
    from excite.models import Classifier
    from excite.readouts.overlay import Mode


@dataclass(frozen=True)
class Protocol:
    """The conventions in which the published games differ."""

    name: str  # on the command line
    mode: Mode  # interpolation with which a map is stretched over its image before its maximum is taken
    inclusive: bool  # whether a point at exactly the tolerance from an object is a hit
    tolerance: float | None = None  # in pixels; None for the data set's own

    def tolerance_on(self, dataset: Dataset) -> float:
        """The tolerance on a data set, if a hit is possible."""
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


@dataclass(frozen=True, eq=False)
class PointingMeasurement(Measurement):
    """Computes the record of an image: the maximum of each map and its distance to the truth."""

    mode: Mode  # interpolation of maps
    # the Difficult subset as pairs of an image's name and a category; None: by the paper's rule
    difficult: frozenset[tuple[str, str]] | None = None

    def facts(self) -> list[Any]:
        """The layers, and how maps are stretched."""
        return ["pointing", self.layers, self.mode]

    def key(self, task: ImageTask) -> str:
        """A digest of the image, its annotation, its Difficult pairs and the question."""
        listed = None if self.difficult is None else [self._listed(task.name, query.target) for query in task.queries]
        return task.key(json.dumps([self.question, listed]))

    def __call__(self, task: ImageTask) -> dict[str, Any]:
        """The record of an image."""
        picture = read_image(task.sample.path)
        task.sample.check_size(picture.size)
        targets = [self._facts(task.sample, query.target, picture.size) for query in task.queries]
        for k, found in all_maps(self.classifier, picture, [query.concept for query in task.queries], self.layers):
            targets[k]["maps"].append(self._pointed(found, task.queries[k].target))
        return {"image": task.name, "size": list(picture.size), "targets": targets}

    def _facts(self, sample: Sample, target: Target, size: tuple[int, int]) -> dict[str, Any]:
        sized = replace(sample, size=size)  # an annotation need not hold it
        return {
            "category": target.concept,
            "difficult": is_difficult(sized, target) if self.difficult is None else self._listed(sample.name, target),
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


class PointingGame(Comparison):
    """Points at the objects of annotated images with several methods, and counts the hits.

    Args:
        classifier, dataset, methods, layers, skip, limit: as for a `Comparison`.
        difficult: the Difficult subset, as pairs of an image's name and a category; None: by the paper's rule.
        protocol: the conventions.

    Attributes:
        tolerance: the largest distance in pixels of a hit.

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
        self.work = PointingMeasurement(classifier, self.places.layers, protocol.mode, difficult)

    def rows(self, records: Sequence[Entry]) -> list[PointingRow]:
        """The rows of the table; see `excite.experiments.pointing.scores.tally`."""
        self.check_some_were_read(records)
        return tally(records, self.classifier.name, self.tolerance, inclusive=self.protocol.inclusive)

    def run(self, records: Sequence[Entry]) -> PointingRun:
        """The results for tables and figures."""
        rows = self.rows(records)
        about, dataset = self.about(), self.dataset
        asked = rows[0].all.categories
        hard = rows[0].difficult.categories if rows[0].difficult else {}
        about["left_out"] |= {  # no part of the means
            "no_pairs": [each for each in dataset.categories if each not in asked and each not in self.unknown],
            "no_difficult_pairs": [category for category in asked if category not in hard],
        }
        name = self.classifier.name
        return PointingRun(name, rows, records, dataset.name, dataset.split, about, self.show, self.target)

    def about(self) -> dict[str, Any]:
        """What was measured, and what was left out and why, as plain values for JSON."""
        return {
            **super().about(),
            "protocol": self.protocol.name,
            "tolerance": self.tolerance,
            "inclusive": self.protocol.inclusive,
            "difficult": "the paper's rule" if self.listed is None else "a list",
        }
