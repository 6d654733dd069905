"""Overlaps and boxes against slow ones that go through all pixels."""

import pytest
import torch

from excite.metrics.boxes import ALPHAS, box_iou, boxes_above
from excite.readouts.box import threshold_box
from excite.readouts.upsample import upsample


def pixels(box):
    return {(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3])}


@pytest.mark.parametrize("other", [(0, 0, 4, 4), (2, 1, 6, 5), (4, 0, 8, 4), (1, 1, 2, 2), (9, 9, 12, 12)])
def test_overlap_by_counting(other):
    one = (0, 0, 4, 4)
    expected = len(pixels(one) & pixels(other)) / len(pixels(one) | pixels(other))
    assert box_iou([one], [other]) == box_iou([other], [one]) == pytest.approx(expected)


def test_overlap_of_slivers():
    assert box_iou([(1, 1, 1, 1)], [(1, 1, 1, 1)]) == 0


@pytest.mark.parametrize("seed", range(6))
def test_boxes_are_those_of_the_readout(seed):
    torch.manual_seed(seed)
    values = torch.rand(5, 7) ** 6
    expected = [threshold_box(values, (70, 45), alpha) for alpha in ALPHAS]
    assert boxes_above(upsample(values, (70, 45))) == expected
    assert len(set(expected)) > 3


def test_the_alphas_of_the_paper():
    assert ALPHAS[0] == 0
    assert ALPHAS[-1] == 10
    assert len(ALPHAS) == 21
