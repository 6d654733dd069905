"""Where in a ranked list of boxes the first one is that a phrase refers to."""

import numpy as np
import pytest
from pycocotools import mask

from excite.errors import DataError
from excite.metrics.boxes import box_iou
from excite.metrics.phrases import first_hit, is_small, phrase_class, recall_at

NEAR = (0, 0, 10, 10)
FAR = (30, 0, 40, 10)
BOTH = (0, 0, 40, 10)


def boxes(random, count):
    corner = random.random((count, 2)) * 50
    return np.concatenate([corner, corner + random.random((count, 2)) * 40 + 0.1], axis=1)


@pytest.mark.parametrize("seed", range(5))
def test_overlaps_as_coco_has_them(seed):
    random = np.random.default_rng(seed)
    one, other = boxes(random, 7), boxes(random, 4)
    with_sides = (np.concatenate([some[:, :2], some[:, 2:] - some[:, :2]], axis=1) for some in (one, other))
    expected = mask.iou(*with_sides, [0] * 4)
    assert expected.any()
    assert box_iou(one, other) == pytest.approx(expected, abs=1e-12)


def test_no_boxes_and_flat_boxes():
    assert box_iou([], [NEAR]).shape == (0, 1)
    assert box_iou([NEAR], []).shape == (1, 0)
    flat = (3, 3, 3, 9)
    assert box_iou([flat], [flat, NEAR]).tolist() == [[0, 0]]


def test_the_first_of_several_hits():
    assert first_hit([FAR, NEAR, NEAR], [NEAR]) == 2
    assert first_hit([FAR, FAR], [NEAR]) is None
    assert first_hit([], [NEAR]) is None
    assert first_hit(np.empty((0, 4), np.float32), np.array([NEAR], np.float32)) is None


def test_half_is_enough():
    assert first_hit([(0, 0, 10, 20)], [NEAR]) == 1  # exactly 0.5
    assert first_hit([(0, 0, 10, 20.01)], [NEAR]) is None
    assert first_hit([(0, 0, 10, 20)], [NEAR], iou=0.51) is None


def test_the_union_or_any_of_several_instances():
    ranked = [NEAR, BOTH, FAR]
    assert first_hit(ranked, [NEAR, FAR]) == 2
    assert first_hit(ranked, [NEAR, FAR], any_box=True) == 1
    assert first_hit([FAR, NEAR], [FAR, NEAR], any_box=True) == 1
    assert first_hit([BOTH], [NEAR, FAR], any_box=True) is None


def test_a_phrase_without_a_true_box():
    with pytest.raises(DataError, match="without a true box"):
        first_hit([NEAR], [])


def test_boxes_of_another_shape():
    with pytest.raises(DataError, match=r"not \(4,\)"):
        first_hit(NEAR, [NEAR])


def test_recall():
    ranks = [1, 5, 6, 10, 11, None]
    assert [recall_at(ranks, n) for n in (1, 5, 10)] == [1 / 6, 2 / 6, 4 / 6]
    assert recall_at([None], 10) == 0
    assert recall_at([], 10) is None


def test_small_is_below_a_quarter():
    assert not is_small([(0, 0, 20, 10)], (40, 20))
    assert is_small([(0, 0, 20, 9.9)], (40, 20))
    assert is_small([NEAR, FAR], (50, 10), any_box=True)
    assert not is_small([NEAR, FAR], (50, 10))


def test_phrases_as_classes():
    said = "A man|the Man .|two men|a dog and the cat|a man in his hat|one of them|a t-shirt|they|"
    names = ["man", "man", "two men", "dog cat", "man in hat", "of", "t-shirt", "", ""]
    assert [phrase_class(text) for text in said.split("|")] == names
