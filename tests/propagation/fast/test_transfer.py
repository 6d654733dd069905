"""Many signals through one matrix: the same sums as those of each signal carried down, where that takes longer."""

import pytest
import torch
from test_architectures import network, picture
from torch import nn

from excite.propagation import ExcitationPass, excitation_pass, plain_kernels
from excite.propagation.fast import transfer


class Block(nn.Module):
    """A skip connection with a dilated convolution beside a bottleneck that ends in no activation function."""

    def __init__(self, channels, act):
        super().__init__()
        self.narrow = nn.Sequential(
            nn.Conv2d(channels, 12, 1, bias=False), nn.BatchNorm2d(12), act(),
            nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False), nn.BatchNorm2d(12), act(),
            nn.Conv2d(12, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip
        self.wide = nn.Conv2d(channels, channels, 3, padding=2, dilation=2)

    def forward(self, x):
        return torch.cat([x + self.narrow(x), self.wide(x).relu()], 1)


def pooled(act):
    return [Block(8, act), nn.Conv2d(16, 10, 1), act(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(10, 40)]


NETWORKS = {
    "relu": lambda: pooled(nn.ReLU),
    "silu": lambda: pooled(nn.SiLU),
    "max pooling and dense layers": lambda: [
        nn.Conv2d(8, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(6 * 5 * 6, 20), nn.Tanh(), nn.Linear(20, 40),
    ],
    "steps, and a map of outputs": lambda: [Block(8, nn.ReLU), nn.Conv2d(16, 9, 2, 2), nn.ReLU(), nn.Conv2d(9, 40, 1)],
    "no neighbours": lambda: [nn.Conv2d(8, 9, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(9, 40)],
}  # fmt: skip


def made(name):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), *NETWORKS[name]()).double().eval()
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.bias.data.normal_()
            norm.weight.data[::2].neg_()
    return net, torch.randn(1, 3, 10, 12, dtype=torch.float64)


@pytest.fixture
def forced(monkeypatch):
    """Always the matrix; the shapes of the readings at each cut."""
    seen, matrix = [], transfer.Ascent.matrix
    monkeypatch.setattr(transfer, "DEARER", 0.0)
    monkeypatch.setattr(excitation_pass, "MANY", 1)
    monkeypatch.setattr(transfer.Ascent, "matrix", lambda self: seen.append(self.plan) or matrix(self))
    return seen


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("options", [{}, {"dual": -1.0}, {"unit": 0.0, "dual": 1.0}, {"alpha": 2.0, "beta": 1.0}])
def test_the_sums_are_those_of_the_plain_way(name, options, forced):
    net, image = made(name)
    with plain_kernels():
        plain = ExcitationPass(net, image, ["2"])
    signals = torch.rand(5, *plain.output.shape, dtype=torch.float64)
    expected = plain.down(signals, layers=["2"], **options)["2"].sum(-3)
    assert torch.equal(plain.sums(signals, layers=["2"], **options)["2"], expected)
    assert not forced
    found = ExcitationPass(net, image, ["2"]).sums(signals, layers=["2"], **options)["2"]
    assert len(forced) == 1
    assert (found - expected).abs().max() <= 1e-12 * expected.abs().max()
    assert expected.abs().max() > 0


def test_patterns_are_as_far_apart_as_readings_spread(forced):
    """Two to each side by the dilated convolution: 5 x 5 patterns for 10 x 12 positions."""
    net, image = made("relu")
    excitation = ExcitationPass(net, image, ["2"])
    excitation.sums(torch.rand(3, 1, 40, dtype=torch.float64), layers=["2"])
    assert forced[0].reach == 2
    assert len(forced[0].local) > 10


@pytest.mark.parametrize(("name", "layer"), [("resnet18", "layer3"), ("mobilenet_v2", "features.16")])
def test_whole_architectures_agree(name, layer, forced):
    net, image = network(name), picture(name)
    excitation = ExcitationPass(net, image, [layer])
    signals = torch.eye(excitation.output.shape[1])[:6, None]
    for dual in (0.0, -1.0):
        expected = excitation.down(signals, dual=dual)[layer].sum(-3)
        size = excitation.down(signals)[layer].abs().sum((1, 2, 3, 4))
        found = excitation.sums(signals, layers=[layer], dual=dual)[layer]
        assert ((found - expected).abs().sum((1, 2, 3)) <= 2e-6 * size).all()
    assert len(forced) == 2


def test_the_number_of_signals_decides(monkeypatch):
    seen, matrix = [], transfer.Ascent.matrix
    monkeypatch.setattr(transfer.Ascent, "matrix", lambda self: seen.append(1) or matrix(self))
    net, image = made("relu")
    excitation = ExcitationPass(net, image, ["2"])
    for number, used in ((1, 0), (excitation_pass.MANY - 1, 0), (400, 1)):
        excitation.sums(torch.rand(number, 1, 40, dtype=torch.float64), layers=["2"])
        assert len(seen) == used


def test_what_is_not_known_is_carried_down(forced):
    """Two layers at once, two images, and an operation without a transposed rule."""
    net, image = made("relu")
    signals = torch.rand(3, 1, 40, dtype=torch.float64)
    both = ExcitationPass(net, image, ["2", "0"])
    assert both.sums(signals, layers=["2", "0"])["0"].shape == (3, 1, 10, 12)
    two = ExcitationPass(net, torch.cat([image, image]), ["2"])
    assert two.sums(signals.expand(3, 2, 40), layers=["2"])["2"].shape == (3, 2, 10, 12)
    assert not forced
    both.sums(signals, layers=["0"])
    assert forced
