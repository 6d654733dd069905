"""Average precision, recall and rank correlation: against definitions counted out, COCO's evaluation and scipy."""

import numpy as np
import pytest
import torch
from described import first_hit
from pycocotools import mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scipy import stats

from excite.errors import DataError
from excite.metrics.boxes import box_iou
from excite.metrics.ranking import (
    average_precision,
    class_precisions,
    is_small,
    mean_average_precision,
    phrase_class,
    rank_correlation,
    recall_at,
)

NEAR, FAR = (0, 0, 10, 10), (30, 0, 40, 10)


def of_one_class(scores, hits):
    return class_precisions([["it"]] * len(scores), scores, hits)["it"]


@pytest.mark.parametrize("seed", range(20))
def test_average_precision_as_counted_out(seed):
    """For each positive: of all that is scored at least as high, how many are positives?"""
    random = np.random.default_rng(seed)
    number = int(random.integers(1, 40))
    scores = random.integers(0, 12, number) / 12 if seed % 2 else random.random(number)  # every other time with ties
    truth = random.random(number) < 0.4
    truth[random.integers(number)] = True
    precisions = [truth[scores >= score].mean() for score in scores[truth]]
    assert average_precision(scores, truth) == pytest.approx(np.mean(precisions), abs=1e-12)


def test_without_positives_there_is_none():
    assert average_precision([0.1, 0.2], [False, False]) is None
    assert average_precision([], []) is None
    assert mean_average_precision([None, 0.25, 0.75]) == 0.5
    assert mean_average_precision([None]) is None


@pytest.mark.parametrize(("scores", "truth"), [([0.1], [True, False]), ([[0.1]], [[True]]), ([np.nan], [True])])
def test_what_cannot_be_ranked(scores, truth):
    with pytest.raises(DataError):
        average_precision(scores, truth)


@pytest.mark.parametrize("seed", range(3))
def test_as_coco_evaluates(seed):
    """Its way of matching is another: of the boxes of an image, the best that overlaps enough takes the truth."""
    random = np.random.default_rng(seed)
    corners = random.random((30, 2)) * 20
    truths = np.concatenate([corners, corners + 10 + random.random((30, 2)) * 20], axis=1)
    ranked = truths[:, None] + random.normal(0, 5, (30, 25, 4))
    ranked[..., 2:] = np.maximum(ranked[..., 2:], ranked[..., :2] + 1)
    scores = np.sort(random.random((30, 25)))[:, ::-1]
    gt = COCO()  # each mention is an image with one true object
    gt.dataset = {"images": [{"id": k + 1} for k in range(30)], "categories": [{"id": 1}], "annotations": []}
    for k, box in enumerate(with_sides(truths).tolist()):
        entry = {"id": k + 1, "image_id": k + 1, "category_id": 1, "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
        gt.dataset["annotations"].append(entry)
    gt.createIndex()
    found = [
        {"image_id": k + 1, "category_id": 1, "bbox": box, "score": float(score)}
        for k in range(30)
        for box, score in zip(with_sides(ranked[k]).tolist(), scores[k], strict=True)
    ]
    judge = COCOeval(gt, gt.loadRes(found), "bbox")
    judge.params.iouThrs, judge.params.recThrs = np.array([0.5]), np.arange(11) / 10
    judge.params.areaRng, judge.params.areaRngLbl, judge.params.maxDets = [[0, 1e10]], ["all"], [1000]
    judge.evaluate()
    judge.accumulate()
    expected = judge.eval["precision"].mean()
    hits = [first_hit(boxes, [truth]) for boxes, truth in zip(ranked, truths, strict=True)]
    assert 0.05 < expected < 0.95
    assert of_one_class(scores, hits) == pytest.approx(expected, abs=1e-9)


def with_sides(boxes):
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)


