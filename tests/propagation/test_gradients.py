"""Gradients and their kin: against captum where it is right, and right where captum is not."""

import copy
import warnings

import pytest
import torch
from oracle import randomise
from torch import nn
from torch.nn import functional as F

from excite.errors import NoRuleError
from excite.propagation.gradients import Gradients

WAYS = ("grad", "deconv", "guided", "lrp")


@pytest.fixture(autouse=True)
def kernels():
    """Gradients use none of the kernels."""


def picture(*shape, seed=1):
    return torch.randn(*(shape or (2, 3, 12, 12)), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_hot(gradients, unit=1):
    signal = torch.zeros_like(gradients.output)
    signal[:, unit] = 1
    return signal


def arrived(net, x, way="grad", layer="input", unit=1, **options):
    gradients = Gradients(net, x, [layer])
    return gradients.down(one_hot(gradients, unit), way, **options)[layer]


class Plain(nn.Module):
    """Every operation a module of its own and used once: what captum can explain."""

    def __init__(self, *features, width, classes=4):
        super().__init__()
        self.features = nn.Sequential(*features)
        self.hidden, self.bend, self.fc = nn.Linear(width, 10), nn.ReLU(), nn.Linear(10, classes)
        randomise(self.double().eval(), 3)

    def forward(self, x):
        return self.fc(self.bend(self.hidden(self.features(x).flatten(1))))


NETS = {
    "max pooling": lambda: Plain(
        *(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, groups=2), nn.ReLU()),
        width=8 * 16,
    ),
    "average pooling": lambda: Plain(
        *(nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 5, 2), nn.ReLU()), width=5
    ),
    "batch norm": lambda: Plain(
        *(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2),),
        width=16,
    ),
}
plain_nets = pytest.mark.parametrize("name", NETS)


@pytest.fixture(name="captum")
def _captum():
    return pytest.importorskip("captum.attr", reason="captum is the peer of these tests: pip install 'excite[dev]'")


def peers(captum, way, net, x, unit=1):
    """The same by captum, which hooks and changes the network it explains."""
    net = copy.deepcopy(net)
    x = x.clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it sets hooks
        if way == "lrp":
            return (captum.LRP(net).attribute(x, target=unit) / net(x)[:, unit].view(-1, 1, 1, 1)).detach()
        if way == "grad":
            return captum.Saliency(net).attribute(x, target=unit, abs=False).detach()
        kind = captum.Deconvolution if way == "deconv" else captum.GuidedBackprop
        return kind(net).attribute(x, target=unit).detach()


@plain_nets
@pytest.mark.parametrize("way", WAYS)
def test_captum_agrees_at_the_picture(captum, name, way):
    net, x = NETS[name](), picture()
    for unit in range(4):
        expected = peers(captum, way, net, x, unit)
        assert expected.abs().max() > 1e-4
        torch.testing.assert_close(arrived(net, x, way, unit=unit), expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_the_epsilon_is_captums(captum, epsilon):
    net, x = NETS["max pooling"](), picture()
    peer = copy.deepcopy(net)
    rules = pytest.importorskip("captum.attr._utils.lrp_rules")
    for module in peer.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.rule = rules.EpsilonRule(epsilon)
    expected = captum.LRP(peer).attribute(x.clone().requires_grad_(), target=1) / net(x)[:, 1].view(-1, 1, 1, 1)
    torch.testing.assert_close(arrived(net, x, "lrp", epsilon=epsilon), expected.detach(), rtol=1e-6, atol=1e-9)


# --- what captum gets wrong or refuses ------------------------------------------------------------------------------


class Spelled(nn.Module):
    """The same network with its ReLUs written in different ways."""

    def __init__(self, bend):
        super().__init__()
        self.conv1, self.conv2, self.fc = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 4)
        self.relu = nn.ReLU(inplace=True)
        self.first, self.second = nn.ReLU(), nn.ReLU()
        self.bend = bend
        randomise(self.double().eval(), 5)

    def forward(self, x):
        if self.bend is None:  # as captum needs it
            return self.fc(self.second(self.conv2(self.first(self.conv1(x)))).mean((2, 3)))
        x = self.bend(self, self.conv2(self.bend(self, self.conv1(x))))
        return self.fc(x.mean((2, 3)))


def discarded(net, x):
    x.relu_()
    return x


