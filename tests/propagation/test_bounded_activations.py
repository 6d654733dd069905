"""Activations with a least value lambda: their response is what lies above it (Eqn. 5, with a - lambda)."""

import numpy as np
import pytest
import torch
from oracle import (
    Net,
    activated,
    agree,
    batch_norm,
    bounded,
    flat,
    joined,
    layer,
    matrix,
    picked,
    picture,
    pooled,
    relu,
)
from torch import nn
from torch.nn import functional as F

from excite.propagation import mwp

LAMBDA = {
    "tanh": (torch.tanh, -1.0),
    "elu": (F.elu, -1.0),
    "elu with alpha": (lambda h: F.elu(h, alpha=0.7), -0.7),
    "selu": (F.selu, -1.0507009873554804934193349852946 * 1.6732632423543772848170429916717),
    "softplus": (F.softplus, 0.0),
    "sigmoid": (torch.sigmoid, 0.0),
    "softsign": (F.softsign, -1.0),
    "hardtanh": (F.hardtanh, -1.0),
    "relu6": (F.relu6, 0.0),
    "clamp": (lambda h: h.clamp(-0.25, 3.0), -0.25),
    "clamp_min": (lambda h: torch.clamp_min(h, -0.1), -0.1),
    "tanh method in place": (lambda h: h.tanh_(), -1.0),
}
SHAPE, OUT = (2, 4, 4), (3, 4, 4)


def conv(inputs=2, outputs=3):
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def values(function, units):
    return flat(function(torch.from_numpy(units.values.copy())))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", LAMBDA)
def test_consumers_count_from_lambda(name, signed):
    """conv, activation, conv, activation, classifier: two consumers, and neurons of both signs below."""
    function, least = LAMBDA[name]
    net = Net(lambda net, h: function(net.b(function(net.a(h)))), 48, a=conv(), b=conv(3, 3))

    def reference(lowest):
        first, shape = layer(lowest, net.a, SHAPE)
        first = bounded(first, values(function, first), least)
        second, _ = layer(first, net.b, shape)
        return bounded(second, values(function, second), least)

    agree(net, picture(signed=signed), reference)


@pytest.mark.parametrize("name", ["hardtanh", "clamp"])
def test_at_the_least_value_of_a_hard_activation_nothing_is_passed(name):
    """Also where a norm behind it moves that value: the activation ends the neuron, as ReLU does."""
    function, least = LAMBDA[name]
    net = Net(lambda net, h: net.bn(function(net.a(h))), 48, a=conv(), bn=nn.BatchNorm2d(3))

    def reference(lowest):
        made, shape = layer(lowest, net.a, SHAPE)
        acted = bounded(made, values(function, made), least)
        acted.ways = [(made, np.diag((acted.rate > 0).astype(float)))]
        return batch_norm(acted, net.bn, shape)

    agree(net, picture(1), reference)


def test_average_pooling_rests_where_its_children_rest():
    def pool(h):
        return F.avg_pool2d(h, 2, padding=1)

    net = Net(lambda net, h: net.b(pool(torch.tanh(net.a(h)))), 18, a=conv(), b=conv(3, 2))

    def reference(lowest):
        made, _ = layer(lowest, net.a, SHAPE)
        return layer(pooled(bounded(made, np.tanh(made.values), -1.0), matrix(pool, OUT)), net.b, (3, 3, 3))[0]

    agree(net, picture(2), reference)


@pytest.mark.parametrize("sizes", [(3, 3), (2, 4), (4, 2)])
@pytest.mark.parametrize("take", [0, 1])
@pytest.mark.parametrize("way", ["split", "tensor_split"])
def test_lambda_of_each_part_of_a_split(way, take, sizes):
    """A concatenation of tanh and ReLU taken apart again: each part keeps its own lambda."""

    def body(net, h):
        whole = torch.cat([torch.tanh(net.a(h)), F.relu(net.b(h))], dim=1)
        parts = whole.split(sizes, dim=1) if way == "split" else whole.tensor_split(sizes[:1], dim=1)
        return net.d(parts[take])

    net = Net(body, 32, a=conv(), b=conv(), d=conv(sizes[take], 2))

    def reference(lowest):
        a, b = (layer(lowest, module, SHAPE)[0] for module in (net.a, net.b))
        whole = joined(bounded(a, np.tanh(a.values), -1.0), relu(b))
        start = 16 * sum(sizes[:take])
        part = picked(whole, np.arange(start, start + 16 * sizes[take]))
        return layer(part, net.d, (sizes[take], 4, 4))[0]

    agree(net, picture(4), reference)


SHIFTS = {
    "t * 2 + 1": (lambda t: t * 2.0 + 1.0, 2.0, 1.0),
    "t - 3": (lambda t: t - 3.0, 1.0, -3.0),
    "t.mul_": (lambda t: t.clone().mul_(2.0), 2.0, 0.0),
    "a tensor in front": (lambda t: torch.full((3, 1, 1), 0.5, dtype=t.dtype) + t, 1.0, 0.5),
}


