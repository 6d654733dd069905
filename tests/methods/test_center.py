"""The baseline of the middle."""

import pytest
import torch
from networks import Pooled, made, maps, one_signal, pictures, session

from excite.methods import METHODS
from excite.readouts.box import maximum_point


@pytest.mark.parametrize("sides", [(224, 299), (225, 300), (224, 224), (7, 11), (14, 3)])
@pytest.mark.parametrize(
    "size", [(500, 375), (375, 500), (333, 499), (4001, 3000), (224, 224), (2, 2), (1, 7), (90, 91)]
)
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