@pytest.mark.parametrize("seed", range(3))
def test_overlaps_as_coco_has_them(seed):
    random = np.random.default_rng(seed)
    corners = random.random((11, 2)) * 50
    boxes = np.concatenate([corners, corners + random.random((11, 2)) * 40 + 0.1], axis=1)
    expected = mask.iou(with_sides(boxes[:7]), with_sides(boxes[7:]), [0] * 4)
    assert expected.any()
    assert box_iou(boxes[:7], boxes[7:]) == pytest.approx(expected, abs=1e-12)


def test_no_boxes_and_flat_boxes():
    assert (box_iou([], [NEAR]).shape, box_iou([NEAR], []).shape) == ((0, 1), (1, 0))
    flat = (3, 3, 3, 9)
    assert box_iou([flat], [flat, NEAR]).tolist() == [[0, 0]]
    with pytest.raises(DataError, match=r"not \(4,\)"):
        box_iou(NEAR, [NEAR])


def test_mentions_without_boxes_equal_scores_and_scores_without_end():
    assert of_one_class([[], [0.5]], [None, 1]) == pytest.approx(6 / 11)
    assert of_one_class([[], []], [None, None]) == 0
    assert of_one_class([[0.5, 0.5], [0.5]], [1, None]) == pytest.approx(6 / 11 / 3)  # equals come together
    assert of_one_class([[np.inf, -np.inf], [-np.inf]], [1, 1]) == pytest.approx((6 + 5 * 2 / 3) / 11)


@pytest.mark.parametrize(
    ("scores", "hits", "message"),
    [
        ([[0.5]], [2], "1 scores, but its first hit is number 2"),
        ([[0.5]], [0], "first hit is number 0"),
        ([[float("nan")]], [1], "no numbers"),
        ([[0.1, 0.5]], [1], "best first"),
        ([[0.5]], [1, None], "do not fit"),
    ],
)
def test_what_cannot_be_judged(scores, hits, message):
    with pytest.raises(DataError, match=message):
        of_one_class(scores, hits)


def test_classes_apart():
    """Two mentions of people in one image are two truths with their own boxes."""
    classes = [("people",), ("animals", "other"), ("people",), ()]
    found = class_precisions(classes, [[0.9], [0.8, 0.6], [0.7], [0.99]], [1, 2, None, 1])
    assert found == {"people": pytest.approx(6 / 11), "animals": 0.5, "other": 0.5}


def test_recall():
    ranks = [1, 5, 6, 10, 11, None]
    assert [recall_at(ranks, n) for n in (1, 5, 10)] == [1 / 6, 2 / 6, 4 / 6]
    assert (recall_at([None], 10), recall_at([], 10)) == (0, None)


def test_small_is_below_a_quarter():
    assert not is_small([(0, 0, 20, 10)], (40, 20))
    assert is_small([(0, 0, 20, 9.9)], (40, 20))
    assert is_small([NEAR, FAR], (50, 10), any_box=True)
    assert not is_small([NEAR, FAR], (50, 10))


def test_phrases_as_classes():
    said = "A man|the Man .|two men|a dog and the cat|a man in his hat|one of them|a t-shirt|they|"
    names = ["man", "man", "two men", "dog cat", "man in hat", "of", "t-shirt", "", ""]
    assert [phrase_class(text) for text in said.split("|")] == names


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_rank_correlation_is_scipys_also_where_many_places_are_equal(levels):
    drawn = np.random.default_rng(levels).integers(0, levels, (2, 9, 13)).astype(float)
    one, other = (torch.from_numpy(values) for values in drawn)
    assert rank_correlation(one, other) == pytest.approx(stats.spearmanr(*drawn.reshape(2, -1)).statistic, abs=1e-12)
    assert rank_correlation(torch.zeros(3, 3), torch.eye(3)) == 0  # one without an order tells nothing of another
    with pytest.raises(ValueError, match="no positions in common"):
        rank_correlation(torch.zeros(3, 3), torch.zeros(3, 4))
