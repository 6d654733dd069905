"""Which layers are worth trying."""

import pytest
import torch
from torch import nn

import excite
from excite.errors import LayerError
from excite.models.layers import candidate_layers


def names(network, size=32, **options):
    return [layer.name for layer in candidate_layers(network.eval(), torch.rand(1, 3, size, size), **options)]


class Block(nn.Module):
    """Two branches, each of which sees a part of the signal."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.skip = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return (self.conv(x) + self.skip(x)).relu()


class Backbone(nn.Module):
    """A stem, three stages, a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU())
        self.pool = nn.MaxPool2d(2)
        self.stages = nn.Sequential(Block(4), Block(4), nn.MaxPool2d(2), Block(4))
        self.average = nn.AdaptiveAvgPool2d(1)
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.average(self.stages(self.pool(self.stem(x)))).flatten(1))


def test_block_ends():
    """Not the inside of blocks, not what a norm or a ReLU only finishes, nothing without places."""
    assert names(Backbone()) == ["stem", "pool", "stages.0", "stages.1", "stages.2", "stages.3"]


def test_a_network_inside_a_network():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = Backbone()

        def forward(self, x):
            return self.backbone(x)

    assert names(Whole()) == [f"backbone.{name}" for name in names(Backbone())]


def test_too_many_are_thinned_from_below():
    """Each resolution keeps its last one."""
    assert names(Backbone(), most=5) == ["stem", "stages.0", "stages.1", "stages.2", "stages.3"]
    assert names(Backbone(), most=1) == ["stem", "stages.1", "stages.3"]


def test_nothing_above_the_last_weights():
    """There, no dual unit is left to contrast with."""
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    assert names(network) == ["1"]


def test_what_changes_nothing_is_no_layer():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(4 * 30 * 30, 2))
    assert names(network) == ["1"]


def test_none():
    with pytest.raises(LayerError, match="name the layers to try"):
        names(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2)))


def test_the_embedded_classifier():
    classifier = excite.load()
    blocks = [f"blocks.{k}" for k in (0, 2, 4, *range(8, 16))]
    assert names(classifier.module, 224) == [*blocks, "head"]
    assert set(classifier.layers) <= {*blocks, "head"}
