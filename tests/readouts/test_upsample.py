"""A map at the size of its image."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from excite.errors import ExciteError
from excite.readouts.overlay import upsample

MODES = ["bicubic", "bilinear", "nearest"]
sides = st.integers(1, 12)
sizes = st.tuples(st.integers(1, 40), st.integers(1, 40))


def weights(distance):
    """The cubic of Keys with the parameter -0.75, written from its definition."""
    t, a = abs(distance), -0.75
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def slow_cubic(row, width):
    """Each new pixel from the four old ones around its middle; beyond the border the last one goes on."""
    result = []
    for x in range(width):
        middle = (x + 0.5) * len(row) / width - 0.5
        near = range(int(np.floor(middle)) - 1, int(np.floor(middle)) + 3)
        result.append(sum(row[min(max(i, 0), len(row) - 1)] * weights(middle - i) for i in near))
    return result


def test_cubic_equals_the_slow_twin():
    values = torch.rand(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wide = np.array([slow_cubic(row, 30) for row in values.tolist()])
    slow = np.array([slow_cubic(column, 23) for column in wide.T]).T
    np.testing.assert_allclose(upsample(values, (30, 23)).numpy(), slow, atol=1e-12)


def test_nearest_by_hand():
    assert upsample(torch.tensor([[1.0, 2.0, 3.0]]), (5, 1), "nearest").tolist() == [[1, 1, 2, 3, 3]]
    values = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    for mode in MODES:
        assert torch.equal(upsample(values, (4, 6), mode), values)


@settings(deadline=None, max_examples=50)
@given(sides, sides, sizes, st.sampled_from(MODES), st.floats(-100, 100, width=32))
def test_constants_stay(height, width, size, mode, constant):
    result = upsample(torch.full((height, width), constant), size, mode)
    torch.testing.assert_close(result, torch.full(size[::-1], constant), rtol=1e-5, atol=1e-5)


@settings(deadline=None)
@given(sides, sides, sizes, st.sampled_from(MODES))
def test_flipping_the_map_flips_the_result(height, width, size, mode):
    values = torch.rand(height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    if mode == "nearest" and (size[0] % width or size[1] % height):
        return  # of two equally near pixels, one side has to be taken
    flipped = upsample(values.flip(0, 1), size, mode).flip(0, 1)
    torch.testing.assert_close(flipped, upsample(values, size, mode))


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_shrinking_averages_and_loses_no_evidence(mode):
    assert upsample(torch.arange(16.0).reshape(4, 4), (2, 1), mode).tolist() == [[6.5, 8.5]]
    for spot in torch.eye(49).reshape(49, 7, 7):
        assert upsample(spot, (2, 2), mode).max() > 0


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_is_computed_in_float32(kind):
    assert upsample(torch.ones(2, 2).to(kind), (4, 4)).dtype == torch.float32


@pytest.mark.parametrize(
    ("values", "said"),
    [
        *((torch.tensor([[0.0, wrong]]), "NaN or infinity") for wrong in (torch.nan, torch.inf, -torch.inf)),
        *((torch.zeros(shape), "must be a plane") for shape in ((), (3,), (1, 2, 2), (0, 3), (3, 0))),
        (np.zeros((2, 2)), "not ndarray: use"),
        (torch.zeros(2, 2, dtype=torch.complex64), "real numbers"),
    ],
)
def test_no_map(values, said):
    with pytest.raises(ExciteError, match=said):
        upsample(values, (4, 4))


@pytest.mark.parametrize("size", [(0, 4), (4, -1), (4,), (4, 4, 3), (4.5, 4), None, "ab", (float("inf"), 4)])
def test_no_size(size):
    with pytest.raises(ExciteError, match="size must be"):
        upsample(torch.zeros(2, 2), size)


def test_unknown_interpolation():
    with pytest.raises(ExciteError, match="no interpolation 'area': use one of bicubic, bilinear, nearest"):
        upsample(torch.zeros(2, 2), (4, 4), "area")
