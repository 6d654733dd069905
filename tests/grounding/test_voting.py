"""Votes of overlapping boxes: agreement beats the best single score, the next box stands for something else."""

import numpy as np
import pytest

from excite.grounding.voting import SAME, Ballot
from excite.metrics.boxes import box_iou

MAN, SKY = [[10, 10, 30, 50], [10, 10, 31, 50], [11, 10, 30, 48]], [60, 0, 99, 30]


@pytest.fixture
def ballot():
    """Three boxes around a man, and one somewhere else."""
    return Ballot.of(np.array([SKY, *MAN], np.float32))


def test_boxes_that_agree_win_over_the_best_alone(ballot):
    order, shares = ballot.elect(np.array([1.0, 0.9, 0.8, 0.8]))
    assert order.tolist() == [1, 0], "of boxes that repeat each other there is one"
    votes = np.array([1.0, 0.9, 0.8, 0.8]) ** 4
    np.testing.assert_allclose(shares, [votes[1:].sum() / votes.sum(), votes[0] / votes.sum()], rtol=1e-6)
    assert ballot.elect(np.array([1.0, 0.9, 0.8, 0.8]), most=1)[0].tolist() == [1]


def test_the_point_lies_where_most_votes_are(ballot):
    x, y = ballot.point(np.array([1.0, 0.9, 0.8, 0.8]), (100, 60))
    assert (abs(x - 20.5), abs(y - 29)) <= (1.5, 1.5), "the middle of what all three have"
    assert ballot.point(np.array([1.0, 0.1, 0.1, 0.1]), (100, 60))[0] > 60


def test_without_evidence_nothing_is_elected(ballot):
    none = np.zeros(4)
    assert (ballot.elect(none)[0].tolist(), ballot.point(none, (100, 60))) == ([], None)
    assert ballot.elect(np.array([0, -1.0, 0.5, 0]))[0].tolist() == [2]


def test_shares_fall_and_nothing_is_repeated():
    rng = np.random.default_rng(0)
    boxes = np.sort(rng.uniform(0, 20, (150, 2, 2)), axis=1).reshape(150, 4).astype(np.float32)
    order, shares = Ballot.of(boxes).elect(rng.random(150))
    assert len(order) > 20
    assert (np.diff(shares) <= 1e-12).all()
    assert 0.99 < shares.sum() <= 1 + 1e-9
    assert np.tril(box_iou(boxes[order], boxes[order]), -1).max() <= SAME
