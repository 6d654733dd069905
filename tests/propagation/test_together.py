"""Several signals at once give what each gives alone, and the ways that save work give what the others give."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from excite.propagation import ExcitationPass, excitation_pass, held_bytes, mwp
from excite.propagation.fast import tracing


class Branched(nn.Module):
    """All that networks are made of: strides, groups, norms of both signs, sums, concatenation, pooling, gates."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.left, self.right = nn.Conv2d(8, 8, 1, 2), nn.Conv2d(8, 8, 3, 2, 1, groups=4)
        self.both, self.gate = nn.BatchNorm2d(16), nn.Conv2d(16, 16, 1)
        self.same = nn.Conv2d(16, 16, 3, padding="same", dilation=2)
        self.fc, self.top = nn.Linear(16 * 4, 20), nn.Linear(20, 7)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.norm(self.stem(x)), inplace=True), 3, 1, 1)
        x = torch.cat([self.left(x), self.right(x)], 1)
        x = functional.relu(self.both(x))
        x = x * torch.sigmoid(self.gate(functional.adaptive_avg_pool2d(x, 1)))
        x = functional.max_pool2d(functional.leaky_relu(self.same(x) + x), 2)
        x = functional.relu(self.fc(x.flatten(1)))
        return self.top(x)


@pytest.fixture
def net():
    torch.manual_seed(5)
    net = Branched().double().eval()
    for norm in (net.norm, net.both):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        nn.init.normal_(norm.running_mean)
    return net


X = torch.randn(3, 3, 16, 16, dtype=torch.float64)
SIGNALS = torch.rand(5, 3, 7, dtype=torch.float64)
LAYERS = ["norm", "stem", "both", "same", "fc", "input"]
OPTIONS = [{}, {"dual": -1.0}, {"unit": 0.0, "dual": 1.0}, {"alpha": 2.0, "beta": 1.0}, {"normalised": False}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_together_as_alone(net, options):
    looked = ExcitationPass(net, X, LAYERS)
    together = looked.down(SIGNALS, **options)
    for k, signal in enumerate(SIGNALS):
        for layer, alone in looked.down(signal, **options).items():
            torch.testing.assert_close(together[layer][k], alone, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("at_once", [1, 2 * 3 * 8 * 8 * 8, 10**9])
def test_some_at_a_time(net, monkeypatch, at_once):
    expected = ExcitationPass(net, X, ["norm"]).down(SIGNALS)["norm"]
    monkeypatch.setattr(excitation_pass, "AT_ONCE", at_once)
    torch.testing.assert_close(ExcitationPass(net, X, ["norm"]).down(SIGNALS)["norm"], expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("side", [1, 3])
def test_no_signal_gives_an_empty_map(side):
    """Also where the classifier's own weights are a convolution, of which no row is then needed."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 5, side), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ).eval()
    maps = mwp(net, torch.rand(2, 3, 8, 8), torch.zeros(3, 2, 5), layer="1", contrastive=True)
    assert maps.shape == (3, 2, 8, 6, 6)
    assert not maps.any()


def test_nothing_depends_on_shortcuts(net):
    """Without a look at any value the same comes out: what a graph for all images relies on."""
    expected = mwp(net, X, SIGNALS[0], layer="norm", contrastive=True)
    with tracing():
        found = mwp(net, X, SIGNALS[0], layer="norm", contrastive=True)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)


def test_held_bytes_are_those_above_the_tap(net, kernels):
    low, high = (held_bytes(net, [ExcitationPass(net, X, [layer])]) for layer in ("stem", "same"))
    assert high < low
    looked = ExcitationPass(net, X, ["same"])
    before = held_bytes(net, [looked])
    looked.down(SIGNALS)
    after = held_bytes(net, [looked])
    assert before < after < 10 * before if kernels == "fast" else after == before  # the plain rules keep nothing
    assert held_bytes(net, [looked, looked]) == held_bytes(net, [looked])
