"""Connected regions against a flood fill that goes from pixel to pixel."""

import numpy as np
import pytest

from excite.readouts.box import component_boxes


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


@pytest.mark.parametrize("density", [0.02, 0.2, 0.4, 0.6, 0.95])
@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (1, 50), (50, 1), (2, 2)])
def test_against_a_flood_fill(shape, density):
    for seed in range(4):
        strong = np.random.default_rng(seed).random(shape) < density
        boxes, sizes = component_boxes(strong)
        expected = flooded(strong)
        assert sizes.tolist() == [size for _, size in expected]
        assert sorted(zip(map(tuple, boxes.tolist()), sizes.tolist(), strict=True)) == sorted(expected)
        if expected:
            assert tuple(boxes[0]) == expected[0][0]


def test_smooth_shapes():
    """Rings within rings: a box says nothing of what lies inside it, a region does."""
    y, x = np.mgrid[:80, :100]
    strong = np.sin(np.hypot(x - 40, y - 50) / 3) > 0.3
    boxes, sizes = component_boxes(strong)
    assert [(tuple(box), size) for box, size in zip(boxes.tolist(), sizes.tolist(), strict=True)] == flooded(strong)
    assert len(sizes) > 4


def test_corners_touch():
    strong = np.eye(5, dtype=bool)
    assert component_boxes(strong)[0].tolist() == [[0, 0, 5, 5]]
    assert len(component_boxes(strong[::2, ::2])[0]) == 1
    assert component_boxes(np.array([[1, 0, 1], [0, 0, 0], [1, 0, 1]], dtype=bool))[1].tolist() == [1, 1, 1, 1]


def test_everything_and_nothing():
    assert component_boxes(np.ones((3, 7), dtype=bool))[0].tolist() == [[0, 0, 7, 3]]
    boxes, sizes = component_boxes(np.zeros((3, 7), dtype=bool))
    assert (boxes.shape, sizes.shape) == ((0, 4), (0,))
