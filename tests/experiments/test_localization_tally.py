"""What the records of localisation say, against slow counts in plain Python; and which images are held out."""

import hashlib
import math
import random

import pytest

from excite.errors import DataError
from excite.experiments.base import held_out
from excite.experiments.localization.scores import RULES, difference, tally
from excite.metrics.statistics import Share, paired_test

PLACES = [("mwp", "a"), ("mwp", "b"), ("grad", "input")]
VALUES = [0.0, 0.2999, 0.3, 0.4999, 0.5, 0.6, 0.7, 1.0]


def found(place, values=None, luck=None, *, empty=False):
    overlaps = {
        rule.name: [0.0 if empty else values if luck is None else luck.choice(VALUES) for _ in rule.thresholds]
        for rule in RULES.values()
    }
    boxes = [None if empty else [0, 0, 9, 9] for _ in RULES["paper"].thresholds]
    return {"method": place[0], "layer": place[1], "boxes": boxes, "overlaps": overlaps}


def record(name, *targets):
    listed = [{"category": f"c{k}", "truth": [[0, 0, 9, 9]], "maps": maps} for k, maps in enumerate(targets)]
    return {"key": name, "image": name, "size": [9, 9], "targets": listed}


def game(pictures, seed=0):
    """Random records, each image with one to three pairs."""
    luck = random.Random(seed)
    for k in range(pictures):
        yield record(
            f"p{k}",
            *(
                [found(place, luck=luck, empty=luck.random() < 0.1) for place in PLACES]
                for _ in range(luck.randint(1, 3))
            ),
        )


def maps(records, place, names):
    return [
        one
        for each in records
        if each["image"] in names
        for target in each["targets"]
        for one in target["maps"]
        if (one["method"], one["layer"]) == place
    ]


def misses(some, rule, at, enough=0.5):
    return [one["overlaps"][rule][at] < enough for one in some]


def chosen(some, rule):
    """The first of the thresholds with the fewest misses."""
    counts = [sum(misses(some, rule, at)) for at in range(len(RULES[rule].thresholds))]
    return counts.index(min(counts))


class TestTally:
    @pytest.mark.parametrize("seed", range(3))
    def test_against_a_count_by_hand(self, seed):
        records = list(game(60, seed))
        names = {each["image"] for each in records}
        reported = frozenset(name for name in names if int(name[1:]) % 3)
        rows = tally(records, "net", reported)
        assert [(row.model, row.method, row.layer) for row in rows] == [("net", *place) for place in PLACES]
        for row, place in zip(rows, PLACES, strict=True):
            held, told = maps(records, place, names - reported), maps(records, place, reported)
            for name, result in row.rules.items():
                at = chosen(held, name)
                assert result.threshold == RULES[name].thresholds[at]
                assert result.error == Share(sum(misses(told, name, at)), len(told))
                curve = [100 * sum(misses(told, name, k)) / len(told) for k in range(len(RULES[name].thresholds))]
                assert result.curve == pytest.approx(curve)
                assert result.curve[at] == pytest.approx(100 * result.error.value)
            best = max(100 - 100 * sum(misses(told, "max-largest", k)) / len(told) for k in range(50))
            assert row.max_box_acc == pytest.approx(best)
            for enough in (0.3, 0.5, 0.7):
                best = max(100 - 100 * sum(misses(told, "any", k, enough)) / len(told) for k in range(50))
                assert row.max_box_acc_v2[enough] == pytest.approx(best)
            assert row.v2_mean == pytest.approx(sum(row.max_box_acc_v2.values()) / 3)
            assert row.empty == sum(one["boxes"][0] is None for one in told) > 0
            assert (row.alpha, row.error) == (row.rules["paper"].threshold, row.rules["paper"].error)
        assert list(rows[0].rules) == ["paper", "largest", "max", "max-largest", "any"]

    def test_nothing_is_chosen_on_what_is_reported(self):
        """There the best threshold is another one; it shows in the curve only, and in what others call MaxBoxAcc."""
        place = PLACES[0]
        first, last = found(place, 0.0), found(place, 0.0)
        for rule in ("paper", "max-largest"):
            first["overlaps"][rule][3] = last["overlaps"][rule][7] = 0.9
        (row,) = tally([record("a", [first]), record("b", [last])], "net", {"b"})
        assert (row.alpha, row.error) == (1.5, Share(1, 1))
        assert row.rules["paper"].curve[7] == 0.0
        assert row.max_box_acc == 100.0

    def test_refused(self):
        one = record("a", [found(PLACES[0], 0.5)])
        with pytest.raises(DataError, match="different methods or layers"):
            tally([one, record("b", [found(PLACES[1], 0.5)])], "net", {"b"})
        for reported in (set(), {"a"}):
            with pytest.raises(DataError, match="none on one of the sides"):
                tally([one], "net", reported)


class TestDifference:
    def test_of_two_methods(self):
        records = list(game(80))
        reported = {f"p{k}" for k in range(20, 80)}
        rows = {(row.method, row.layer): row for row in tally(records, "net", reported)}
        gap = difference(records, reported, PLACES[0], PLACES[2])
        assert gap.value == pytest.approx(100 * (rows[PLACES[0]].error.value - rows[PLACES[2]].error.value))
        assert gap.low < gap.value < gap.high
        back = difference(records, reported, PLACES[2], PLACES[0])
        assert (back.low, back.high, back.p) == pytest.approx((-gap.high, -gap.low, gap.p))
        held = {each["image"] for each in records} - reported
        missed = [
            misses(maps(records, place, reported), "paper", chosen(maps(records, place, held), "paper"))
            for place in (PLACES[0], PLACES[2])
        ]
        assert gap.p == paired_test(*missed)

    def test_the_interval_is_that_of_a_bootstrap_over_pictures(self):
        records = list(game(300))
        reported = [f"p{k}" for k in range(50, 300)]
        gap = difference(records, set(reported), PLACES[0], PLACES[2])
        held = {f"p{k}" for k in range(50)}
        at = {place: chosen(maps(records, place, held), "paper") for place in PLACES}
        counts = {}
        for name in reported:
            one, other = (misses(maps(records, place, {name}), "paper", at[place]) for place in (PLACES[0], PLACES[2]))
            counts[name] = sum(one) - sum(other), len(one)
        luck = random.Random(0)
        means = []
        for _ in range(1000):
            drawn = [counts[name] for name in luck.choices(reported, k=len(reported))]
            means.append(100 * sum(wins for wins, _ in drawn) / sum(pairs for _, pairs in drawn))
        means.sort()
        assert (gap.low, gap.high) == pytest.approx((means[25], means[974]), abs=1.2)


class TestHeldOut:
    def test_by_hand(self):
        names = [f"ILSVRC2012_val_{k:08}" for k in range(1, 1001)]
        ordered = sorted(names, key=lambda name: hashlib.sha256(f"7 {name}".encode()).digest())
        held = held_out(names, 0.2, seed=7)
        assert held == set(ordered[:200])
        assert held == held_out(reversed(names), 0.2, seed=7)
        assert held != held_out(names, 0.2, seed=8)

    def test_names_that_are_no_text(self):
        assert len(held_out(["a", "b\udcff", "c\ud800"], 0.5)) == 2

    @pytest.mark.parametrize("share", [0, 1, -1, 2, math.nan, math.inf])
    def test_no_such_share(self, share):
        with pytest.raises(DataError, match="give one between 0 and 1"):
            held_out(["a", "b"], share)

    def test_too_few(self):
        with pytest.raises(DataError, match="at least 2"):
            held_out(["a", "a"], 0.5)
