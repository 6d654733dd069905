"""Sums over proposals, their scores and their order, against slow versions written from the definitions."""

import tracemalloc

import numpy as np
import pytest

from excite.grounding.proposals import Proposals, Segments
from excite.grounding.scoring import VOTERS, Scorer
from excite.grounding.voting import SAME
from excite.metrics.boxes import box_iou

WIDTH, HEIGHT = 23, 17


@pytest.fixture
def plane():
    return np.random.default_rng(0).random((HEIGHT, WIDTH))


def boxes_of(rng, count):
    corners = np.sort(rng.uniform(-3, 26, (count, 2, 2)), axis=1)
    return corners.reshape(count, 4).astype(np.float32)


def slow_box_sum(plane, box):
    ys, xs = np.mgrid[0 : plane.shape[0], 0 : plane.shape[1]] + 0.5
    inside = (xs > box[0]) & (xs <= box[2]) & (ys > box[1]) & (ys <= box[3])
    return plane[inside].sum()


def segments_of(rng, regions, parts=12):
    """Random sets of random parts; some pixels are nobody's, one region is empty."""
    labels = rng.integers(-1, parts, (HEIGHT, WIDTH)).astype(np.int32)
    sets = [rng.choice(parts, rng.integers(1, parts), replace=False) for _ in range(regions - 1)]
    sets.insert(regions // 2, np.array([], np.int32))
    starts = np.concatenate([[0], np.cumsum([len(one) for one in sets])])
    return Segments(labels, starts, np.concatenate(sets).astype(np.int32)), sets


def proposals(boxes, segments=None):
    return Proposals((WIDTH, HEIGHT), boxes, np.ones(len(boxes), np.float32), segments)


class TestSums:
    def test_of_boxes_are_those_of_their_pixels(self, plane):
        boxes = boxes_of(np.random.default_rng(1), 200)
        expected = [slow_box_sum(plane, box) for box in boxes]
        np.testing.assert_allclose(Scorer(proposals(boxes)).sums(plane), expected, atol=1e-9)

    def test_of_segments_are_those_of_their_pixels(self, plane):
        segments, sets = segments_of(np.random.default_rng(2), 40)
        expected = [plane[np.isin(segments.parts, one)].sum() for one in sets]
        scorer = Scorer(proposals(np.zeros((40, 4), np.float32), segments))
        np.testing.assert_allclose(scorer.sums(plane), expected, atol=1e-9)
        np.testing.assert_array_equal(scorer.areas, [np.isin(segments.parts, one).sum() for one in sets])

    def test_without_proposals_and_of_parts_without_a_pixel(self, plane):
        nowhere = np.zeros((HEIGHT, WIDTH), np.int32)
        for segments in (None, Segments(nowhere, np.array([0]), np.array([], np.int32))):
            scorer = Scorer(proposals(np.zeros((0, 4), np.float32), segments))
            assert scorer.sums(plane).shape == (0,)
            assert scorer.ranked(scorer.scores(plane, 0.5)).shape == (0,)
        segments = Segments(nowhere, np.array([0, 1, 3]), np.array([7, 0, 9], np.int32))
        sums = Scorer(proposals(np.zeros((2, 4), np.float32), segments)).sums(plane)
        np.testing.assert_allclose(sums, [0, plane.sum()])


def test_scores(plane):
    """Gamma chooses between all and dense; trust prefers what the maker puts first; nothing without evidence."""
    plane[:] = 0.01
    plane[4:8, 4:8] = 1
    boxes = np.array([[4, 4, 8, 8], [0, 0, WIDTH, HEIGHT]], np.float32)
    scorer = Scorer(proposals(boxes), trust=0)
    assert [scorer.chosen(scorer.scores(plane, gamma))[0].tolist() for gamma in (0, 1)] == [[1, 0], [0, 1]]
    same = np.array([[1, 1, 9, 9]] * 4, np.float32)
    wary, trusting = (Scorer(proposals(same), trust=trust).scores(plane, 0.5) for trust in (0, 0.8))
    assert len(set(wary)) == 1
    np.testing.assert_allclose(trusting / wary, [1, 0.8, 0.6, 0.4])
    plane[:, 12:] = 0
    scorer = Scorer(proposals(np.array([[14, 0, 20, 9], [0, 0, 6, 6]], np.float32)), trust=0)
    scores = scorer.scores(plane, 0.5)
    assert (scorer.ranked(scores).tolist(), scorer.chosen(scores)[0].tolist()) == ([1, 0], [1])


def slow_kept(boxes, scores, same=SAME):
    """From the definition: go down the list, drop what overlaps with something already kept."""
    told = []
    for k in sorted(range(len(boxes)), key=lambda k: (-scores[k], k)):
        if all(box_iou(boxes[k][None], boxes[j][None])[0, 0] <= same for j in told):
            told.append(k)
    return told


class TestKept:
    def test_against_the_slow_version(self):
        rng = np.random.default_rng(3)
        boxes = boxes_of(rng, 150).clip(0, 12)
        scores = rng.integers(0, 20, 150) / 20  # many are equal
        assert Scorer(proposals(boxes)).ranked(scores).tolist() == slow_kept(boxes, scores)
        assert len(slow_kept(boxes, scores)) < 150

    def test_thousands_of_boxes_take_no_table_of_all_pairs(self):
        boxes = boxes_of(np.random.default_rng(4), 10_000)
        tracemalloc.start()
        scorer, scores = Scorer(proposals(boxes)), np.random.default_rng(5).random(10_000)
        scorer.ranked(scores, most=50)
        assert set(scorer.chosen(scores)[0]) <= set(np.argsort(-scores)[:VOTERS])
        assert tracemalloc.get_traced_memory()[1] < 20e6
        tracemalloc.stop()

    @pytest.mark.parametrize(
        "boxes",
        [[[0, 0, 10, 1], [0, 0, 7, 1]], [[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 3, 3]]],
        ids=["exactly at the threshold", "without an area"],
    )
    def test_boxes_that_do_not_hide_others(self, boxes):
        scores = np.arange(len(boxes), 0.0, -1)
        assert Scorer(proposals(np.array(boxes, np.float32))).ranked(scores).tolist() == list(range(len(boxes)))
