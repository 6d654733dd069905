"""Boxes by every rule against slow ones: pixels compared one by one, regions found by walking."""

import numpy as np
import pytest
import torch

from excite.experiments.localization.scores import RULES, boxes_of, overlaps_of
from excite.metrics.boxes import ALPHAS
from excite.readouts.box import threshold_box
from excite.readouts.overlay import upsample


def stretched_map(seed, size=(36, 28)):
    torch.manual_seed(seed)
    return upsample(torch.rand(5, 7) ** 4, size)


def level(rule, values, threshold):
    low, high, mean = values.min(), values.max(), values.mean()
    return {
        "mean": max(threshold * mean, 0),
        "max": threshold * high,
        "range": low + threshold * (high - low),
    }[rule.of]


def regions(pixels):
    """Sets of pixels that touch, largest first; of equals the upper and then the left one."""
    left, found = set(pixels), []
    while left:
        waiting, region = [left.pop()], set()
        while waiting:
            x, y = waiting.pop()
            region.add((x, y))
            near = {one for one in left if max(abs(one[0] - x), abs(one[1] - y)) <= 1}
            left -= near
            waiting += near
        found.append(region)
    return sorted(found, key=lambda region: (-len(region), box(region)[1], box(region)[0]))


def box(pixels):
    xs, ys = zip(*pixels, strict=True)
    return min(xs), min(ys), max(xs) + 1, max(ys) + 1


def slow_boxes(rule, values, threshold):
    height, width = values.shape
    above = level(rule, values, threshold)
    pixels = [(x, y) for y in range(height) for x in range(width) if values[y, x] > above]
    if not pixels:
        return []
    if rule.region == "all":
        return [box(pixels)]
    return [box(region) for region in regions(pixels)][: 1 if rule.region == "largest" else None]


def slow_iou(one, other):
    width, height = (min(one[k + 2], other[k + 2]) - max(one[k], other[k]) for k in (0, 1))
    inside = max(width, 0) * max(height, 0)
    return inside / (sum((each[2] - each[0]) * (each[3] - each[1]) for each in (one, other)) - inside)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", RULES)
def test_against_slow_ones(name, seed):
    stretched = stretched_map(seed)
    rule, values = RULES[name], stretched.double().numpy()
    found = boxes_of(stretched)[name]
    expected = [slow_boxes(rule, values, threshold) for threshold in rule.thresholds]
    assert [sorted(map(tuple, boxes.tolist())) for boxes in found] == [sorted(boxes) for boxes in expected]
    assert [tuple(boxes[0]) for boxes in found if len(boxes)] == [boxes[0] for boxes in expected if boxes]
    assert len({tuple(boxes) for boxes in expected}) > 5

    truth = [(3, 4, 20, 18), (25, 2, 33, 27)]
    best = [max([slow_iou(one, true) for one in boxes for true in truth], default=0.0) for boxes in expected]
    overlaps = overlaps_of(found, np.array(truth, dtype=float))
    assert overlaps == pytest.approx(best, abs=1e-4)
    assert all(short <= exact for short, exact in zip(overlaps, best, strict=True))
    assert 0.1 < max(overlaps) < 1


@pytest.mark.parametrize("seed", range(5))
def test_the_papers_rule_is_the_readout(seed):
    torch.manual_seed(seed)
    values = torch.rand(7, 7) ** 5
    found = boxes_of(upsample(values, (224, 224)))["paper"]
    expected = [threshold_box(values, (224, 224), alpha) for alpha in ALPHAS]
    assert [tuple(boxes[0]) if len(boxes) else None for boxes in found] == expected
    assert len(set(expected)) > 3


class TestEvenAndEmpty:
    def test_nothing_at_all(self):
        found = boxes_of(torch.zeros(9, 9))
        assert {len(boxes) for by_rule in found.values() for boxes in by_rule} == {0}
        assert overlaps_of(found["any"], np.array([[0, 0, 9, 9.0]])) == [0.0] * 50

    def test_an_even_map(self):
        """It is all above zero, and nowhere above its own mean, or anywhere from its minimum to its maximum."""
        found = boxes_of(torch.ones(9, 9))
        assert [len(boxes) for boxes in found["paper"][:3]] == [1, 1, 0]
        assert {len(boxes) for boxes in found["max"]} == {1}
        assert {len(boxes) for boxes in found["any"]} == {0}


class TestOverlaps:
    def test_a_half_is_a_half(self):
        """Whatever the image's scale: a box twice as large as the truth overlaps by a half, not by a bit less."""
        for width in range(3, 500):
            scale = width / 224
            box = np.array([[0, 0, 224, 224.0]]) * scale
            assert overlaps_of([box], np.array([[0, 0, width / 2, width]])) == [0.5]
