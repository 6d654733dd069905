"""Deferred products, channels_last, weights in other orders: each gives the map of the plain top-down pass."""

import pytest
import torch
from oracle import randomise
from torch import nn
from torch.nn import functional as F

from excite.propagation import ExcitationPass, mwp
from excite.propagation.fast import kernels
from excite.propagation.fast.carry import Deferred, added, is_channels_last, materialize
from excite.propagation.fast.kernels import FastAffine
from excite.propagation.graph import nodes_below, rule_of
from excite.propagation.rules import Affine


class Net(nn.Module):
    """A body between a tapped layer and a classifier, with four convolutions and two norms to use."""

    def __init__(self, body):
        super().__init__()
        self.body, self.stem = body, nn.Conv2d(3, 8, 3, padding=1)
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.c, self.d = nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(8, 8, 1, 2)
        self.m, self.n, self.head = nn.BatchNorm2d(8), nn.BatchNorm2d(8), nn.LazyLinear(5)

    def forward(self, x):
        return self.head(self.body(self, F.relu(self.stem(x))).mean((2, 3)))


def inception(net, h):
    parts = [F.relu(net.m(net.b(h))), F.relu(net.a(F.relu(net.b(h)))), F.relu(net.n(net.b(F.max_pool2d(h, 3, 1, 1))))]
    h = torch.cat(parts, 1)
    return torch.cat([F.max_pool2d(h, 2), F.avg_pool2d(h, 2)], 1)


BODIES = {
    "chain": lambda net, h: F.relu(net.m(net.a(F.relu(net.n(net.b(h)))))),
    "inception": inception,
    "residual": lambda net, h: F.relu(net.m(net.a(F.relu(net.n(net.b(h))))) + h),
    "residual with steps": lambda net, h: F.relu(net.m(net.c(h)) + net.n(net.d(h))),
    "what is taken away": lambda net, h: F.relu(net.m(net.a(h)) - net.n(net.b(h))),
    "half of one, twice another": lambda net, h: F.relu(torch.add(net.a(h), net.b(h), alpha=2.0)),
    "sum of signed sums": lambda net, h: F.relu(net.a(net.b(h) + net.n(net.a(h)))),
    "tanh": lambda net, h: torch.tanh(net.a(h)) + F.elu(net.m(net.b(h))),
    "signed": lambda net, h: net.a(net.m(net.b(h))),
    "seen twice": lambda net, h: (g := F.relu(net.a(h))) + F.relu(net.b(g)) + F.relu(net.m(net.b(g))),
    "pooled response": lambda net, h: F.relu(net.n(F.max_pool2d(net.a(h), 2))),
    "reshaped": lambda net, h: F.relu(net.b(F.relu(net.a(h)).flatten(2).unflatten(2, (12, 12)).clone())),
    "dense": lambda net, h: torch.cat([h, g := F.relu(net.m(net.a(h))), F.relu(net.n(net.b(g)))], 1),
    "channels swapped": lambda net, h: F.relu(net.a(F.relu(net.b(h)).transpose(2, 3))),
    "mute": lambda net, h: F.relu(F.batch_norm(net.a(h), net.m.running_mean, net.m.running_var, torch.eye(8)[0].to(h))),
}


def network(name, seed=0):
    net = Net(BODIES[name]).double()
    with torch.no_grad():
        net(torch.zeros(1, 3, 12, 12).double())
    return randomise(net, seed).eval()


def pictures():
    return torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


SIGNALS = torch.rand(3, 2, 5, generator=torch.Generator().manual_seed(6), dtype=torch.float64)


def not_deferred(net, x, signals, layer="stem"):
    """An observer sees every product: nothing is deferred."""
    excitation = ExcitationPass(net, x, [layer])
    for rule in excitation._top:
        rule.dual = -1.0
    return excitation.propagate(excitation.start(), signals, observer=lambda *_: None)[layer]


@pytest.mark.parametrize("name", BODIES)
def test_deferred_products_give_the_same_map(name, monkeypatch):
    monkeypatch.setattr(kernels, "MANY", 16)  # so that no convolution is too small for any way
    net, x = network(name), pictures()
    wanted = not_deferred(net, x, SIGNALS)
    found = mwp(net, x, SIGNALS, layer="stem", contrastive=True)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-14)
    assert found.is_contiguous()


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("way", ["torch's kernels", "windows of few", "windows of all"])
def test_channels_last(name, way, monkeypatch):
    net, x = network(name), pictures()
    wanted = not_deferred(net, x, SIGNALS)
    if way != "torch's kernels":
        monkeypatch.setattr(kernels, "MANY", 16)
    if way == "windows of all":
        monkeypatch.setattr(kernels, "LARGE", 16)
        monkeypatch.setattr(kernels, "FEW", 1000)
    found = mwp(net.float(), x.float(), SIGNALS.float(), layer="stem", contrastive=True)
    scale = wanted.abs().max()
    torch.testing.assert_close(found.double() / scale, wanted / scale, rtol=0, atol=2e-5)


def test_shares_are_channels_last_and_maps_are_not(monkeypatch):
    net, x = network("chain").float(), pictures().float()
    seen = []
    once = FastAffine.backward

    def noted(self, *arrived, **more):
        shares = once(self, *arrived, **more)
        seen.append(is_channels_last(materialize(shares)))
        return shares

    monkeypatch.setattr(FastAffine, "backward", noted)
    assert mwp(net, x, 1, layer="stem").is_contiguous()
    assert seen.count(True) >= 2


def competitions(excitation):
    return [rule for node in nodes_below(excitation.top) if isinstance(rule := rule_of(node), Affine)]


@pytest.mark.parametrize("name", ["inception", "residual with steps"])
def test_normalisers_are_released_and_computed_again(name):
    excitation = ExcitationPass(network(name), pictures(), ["stem"], reuse=False)
    found = excitation.down(SIGNALS)["stem"]
    below = [rule for rule in competitions(excitation) if not rule.cued]
    assert all(not rule._normalisers for rule in below)
    assert sum(rule.child.signed_inputs is not None for rule in below) <= 2  # those of the layer that is read
    assert torch.equal(excitation.down(SIGNALS)["stem"], found)
    kept = ExcitationPass(network(name), pictures(), ["stem"])
    assert torch.equal(kept.down(SIGNALS)["stem"], found)
    assert any(rule._normalisers for rule in competitions(kept))


def test_sums_of_deferred_products_and_tensors():
    by, other, ones = torch.tensor([3.0, 0.0]), torch.tensor([2.0, 5.0]), torch.ones(1, 2)
    found = None
    for each in (Deferred(ones, by), Deferred(ones, other), ones, Deferred(ones, by), Deferred(ones, None)):
        found = added(found, each)
    assert isinstance(found, torch.Tensor)  # one of them was not known to be nothing anywhere
    assert found.tolist() == [[3 + 2 + 1 + 3 + 1, 0 + 5 + 1 + 0 + 1]]
    assert ones.tolist() == [[1, 1]]  # no argument was written to
    silent = added(Deferred(ones, by), Deferred(ones, other))
    assert isinstance(silent, Deferred)
    assert silent.by is None
    assert silent.values.tolist() == [[5, 5]]
    assert added(Deferred(ones, by), Deferred(ones, by)).by is by
