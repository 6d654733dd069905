"""Average precision, against one that is counted out sample by sample."""

import numpy as np
import pytest

from excite.errors import DataError
from excite.metrics.ranking import average_precision, mean_average_precision


def counted(scores, truth):
    """For each positive: of all that is scored at least as high, how many are positives?"""
    precisions = [
        sum(t for s, t in zip(scores, truth, strict=True) if s >= score) / sum(s >= score for s in scores)
        for score, positive in zip(scores, truth, strict=True)
        if positive
    ]
    return sum(precisions) / len(precisions)


@pytest.mark.parametrize("seed", range(20))
def test_as_counted_out(seed):
    random = np.random.default_rng(seed)
    number = int(random.integers(1, 40))
    scores = random.integers(0, 12, number) / 12 if seed % 2 else random.random(number)  # every other time with ties
    truth = random.random(number) < 0.4
    truth[random.integers(number)] = True
    assert average_precision(scores, truth) == pytest.approx(counted(scores.tolist(), truth.tolist()), abs=1e-12)


def test_without_positives_there_is_none():
    assert average_precision([0.1, 0.2], [False, False]) is None
    assert average_precision([], []) is None
    assert mean_average_precision([None, 0.25, 0.75]) == 0.5
    assert mean_average_precision([None]) is None


@pytest.mark.parametrize(("scores", "truth"), [([0.1], [True, False]), ([[0.1]], [[True]]), ([np.nan], [True])])
def test_what_cannot_be_ranked(scores, truth):
    with pytest.raises(DataError):
        average_precision(scores, truth)