SPELLINGS = {
    "F.relu in place": lambda net, x: F.relu(x, inplace=True),
    "result thrown away": discarded,
    "one module used twice": lambda net, x: net.relu(x),
    "clamp_": lambda net, x: x.clamp_(0),
    "hardtanh": lambda net, x: F.hardtanh(x, 0.0, 1e9),
    "threshold": lambda net, x: F.threshold(x, 0, 0),
    "maximum": lambda net, x: torch.maximum(torch.zeros_like(x), x),
    "leaky without a leak": lambda net, x: F.leaky_relu(x, 0.0),
    "written into a part": lambda net, x: torch.cat([x[:, :2].clone().relu_(), x[:, 2:].relu()], 1),
    "written through a view": lambda net, x: (x.view(-1).relu_(), x)[1],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("way", WAYS)
def test_a_relu_is_a_relu_however_it_is_written(captum, spelling, way):
    x = picture()
    expected = peers(captum, way if way != "lrp" else "grad", Spelled(None), x)
    if way == "lrp":
        expected = arrived(Spelled(None), x, "lrp")
    net = Spelled(SPELLINGS[spelling])
    torch.testing.assert_close(arrived(net, x, way), expected, rtol=1e-9, atol=1e-12)


class Residual(nn.Module):
    """Blocks with ``out += identity`` and ReLUs in place."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(4))
        self.relus = nn.ModuleList(nn.ReLU(inplace=True) for _ in range(4))
        self.fc = nn.Linear(4, 3, bias=False)
        randomise(self.double().eval(), 2)

    def forward(self, x):
        for k in (0, 2):
            identity = x
            out = self.relus[k](self.norms[k](self.convs[k](x)))
            out = self.norms[k + 1](self.convs[k + 1](out))
            out += identity
            x = self.relus[k + 1](out)
        return self.fc(x.mean((2, 3)))


def test_relevance_is_kept_by_blocks_without_biases():
    """Where nothing is absorbed by a bias, all relevance arrives: skip connections are not counted twice."""
    net = Residual()
    for norm in net.norms:
        norm.bias.data.zero_()
        norm.running_mean.zero_()
    x = picture(2, 4, 6, 6)
    gradients = Gradients(net, x, ["input", "relus.1", "convs.2"])
    signal = picture(2, 3)
    for layer, relevance in gradients.down(signal, "lrp", epsilon=1e-12).items():
        if layer != "convs.2":  # that one has the skip connection beside it
            torch.testing.assert_close(relevance.sum((1, 2, 3)), signal.sum(1), rtol=1e-6, atol=1e-8)


# --- activation functions that are no ReLU --------------------------------------------------------------------------

RECTIFIERS = {
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "softplus": F.softplus,
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.3, dtype=x.dtype)),
}
OTHERS = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "hardtanh": F.hardtanh, "softsign": F.softsign}


class Bent(nn.Module):
    """One function between two full connections."""

    def __init__(self, function):
        super().__init__()
        self.low, self.fc, self.function = nn.Linear(5, 30, bias=False), nn.Linear(30, 3), function
        randomise(self.double().eval(), 1)
        self.low.weight.data *= 3

    def forward(self, x):
        return self.fc(self.function(self.low(x)))


@pytest.mark.parametrize("name", [*RECTIFIERS, *OTHERS])
def test_other_activation_functions(name):
    """A rectifier has its derivative in the place of ReLU's mask; what does not rectify has its gradient."""
    function = {**RECTIFIERS, **OTHERS}[name]
    net, x = Bent(function), picture(2, 5)
    before = net.low(x).detach().requires_grad_()
    after = function(before)
    (slope,) = torch.autograd.grad(after.sum(), before)
    above = net.fc.weight[1].expand_as(before).detach()
    kept = above.clamp(min=0) if name in RECTIFIERS else above
    expected = {"grad": slope * above, "guided": slope * kept, "deconv": kept if name in RECTIFIERS else slope * above}
    gradients = Gradients(net, x, ["input", "low"])
    for way, signal in expected.items():
        found = gradients.down(one_hot(gradients), way)
        torch.testing.assert_close(found["low"], signal)
        torch.testing.assert_close(found["input"], signal @ net.low.weight.detach())
    relevance = after.detach() * above / gradients.output[:, 1:2]
    torch.testing.assert_close(gradients.down(one_hot(gradients), "lrp", epsilon=0.0)["low"], relevance)


class Block(nn.Module):
    """``body(self, first full connection)`` below another one."""

    def __init__(self, body, classes=3):
        super().__init__()
        self.low, self.gate, self.fc = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, classes)
        self.body = body
        randomise(self.double().eval(), 7)

    def forward(self, x):
        return self.fc(self.body(self, self.low(x)))


