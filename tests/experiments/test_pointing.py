"""The Pointing Game on coloured squares, and its counts, means and intervals against slow ones in plain Python."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from annotated import SIDE, annotate, coco_content, picture, scenes, voc_object, write_coco

import excite
from excite.datasets import open_dataset
from excite.errors import DataError, LayerError
from excite.experiments.pointing.run import PointingGame, difference, find_protocol, tally, wins
from excite.methods import METHODS, Method
from excite.metrics.boxes import box_distance
from excite.metrics.statistics import CHUNK, SEED, resampled_means

FINE, COARSE = "1", "2"


@pytest.fixture
def pointer(planted):
    """Makes a method that points to a known pixel of images of ``SIDE`` or nowhere, whatever it is asked."""

    def make(name, point):
        values = torch.zeros(1, SIDE, SIDE)
        if point is not None:
            values[0, point[1], point[0]] = 1.0
        return planted(name, values)

    return make


def played(game, out, **options):
    records = list(game.records(out, **options))
    return records, game.rows(records)


class TestPlaying:
    def test_records_are_facts(self, classifier, dataset, tmp_path, pointer):
        game = PointingGame(classifier, dataset, [pointer("corner", (1, 2)), pointer("none", None)], limit=1)
        ((record,), _) = played(game, tmp_path)
        ((_, ((colour, box), (_, other))),) = scenes(1)
        assert (colour, box, other) == ("green", (0, 0, 8, 8), (36, 36, 44, 44))
        key = record.pop("key")
        assert len(key) == 16
        corner, nowhere = ({"method": name, "layer": FINE} for name in ("corner", "none"))
        nowhere |= {"point": None, "distance": None}
        here, there = ({**corner, "point": [1, 2], "distance": far} for far in (0.0, math.hypot(35, 34)))
        share = 64 / SIDE**2
        assert record == {
            "image": "000000",
            "size": [SIDE, SIDE],
            "targets": [
                {"category": "green", "difficult": True, "share": share, "maps": [here, nowhere]},
                {"category": "red", "difficult": True, "share": share, "maps": [there, nowhere]},
            ],
        }

    def test_figures_are_those_of_attend(self, classifier, dataset, tmp_path):
        """Counted again image by image, with the public function."""
        _, rows = played(
            PointingGame(classifier, dataset, ["c-mwp", "mwp"], protocol=find_protocol("authors", 3)), tmp_path
        )
        for row in rows:
            hits = {}
            for sample in dataset:
                for target in sample.targets:
                    (one,) = excite.attend(classifier, sample.path, target.concept, layer=row.layer, method=row.method)
                    point = one.point()
                    hit = point is not None and min(box_distance(point, box) for box in target.boxes) <= 3
                    hits.setdefault(target.concept, []).append(hit)
            shares = [sum(found) / len(found) for found in hits.values()]
            assert row.all.value == pytest.approx(100 * sum(shares) / len(shares))
            assert row.all.pairs == sum(map(len, hits.values()))
            assert row.all.value > 0


class TestWhichPairs:
    def test_flagged_objects(self, classifier, dataset, tmp_path, pointer):
        """A category whose objects are all flagged is not asked for; otherwise the flagged ones may be hit, too."""
        annotate(dataset.folder, "000000", voc_object("red", (0, 0, 8, 8), 1), voc_object("green", (20, 20, 30, 30)))
        annotate(dataset.folder, "000001", voc_object("red", (0, 0, 8, 8), 1), voc_object("red", (40, 40, 44, 44)))
        game = PointingGame(
            classifier, dataset, [pointer("corner", (1, 2))], limit=2, protocol=find_protocol("authors", 0)
        )
        records, (row,) = played(game, tmp_path)
        assert [[target["category"] for target in record["targets"]] for record in records] == [["green"], ["red"]]
        assert game.difficult == 1
        assert {name: share.count for name, share in row.all.categories.items()} == {"green": 0, "red": 1}

    def test_difficult_by_the_rule(self, classifier, dataset, tmp_path):
        """Less than a quarter of the image, all objects together, and another category there, flagged or not."""
        half = SIDE // 2
        small, quarter = (0, 0, half - 1, half), (0, 0, half, half)
        annotate(dataset.folder, "000000", voc_object("red", small))  # alone
        annotate(dataset.folder, "000001", voc_object("red", small), voc_object("blue", (0, 0, 4, 4), 1))
        annotate(dataset.folder, "000002", voc_object("red", quarter), voc_object("green", (40, 40, 44, 44)))
        both = (voc_object("red", (0, 0, half, 12)), voc_object("red", (half, half, 48, 36)))
        annotate(dataset.folder, "000003", *both, voc_object("blue", (0, 0, 4, 4)))
        game = PointingGame(classifier, dataset, ["mwp"], limit=4)
        records = game.records(tmp_path)
        found = [{one["category"]: one["difficult"] for one in record["targets"]} for record in records]
        assert found == [{"red": False}, {"red": True}, {"red": False, "green": True}, {"red": False}]

    def test_difficult_by_a_list(self, classifier, dataset, tmp_path):
        listed = frozenset({("000000", "red"), ("000001", "green")})
        game = PointingGame(classifier, dataset, ["mwp"], difficult=listed)
        records, (row,) = played(game, tmp_path)
        assert [one["difficult"] for one in records[0]["targets"]] == [False, True]
        assert row.difficult.pairs == 1  # the other image has nothing green
        assert game.run(records).about["left_out"]["no_difficult_pairs"] == ["green"]

    def test_categories_without_instances(self, classifier, tmp_path):
        """They are named, and no part of any mean."""
        content = coco_content([("1", [("red", (0, 0, 9, 9))])], ["red", "green", "blue"])
        picture(tmp_path / "coco/val2017/1.jpg", [("red", (0, 0, 9, 9))])
        game = PointingGame(classifier, open_dataset(write_coco(tmp_path / "coco", content)), ["mwp"])
        records, (row,) = played(game, tmp_path)
        assert row.all.value == 100.0
        assert game.run(records).about["left_out"]["no_pairs"] == ["green", "blue"]

    def test_the_region_is_the_mask_not_the_box(self, classifier, tmp_path, pointer):
        """An L: its box holds the point, its mask does not; a crowd counts as well."""
        content = coco_content([("1", [("red", (0, 0, 40, 40))]), ("2", [("red", (0, 0, 40, 40))])], ["red", "green"])
        shape = [0, 0, 40, 0, 40, 4, 4, 4, 4, 40, 0, 40]
        runs = [0, *[4, SIDE - 4] * (SIDE - 1), 4, SIDE - 4]  # the upper four rows, column by column
        content["annotations"][0] |= {"segmentation": [shape], "area": 304}
        content["annotations"][1] |= {"segmentation": {"size": [SIDE, SIDE], "counts": runs}, "iscrowd": 1, "area": 9}
        for name in "12":
            picture(tmp_path / f"coco/val2017/{name}.jpg", [("red", (0, 0, 40, 40))])
        methods = [pointer("middle", (20, 13)), pointer("edge", (2, 30))]
        game = PointingGame(classifier, open_dataset(write_coco(tmp_path / "coco", content)), methods)
        targets = {record["image"]: record["targets"][0] for record in game.records(tmp_path)}
        distances = {name: [found["distance"] for found in target["maps"]] for name, target in targets.items()}
        assert distances == {"2.jpg": [10.0, 27.0], "1.jpg": [10.0, 0.0]}
        assert [targets[name]["share"] for name in ("1.jpg", "2.jpg")] == pytest.approx([304 / SIDE**2, 9 / SIDE**2])


class TestPlaces:
    def test_methods_that_cannot_be_read_there_or_at_all(self, classifier, dataset, monkeypatch):
        def picky(_passes, units, layers):
            if set(layers) != {FINE}:
                raise LayerError("only at its own place")
            return {FINE: torch.ones(len(units), 1, 2, 2)}

        def alien(_passes, _units, _layers):
            raise LayerError("not on this network")

        for method in (picky, alien):
            monkeypatch.setitem(METHODS, method.__name__, Method(method.__name__, "", method))
        game = PointingGame(classifier, dataset, ["mwp", "picky", "center"], layers=[COARSE, COARSE], limit=1)
        assert game.places.layers == {"mwp": (COARSE,), "picky": (FINE,), "center": ("input",)}
        assert game.about()["left_out"]["unreadable"] == {f"picky at {COARSE}": "only at its own place"}
        assert list(PointingGame(classifier, dataset, ["mwp", "alien"], limit=1).places.layers) == ["mwp"]
        with pytest.raises(LayerError, match="not on this network"):
            PointingGame(classifier, dataset, ["alien"])


def test_interpolation_of_the_protocols(classifier, dataset, tmp_path, planted):
    """Two high columns side by side: a cubic curve rises between them, a straight line does not."""
    bar = planted("bar", torch.tensor([[[0.0, 1.0, 0.9, 0.0]]]))
    points = {}
    for name in ("authors", "torchray"):
        (record,) = PointingGame(classifier, dataset, [bar], limit=1, protocol=find_protocol(name)).records(tmp_path)
        points[name] = record["targets"][0]["maps"][0]["point"]
    assert points["torchray"][0] == 18  # beside the middle of the higher column, on the side of the other
    assert 19 < points["authors"][0] < 24


PLACES = [("c-mwp", "a"), ("c-mwp", "b"), ("center", "input")]


def a_target(category, *distances, difficult=False, places=PLACES):
    maps = [
        {"method": method, "layer": layer, "point": None if far is None else [0, 0], "distance": far}
        for (method, layer), far in zip(places, distances, strict=True)
    ]
    return {"category": category, "difficult": difficult, "share": 0.1, "maps": maps}


def a_record(*targets):
    return {"key": "k", "image": "i", "size": [9, 9], "targets": list(targets)}


def a_game(pictures, seed=0):
    """Random records; each image with one to four of five categories."""
    luck = random.Random(seed)
    for _ in range(pictures):
        categories = luck.sample(["bird", "cat", "cow", "dog", "sofa"], luck.randint(1, 4))
        far = [[luck.choice([None, 0.0, 7.5, 15.0, 15.1, 40.0]) for _ in PLACES] for _ in categories]
        hard = [category != "sofa" and luck.random() < 0.3 for category in categories]
        facts = zip(categories, far, hard, strict=True)
        yield a_record(*(a_target(category, *each, difficult=listed) for category, each, listed in facts))


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
        records = list(a_game(60, seed))
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
        records = [a_record(a_target("cat", 0, 0, 0))]
        said = tally(records, "net", 15)[0].to_dict()
        assert (said["difficult"], said["difficult_interval"], said["difficult_pairs"]) == (None, None, 0)
        assert difference(records, PLACES[0], PLACES[2], 15).difficult is None

    @pytest.mark.parametrize(("inclusive", "hits"), [(True, 2), (False, 1)])
    def test_the_edge_of_the_tolerance(self, inclusive, hits):
        records = [a_record(a_target("cat", far, far, far)) for far in (0.0, 15.0, 15.01, None)]
        (row, *_) = tally(records, "net", 15, inclusive=inclusive)
        assert (row.all.categories["cat"].count, row.all.categories["cat"].total, row.empty) == (hits, 4, 1)

    def test_records_of_two_games(self):
        with pytest.raises(DataError, match="different methods or layers"):
            tally([a_record(a_target("cat", 0, 0, 0)), a_record(a_target("cat", 0, places=PLACES[:1]))], "net", 15)


def test_intervals_against_a_bootstrap_by_hand():
    """The same draws, each mean counted in plain Python; a draw may lack a category."""
    records = list(a_game(7))
    draws = np.random.default_rng(SEED).integers(7, size=(CHUNK, 7))
    counts = [by_hand([records[k] for k in draw], PLACES[0], 15) for draw in draws]
    assert {len(one) for one in counts} >= {4, 5}
    names = ("bird", "cat", "cow", "dog", "sofa")
    each = [by_hand([one], PLACES[0], 15) for one in records]
    asked, hit = (np.array([[one.get(name, (0, 0))[k] for name in names] for one in each]) for k in (1, 0))
    assert 100 * resampled_means(asked, [hit], CHUNK)[0] == pytest.approx([mean(one) for one in counts])


class TestDifference:
    def test_of_two_methods(self):
        records = list(a_game(80))
        one, other = (tally(records, "net", 15)[k] for k in (0, 2))
        found = difference(records, PLACES[0], PLACES[2], 15)
        assert found.all.value == pytest.approx(one.all.value - other.all.value)
        assert found.difficult.value == pytest.approx(one.difficult.value - other.difficult.value)
        assert found.all.low < found.all.value < found.all.high
        back = difference(records, PLACES[2], PLACES[0], 15)
        assert (back.all.low, back.all.high) == pytest.approx((-found.all.high, -found.all.low))

    def test_it_is_paired(self):
        """On the same images, one is always as good or better: that is certain, though neither score is."""
        records = [a_record(a_target("cat", far, far, far)) for far in [0, 99] * 20]
        records += [a_record(a_target("cat", 0, 99, 99)) for _ in range(10)]
        (score, *_) = tally(records, "net", 15)
        found = difference(records, PLACES[0], PLACES[1], 15)
        assert found.all.value == pytest.approx(20)
        assert found.all.low > 0
        assert found.all.high - found.all.low < score.all.high - score.all.low


def test_wins():
    """Ties count for each, and each network has its own contest."""
    cat = a_target("cat", 0, 99, 0)
    records = [a_record(cat, a_target("dog", 99, 0, 99)), a_record(cat, a_target("cow", 99, 99, 0))]
    assert wins(tally(records, "net", 15)) == {"c-mwp": 1, "center": 2}  # at its better layer; nobody wins dog
    records = [a_record(a_target("cat", 0, 99, 99))]
    assert wins([*tally(records, "net", 15), *tally(records, "other", 15)]) == {"c-mwp": 2, "center": 0}
