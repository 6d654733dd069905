"""Packed weights give the competition that plain ones give, for every kind of kernel that they take."""

import pytest
import torch
from torch import nn

from excite.propagation import mwp
from excite.propagation.fast import convolution
from excite.propagation.fast.kernels import PointwiseConvRule
from excite.propagation.fast.shortcuts import CACHE

KERNELS = {
    "three by three": nn.Conv2d(64, 64, 3, padding=1),
    "without padding": nn.Conv2d(64, 64, 3),
    "with steps": nn.Conv2d(64, 64, 3, 2, 1),
    "dilated": nn.Conv2d(64, 64, 3, padding=2, dilation=2),
    "more padding than kernel": nn.Conv2d(64, 64, 3, padding=4),
    "oblong": nn.Conv2d(64, 64, (3, 5), padding=(0, 2)),
    "grouped": nn.Conv2d(64, 128, 3, padding=1, groups=2),
    "one place": nn.Conv2d(64, 4096, 1),
    "one place with steps": nn.Conv2d(64, 4096, 1, 2),
    "one place with oblong steps": nn.Conv2d(64, 4096, 1, (1, 3)),
}


def network(kernel):
    torch.manual_seed(4)
    layers = [
        nn.Conv2d(3, 64, 3),
        nn.ReLU(),
        kernel,
        nn.BatchNorm2d(kernel.out_channels),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
    ]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * kernel.out_channels, 5)).eval()
    nn.init.normal_(net[3].weight)
    return net


@pytest.mark.skipif(convolution._REORDER is None or convolution._CONVOLVE is None, reason="this torch has no oneDNN")
@pytest.mark.parametrize("name", KERNELS)
def test_packed_as_plain(name, monkeypatch):
    net, used, pack = network(KERNELS[name]), [], convolution.pack
    monkeypatch.setattr(convolution, "pack", lambda *arguments: used.append(name) or pack(*arguments))
    signals = torch.rand(3, 2, 5)
    pictures = [torch.randn(2, 3, 12, 12), torch.randn(2, 3, 15, 13)]  # packed for one size, used for two
    CACHE.clear()
    found = [mwp(net, x, signals, layer="1", contrastive=True) for x in pictures]
    assert bool(used) == ("one place" not in name)  # those read their weights in blocks
    monkeypatch.setattr(convolution, "can_pack", lambda *_: False)
    CACHE.clear()
    for x, maps in zip(pictures, found, strict=True):
        exact = mwp(net.double(), x.double(), signals.double(), layer="1", contrastive=True)
        net.float()
        plain = mwp(net, x, signals, layer="1", contrastive=True)
        scale = exact.abs().max()
        torch.testing.assert_close(maps.double() / scale, exact / scale, atol=5e-5, rtol=0)
        torch.testing.assert_close(plain.double() / scale, exact / scale, atol=5e-5, rtol=0)


def test_small_and_exact_weights_are_not_packed():
    x = torch.randn(1, 64, 8, 8)
    assert not convolution.can_pack(x, torch.randn(4, 64, 3, 3))
    assert not convolution.can_pack(x, torch.randn(64, 64, 1, 1))
    assert not convolution.can_pack(x.double(), torch.randn(64, 64, 3, 3).double())


def test_of_the_cued_channels_only_their_rows_are_read(monkeypatch):
    """A classifier that answers place by place ends in a kernel of one place with a row for each class."""
    torch.manual_seed(4)
    net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 4096, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    blocks, read = PointwiseConvRule._blocks, []

    def noted(self, *arguments, **more):
        for rows, parts in blocks(self, *arguments, **more):
            read.append(parts[0].shape[0])
            yield rows, parts

    monkeypatch.setattr(PointwiseConvRule, "_blocks", noted)
    mwp(net.eval(), torch.randn(1, 3, 12, 12), {7: 0.5, 9: 0.5}, layer="1", contrastive=True)
    assert read == [2, 2]  # the units and their duals