PRODUCTS = {
    "a gate": lambda net, x: x * torch.sigmoid(net.gate(x)).clone(),
    "gated": lambda net, x: torch.sigmoid(net.gate(torch.ones_like(x))) * x,
    "a norm by hand": lambda net, x: x / x.norm(dim=1, keepdim=True),
    "equals": lambda net, x: x * (x + 1),
    "a square": lambda net, x: x * x,
    "a power": lambda net, x: x**3,
    "an exponential": lambda net, x: torch.exp(x),
    "a layer norm": lambda net, x: F.layer_norm(x, (6,)),
    "a multiple": lambda net, x: 3 * x / 2,
    "a constant over it": lambda net, x: 2 / x,
    "a softmax": lambda net, x: x.softmax(1),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_relevance_of_functions_and_products(name):
    body = PRODUCTS[name]
    net, x = Block(body), picture(2, 6)
    response = body(net, net.low(x)).detach()
    whole = response * net.fc.weight[1].detach() / net(x)[:, 1:2].detach()
    found = arrived(net, x, "lrp", layer="low", epsilon=0.0)
    if name == "equals":  # x * (x + 1): half to each, and the second hands x / (x + 1) of its half down to x
        low = net.low(x).detach()
        whole = whole * (1 + low / (low + 1)) / 2
    torch.testing.assert_close(found, whole)


# --- the network ----------------------------------------------------------------------------------------------------


def test_without_gradients_all_the_same():
    """Frozen weights, inference mode outside, no_grad and detach inside: an explanation is no training."""

    class Frozen(Spelled):
        def forward(self, x):
            with torch.no_grad():
                x = self.relu(self.conv1(x))
            with torch.inference_mode():
                x = self.relu(self.conv2(x))
            return self.fc(x.detach().mean((2, 3)))

    x = picture()
    expected = arrived(Spelled(None), x, "guided")
    net = Frozen(None).requires_grad_(requires_grad=False)
    with torch.inference_mode():
        found = arrived(net, x.clone(), "guided")
    torch.testing.assert_close(found, expected)


def test_one_pass_for_all_ways_layers_and_signals():
    calls = []
    net, x = Spelled(SPELLINGS["one module used twice"]), picture()
    net.conv1.register_forward_hook(lambda *_: calls.append(1))
    together = Gradients(net, x, ["input", "conv1", "relu#0", "relu"])
    assert len(calls) == 1
    first = {way: together.down(one_hot(together), way) for way in WAYS}
    for way in reversed(WAYS):  # whatever went down before leaves no trace
        for layer, values in together.down(one_hot(together), way).items():
            assert torch.equal(values, first[way][layer])
            torch.testing.assert_close(values, arrived(net, x, way, layer=layer))
        assert list(together.down(one_hot(together), way, layers=["relu"])) == ["relu"]
    for way in ("grad", "lrp"):
        mixed = together.down(one_hot(together, 0) - 2 * one_hot(together, 3), way)
        for layer in mixed:
            parts = [together.down(one_hot(together, unit), way)[layer] for unit in (0, 3)]
            torch.testing.assert_close(mixed[layer], parts[0] - 2 * parts[1])


def test_a_silent_output_explains_nothing():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False)).double()
    net[2].weight.data[0] = 0
    gradients = Gradients(net, picture(2, 3), ["1"])
    assert not gradients.down(one_hot(gradients, 0), "lrp")["1"].any()
    assert gradients.down(one_hot(gradients, 1), "lrp")["1"].isfinite().all()


# --- refusals -------------------------------------------------------------------------------------------------------


class Secret(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    def backward(ctx, signal):
        return signal * (ctx.saved_tensors[0] > 0)


@pytest.mark.parametrize("way", ["deconv", "guided", "lrp"])
def test_hidden_rectifiers_are_refused(way):
    net, x = Block(lambda net, x: Secret.apply(x)), picture(2, 6)
    with pytest.raises(NoRuleError, match=r"Secret.*hides its operations"):
        arrived(net, x, way, layer="low")
    expected = arrived(Block(lambda net, x: x.relu()), x, layer="low")
    torch.testing.assert_close(arrived(net, x, layer="low"), expected)  # a gradient is a gradient


def test_relevance_has_no_rule_for_everything():
    net, x = Block(lambda net, x: torch.linalg.matrix_exp(x[:, :, None] * torch.eye(6))[:, :, 0]), picture(2, 6)
    with pytest.raises(NoRuleError, match="matrix_exp"):
        arrived(net, x, "lrp", layer="low")
    attention = Block(lambda net, x: (x[:, :, None] @ net.gate(x)[:, None])[:, 0])
    with pytest.raises(NoRuleError, match=r"'matmul'.*a product of two activations"):
        arrived(attention, x, "lrp", layer="low")
    assert arrived(attention, x, "guided", layer="low").any()
