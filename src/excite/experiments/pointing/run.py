"""The Pointing Game: does the maximum of a map lie on an object of the queried category? (paper, 4.1)."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excite.datasets import Dataset
from excite.datasets.difficult import is_difficult
from excite.errors import DataError
from excite.experiments import POINTING_METHODS, base
from excite.experiments.base import Comparison, ComparisonRun, ImageTask, Measurement, MethodLayer, all_maps
from excite.experiments.report.tables import MethodRow, estimate_fields
from excite.images import read_image
from excite.jobs import Entry
from excite.metrics.boxes import area_share, distance
from excite.metrics.statistics import Estimate, Share, interval, mean_shares, resampled_means
from excite.models import Classifier
from excite.readouts.box import maximum_point
from excite.readouts.overlay import Mode


@dataclass(frozen=True)
class Score(Estimate):
    """The mean accuracy over categories in percent, with its bootstrap interval."""

    pairs: int  # number of (image, category) pairs
    # the share of hits in each category that has a pair; the others are no part of the mean
    categories: dict[str, Share]


@dataclass(frozen=True)
class PointingRow(MethodRow):
    """The scores of one method at one layer of one network."""

    all: Score  # the score of all pairs
    difficult: Score | None  # that of the Difficult subset; None where there is no such pair
    empty: int  # number of empty maps, which have no maximum and count as misses

    @property
    def all_empty(self) -> bool:
        """Whether no map has a maximum."""
        return self.empty == self.all.pairs

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: percentages with two decimals."""
        every, hard = estimate_fields("all", self.all), estimate_fields("difficult", self.difficult)
        return {
            **self.names,
            "all": every["all"],
            "difficult": hard["difficult"],
            "pairs": self.all.pairs,
            "difficult_pairs": self.difficult.pairs if self.difficult else 0,
            "all_interval": every["all_interval"],
            "difficult_interval": hard["difficult_interval"],
            "empty": self.empty,
        }


@dataclass(frozen=True)
class PointingRun(ComparisonRun):
    """One network's game; its rows are from `tally`."""

    rows: Sequence[PointingRow]


@dataclass(frozen=True)
class Difference:
    """The difference of two methods in points on the same images; None where no pair is Difficult."""

    all: Estimate
    difficult: Estimate | None


def tally(records: Sequence[Entry], model: str, tolerance: float, *, inclusive: bool = True) -> list[PointingRow]:
    """A row for each method and layer, in the order of the records; a `DataError` if these differ between records."""
    is_hit = hits_within(tolerance, inclusive=inclusive)
    every, hard = HitTable(records, is_hit).scores(), HitTable(_difficult(records), is_hit).scores()
    maps = base.maps_by_method(target for record in records for target in record["targets"])
    empty = {key: sum(found["distance"] is None for found in each) for key, each in maps.items()}
    return [PointingRow(model, *key, score, hard.get(key), empty[key]) for key, score in every.items()]


def difference(
    records: Sequence[Entry], one: MethodLayer, other: MethodLayer, tolerance: float, *, inclusive: bool = True
) -> Difference:
    """The lead of ``one`` over ``other`` (each a method and a layer) in points, by a paired bootstrap."""
    return next(differences(records, [(one, other)], tolerance, inclusive=inclusive))


def differences(
    records: Sequence[Entry],
    pairs: Iterable[tuple[MethodLayer, MethodLayer]],
    tolerance: float,
    *,
    inclusive: bool = True,
) -> Iterator[Difference]:
    """The same for each of some pairs; all are resampled together."""
    is_hit = hits_within(tolerance, inclusive=inclusive)
    every, hard = HitTable(records, is_hit), HitTable(_difficult(records), is_hit)
    for pair in pairs:
        yield Difference(every.difference(*pair), hard.difference(*pair) if hard.hits else None)


def hits_within(tolerance: float, *, inclusive: bool) -> Callable[[float | None], bool]:
    """Whether a distance is a hit; None is the distance of an empty map."""

    def is_hit(distance: float | None) -> bool:
        return distance is not None and (distance <= tolerance if inclusive else distance < tolerance)

    return is_hit


def _difficult(records: Iterable[Entry]) -> list[Entry]:
    return [{"targets": [target for target in record["targets"] if target["difficult"]]} for record in records]


