"""Distances, areas, overlaps and boxes against slow ones that go through all pixels."""

import json
import math

import numpy as np
import pytest
import torch

from excite.datasets import Instance, Mask, Target
from excite.errors import DataError
from excite.metrics.boxes import ALPHAS, area_share, box_distance, boxes_above, distance
from excite.readouts.box import threshold_box
from excite.readouts.overlay import upsample


def pixels(box):
    return {(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3])}


def runs_of(mask):
    """A mask in COCO's format, by counting."""
    counts, inside = [0], False
    for pixel in np.asarray(mask).T.ravel():
        if bool(pixel) != inside:
            counts.append(0)
            inside = not inside
        counts[-1] += 1
    return Mask(json.dumps({"size": list(np.shape(mask)), "counts": counts}))


def drawn(size, *boxes):
    mask = np.zeros((size[1], size[0]), dtype=bool)
    for x0, y0, x1, y1 in boxes:
        mask[y0:y1, x0:x1] = True
    return mask


class TestBoxes:
    @pytest.mark.parametrize("box", [(3, 2, 7, 4), (0, 0, 1, 1), (5, 5, 6, 12)])
    def test_to_the_nearest_pixel(self, box):
        for x in range(-2, 14):
            for y in range(-2, 14):
                nearest = min(math.dist((x, y), pixel) for pixel in pixels(box))
                assert box_distance((x, y), box) == pytest.approx(nearest)

    def test_between_pixels(self):
        assert box_distance((2, 0), (2.7, 0, 5.2, 1)) == 0  # it touches pixels 2 to 5
        assert box_distance((6, 0), (2.7, 0, 5.2, 1)) == 1
        assert box_distance((4, 4), (4.0, 4.0, 4.0, 4.0)) == 0  # a sliver lies on one

    def test_the_nearest_of_several(self):
        target = Target("cup", (Instance((0, 0, 2, 2)), Instance((20, 0, 22, 2), difficult=True)))
        assert distance((17, 0), target, (30, 30)) == 3  # a flagged one counts too


class TestMasks:
    SIZE = (31, 23)

    def test_to_the_nearest_pixel(self):
        random = np.random.default_rng(0)
        mask = random.random((self.SIZE[1], self.SIZE[0])) < 0.01
        assert mask.any()
        target = Target("cup", (Instance((0, 0, 31, 23), mask=runs_of(mask)),))
        inside = [(x, y) for y, x in zip(*np.nonzero(mask), strict=True)]
        for x in range(self.SIZE[0]):
            for y in range(self.SIZE[1]):
                assert distance((x, y), target, self.SIZE) == min(math.dist((x, y), pixel) for pixel in inside)

    def test_several_instances_with_and_without(self):
        left, right = drawn(self.SIZE, (0, 0, 2, 2)), drawn(self.SIZE, (10, 0, 12, 2))
        target = Target(
            "cup",
            (
                Instance((0, 0, 2, 2), mask=runs_of(left)),
                Instance((10, 0, 12, 2), crowd=True, mask=runs_of(right)),
                Instance((20, 0, 22, 2)),
            ),
        )
        assert [distance((x, 0), target, self.SIZE) for x in (1, 4, 8, 13, 18)] == [0, 3, 2, 2, 2]

    def test_a_mask_without_pixels_is_its_box(self):
        """COCO has polygons thinner than a pixel: without this, nobody could ever point at such an object."""
        thin = Mask("[[5.2, 5.2, 5.3, 5.2, 5.3, 5.3]]")
        target = Target("cup", (Instance((5.2, 5.2, 5.3, 5.3), mask=thin),))
        assert not thin.pixels(self.SIZE).any()
        assert distance((5, 8), target, self.SIZE) == 3

    def test_of_a_picture_of_another_size(self):
        target = Target("cup", (Instance((0, 0, 2, 2), mask=runs_of(drawn((9, 9), (0, 0, 2, 2)))),))
        with pytest.raises(DataError, match="for an image of"):
            distance((0, 0), target, self.SIZE)


class TestAreas:
    def test_boxes_are_added_up(self):
        target = Target("cup", (Instance((0, 0, 4, 5)), Instance((2, 0, 6, 5), difficult=True)))
        assert area_share(target, (10, 10)) == 0.4  # their overlap counts twice

    def test_as_annotated_before_counted(self):
        mask = runs_of(drawn((10, 10), (0, 0, 4, 4)))
        assert area_share(Target("cup", (Instance((0, 0, 9, 9), mask=mask),)), (10, 10)) == 0.16
        assert area_share(Target("cup", (Instance((0, 0, 9, 9), mask=mask, annotated_area=15.5),)), (10, 10)) == 0.155


@pytest.mark.parametrize("seed", range(6))
def test_boxes_are_those_of_the_readout(seed):
    torch.manual_seed(seed)
    values = torch.rand(5, 7) ** 6
    expected = [threshold_box(values, (70, 45), alpha) for alpha in ALPHAS]
    assert boxes_above(upsample(values, (70, 45))) == expected
    assert len(set(expected)) > 3
