"""Scores of the Pointing Game: accuracy per category, its mean over categories, and bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.experiments.base import ComparisonRun, MethodLayer, common_method_layers, maps_by_method, method_layer
from excite.experiments.report.tables import MethodRow, estimate_fields
from excite.metrics.statistics import Estimate, Share, interval, mean_shares, resampled_means

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from excite.jobs import Entry


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
    maps = maps_by_method(target for record in records for target in record["targets"])
    empty = {key: sum(found["distance"] is None for found in each) for key, each in maps.items()}
    return [PointingRow(model, *key, score, hard.get(key), empty[key]) for key, score in every.items()]


def difference(
    records: Sequence[Entry], one: MethodLayer, other: MethodLayer, tolerance: float, *, inclusive: bool = True
) -> Difference:
    """The lead of ``one`` over ``other`` (each a method and a layer) in points, by a paired bootstrap."""
    is_hit = hits_within(tolerance, inclusive=inclusive)
    every, hard = HitTable(records, is_hit), HitTable(_difficult(records), is_hit)
    return Difference(every.difference(one, other), hard.difference(one, other) if hard.hits else None)


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
        keys = common_method_layers(target for targets in images for target in targets)
        self.hits = {key: np.zeros(shape, dtype=bool) for key in keys}  # which of them each hit; empty without pairs
        columns = {category: k for k, category in enumerate(self.categories)}
        for row, targets in enumerate(images):
            for target in targets:
                cell = row, columns[target["category"]]
                self.asked[cell] = True
                for found in target["maps"]:
                    self.hits[method_layer(found)][cell] = is_hit(found["distance"])

    def scores(self) -> dict[MethodLayer, Score]:
        """The score of each method and layer."""
        scores, pairs = {}, self.asked.sum(axis=0).tolist()
        drawn = resampled_means(self.asked, list(self.hits.values())) if self.hits else ()
        for (key, hits), means in zip(self.hits.items(), drawn, strict=True):
            counts = zip(self.categories, hits.sum(axis=0).tolist(), pairs, strict=True)
            shares = {category: Share(hit, total) for category, hit, total in counts}
            scores[key] = Score(*_percent(self._mean(key), means), sum(pairs), shares)
        return scores

    def difference(self, one: MethodLayer, other: MethodLayer) -> Estimate:
        """The difference of two means, in points."""
        means = resampled_means(self.asked, [self.hits[one], self.hits[other]])
        return Estimate(*_percent(self._mean(one) - self._mean(other), means[0] - means[1]))

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
    """The number of categories (of all pairs) in which each method, at its best layer, is the best on its network.

    Ties count for each of them. A category without any hit has no winner.
    """
    players = best_rows(rows)
    won = dict.fromkeys((row.method for row in players), 0)
    for model in dict.fromkeys(row.model for row in players):
        contest = [row for row in players if row.model == model]
        for category in contest[0].all.categories:
            best = max(row.all.categories[category].value for row in contest)
            for row in contest:
                won[row.method] += row.all.categories[category].value == best > 0
    return won
