"""Half, single and double precision: the same winners as far as the digits go, and no mass lost to rounding."""

import copy

import pytest
import torch
from oracle import randomise
from torch import nn

from excite.propagation import mwp

CLOSE = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 1e-4}


def network():
    """Non-negative activations, no biases: nothing may be lost on the way."""
    body = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False)]
    body += [nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.ReLU(), nn.AvgPool2d(2)]
    body += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10, bias=False)]
    return randomise(nn.Sequential(nn.Identity(), *body), 1).eval()


def scaled_down(net):
    """Weights such that activations stay near 1: half precision has little room."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.div_((parameter[0].numel()) ** 0.5)
    return net


def picture():
    return torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("contrastive", [False, True])
@pytest.mark.parametrize("dtype", CLOSE)
def test_every_precision_agrees_with_double(dtype, contrastive):
    net = scaled_down(network())
    exact = mwp(copy.deepcopy(net).double(), picture().to(dtype).double(), 3, layer="0", contrastive=contrastive)
    found = mwp(copy.deepcopy(net).to(dtype), picture().to(dtype), 3, layer="0", contrastive=contrastive)
    assert torch.isfinite(found).all()
    gap = (found.double() - exact).abs().flatten(1).sum(1)
    assert gap.max() < CLOSE[dtype]


def test_small_probabilities_survive_half_precision():
    """A million children share one unit: half precision has only steps of 6e-8 to write 1e-6 with."""
    net = nn.Sequential(nn.Identity(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 2, bias=False)).half()
    with torch.no_grad():
        net[3].weight.fill_(1.0)
    x = torch.ones(1, 1, 1000, 1000, dtype=torch.float16)
    found = mwp(net, x, 0, layer="0")
    assert (found > 0).all()
    torch.testing.assert_close(found.double().sum(), torch.tensor(1.0, dtype=torch.float64), rtol=0, atol=5e-3)


def test_autocast():
    net = scaled_down(network())
    x = picture()
    exact = mwp(net, x, 3, layer="0")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = mwp(net, x, 3, layer="0")
    assert (found.float() - exact).abs().flatten(1).sum(1).max() < 0.1
    assert (found.float().flatten(1).sum(1) - 1).abs().max() < 0.03


def test_signals_of_another_precision():
    net = scaled_down(network())
    x = picture()
    expected = mwp(net, x, 3, layer="0")
    signal = torch.zeros(2, 10, dtype=torch.float64)
    signal[:, 3] = 1
    torch.testing.assert_close(mwp(net, x, signal, layer="0"), expected)
    torch.testing.assert_close(mwp(net, x, signal.half(), layer="0"), expected)
    torch.testing.assert_close(mwp(net.double(), x.double(), signal.float(), layer="0").float(), expected)
