"""Average precision over the mentions of a class: by hand, by its definition, and as COCO's evaluation has it."""

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from excite.errors import DataError
from excite.metrics.phrases import class_precisions, first_hit, ranked_precision
from excite.metrics.ranking import mean_average_precision

ELEVENTH = 1 / 11


def counted_out(scores, hits, points):
    """From the definition: at each score, how many boxes are at least as good, and how many of these are right?"""
    pairs = [(score, k + 1 == hit) for one, hit in zip(scores, hits, strict=True) for k, score in enumerate(one)]
    curve = []
    for level in {score for score, _ in pairs}:
        seen = [right for score, right in pairs if score >= level]
        curve.append((sum(seen), sum(seen) / len(seen)))  # mentions found, precision
    count = len(hits)
    wanted = range(1, count + 1) if points == "all" else [tenth * count / 10 for tenth in range(11)]
    best = [max((precision for found, precision in curve if found >= least), default=0) for least in wanted]
    return sum(best) / len(best)


@pytest.mark.parametrize("points", ["all", "eleven"])
@pytest.mark.parametrize("seed", range(12))
def test_as_counted_out(seed, points):
    random = np.random.default_rng(seed)
    scores, hits = [], []
    for _ in range(random.integers(1, 12)):
        number = int(random.integers(0, 7))
        values = random.integers(0, 8, number) / 8 if seed % 2 else random.random(number)  # every other time with ties
        scores.append(np.sort(values)[::-1])
        hits.append(int(random.integers(1, number + 1)) if number and random.random() < 0.6 else None)
    assert ranked_precision(scores, hits, points) == pytest.approx(counted_out(scores, hits, points), abs=1e-12)


def evaluated_by_coco(ranked, scores, truths, recalls):
    """Each mention is an image with one true object; COCO's own evaluation at an IoU of 0.5, at those recalls."""
    gt = COCO()
    images = [{"id": k + 1} for k in range(len(truths))]
    gt.dataset = {"images": images, "categories": [{"id": 1}], "annotations": []}
    for k, (x0, y0, x1, y1) in enumerate(truths):
        box = [x0, y0, x1 - x0, y1 - y0]
        entry = {"id": k + 1, "image_id": k + 1, "category_id": 1, "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
        gt.dataset["annotations"].append(entry)
    gt.createIndex()
    found = [
        {"image_id": k + 1, "category_id": 1, "bbox": [x0, y0, x1 - x0, y1 - y0], "score": float(score)}
        for k, (boxes, values) in enumerate(zip(ranked, scores, strict=True))
        for (x0, y0, x1, y1), score in zip(boxes.tolist(), values, strict=True)
    ]
    judge = COCOeval(gt, gt.loadRes(found), "bbox")
    judge.params.iouThrs, judge.params.recThrs = np.array([0.5]), np.array(recalls)
    judge.params.areaRng, judge.params.areaRngLbl, judge.params.maxDets = [[0, 1e10]], ["all"], [1000]
    judge.evaluate()
    judge.accumulate()
    return judge.eval["precision"].mean()


@pytest.mark.parametrize("seed", range(3))
def test_as_coco_evaluates(seed):
    """Its way of matching is another: of the boxes of an image, the best that overlaps enough takes the truth."""
    random = np.random.default_rng(seed)
    truths, ranked, scores = [], [], []
    for _ in range(30):
        corner = random.random(2) * 20
        truth = np.concatenate([corner, corner + 10 + random.random(2) * 20])
        boxes = truth + random.normal(0, 5, (25, 4))
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
        truths.append(truth)
        ranked.append(boxes)
        scores.append(np.sort(random.random(25))[::-1])
    hits = [first_hit(boxes, [truth]) for boxes, truth in zip(ranked, truths, strict=True)]
    eleven = evaluated_by_coco(ranked, scores, truths, np.arange(11) / 10)
    steps = evaluated_by_coco(ranked, scores, truths, np.arange(1, 31) / 30)
    assert 0.05 < steps < 0.95
    assert ranked_precision(scores, hits, "eleven") == pytest.approx(eleven, abs=1e-9)
    assert ranked_precision(scores, hits) == pytest.approx(steps, abs=1e-9)


def test_mentions_without_boxes_are_missed():
    assert ranked_precision([[], [0.5]], [None, 1]) == 0.5
    assert ranked_precision([[], []], [None, None]) == 0
    assert ranked_precision([[]], [None], "eleven") == 0
    assert ranked_precision([], []) is None


def test_scores_without_end():
    assert ranked_precision([[np.inf, -np.inf], [-np.inf]], [1, 1]) == pytest.approx((1 + 2 / 3) / 2)


@pytest.mark.parametrize(
    ("scores", "hits", "points", "message"),
    [
        ([[0.5]], [2], "all", "1 scores, but its first hit is number 2"),
        ([[0.5]], [0], "all", "first hit is number 0"),
        ([[float("nan")]], [1], "all", "no numbers"),
        ([[0.1, 0.5]], [1], "all", "best first"),
        ([[0.5]], [1], "ten", "all, eleven"),
        ([[0.5]], [1, None], "all", "do not fit"),
    ],
)
def test_what_cannot_be_judged(scores, hits, points, message):
    with pytest.raises(DataError, match=message):
        ranked_precision(scores, hits, points)


def test_classes_apart():
    """Two mentions of people in one image are two truths with their own boxes."""
    classes = [("people",), ("animals", "other"), ("people",), ()]
    found = class_precisions(classes, [[0.9], [0.8, 0.6], [0.7], [0.99]], [1, 2, None, 1], "all")
    assert found == {"people": 0.5, "animals": 0.5, "other": 0.5}
    assert mean_average_precision(list(found.values())) == 0.5
    with pytest.raises(DataError, match="do not fit"):
        class_precisions(classes, [[0.9]], [1])
