"""The arithmetic above a layer, counted by hand."""

import pytest
import torch
from torch import nn

from excite.experiments.speed.networks import above_layers
from excite.experiments.speed.timing import Stopwatch


@pytest.fixture
def network():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),  # 8 x 8 places x 4 x 27 multiply-adds = 6912
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 1),  # 4 x 4 x 8 x 4 = 512
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 10),  # 1280
    ).eval()


def test_by_hand(network):
    whole = 6912 + 512 + 1280
    above = above_layers(network, torch.ones(1, 3, 8, 8), ["0", "2", "4"], Stopwatch())
    assert above["0"].arithmetic == pytest.approx((512 + 1280) / whole)
    assert above["2"].arithmetic == above["0"].arithmetic  # pooling multiplies nothing
    assert above["4"].arithmetic == pytest.approx(1280 / whole)
    assert above["4"].limit == pytest.approx(1 + 2 * 1280 / whole)


def test_by_the_clock():
    """Each module takes a second, three of them lie above."""
    seconds = [0.0]

    class Tick(nn.Module):
        def forward(self, x):
            seconds[0] += 1
            return x

    network = nn.Sequential(nn.Conv2d(1, 1, 1), *(Tick() for _ in range(4)))
    above = above_layers(network, torch.ones(1, 1, 2, 2), ["1", "4"], Stopwatch(clock=lambda: seconds[0]))
    assert (above["1"].time, above["4"].time) == (0.75, 0.0)


def test_nothing_is_left_behind(network):
    above_layers(network, torch.ones(1, 3, 8, 8), ["0"], Stopwatch())
    assert not any(child._forward_hooks for child in network.modules())
