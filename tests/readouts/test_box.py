"""The box around strong evidence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from excite.errors import ExciteError
from excite.readouts.box import maximum_point, threshold_box
from excite.readouts.overlay import upsample

MODES = ["bicubic", "bilinear", "nearest"]


def patch(top, left, bottom, right, value=1.0):
    """A map of 10 x 10 with one bright patch."""
    values = torch.zeros(10, 10)
    values[top:bottom, left:right] = value
    return values


def test_by_hand():
    assert threshold_box(patch(2, 3, 5, 8), (100, 50), mode="nearest") == (30, 10, 80, 25)


def test_one_pixel_is_a_box_of_width_one():
    assert threshold_box(patch(9, 0, 10, 1), (10, 10)) == (0, 9, 1, 10)


def test_threshold_is_alpha_means():
    """Mean 1.3: the patch of 4 is above 2 means and below 4, the spot of 30 is above both."""
    values = torch.zeros(10, 10)
    values[2:7, 2:7] = 4
    values[4, 4] = 34
    assert values.mean() == pytest.approx(1.3)
    assert threshold_box(values, (10, 10), alpha=2) == (2, 2, 7, 7)
    assert threshold_box(values, (10, 10), alpha=4) == (4, 4, 5, 5)
    assert threshold_box(values, (10, 10), alpha=34 / 1.3 + 0.01) is None


def test_the_threshold_itself_is_not_above():
    values = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    assert threshold_box(values, (2, 1), alpha=1.5) is None
    assert threshold_box(values, (2, 1), alpha=1.4999) == (1, 0, 2, 1)


def test_an_even_map_has_no_box():
    assert threshold_box(torch.ones(7, 7), (7, 7)) is None


@pytest.mark.parametrize("value", [0.0, -1.0])
@pytest.mark.parametrize("alpha", [0, 2])
def test_a_map_without_evidence_has_no_box(value, alpha):
    assert threshold_box(torch.full((7, 7), value), (70, 50), alpha) is None


def test_a_signed_map_with_a_negative_mean_boxes_only_what_is_positive():
    values = patch(2, 3, 5, 8) - 0.9
    assert values.mean() < 0
    assert threshold_box(values, (10, 10)) == (3, 2, 8, 5)


@pytest.mark.parametrize("alpha", [-0.1, float("nan"), float("inf")])
def test_alpha_that_makes_no_sense(alpha):
    with pytest.raises(ExciteError, match="alpha must be"):
        threshold_box(torch.ones(2, 2), (2, 2), alpha)


@settings(deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 8),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from(MODES),
    st.integers(0, 2**31),
    st.floats(0, 6),
)
def test_is_tight_and_holds_the_maximum(height, width, size, mode, seed, alpha):
    values = torch.rand(height, width, generator=torch.Generator().manual_seed(seed)) ** 4 + 1e-4
    stretched = upsample(values, size, mode)
    threshold = max(0.0, float(alpha * stretched.mean()))
    box = threshold_box(values, size, alpha, mode)
    if stretched.max() <= threshold:
        assert box is None
        return
    x0, y0, x1, y1 = box
    x, y = maximum_point(values, size, mode)
    assert x0 <= x < x1
    assert y0 <= y < y1
    strong = stretched > threshold
    assert strong[y0:y1, x0:x1].sum() == strong.sum()
    for side in (strong[y0, :], strong[y1 - 1, :], strong[:, x0], strong[:, x1 - 1]):
        assert side.any()


@settings(deadline=None)
@given(st.integers(0, 2**31), st.floats(0.5, 4), st.floats(0.5, 4))
def test_a_higher_threshold_gives_a_box_inside(seed, one, other):
    values = torch.rand(6, 6, generator=torch.Generator().manual_seed(seed)) ** 3
    outer, inner = (threshold_box(values, (30, 20), alpha) for alpha in sorted((one, other)))
    if inner is not None:
        assert outer[0] <= inner[0]
        assert outer[1] <= inner[1]
        assert outer[2] >= inner[2]
        assert outer[3] >= inner[3]
