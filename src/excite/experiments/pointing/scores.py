"""What the records of the Pointing Game say: accuracy per category, their mean, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.experiments.base import ComparisonRun, Place, asked_places, place_of
from excite.metrics.statistics import Estimate, Share, interval, mean_shares, resampled_means

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from excite.jobs import Entry


# Who hit what in the Pointing Game, as tables of images and categories.


@dataclass(frozen=True, eq=False)
class Table:
    """The outcomes of all pairs of an image and a category; both are in it only where they have a pair.

    Attributes:
        categories: their names, sorted.
        asked: [images, categories], which pairs there are.
        hits: for each method and layer, which of them it hit; nothing where there are no pairs.
    """

    categories: tuple[str, ...]
    asked: NDArray[np.bool_]
    hits: dict[Place, NDArray[np.bool_]]

    @classmethod
    def of(cls, records: Iterable[Entry], is_hit: Callable[[float | None], bool]) -> Table:
        """The table of these records; a distance, or None for a map that points nowhere, is a hit or not.

        Raises:
            DataError: the pairs were not all asked by the same methods at the same layers.
        """
        pictures = [record["targets"] for record in records if record["targets"]]
        categories = sorted({target["category"] for targets in pictures for target in targets})
        columns = {category: k for k, category in enumerate(categories)}
        shape = len(pictures), len(categories)
        asked = np.zeros(shape, dtype=bool)
        places = asked_places(target for targets in pictures for target in targets)
        hits = {place: np.zeros(shape, dtype=bool) for place in places}
        for row, targets in enumerate(pictures):
            for target in targets:
                cell = row, columns[target["category"]]
                asked[cell] = True
                for found in target["maps"]:
                    hits[place_of(found)][cell] = is_hit(found["distance"])
        return cls(tuple(categories), asked, hits)

    def mean(self, place: Place) -> float:
        """The mean over categories of the share that was hit."""
        return float(mean_shares(self.hits[place].sum(axis=0), self.asked.sum(axis=0)))

    def resampled(self, places: Sequence[Place]) -> NDArray[np.float64]:
        """That mean for resampled images, the same for all places: [places, resamples]."""
        return resampled_means(self.asked, [self.hits[place] for place in places])


# What the records of the Pointing Game say: accuracy per category, their mean, and how sure it is.


@dataclass(frozen=True)
class Score(Estimate):
    """The mean over categories of how often their objects were hit.

    Attributes:
        value: in percent,
        low: and where it lies by
        high: a bootstrap over images, in 95 of 100 such samples.
        pairs: how many (image, category) pairs there are.
        categories: the share of each category that has a pair; the others are no part of the mean.
    """

    pairs: int
    categories: dict[str, Share]


@dataclass(frozen=True)
class Row:
    """What one method is worth at one layer of one network.

    Attributes:
        model: the network's name.
        method: the method's.
        layer: where it was read.
        all: the score of all pairs.
        difficult: that of the Difficult subset; None where there is no such pair.
        empty: how many maps point nowhere. They count as misses.
    """

    model: str
    method: str
    layer: str
    all: Score
    difficult: Score | None
    empty: int

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
            "all_interval": _rounded(self.all),
            "difficult_interval": None if hard is None else _rounded(hard),
            "empty": self.empty,
        }


@dataclass(frozen=True)
class Run(ComparisonRun):
    """One network's game; its rows are from `tally`."""

    rows: Sequence[Row]


@dataclass(frozen=True)
class Difference:
    """How many points one method is better than another on the same images; None where no pair is Difficult."""

    all: Estimate
    difficult: Estimate | None


