"""A classifier's layers at a glance."""

import pytest
import torch
from torch import nn

from excite.models import Preprocess, load, wrap
from excite.models.layers import outline


def network():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, 1, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(2),
    )


@pytest.fixture
def own():
    module = network().eval()
    module(torch.zeros(1, 3, 32, 32))
    return module


def test_the_size_the_step_and_the_sight_of_each_layer(own):
    layers, _ = outline(wrap(own, preprocess=Preprocess(shorter_side=32)))
    facts = {
        layer.name: (layer.channels, layer.height, layer.width, layer.stride, layer.receptive_field) for layer in layers
    }
    assert facts == {
        "0": (4, 16, 16, 2.0, 3),
        "1": (4, 16, 16, 2.0, 3),
        "2": (4, 8, 8, 4.0, 5),
        "3": (8, 8, 8, 4.0, 13),
        "4": (8, 8, 8, 4.0, 13),
    }


def test_the_papers_networks_have_the_trained_size():
    """They slide over larger images; what is listed is one window."""
    layers, recommended = outline(load("googlenet", weights="random"))
    assert recommended == ("pool2/3x3_s2",)
    (layer,) = (layer for layer in layers if layer.name == recommended[0])
    assert (layer.channels, layer.height, layer.width, layer.stride) == (192, 28, 28, 8.0)
    assert layer.receptive_field == 27  # by hand: 7 (conv1), 11 (pool1), 19 (conv2), 27 (pool2)
