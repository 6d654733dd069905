"""Half, single and double precision: the same winners as far as the digits go, and no mass lost to rounding."""

import copy

import pytest
import torch
from oracle import randomise
from torch import nn
from torch.nn import functional as F

from excite.propagation import ExcitationPass, mwp, prior

CLOSE = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 1e-4}


class Plain(nn.Module):
    """Non-negative activations, no biases: nothing may be lost on the way."""

    def __init__(self, width=16, bias=False):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=bias)
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=bias),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=bias),
            nn.ReLU(),
            nn.AvgPool2d(2),
        )
        self.fc = nn.Linear(2 * width, 10, bias=bias)

    def forward(self, x):
        x = F.relu(self.stem(x))
        return self.fc(self.body(x).mean((2, 3)))


def network():
    return nn.Sequential(nn.Identity(), randomise(Plain(), 1)).eval()


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


@pytest.mark.parametrize("dtype", [*CLOSE, torch.float64])
def test_mass_is_kept_in_every_precision(dtype):
    """Even where single probabilities are far below what half precision can hold."""
    net = scaled_down(network()).to(dtype)
    x = picture().to(dtype)
    tolerance = {torch.float16: 5e-3, torch.bfloat16: 3e-2, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for layer, won in mwp(net, x, 3, layer=["1.body", "1.stem", "0"]).items():
        mass = won.double().flatten(1).sum(1)
        assert (mass - 1).abs().max() < tolerance, (layer, mass)


def test_small_probabilities_survive_half_precision():
    """A million children share one unit: half precision has only steps of 6e-8 to write 1e-6 with."""
    net = nn.Sequential(nn.Identity(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 2, bias=False)).half()
    with torch.no_grad():
        net[3].weight.fill_(1.0)
    x = torch.ones(1, 1, 1000, 1000, dtype=torch.float16)
    found = mwp(net, x, 0, layer="0")
    assert (found > 0).all()
    torch.testing.assert_close(found.double().sum(), torch.tensor(1.0, dtype=torch.float64), rtol=0, atol=5e-3)


@pytest.mark.parametrize("scale", [1e-28, 1e-20, 1e20, 1e28])
def test_extreme_activations_in_single_precision(scale):
    """Products of faint activations and small weights leave the range of float32; their shares do not."""
    net = nn.Sequential(nn.Identity(), nn.Linear(16, 6, bias=False), nn.Linear(6, 2, bias=False))
    randomise(net, 3)
    with torch.no_grad():
        net[1].weight.mul_(1e-12 if scale < 1 else 1e8)
    x = torch.rand(1, 16) * scale
    exact = mwp(copy.deepcopy(net).double(), x.double(), 0, layer="1").float()
    torch.testing.assert_close(mwp(net, x, 0, layer="1"), exact, rtol=1e-3, atol=1e-5)
    whole = mwp(net, x, 0, layer="0")
    assert torch.isfinite(whole).all()
    assert abs(float(whole.sum()) - 1) < 1e-3


def test_activations_at_the_end_of_the_range_of_half_precision():
    """Sums of excitations may exceed 65,504 although each response does not."""
    net = nn.Sequential(nn.Identity(), nn.Linear(64, 4, bias=False), nn.Linear(4, 2, bias=False)).half()
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor([1.0, -1.0] * 32).expand(4, -1) * 100)
        net[2].weight.fill_(1.0)
    x = torch.full((1, 64), 300.0, dtype=torch.float16)
    x[0, 0] += 50
    found = mwp(net, x, 0, layer="0")
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found.double().sum(), torch.tensor(1.0, dtype=torch.float64), rtol=0, atol=5e-3)


def test_a_half_precision_backbone_under_a_single_precision_head():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.tap = nn.Identity()
            self.backbone = scaled_down(randomise(Plain(), 2)).body.half()
            self.fc = nn.Linear(32 * 16, 3, bias=False)

        def forward(self, x):
            return self.fc(self.backbone(self.tap(x.half())).float().flatten(1))

    net = randomise(Mixed(), 0)
    with torch.no_grad():
        net.backbone.load_state_dict(scaled_down(randomise(Plain(), 2)).body.state_dict())
    x = torch.rand(1, 16, 16, 16)
    found = mwp(net, x, 1, layer="tap").double()
    twin = copy.deepcopy(net)
    twin.backbone.double()
    twin.fc.double()
    twin.forward = lambda x: twin.fc(twin.backbone(twin.tap(x.half().double())).flatten(1))
    exact = mwp(twin, x, 1, layer="tap").double()
    assert abs(found.sum() - 1) < 5e-3
    assert (found - exact).abs().sum() < 3e-2


def test_autocast():
    net = scaled_down(network())
    x = picture()
    exact = mwp(net, x, 3, layer="0")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = mwp(net, x, 3, layer="0")
    assert (found.float() - exact).abs().flatten(1).sum(1).max() < 0.1
    assert (found.float().flatten(1).sum(1) - 1).abs().max() < 0.03


def test_results_have_a_usable_type():
    for dtype in (torch.float32, torch.float64):
        assert mwp(scaled_down(network()).to(dtype), picture().to(dtype), 0, layer="0").dtype == dtype


def test_signals_of_another_precision():
    net = scaled_down(network())
    x = picture()
    expected = mwp(net, x, 3, layer="0")
    signal = torch.zeros(2, 10, dtype=torch.float64)
    signal[:, 3] = 1
    torch.testing.assert_close(mwp(net, x, signal, layer="0"), expected)
    torch.testing.assert_close(mwp(net, x, signal.half(), layer="0"), expected)
    torch.testing.assert_close(mwp(net.double(), x.double(), signal.float(), layer="0").float(), expected)


def test_confidence_of_class_maps_in_double_precision():
    logits = torch.randn(1, 2, 3, 3, dtype=torch.float64) * 10
    expected = torch.zeros_like(logits)
    expected[:, 1] = logits[:, 1].flatten(1).softmax(1).view(1, 3, 3)
    torch.testing.assert_close(prior(logits, {1: 1.0}), expected, rtol=1e-12, atol=1e-14)


def test_large_logits_do_not_overflow():
    logits = torch.tensor([[[[1e4, 0.0], [-1e4, 1e4]]]])
    assert prior(logits, {0: 1.0}).tolist() == [[[[0.5, 0.0], [0.0, 0.5]]]]


@pytest.mark.parametrize("batch", [1, 7])
def test_a_batch_equals_its_pictures_in_single_precision(batch):
    net = scaled_down(network())
    x = torch.rand(batch, 3, 16, 16)
    together = mwp(net, x, 3, layer="0", contrastive=True)
    apart = torch.cat([mwp(net, one[None], 3, layer="0", contrastive=True) for one in x])
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-7)


def test_half_precision_sweeps_can_be_asked_for_contrast():
    net = scaled_down(network()).half()
    excitation = ExcitationPass(net, picture().half(), ["0"])
    signal = prior(excitation.output, {3: 1.0})
    plain, dual = (excitation.down(signal, unit=u, dual=d)["0"].float() for u, d in ((1.0, 0.0), (0.0, 1.0)))
    contrast = excitation.down(signal, unit=1.0, dual=-1.0)["0"].float()
    assert (contrast - (plain - dual)).abs().sum() < 2e-2
    assert abs(float(contrast.sum())) < 2e-2