def tally(records: Sequence[Entry], model: str, tolerance: float, *, inclusive: bool = True) -> list[Row]:
    """A row for each method and layer, in the order in which they were asked.

    Args:
        records: from `PointingGame.records`.
        model: the network's name.
        tolerance: how many pixels beside an object a point may lie and still hit it.
        inclusive: whether exactly so many still is a hit.

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
    every = _scores(Table.of(records, is_hit))
    hard = _scores(Table.of(_difficult(records), is_hit))
    empty = _empty_maps(records)
    return [Row(model, *place, score, hard.get(place), empty[place]) for place, score in every.items()]


def difference(
    records: Sequence[Entry], one: Place, other: Place, tolerance: float, *, inclusive: bool = True
) -> Difference:
    """How many points ``one`` is better than ``other`` (each a method and a layer), by a paired bootstrap.

    Images that are easy or hard for both leave the difference as it is, so it is surer than both scores.

    Example:
        >>> maps = [{"method": name, "layer": "1", "distance": far} for name, far in (("c-mwp", 0), ("mwp", 20))]
        >>> records = [{"image": "1", "targets": [{"category": "cat", "difficult": False, "maps": maps}]}]
        >>> difference(records, ("c-mwp", "1"), ("mwp", "1"), tolerance=15).all
        Estimate(value=100.0, low=100.0, high=100.0)
    """
    is_hit = hits_within(tolerance, inclusive=inclusive)
    every, hard = Table.of(records, is_hit), Table.of(_difficult(records), is_hit)
    return Difference(_gap(every, one, other), _gap(hard, one, other) if hard.hits else None)


def hits_within(tolerance: float, *, inclusive: bool) -> Callable[[float | None], bool]:
    """What makes a distance a hit; None is the distance of a map that points nowhere.

    Example:
        >>> [hits_within(15, inclusive=True)(far) for far in (0.0, 15.0, 15.1, None)]
        [True, True, False, False]
    """

    def is_hit(distance: float | None) -> bool:
        return distance is not None and (distance <= tolerance if inclusive else distance < tolerance)

    return is_hit


def best_rows(rows: Iterable[Row]) -> list[Row]:
    """For each network and method the best of its layers, in the order in which the methods come.

    Example:
        >>> rows = [Row("vgg16", "mwp", str(at), Score(at, 0, 100, 9, {}), None, empty=0) for at in (60, 80, 70)]
        >>> [row.layer for row in best_rows(rows)]
        ['80']
    """
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        so_far = best.setdefault((row.model, row.method), row)
        if row.all.value > so_far.all.value:
            best[row.model, row.method] = row
    return list(best.values())


def wins(rows: Iterable[Row]) -> dict[str, int]:
    """In how many categories of all pairs each method is the best; where several are, it counts for each of them.

    A method read at several layers plays with its best one. Of several networks, each has its own contest. Where nobody
    has hit anything, nobody wins.

    Example:
        >>> score = Score(50.0, 40.0, 60.0, pairs=4, categories={"cat": Share(2, 4), "cow": Share(0, 1)})
        >>> wins([Row("vgg16", method, "pool4", score, None, empty=0) for method in ("c-mwp", "mwp")])
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


def _scores(table: Table) -> dict[Place, Score]:
    if not table.hits:
        return {}
    places = list(table.hits)
    intervals = [interval(means) for means in table.resampled(places)]
    return {place: _score(table, place, *sides) for place, sides in zip(places, intervals, strict=True)}


def _score(table: Table, place: Place, low: float, high: float) -> Score:
    counts = zip(table.categories, table.hits[place].sum(axis=0), table.asked.sum(axis=0), strict=True)
    shares = {category: Share(int(hits), int(pairs)) for category, hits, pairs in counts}
    return Score(100 * table.mean(place), 100 * low, 100 * high, int(table.asked.sum()), shares)


def _gap(table: Table, one: Place, other: Place) -> Estimate:
    means = table.resampled([one, other])
    low, high = interval(means[0] - means[1])
    return Estimate(100 * (table.mean(one) - table.mean(other)), 100 * low, 100 * high)


def _difficult(records: Iterable[Entry]) -> list[Entry]:
    return [{"targets": [target for target in record["targets"] if target["difficult"]]} for record in records]


def _empty_maps(records: Iterable[Entry]) -> dict[Place, int]:
    """For each method and layer how many of its maps point nowhere."""
    empty: dict[Place, int] = {}
    for record in records:
        for target in record["targets"]:
            for found in target["maps"]:
                empty[place_of(found)] = empty.get(place_of(found), 0) + (found["distance"] is None)
    return empty


def _rounded(score: Score) -> list[float]:
    return [round(score.low, 2), round(score.high, 2)]