class HitTable:
    """The outcomes of all pairs of an image and a category, without images and categories that have no pair."""

    def __init__(self, records: Iterable[Entry], is_hit: Callable[[float | None], bool]) -> None:
        images = [record["targets"] for record in records if record["targets"]]
        self.categories = sorted({target["category"] for targets in images for target in targets})
        shape = len(images), len(self.categories)
        self.asked = np.zeros(shape, dtype=bool)  # [images, categories], which pairs there are
        keys = base.common_method_layers(target for targets in images for target in targets)
        self.hits = {key: np.zeros(shape, dtype=bool) for key in keys}  # which of them each hit; empty without pairs
        columns = {category: k for k, category in enumerate(self.categories)}
        for row, targets in enumerate(images):
            for target in targets:
                cell = row, columns[target["category"]]
                self.asked[cell] = True
                for found in target["maps"]:
                    self.hits[base.method_layer(found)][cell] = is_hit(found["distance"])

    @cached_property
    def resampled(self) -> dict[MethodLayer, NDArray[np.float64]]:
        """The mean of each method and layer in each resample of the images, the same resamples for all."""
        return dict(zip(self.hits, resampled_means(self.asked, list(self.hits.values())), strict=True))

    def scores(self) -> dict[MethodLayer, Score]:
        """The score of each method and layer."""
        scores, pairs = {}, self.asked.sum(axis=0).tolist()
        for key, hits in self.hits.items():
            counts = zip(self.categories, hits.sum(axis=0).tolist(), pairs, strict=True)
            shares = {category: Share(hit, total) for category, hit, total in counts}
            scores[key] = Score(*_percent(self._mean(key), self.resampled[key]), sum(pairs), shares)
        return scores

    def difference(self, one: MethodLayer, other: MethodLayer) -> Estimate:
        """The difference of two means, in points."""
        gaps = self.resampled[one] - self.resampled[other]
        return Estimate(*_percent(self._mean(one) - self._mean(other), gaps))

    def _mean(self, key: MethodLayer) -> float:
        """The mean over categories of the share of hits."""
        return float(mean_shares(self.hits[key].sum(axis=0), self.asked.sum(axis=0)))


def _percent(value: float, means: NDArray[np.float64]) -> tuple[float, float, float]:
    low, high = interval(means)
    return 100 * value, 100 * low, 100 * high


def best_rows(rows: Iterable[PointingRow]) -> list[PointingRow]:
    """For each network and method the best of its layers, in order of occurrence."""
    best: dict[tuple[str, str], PointingRow] = {}
    for row in rows:
        so_far = best.setdefault((row.model, row.method), row)
        if row.all.value > so_far.all.value:
            best[row.model, row.method] = row
    return list(best.values())


def wins(rows: Iterable[PointingRow]) -> dict[str, int]:
    """The number of categories (of all pairs) in which each method, at its best layer, is the best on its network."""
    players = best_rows(rows)
    won = dict.fromkeys((row.method for row in players), 0)
    for model in dict.fromkeys(row.model for row in players):
        contest = [row for row in players if row.model == model]
        for category in contest[0].all.categories:
            best = max(row.all.categories[category].value for row in contest)
            for row in contest:
                won[row.method] += row.all.categories[category].value == best > 0
    return won


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
    """The protocol of that name, with another tolerance where one is given."""
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
        return task.key(json.dumps([self.question, self._listed(task)]))

    def _listed(self, task: ImageTask) -> list[bool] | None:
        if self.difficult is None:
            return None
        return [(task.name, query.target.concept) in self.difficult for query in task.queries]

    def __call__(self, task: ImageTask) -> dict[str, Any]:
        """The record of an image."""
        picture, asked = read_image(task.sample.path), [query.target for query in task.queries]
        task.sample.check_size(picture.size)
        sized = replace(task.sample, size=picture.size)  # an annotation need not hold it
        hard = self._listed(task) or [is_difficult(sized, target) for target in asked]
        targets: list[dict[str, Any]] = [
            {"category": one.concept, "difficult": listed, "share": area_share(one, picture.size), "maps": []}
            for one, listed in zip(asked, hard, strict=True)
        ]
        for k, found in all_maps(self.classifier, picture, [query.concept for query in task.queries], self.layers):
            point = maximum_point(found.values, found.image_size, self.mode)
            facts = {
                "method": found.method,
                "layer": found.layer,
                "point": None if point is None else list(point),
                "distance": None if point is None else distance(point, asked[k], found.image_size),
            }
            targets[k]["maps"].append(facts)
        return {"image": task.name, "size": list(picture.size), "targets": targets}


class PointingGame(Comparison):
    """Points at the objects of annotated images with several methods, and counts the hits."""

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
        """The rows of the table; see `tally`."""
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
