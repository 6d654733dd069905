"""Intervals and tests against published and counted values."""

import pytest

from excite.metrics.statistics import Share, median_interval, paired_test


class TestShare:
    @pytest.mark.parametrize(
        ("count", "total", "low", "high"),
        [(8, 10, 0.490, 0.943), (0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0), (50, 100, 0.404, 0.596)],
    )
    def test_published_values(self, count, total, low, high):
        assert Share(count, total).interval == pytest.approx((low, high), abs=6e-4)

    def test_as_text(self):
        assert str(Share(8, 10)) == "80.0 (49.0-94.3)"


class TestPairedTest:
    @pytest.mark.parametrize(
        ("gained", "lost", "chance"),
        [(0, 0, 1), (1, 0, 1), (3, 3, 1), (6, 1, 16 / 128), (0, 6, 2 / 64), (8, 2, 112 / 1024)],
    )
    def test_share_of_tosses_as_far_apart(self, gained, lost, chance):
        one = [True] * gained + [False] * lost + [True, False]  # the last two agree, and do not count
        other = [False] * gained + [True] * lost + [True, False]
        assert paired_test(one, other) == paired_test(other, one) == pytest.approx(chance)

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