@pytest.mark.parametrize("name", SHIFTS)
def test_lambda_moves_with_multiples_and_shifts(name):
    """Twice a tanh plus one rests at -1: what lies above it is what it was, only larger."""
    function, scale, shift = SHIFTS[name]
    net = Net(lambda net, h: net.d(function(torch.tanh(net.a(h)))), 32, a=conv(), d=conv(3, 2))

    def reference(lowest):
        made, _ = layer(lowest, net.a, SHAPE)
        acted = bounded(made, np.tanh(made.values), -1.0)
        moved = activated(acted, acted.values * scale + shift)
        moved.rest = acted.rest * scale + shift
        return layer(moved, net.d, OUT)[0]

    agree(net, picture(10), reference)


@pytest.mark.parametrize(
    "write", [lambda t: t.mul_(2.0), lambda t: t.add_(1.0), lambda t: t.div_(0.5), lambda t: t.sub_(3.0)]
)
def test_lambda_of_an_earlier_consumer_stays(write):
    """What a consumer has read is not moved when the activation is scaled or shifted in place afterwards."""

    def body(net, h):
        acted = torch.tanh(net.a(h))
        made = net.d(acted)
        write(acted)
        return made

    net = Net(body, 32, a=conv(), d=conv(3, 2))

    def reference(lowest):
        made, _ = layer(lowest, net.a, SHAPE)
        return layer(bounded(made, np.tanh(made.values), -1.0), net.d, OUT)[0]

    agree(net, picture(11), reference)


@pytest.mark.parametrize("logit", [-200.0, -1.0, 0.0, 2.0])
def test_a_sigmoid_on_the_output_changes_nothing(logit):
    """Multi-label classifiers: the cued unit is on, however small its probability."""
    weights = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    for precision in (torch.float64, torch.float32):
        net = nn.Sequential(nn.Identity(), nn.Linear(3, 1), nn.Sigmoid()).to(precision)
        with torch.no_grad():
            net[1].weight.copy_(weights)
            net[1].bias.fill_(logit - float(x @ weights.T))
        found = mwp(net, x.to(precision), 0, layer="0")
        torch.testing.assert_close(found, torch.tensor([[0.1, 0.0, 0.9]], dtype=precision))


class Star(nn.Module):
    """What MetaFormer puts behind the square of a ReLU."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.tensor(0.9)), nn.Parameter(torch.tensor(-0.45))

    def forward(self, x):
        return self.weight * x + self.bias


RESTING = {
    "layer norm": lambda: nn.LayerNorm(12),
    "group norm": lambda: nn.GroupNorm(3, 12),
    "batch norm": lambda: nn.BatchNorm1d(12),
    "star relu": Star,
}


@pytest.mark.parametrize("name", RESTING)
@pytest.mark.parametrize("squared", [False, True])
def test_where_units_rest_behind_a_norm_of_their_own(name, squared):
    """A norm behind a ReLU moves the units that nothing excited away from 0; they are no evidence all the same.

    So the map is that of the network in which each unit is only multiplied as the norm multiplies it, by either sign.
    """

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(4)
            self.below = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
            self.fc1, self.norm, self.fc2 = nn.Linear(8, 12, bias=False), RESTING[name](), nn.Linear(12, 5)
            self.slope = None

        def activation(self, x):
            value = torch.relu(self.fc1(self.below(x)))
            return value.square() if squared else value

        def forward(self, x):
            value = self.activation(x)
            return self.fc2(self.norm(value) if self.slope is None else value * self.slope)

    net, x = Network().double().eval(), torch.rand(1, 6, dtype=torch.float64)
    with torch.no_grad():
        if name != "star relu":
            net.norm.weight.copy_(torch.linspace(-1, 1.5, 12))
            net.norm.bias.normal_()
        if name == "batch norm":
            net.norm.running_mean.normal_()
            net.norm.running_var.uniform_(0.5, 2)
        value = net.activation(x)
        step = 1e-6 * torch.eye(12, dtype=torch.float64)
        if name in {"layer norm", "group norm"}:  # with the statistics of this image held fixed
            groups = value.reshape(1 if name == "layer norm" else 3, -1)
            spread = (groups.var(1, unbiased=False, keepdim=True) + net.norm.eps).sqrt().expand_as(groups).reshape(-1)
            slope = net.norm.weight / spread
        else:
            slope = ((net.norm(value + step) - net.norm(value)) / 1e-6).diagonal()
    for unit in range(5):
        net.slope = None
        won = mwp(net, x, unit, layer="below")
        net.slope = slope[None]
        torch.testing.assert_close(won, mwp(net, x, unit, layer="below"), rtol=1e-5, atol=1e-8)
        assert abs(float(won.sum()) - 1) < 1e-6
