"""Intervals and tests against slow ones that count everything."""

import itertools
import math

import pytest

from excite.metrics.statistics import Share, median_interval, paired_test


class TestShare:
    @pytest.mark.parametrize(
        ("count", "total", "low", "high"),
        [(8, 10, 0.490, 0.943), (0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0), (50, 100, 0.404, 0.596)],
    )
    def test_published_values(self, count, total, low, high):
        assert Share(count, total).interval == pytest.approx((low, high), abs=6e-4)

    def test_ends_where_the_share_would_be_two_deviations_off(self):
        """What defines Wilson's interval: at its ends, the observed share is 1.96 deviations from the true one."""
        share = Share(17, 60)
        for end in share.interval:
            assert abs(share.value - end) / math.sqrt(end * (1 - end) / 60) == pytest.approx(1.96, abs=1e-3)

    def test_as_text(self):
        assert str(Share(8, 10)) == "80.0 (49.0-94.3)"


class TestPairedTest:
    @pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (3, 3), (6, 1), (0, 6), (8, 2)])
    def test_counts_all_tosses(self, gained, lost):
        one = [True] * gained + [False] * lost + [True, False]  # the last two agree, and do not count
        other = [False] * gained + [True] * lost + [True, False]
        tosses = list(itertools.product([0, 1], repeat=gained + lost))
        as_far = [toss for toss in tosses if abs(2 * sum(toss) - len(toss)) >= abs(gained - lost)]
        assert paired_test(one, other) == pytest.approx(len(as_far) / len(tosses))
        assert paired_test(other, one) == paired_test(one, other)

    def test_thousands(self):
        one = [True] * 3000 + [False] * 2900
        assert paired_test(one, [not hit for hit in one]) == pytest.approx(0.197, abs=2e-3)


@pytest.mark.parametrize(
    ("number", "low", "high", "confidence"),
    [
        (1, 1, 1, 0.0),
        (5, 1, 5, 0.9375),
        (6, 1, 6, 1 - 2 / 64),
        (9, 2, 8, 1 - 20 / 512),
        (20, 6, 15, 1 - 2 * 21700 / 2**20),
    ],
)
def test_the_interval_of_a_median(number, low, high, confidence):
    found = median_interval([float(value) for value in range(number, 0, -1)])
    assert (found.low, found.high) == (low, high)
    assert found.confidence == pytest.approx(confidence)
