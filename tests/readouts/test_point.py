"""Where a map points."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from excite.readouts.box import maximum_point
from excite.readouts.overlay import upsample

MODES = ["bicubic", "bilinear", "nearest"]


def spot(height, width, y, x, value=1.0):
    values = torch.zeros(height, width)
    values[y, x] = value
    return values


def test_middle_of_the_cell():
    """Cell (x 3, y 1) of 7 x 5 covers the pixels 27..35 and 9..17 of 63 x 45; their middle is (31, 13)."""
    assert maximum_point(spot(5, 7, 1, 3), (63, 45)) == (31, 13)
    assert maximum_point(spot(5, 7, 1, 3), (63, 45), "bilinear") == (31, 13)


def test_between_two_equal_cells_the_cubic_peaks_in_the_cell_that_comes_first():
    values = torch.tensor([[0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0]])
    assert maximum_point(values, (27, 1)) == (7, 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [0.0, -0.0, -1.0])
def test_a_map_without_evidence_points_nowhere(value, mode):
    assert maximum_point(torch.full((7, 7), value), (70, 50), mode) is None


def test_overshoot_beside_negative_values_is_no_evidence():
    values = spot(5, 5, 2, 2, -1.0)
    assert upsample(values, (50, 50)).max() > 0  # the cubic curve swings up beside the dip
    assert maximum_point(values, (50, 50)) is None


@pytest.mark.parametrize("mode", MODES)
def test_one_pixel(mode):
    assert maximum_point(torch.ones(7, 7), (1, 1), mode) == (0, 0)
    assert maximum_point(torch.ones(1, 1), (1, 1), mode) == (0, 0)


@settings(deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.tuples(st.integers(1, 50), st.integers(1, 50)),
    st.sampled_from(MODES),
    st.integers(0, 2**31),
)
def test_is_the_maximum_inside_the_picture(height, width, size, mode, seed):
    values = torch.rand(height, width, generator=torch.Generator().manual_seed(seed)) + 0.01
    x, y = maximum_point(values, size, mode)
    assert 0 <= x < size[0]
    assert 0 <= y < size[1]
    stretched = upsample(values, size, mode)
    assert stretched[y, x] == stretched.max()


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.data(), st.integers(1, 5))
def test_points_into_the_cell_of_a_lone_spot(height, width, data, half):
    y, x = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    scale = 2 * half + 1
    found_x, found_y = maximum_point(spot(height, width, y, x), (width * scale, height * scale))
    assert (found_x // scale, found_y // scale) == (x, y)
