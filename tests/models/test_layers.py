"""Which layers can be read as maps, and which one is read when nobody names one."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from zoo import torchvision_models

from excite.errors import LayerError
from excite.models import load
from excite.models.layers import SpatialLayer, candidate_layers, default_layer, outline, spatial_layers
from excite.propagation import mwp

PICTURE = torch.zeros(1, 3, 64, 64)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def names(network, inputs=PICTURE):
    return [layer.name for layer in spatial_layers(network, inputs)]


class TestSpatialLayers:
    def test_what_is_told_of_a_layer(self):
        network = nn.Sequential(nn.Conv2d(3, 5, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 32 * 16, 2))
        assert spatial_layers(network, torch.zeros(2, 3, 64, 32)) == [
            SpatialLayer("0", "Conv2d", 5, 32, 16, 2.0, 3),
            SpatialLayer("1", "ReLU", 5, 32, 16, 2.0, 3),
        ]

    def test_behind_what_mixes_all_places(self):
        """Beside a residual, positions are where they were; without it nobody knows where they are."""
        layers = nn.Conv2d(3, 4, 3, stride=2), nn.Flatten(2), nn.Linear(31 * 31, 31 * 31), nn.Unflatten(2, (31, 31))
        conv, flat = spatial_layers(nn.Sequential(*layers), PICTURE)
        assert (conv.stride, conv.receptive_field) == (flat.stride, flat.receptive_field) == (2, 3)
        *_, block = spatial_layers(nn.Sequential(layers[0], Residual(nn.Sequential(*layers[1:]))), PICTURE)
        assert (block.name, block.stride, block.receptive_field) == ("1", 2, None)

    def test_behind_nothing_put_before_them(self):
        """Rotary positions leave out the class tokens, also where there are none: positions stay where they are."""

        class Beside(nn.Module):
            def forward(self, x):
                return torch.cat([x[:, :, :0], x[:, :, 0:] * 2], dim=2)

        network = nn.Sequential(nn.Conv2d(3, 5, 3, 2, 1), Beside(), nn.Flatten(), nn.Linear(5 * 32 * 32, 2))
        assert [(layer.name, layer.stride, layer.receptive_field) for layer in spatial_layers(network, PICTURE)] == [
            ("0", 2, 3),
            ("1", 2, 3),
        ]

    def test_the_network_is_left_as_it_was(self):
        network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten()).train()
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        spatial_layers(network, torch.rand(2, 3, 9, 9))
        default_layer(network[:2].append(nn.Conv2d(4, 2, 1)), torch.rand(2, 3, 9, 9))
        assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
        assert all(part.training for part in network.modules())
        assert not any(part._forward_hooks for part in network.modules())


class Branches(nn.Module):
    """A block whose branches each see only a part of the signal."""

    def __init__(self, channels, stride=1):
        super().__init__()
        self.left = nn.Conv2d(channels, channels, 1)
        self.right = nn.Conv2d(channels, channels, 3, stride=stride, padding=1)
        self.stride = stride

    def forward(self, features):
        left = functional.avg_pool2d(self.left(features), self.stride)
        return functional.relu(left + self.right(features))


class TestDefaultLayer:
    def test_the_last_one_of_stride_16(self):
        stages = [nn.Conv2d(channels, 4, 3, stride=2, padding=1) for channels in (3, 4, 4, 4, 4)]
        network = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
        assert default_layer(network, PICTURE) == "3"

    @pytest.mark.parametrize("end", [[], [nn.ReLU()], [nn.AdaptiveAvgPool2d(1), nn.Flatten()]])
    def test_below_the_classifiers_own_weights(self, end):
        network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1), *end)
        assert default_layer(network, PICTURE) == "1"

    def test_not_within_a_block_of_branches(self):
        network = nn.Sequential(
            nn.Conv2d(3, 4, 16, stride=16), Branches(4, 1), Branches(4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        network.append(nn.Linear(4, 2))
        assert "2.left" in names(network)  # of stride 16 and computed later
        assert default_layer(network, PICTURE) == "1"

    def test_not_in_one_of_several_streams(self):
        """As in HRNet: no layer of stride 16 is passed by the whole signal, but one of stride 32 is."""

        class Streams(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem = nn.Conv2d(3, 4, 4, stride=4)
                self.fine, self.coarse = nn.Conv2d(4, 4, 8, stride=8), nn.Conv2d(4, 4, 4, stride=4)
                self.down, self.last = nn.Conv2d(4, 4, 2, stride=2), nn.Linear(4, 2)
                self.final = nn.ReLU()

            def forward(self, pictures):
                x = self.stem(pictures)
                return self.last(self.final(self.fine(x) + self.down(self.coarse(x))).mean((2, 3)))

        assert default_layer(Streams(), torch.zeros(1, 3, 128, 128)) == "final"

    def test_none(self):
        pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
        for network in (nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 2)), pooled, nn.Conv2d(3, 2, 3)):
            with pytest.raises(LayerError, match="no layer below the classifier's weights has places"):
                default_layer(network, PICTURE)

    @pytest.mark.parametrize(
        ("name", "layer"),
        [
            ("vgg11", "features.19"),
            ("squeezenet1_1", "features.11"),
            ("resnet18", "layer3"),
            ("shufflenet_v2_x0_5", "stage3"),
            ("regnet_y_400mf", "trunk_output.block3"),
        ],
    )
    def test_of_well_known_networks(self, name, layer):
        with torch.device("cpu" if name.startswith("regnet") else "meta"):  # only shapes are needed
            network = getattr(torchvision_models(), name)(weights=None).eval()
        assert default_layer(network.to("meta"), torch.zeros(1, 3, 224, 224, device="meta")) == layer


def test_not_right_under_weights_that_answer_for_each_place():
    """There a place hands a unit's signal and its dual's to the same place, and they cancel: contrast shows nothing."""
    torch.manual_seed(0)
    below, above = nn.Conv2d(3, 8, 3, 4, 1, bias=False), nn.Conv2d(8, 64, 3, 4, 1, bias=False)
    last = nn.Sequential(nn.Conv2d(64, 5, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = nn.Sequential(below, nn.ReLU(), above, nn.ReLU(), *last).eval()
    picture = torch.rand(1, 3, 64, 64)
    chosen = default_layer(network, picture)
    assert chosen == "1"
    for layer, cancelled in (("3", True), (chosen, False)):
        contrast = mwp(network, picture, 2, layer=layer, contrastive=True).sum(1)
        assert (float(contrast.abs().sum()) < 1e-6) is cancelled


def test_the_papers_networks_have_the_trained_size():
    """They slide over larger images; what is listed is one window."""
    layers, recommended = outline(load("googlenet", weights="random"))
    assert recommended == ("pool2/3x3_s2",)
    (layer,) = (layer for layer in layers if layer.name == recommended[0])
    assert (layer.channels, layer.height, layer.width, layer.stride) == (192, 28, 28, 8.0)
    assert layer.receptive_field == 27  # by hand: 7 (conv1), 11 (pool1), 19 (conv2), 27 (pool2)


def candidates(network, size=32, **options):
    return [layer.name for layer in candidate_layers(network.eval(), torch.rand(1, 3, size, size), **options)]


class Backbone(nn.Module):
    """A stem, three stages, a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU())
        self.pool = nn.MaxPool2d(2)
        self.stages = nn.Sequential(Branches(4), Branches(4), nn.MaxPool2d(2), Branches(4))
        self.average = nn.AdaptiveAvgPool2d(1)
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.average(self.stages(self.pool(self.stem(x)))).flatten(1))


def test_candidates_are_the_ends_of_blocks():
    """Not the inside of blocks, not what a norm or a ReLU only finishes, nothing without places.

    Too many are thinned from below: each resolution keeps its last one.
    """
    assert candidates(Backbone()) == ["stem", "pool", "stages.0", "stages.1", "stages.2", "stages.3"]
    assert candidates(Backbone(), most=5) == ["stem", "stages.0", "stages.1", "stages.2", "stages.3"]
    assert candidates(Backbone(), most=1) == ["stem", "stages.1", "stages.3"]


def test_nothing_above_the_last_weights():
    """There, no dual unit is left to contrast with."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    assert candidates(network) == ["1"]
    with pytest.raises(LayerError, match="name the layers to try"):
        candidates(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2)))


def test_the_embedded_classifier():
    classifier = load()
    blocks = [f"blocks.{k}" for k in (0, 2, 4, *range(8, 16))]
    assert candidates(classifier.module, 224) == [*blocks, "head"]
    assert set(classifier.layers) <= {*blocks, "head"}
