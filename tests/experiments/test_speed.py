"""Ratios and their intervals, by values computed by hand."""

import pytest

from excite.experiments.speed.timing import Timing
from excite.metrics.statistics import median_interval


def test_each_round_is_divided_by_its_own_forward_passes():
    timing = Timing((3.0, 20.0, 4.0), ((1.0, 2.0), (10.0, 10.0), (1.0, 1.0)))
    assert timing.ratios == [2.0, 2.0, 4.0]
    assert timing.value == 2.0


@pytest.mark.parametrize(
    ("number", "low", "high", "confidence"),
    [
        (1, 1, 1, 0.0),
        (2, 1, 2, 0.5),
        (3, 1, 3, 0.75),
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


def test_each_further_concept_is_compared_round_by_round():
    one = Timing((2.0, 8.0, 2.0), ((1.0, 1.0), (4.0, 4.0), (1.0, 1.0)))
    five = Timing((4.0, 16.0, 6.0), ((1.0, 1.0), (4.0, 4.0), (1.0, 1.0)))
    assert one.each_further(five, 4) == 0.5
    assert five.times(one) == [2.0, 2.0, 3.0]
