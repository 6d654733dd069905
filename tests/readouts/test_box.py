"""The point with most evidence, the box around strong evidence, and connected regions against a flood fill."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from excite.errors import ExciteError
from excite.readouts.box import component_boxes, maximum_point, region_boxes, threshold_box
from excite.readouts.overlay import upsample

MODES = ["bicubic", "bilinear", "nearest"]
sides, sizes = st.integers(1, 9), st.tuples(st.integers(1, 50), st.integers(1, 50))


def spot(height, width, y, x, value=1.0):
    values = torch.zeros(height, width)
    values[y, x] = value
    return values


def patch(top, left, bottom, right, value=1.0):
    """A map of 10 x 10 with one bright patch."""
    return spot(10, 10, slice(top, bottom), slice(left, right), value)


class TestPoint:
    def test_middle_of_the_cell(self):
        """Cell (x 3, y 1) of 7 x 5 covers the pixels 27..35 and 9..17 of 63 x 45; their middle is (31, 13)."""
        for mode in ("bicubic", "bilinear"):
            assert maximum_point(spot(5, 7, 1, 3), (63, 45), mode) == (31, 13)
        twice = torch.tensor([[0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0]])
        assert maximum_point(twice, (27, 1)) == (7, 0), "of two equal cells the first"

    def test_overshoot_beside_negative_values_is_no_evidence(self):
        values = spot(5, 5, 2, 2, -1.0)
        assert upsample(values, (50, 50)).max() > 0  # the cubic curve swings up beside the dip
        assert maximum_point(values, (50, 50)) is None

    @settings(deadline=None, max_examples=50)
    @given(sides, sides, st.data(), st.integers(1, 5))
    def test_points_into_the_cell_of_a_lone_spot(self, height, width, data, half):
        y, x = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
        scale = 2 * half + 1
        found_x, found_y = maximum_point(spot(height, width, y, x), (width * scale, height * scale))
        assert (found_x // scale, found_y // scale) == (x, y)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [0.0, -0.0, -1.0])
def test_a_map_without_evidence_has_neither_point_nor_box(value, mode):
    assert maximum_point(torch.full((7, 7), value), (70, 50), mode) is None
    assert threshold_box(torch.full((7, 7), value), (70, 50), 0, mode) is None


class TestBox:
    def test_by_hand(self):
        """Of a map with a negative mean only what is positive is in a box."""
        assert threshold_box(patch(2, 3, 5, 8), (100, 50), mode="nearest") == (30, 10, 80, 25)
        assert threshold_box(patch(9, 0, 10, 1), (10, 10)) == (0, 9, 1, 10)
        assert threshold_box(torch.ones(7, 7), (7, 7)) is None
        assert threshold_box(patch(2, 3, 5, 8) - 0.9, (10, 10)) == (3, 2, 8, 5)

    def test_threshold_is_alpha_means_and_is_itself_not_above(self):
        """Mean 1.3: the patch of 4 is above 2 means and below 4, the spot of 34 is above both."""
        values = patch(2, 2, 7, 7, 4)
        values[4, 4] = 34
        assert values.mean() == pytest.approx(1.3)
        assert threshold_box(values, (10, 10), alpha=2) == (2, 2, 7, 7)
        assert threshold_box(values, (10, 10), alpha=4) == (4, 4, 5, 5)
        assert threshold_box(values, (10, 10), alpha=34 / 1.3 + 0.01) is None
        values = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
        assert threshold_box(values, (2, 1), alpha=1.5) is None
        assert threshold_box(values, (2, 1), alpha=1.4999) == (1, 0, 2, 1)

    @pytest.mark.parametrize("alpha", [-0.1, float("nan"), float("inf")])
    def test_alpha_that_makes_no_sense(self, alpha):
        with pytest.raises(ExciteError, match="alpha must be"):
            threshold_box(torch.ones(2, 2), (2, 2), alpha)


@settings(deadline=None)
@given(sides, sides, sizes, st.sampled_from(MODES), st.integers(0, 2**31), st.floats(0, 6))
def test_the_box_is_tight_and_holds_the_maximum(height, width, size, mode, seed, alpha):
    values = torch.rand(height, width, generator=torch.Generator().manual_seed(seed)) ** 4 + 1e-4
    stretched = upsample(values, size, mode)
    x, y = maximum_point(values, size, mode)
    assert stretched[y, x] == stretched.max()
    threshold = max(0.0, float(alpha * stretched.mean()))
    box = threshold_box(values, size, alpha, mode)
    if stretched.max() <= threshold:
        assert box is None
        return
    x0, y0, x1, y1 = box
    assert x0 <= x < x1
    assert y0 <= y < y1
    strong = stretched > threshold
    assert strong[y0:y1, x0:x1].sum() == strong.sum()
    for side in (strong[y0, :], strong[y1 - 1, :], strong[:, x0], strong[:, x1 - 1]):
        assert side.any()


def flooded(strong):
    """The box and the size of each region, found by walking: those that touch by a corner hang together."""
    left = {(int(x), int(y)) for y, x in np.argwhere(strong)}
    found = []
    while left:
        waiting, region = [left.pop()], []
        while waiting:
            x, y = waiting.pop()
            region.append((x, y))
            near = {(x + dx, y + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)} & left
            left -= near
            waiting += near
        xs, ys = zip(*region, strict=True)
        found.append(((min(xs), min(ys), max(xs) + 1, max(ys) + 1), len(region)))
    return sorted(found, key=lambda one: (-one[1], one[0][1], one[0][0]))


def rings():
    """A box says nothing of what lies inside it, a region does."""
    y, x = np.mgrid[:80, :100]
    return np.sin(np.hypot(x - 40, y - 50) / 3) > 0.3


SHAPES = [(40, 60), (60, 40), (1, 50), (50, 1), (2, 2)]
DENSITIES = [0.02, 0.2, 0.4, 0.6, 0.95, 0, 1]
RANDOM = [np.random.default_rng(seed).random(s) < d for seed in range(3) for s in SHAPES for d in DENSITIES]


def test_components_against_a_flood_fill():
    assert len(flooded(rings())) > 4
    for strong in [rings(), *RANDOM]:
        boxes, sizes = component_boxes(strong)
        expected = flooded(strong)
        assert (boxes.shape, sizes.tolist()) == ((len(expected), 4), [size for _, size in expected])
        assert sorted(zip(map(tuple, boxes.tolist()), sizes.tolist(), strict=True)) == sorted(expected)
        if expected:
            assert tuple(boxes[0]) == expected[0][0]


def test_an_object_ends_where_its_border_is_clearest():
    """However strong the rest of the image is; another one has a box of its own if it has half as much."""
    for rest in (0.4, 0.1, 0.01):
        plane = torch.full((20, 30), rest)
        plane[4:12, 4:12] = 1.0
        assert region_boxes(plane, (300, 200)) == [(36, 36, 124, 124)]
    plane[6:11, 18:28] = 0.9
    assert region_boxes(plane, (300, 200)) == [(36, 36, 124, 124), (176, 56, 284, 114)]
    plane[6:11, 18:28] = 0.5
    assert region_boxes(plane, (300, 200)) == [(36, 36, 124, 124)]
    assert region_boxes(torch.zeros(7, 7), (70, 70)) == []
