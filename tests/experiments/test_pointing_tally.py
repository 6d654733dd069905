"""The Pointing Game's counts, means and intervals against slow ones in plain Python."""

import random
from fractions import Fraction

import numpy as np
import pytest

from excite.errors import DataError
from excite.experiments.pointing.scores import difference, tally, wins
from excite.metrics.statistics import CHUNK, SEED, resampled_means

PLACES = [("c-mwp", "a"), ("c-mwp", "b"), ("center", "input")]


def target(category, *distances, difficult=False, places=PLACES):
    maps = [
        {"method": method, "layer": layer, "point": None if far is None else [0, 0], "distance": far}
        for (method, layer), far in zip(places, distances, strict=True)
    ]
    return {"category": category, "difficult": difficult, "share": 0.1, "maps": maps}


def record(*targets):
    return {"key": "k", "image": "i", "size": [9, 9], "targets": list(targets)}


def game(pictures, seed=0):
    """Random records; each image with one to four of five categories."""
    luck = random.Random(seed)
    for _ in range(pictures):
        categories = luck.sample(["bird", "cat", "cow", "dog", "sofa"], luck.randint(1, 4))
        yield record(
            *(
                target(
                    category,
                    *(luck.choice([None, 0.0, 7.5, 15.0, 15.1, 40.0]) for _ in PLACES),
                    difficult=category != "sofa" and luck.random() < 0.3,
                )
                for category in categories
            )
        )


def by_hand(records, place, tolerance, *, difficult=False):
    """Hits and pairs of each category, counted one by one."""
    counts = {}
    for one in records:
        for found in one["targets"]:
            if difficult and not found["difficult"]:
                continue
            far = found["maps"][PLACES.index(place)]["distance"]
            hits, pairs = counts.get(found["category"], (0, 0))
            counts[found["category"]] = hits + (far is not None and far <= tolerance), pairs + 1
    return counts


def mean(counts):
    return float(100 * sum(Fraction(*count) for count in counts.values()) / len(counts))


class TestTally:
    @pytest.mark.parametrize("seed", range(3))
    def test_against_a_count_by_hand(self, seed):
        records = list(game(60, seed))
        rows = tally(records, "net", tolerance=15)
        assert [(row.model, row.method, row.layer) for row in rows] == [("net", *place) for place in PLACES]
        for row, place in zip(rows, PLACES, strict=True):
            for score, difficult in ((row.all, False), (row.difficult, True)):
                counts = by_hand(records, place, 15, difficult=difficult)
                assert {name: (share.count, share.total) for name, share in score.categories.items()} == counts
                assert score.value == pytest.approx(mean(counts))
                assert score.pairs == sum(pairs for _, pairs in counts.values())
                assert score.low <= score.value <= score.high
            maps = [found["maps"][PLACES.index(place)] for one in records for found in one["targets"]]
            assert row.empty == sum(found["point"] is None for found in maps) > 0

    def test_nothing_is_difficult(self):
        (row, *_) = tally([record(target("cat", 0, 0, 0))], "net", 15)
        assert row.difficult is None
        said = row.to_dict()
        assert (said["difficult"], said["difficult_interval"], said["difficult_pairs"]) == (None, None, 0)

    @pytest.mark.parametrize(("inclusive", "hits"), [(True, 2), (False, 1)])
    def test_the_edge_of_the_tolerance(self, inclusive, hits):
        records = [record(target("cat", far, far, far)) for far in (0.0, 15.0, 15.01, None)]
        (row, *_) = tally(records, "net", 15, inclusive=inclusive)
        assert (row.all.categories["cat"].count, row.all.categories["cat"].total, row.empty) == (hits, 4, 1)

    def test_records_of_two_games(self):
        with pytest.raises(DataError, match="different methods or layers"):
            tally([record(target("cat", 0, 0, 0)), record(target("cat", 0, places=PLACES[:1]))], "net", 15)


class TestIntervals:
    def test_against_a_bootstrap_by_hand(self):
        """The same draws, each mean counted in plain Python; a draw may lack a category."""
        records = list(game(7))
        draws = np.random.default_rng(SEED).integers(7, size=(CHUNK, 7))
        counts = [by_hand([records[k] for k in draw], PLACES[0], 15) for draw in draws]
        assert {len(one) for one in counts} >= {4, 5}
        asked, hit = tables(records, PLACES[0], 15)
        assert 100 * resampled_means(asked, [hit], CHUNK)[0] == pytest.approx([mean(one) for one in counts])


def tables(records, place, tolerance):
    names = sorted({found["category"] for one in records for found in one["targets"]})
    asked = np.zeros((len(records), len(names)), dtype=bool)
    hit = asked.copy()
    for k, one in enumerate(records):
        for name in by_hand([one], place, tolerance):
            asked[k, names.index(name)] = True
            hit[k, names.index(name)] = by_hand([one], place, tolerance)[name][0]
    return asked, hit


class TestDifference:
    def test_of_two_methods(self):
        records = list(game(80))
        one, other = (tally(records, "net", 15)[k] for k in (0, 2))
        found = difference(records, PLACES[0], PLACES[2], 15)
        assert found.all.value == pytest.approx(one.all.value - other.all.value)
        assert found.difficult.value == pytest.approx(one.difficult.value - other.difficult.value)
        assert found.all.low < found.all.value < found.all.high
        back = difference(records, PLACES[2], PLACES[0], 15)
        assert (back.all.low, back.all.high) == pytest.approx((-found.all.high, -found.all.low))

    def test_it_is_paired(self):
        """On the same images, one is always as good or better: that is certain, though neither score is."""
        records = [record(target("cat", far, far, far)) for far in [0, 99] * 20]
        records += [record(target("cat", 0, 99, 99)) for _ in range(10)]
        (score, *_) = tally(records, "net", 15)
        found = difference(records, PLACES[0], PLACES[1], 15)
        assert found.all.value == pytest.approx(20)
        assert found.all.low > 0
        assert found.all.high - found.all.low < score.all.high - score.all.low

    def test_nothing_difficult(self):
        assert difference([record(target("cat", 0, 0, 99))], PLACES[0], PLACES[2], 15).difficult is None


class TestWins:
    def test_ties_count_for_each(self):
        records = [
            record(target("cat", 0, 99, 0), target("dog", 99, 0, 99)),
            record(target("cat", 0, 99, 0), target("cow", 99, 99, 0)),
        ]
        assert wins(tally(records, "net", 15)) == {"c-mwp": 1, "center": 2}  # at its better layer; nobody wins dog

    def test_each_network_has_its_own_contest(self):
        records = [record(target("cat", 0, 99, 99))]
        assert wins([*tally(records, "net", 15), *tally(records, "other", 15)]) == {"c-mwp": 2, "center": 0}
