"""Scores of the Pointing Game: accuracy per category, its mean over categories, and bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.experiments.base import ComparisonRun, MethodLayer, common_method_layers, maps_by_method, method_layer
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
class PointingRow:
    """The scores of one method at one layer of one network."""

    model: str
    method: str
    layer: str  # the layer at which it is read
    all: Score  # the score of all pairs
    difficult: Score | None  # that of the Difficult subset; None where there is no such pair
    empty: int  # number of empty maps, which have no maximum and count as misses

    @property
    def all_empty(self) -> bool:
        """Whether no map has a maximum."""
        return self.empty == self.all.pairs

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: percentages with two decimals."""
        hard = self.difficult
        return {
            "model": self.model,
            "method": self.method,
            "layer": self.layer,
            "all": round(self.all.value, 2),
            "difficult": None if hard is None else round(hard.value, 2),
            "pairs": self.all.pairs,
            "difficult_pairs": 0 if hard is None else hard.pairs,
            "all_interval": [round(self.all.low, 2), round(self.all.high, 2)],
            "difficult_interval": None if hard is None else [round(hard.low, 2), round(hard.high, 2)],
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
    """A row for each method and layer, in the order of the records.

    Raises:
        DataError: the records are of different methods or layers.

    Example:
        >>> found = {"method": "mwp", "layer": "conv5", "point": [3, 4], "distance": 15.0}
        >>> target = {"category": "cat", "difficult": False, "share": 0.5, "maps": [found]}
        >>> (row,) = tally([{"image": "1", "targets": [target]}], "vgg16", tolerance=15)
        >>> row.all.value, row.all.pairs, row.difficult
        (100.0, 1, None)
    """
    is_hit = hits_within(tolerance, inclusive=inclusive)
    every, hard = HitTable.of(records, is_hit).scores(), HitTable.of(_difficult(records), is_hit).scores()
    maps = maps_by_method(target for record in records for target in record["targets"])
    empty = {key: sum(found["distance"] is None for found in each) for key, each in maps.items()}
    return [PointingRow(model, *key, score, hard.get(key), empty[key]) for key, score in every.items()]


def difference(
    records: Sequence[Entry], one: MethodLayer, other: MethodLayer, tolerance: float, *, inclusive: bool = True
) -> Difference:
    """The lead of ``one`` over ``other`` (each a method and a layer) in points, by a paired bootstrap.

    Images that are easy or hard for both do not change the difference, so its interval is narrower than theirs.

    Example:
        >>> maps = [{"method": name, "layer": "1", "distance": far} for name, far in (("c-mwp", 0), ("mwp", 20))]
        >>> records = [{"image": "1", "targets": [{"category": "cat", "difficult": False, "maps": maps}]}]
        >>> difference(records, ("c-mwp", "1"), ("mwp", "1"), tolerance=15).all
        Estimate(value=100.0, low=100.0, high=100.0)
    """
    is_hit = hits_within(tolerance, inclusive=inclusive)
    every, hard = HitTable.of(records, is_hit), HitTable.of(_difficult(records), is_hit)
    return Difference(every.difference(one, other), hard.difference(one, other) if hard.hits else None)


def hits_within(tolerance: float, *, inclusive: bool) -> Callable[[float | None], bool]:
    """Whether a distance is a hit; None is the distance of an empty map.

    Example:
        >>> [hits_within(15, inclusive=True)(far) for far in (0.0, 15.0, 15.1, None)]
        [True, True, False, False]
    """

    def is_hit(distance: float | None) -> bool:
        return distance is not None and (distance <= tolerance if inclusive else distance < tolerance)

    return is_hit


def _difficult(records: Iterable[Entry]) -> list[Entry]:
    return [{"targets": [target for target in record["targets"] if target["difficult"]]} for record in records]


@dataclass(frozen=True, eq=False)
class HitTable:
    """The outcomes of all pairs of an image and a category, without images and categories that have no pair."""

    categories: tuple[str, ...]  # their names, sorted
    asked: NDArray[np.bool_]  # [images, categories], which pairs there are
    hits: dict[MethodLayer, NDArray[np.bool_]]  # for each method and layer, which of them it hit; empty without pairs

    @classmethod
    def of(cls, records: Iterable[Entry], is_hit: Callable[[float | None], bool]) -> HitTable:
        """The table of these records.

        Raises:
            DataError: the pairs do not all have the same methods and layers.
        """
        images = [record["targets"] for record in records if record["targets"]]
        categories = sorted({target["category"] for targets in images for target in targets})
        columns = {category: k for k, category in enumerate(categories)}
        shape = len(images), len(categories)
        asked = np.zeros(shape, dtype=bool)
        keys = common_method_layers(target for targets in images for target in targets)
        hits = {key: np.zeros(shape, dtype=bool) for key in keys}
        for row, targets in enumerate(images):
            for target in targets:
                cell = row, columns[target["category"]]
                asked[cell] = True
                for found in target["maps"]:
                    hits[method_layer(found)][cell] = is_hit(found["distance"])
        return cls(tuple(categories), asked, hits)

    def mean(self, key: MethodLayer) -> float:
        """The mean over categories of the share of hits."""
        return float(mean_shares(self.hits[key].sum(axis=0), self.asked.sum(axis=0)))

    def scores(self) -> dict[MethodLayer, Score]:
        """The score of each method and layer."""
        if not self.hits:
            return {}
        scores = {}
        for (key, hits), means in zip(
            self.hits.items(), resampled_means(self.asked, list(self.hits.values())), strict=True
        ):
            counts = zip(self.categories, hits.sum(axis=0), self.asked.sum(axis=0), strict=True)
            shares = {category: Share(int(hit), int(pairs)) for category, hit, pairs in counts}
            low, high = interval(means)
            scores[key] = Score(100 * self.mean(key), 100 * low, 100 * high, int(self.asked.sum()), shares)
        return scores

    def difference(self, one: MethodLayer, other: MethodLayer) -> Estimate:
        """The difference of two means, in points."""
        means = resampled_means(self.asked, [self.hits[one], self.hits[other]])
        low, high = interval(means[0] - means[1])
        return Estimate(100 * (self.mean(one) - self.mean(other)), 100 * low, 100 * high)


def best_rows(rows: Iterable[PointingRow]) -> list[PointingRow]:
    """For each network and method the best of its layers, in order of occurrence."""
    best: dict[tuple[str, str], PointingRow] = {}
    for row in rows:
        so_far = best.setdefault((row.model, row.method), row)
        if row.all.value > so_far.all.value:
            best[row.model, row.method] = row
    return list(best.values())


def wins(rows: Iterable[PointingRow]) -> dict[str, int]:
    """The number of categories (of all pairs) in which each method is the best; ties count for each of them.

    A method that is read at several layers is represented by its best one. Networks are compared separately. A category
    without any hit has no winner.

    Example:
        >>> score = Score(50.0, 40.0, 60.0, pairs=4, categories={"cat": Share(2, 4), "cow": Share(0, 1)})
        >>> wins([PointingRow("vgg16", method, "pool4", score, None, empty=0) for method in ("c-mwp", "mwp")])
        {'c-mwp': 1, 'mwp': 1}
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
