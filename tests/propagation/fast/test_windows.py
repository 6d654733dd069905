"""Weights read in blocks of rows: dense layers, and convolutions as dense layers of windows, as the plain ones."""

import pytest
import torch
from test_together import SIGNALS, Branched, X, net
from torch import nn

from excite.propagation import ExcitationPass, mwp, plain_kernels
from excite.propagation.fast import kernels
from excite.propagation.fast.kernels import DenseRule, WindowRule
from excite.propagation.graph import nodes_below, rule_of
from excite.propagation.rules import Affine

__all__ = ["Branched", "net"]

KERNELS = {
    "three by three": nn.Conv2d(8, 8, 3, padding=1),
    "without padding": nn.Conv2d(8, 8, 3),
    "with steps": nn.Conv2d(8, 8, 3, 2, 1),
    "with steps that leave a rest": nn.Conv2d(8, 8, 2, 3),
    "dilated": nn.Conv2d(8, 8, 3, padding=2, dilation=2),
    "dilated with steps": nn.Conv2d(8, 8, 3, (2, 1), padding=(2, 0), dilation=(2, 1)),
    "more padding than kernel": nn.Conv2d(8, 8, 3, padding=4),
    "oblong": nn.Conv2d(8, 8, (3, 5), padding=(0, 2)),
    "one place": nn.Conv2d(8, 16, 1),
    "one place with steps": nn.Conv2d(8, 16, 1, 2),
    "one place with oblong steps": nn.Conv2d(8, 16, 1, (1, 3)),
    "one place with padding": nn.Conv2d(8, 16, 1, padding=1),
    "one dimension": nn.Conv1d(8, 8, 3, 2, 1),
    "three dimensions": nn.Conv3d(8, 8, 3, padding=(1, 0, 2)),
}


def built(kernel):
    torch.manual_seed(4)
    dims = kernel.weight.dim() - 2
    pool = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[dims - 1]
    norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dims - 1]
    layers = [type(kernel)(3, 8, 3), nn.ReLU(), kernel, norm(kernel.out_channels), nn.ReLU(), pool(2), nn.Flatten()]
    net = nn.Sequential(*layers, nn.Linear(2**dims * kernel.out_channels, 5)).eval()
    nn.init.normal_(net[3].weight)
    return net


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", KERNELS)
def test_windows_as_plain(name, dtype, monkeypatch):
    monkeypatch.setattr(kernels, "MANY", 16)
    monkeypatch.setattr(kernels, "LARGE", 16)
    monkeypatch.setattr(kernels, "FEW", 10_000)
    monkeypatch.setattr(kernels, "BLOCK", 300)
    network, signals = built(KERNELS[name]).to(dtype), torch.rand(3, 2, 5, dtype=dtype)
    x = torch.randn(2, 3, *(12, 9, 10)[: KERNELS[name].weight.dim() - 2], dtype=dtype)
    excitation = ExcitationPass(network, x, ["1"])
    assert any(isinstance(rule_of(node), WindowRule) for node in nodes_below(excitation.top))
    found = mwp(network, x, signals, layer="1", contrastive=True)
    with plain_kernels():
        exact = mwp(network.double(), x.double(), signals.double(), layer="1", contrastive=True)
    tolerance = float(exact.abs().max()) * (5e-5 if dtype == torch.float32 else 1e-12)
    torch.testing.assert_close(found.double(), exact, atol=tolerance, rtol=0)


def test_of_the_cued_channels_only_their_rows_are_read(monkeypatch):
    """A classifier that answers place by place ends in a kernel of one place with a row for each class."""
    torch.manual_seed(4)
    net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 4096, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    blocks, read = WindowRule._blocks, []

    def noted(self, *arguments, **more):
        for rows, parts in blocks(self, *arguments, **more):
            read.append(parts[0].shape[0])
            yield rows, parts

    monkeypatch.setattr(WindowRule, "_blocks", noted)
    mwp(net.eval(), torch.randn(1, 3, 12, 12), {7: 0.5, 9: 0.5}, layer="1", contrastive=True)
    assert read == [2, 2]  # the units and their duals


@pytest.mark.parametrize("block", [1, 7, 10**6])
def test_rows_in_blocks(net, monkeypatch, block):
    expected = mwp(net, X, SIGNALS, layer="norm", contrastive=True)
    monkeypatch.setattr(kernels, "BLOCK", block)
    torch.testing.assert_close(mwp(net, X, SIGNALS, layer="norm", contrastive=True), expected, rtol=1e-12, atol=1e-15)


def test_full_connections_look_only_at_rows_that_won(net, monkeypatch):
    asked = []
    rows = DenseRule._rows

    def noted(self, *arguments):
        (won,) = rows(self, *arguments)
        asked.append(won.tolist())
        return [won]

    monkeypatch.setattr(DenseRule, "_rows", noted)
    looked = ExcitationPass(net, X, ["same"])
    looked.down(torch.eye(7, dtype=torch.float64)[[2, 2, 4]], dual=-1.0)
    top, fc = asked[:2], asked[2:]
    assert top == [[2, 4], [2, 4]]  # the units and their duals
    assert all(len(rows) < 20 for rows in fc)


def test_a_norm_of_both_signs_needs_one_competition(net):
    looked = ExcitationPass(net, X, ["input"])
    looked.down(SIGNALS[0])
    stem = next(
        rule
        for node in nodes_below(looked.top)
        if isinstance(rule := rule_of(node), Affine) and rule.weight.data_ptr() == net.stem.weight.data_ptr()
    )
    assert set(net.norm.weight.detach().sign().tolist()) == {-1.0, 1.0}
    assert [side for side, _ in stem._normalisers] == [(1, True)]
