"""The baseline of the middle; blurring and normalising maps."""

import math

import pytest
import torch
from networks import Pooled, made, maps, one_signal, pictures, session
from scipy import ndimage

from excite.methods import METHODS
from excite.methods.base import blurred, normalised
from excite.readouts.box import maximum_point


@pytest.mark.parametrize("sides", [(224, 299), (225, 300), (7, 11), (14, 3)])
@pytest.mark.parametrize("size", [(500, 375), (333, 499), (4001, 3000), (224, 224), (2, 2), (1, 7)])
def test_it_points_to_the_middle_of_the_picture(sides, size):
    """Of an even number of pixels, two are the middle ones."""
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 1), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    method = METHODS["center"]
    (values,) = one_signal(session(network, torch.rand(1, 3, *sides), {method: ["input"]}), method, {0: 1.0})["input"]
    point = maximum_point(values, size)
    for found, side in zip(point, size, strict=True):
        assert found in {(side - 1) // 2, side // 2}


def test_whatever_is_in_it():
    network, x = made(Pooled), pictures()
    found = maps(network, x, "center", "input")
    assert found.shape == (2, 10, 14)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found, maps(network, 1 - x, "center", "input", unit=4))
    assert torch.equal(found, found.flip(1))
    assert torch.equal(found, found.flip(2))
    assert found.min() > 0
    assert torch.equal(maps(network, x, "center", "features.4"), found)


@pytest.mark.parametrize("shape", [(2, 224, 300), (1, 300, 17), (1, 1, 1), (3, 7, 7), (1, 2, 90)])
@pytest.mark.parametrize("amount", [0.02, 0.1])
def test_the_blur_is_scipys(shape, amount):
    maps = torch.rand(shape, dtype=torch.float64)
    sigma = amount * max(shape[1:])
    options = {"mode": "reflect", "radius": math.ceil(4 * sigma), "axes": (1, 2)}
    expected = ndimage.gaussian_filter(maps.numpy(), sigma, **options)
    torch.testing.assert_close(blurred(maps, amount), torch.from_numpy(expected), rtol=1e-9, atol=1e-12)


def test_the_papers_amount():
    maps = torch.rand(1, 50, 100)
    torch.testing.assert_close(blurred(maps), blurred(maps, 0.02))
    spike = torch.zeros(1, 101, 201, dtype=torch.float64)
    spike[0, 50, 100] = 1
    spread = blurred(spike)[0]
    torch.testing.assert_close(spread.sum(), torch.ones((), dtype=torch.float64))
    offsets = torch.arange(201) - 100
    assert float((spread.sum(0) * offsets**2).sum()) == pytest.approx((0.02 * 201) ** 2, rel=0.01)


def test_normalised_over_space():
    maps = torch.tensor([[[1.0, -3.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert torch.equal(normalised(maps)[0], maps[0] / 8)
    assert torch.equal(normalised(maps)[1], maps[1])
