"""Branches, sums, gates and copies: everything that is not a weight, against explicit matrices."""

import numpy as np
import pytest
import torch
from oracle import (
    Net,
    activated,
    agree,
    direction_of,
    flat,
    layer,
    picked,
    picture,
    pooled,
    relu,
    summed,
)
from torch import nn
from torch.nn import functional as F

from excite.errors import LayerError
from excite.propagation import mwp, transition_matrix

SHAPE = (2, 4, 4)
SIZE = 32


def conv(inputs=2, outputs=2, kernel=3):
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)


def through(units, module):
    return layer(units, module, SHAPE)[0]


# --- one child: the signal stays the same -----------------------------------------------------------------------------

INDEX = np.arange(SIZE).reshape(SHAPE)
# --- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize(("add", "factor"), [(lambda a, b: torch.add(a, b, alpha=0.5), 0.5), (torch.sub, -1.0)])
def test_sums_share_by_what_each_term_added(add, factor, rectified):
    bend, bent = (F.relu, relu) if rectified else (lambda h: h, lambda units: units)
    net = Net(lambda net, h: add(bend(net.a(h)), bend(net.b(h))), SIZE, a=conv(), b=conv())

    def reference(lowest):
        left, right = (bent(through(lowest, module)) for module in (net.a, net.b))
        return summed(left, activated(right, right.values * factor))

    agree(net, picture(8), reference)


# --- gates ------------------------------------------------------------------------------------------------------------


GATES = {
    "same shape": lambda net, h: h * torch.sigmoid(net.g(h)),
    "in place": lambda net, h: h.clone().mul_(torch.sigmoid(net.g(h))),
    "softmax over places": lambda net, h: h * net.g(h).flatten(2).softmax(2).view_as(h),
    "broadcast without a squashing": lambda net, h: h * net.g(h).mean((2, 3), keepdim=True),
    "division": lambda net, h: h / (1 + net.g(h).abs()),
    "over its sum": lambda net, h: h / (h.sum(1, keepdim=True) + 1),
}


@pytest.mark.parametrize("name", GATES)
def test_gates(name):
    net = Net(lambda net, h: net.b(GATES[name](net, F.relu(h))), SIZE, b=conv(), g=conv())

    def reference(lowest):
        units = relu(lowest)
        values = flat(GATES[name](net, torch.from_numpy(units.values).view(1, *SHAPE)))
        return through(activated(units, values), net.b)

    agree(net, picture(15, signed=True), reference)


class Product(nn.Module):
    """A product of two branches; a factor that is given is a constant instead."""

    def __init__(self, act):
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU())
        self.left, self.right = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.fc = nn.Linear(4 * 16, 3)
        self.act = act
        self.given = {}

    def forward(self, x):
        below = self.body(x)
        left = self.given.get("left", self.act(self.left(below)))
        right = self.given.get("right", self.right(below))
        return self.fc((left * right).flatten(1))


@pytest.mark.parametrize("act", [F.gelu, F.silu, F.relu, lambda x: x], ids=["gelu", "silu", "relu", "linear"])
def test_products_of_two_branches(act):
    """Of equals both are needed: the map is the mean of those in which one of them is a constant.

    A factor behind a function gates a plain response (GLU and its kind): the map is that where the gate is a constant.
    """
    net, x = Product(act).double().eval(), picture(16)
    with torch.no_grad():
        below = net.body(x)
        factors = {"left": act(net.left(below)), "right": net.right(below)}
    won = mwp(net, x, 1, layer="body")
    halves = []
    for name, values in factors.items():
        net.given = {name: values}
        halves.append(mwp(net, x, 1, layer="body"))
    equal = act not in {F.gelu, F.silu, F.relu}
    torch.testing.assert_close(won, (halves[0] + halves[1]) / 2 if equal else halves[0])
    assert float(won.sum()) > 0.3
    assert (halves[0] - halves[1]).abs().sum() > 0.01


def test_attention_over_values():
    """softmax(q k) v, written with plain products: the values take the signal in proportion to the attention."""

    def attention(net, tokens):
        return (net.q(tokens) @ net.k(tokens).transpose(1, 2) / 2).softmax(-1)

    def body(net, h):
        tokens = h.flatten(2).transpose(1, 2)  # [images, 16, 2]
        return attention(net, tokens) @ net.v(tokens)

    net = Net(body, SIZE, q=nn.Linear(2, 2), k=nn.Linear(2, 2), v=nn.Linear(2, 2))

    def reference(lowest):
        moved = picked(lowest, INDEX.reshape(2, 16).T)
        tokens = torch.from_numpy(moved.values).view(1, 16, 2)
        weights = np.kron(attention(net, tokens)[0].detach().numpy().T, np.eye(2))
        values = layer(moved, net.v, (16, 2))[0]
        units = pooled(values, weights)
        units.turn(direction_of(units.values))
        return units

    agree(net, picture(16), reference)


class TestTapsOnConcatenations:
    """A norm behind a concatenation joins the neurons of its parts, but not past a tap that lies between them."""

    class Net(nn.Module):
        def __init__(self, *, raw):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
            self.left, self.right = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
            self.block = nn.Identity()
            self.norm = nn.BatchNorm2d(8)
            self.fc = nn.Linear(8, 2)
            self.raw = raw  # whether the concatenation is also used as it is

        def forward(self, x):
            below = self.stem(x)
            block = self.block(torch.cat([self.left(below), self.right(below)], 1))
            features = torch.relu(self.norm(block))
            return self.fc((features + torch.relu(block) if self.raw else features).mean((2, 3)))

    def net(self, *, raw):
        torch.manual_seed(0)
        net = self.Net(raw=raw).double().eval()
        with torch.no_grad():
            for weight in net.parameters():
                if weight.dim() == 1:
                    weight.zero_()
            net.norm.weight.copy_(torch.tensor([1.0, -0.7, 0.5, -1.2, 0.9, -0.4, 1.1, -0.8]))
        return net

    @pytest.mark.parametrize("raw", [False, True])
    def test_everything_comes_by_the_tap(self, raw):
        net, x = self.net(raw=raw), torch.rand(1, 3, 4, 4, dtype=torch.float64)
        alone = {layer: mwp(net, x, 0, layer=layer) for layer in ("stem", "block")}
        both = mwp(net, x, 0, layer=["stem", "block"])
        for name, won in alone.items():
            assert abs(float(won.sum()) - 1) < 1e-12
            torch.testing.assert_close(both[name], won)

    def test_walks_from_it_and_from_its_parts_know_the_norm(self):
        """P(stem) = P(block) T(block, stem), also where the norm behind the concatenation turns the units round."""
        net, x = self.net(raw=False), torch.rand(1, 3, 4, 4, dtype=torch.float64)
        won = mwp(net, x, 0, layer=["stem", "block", "left", "right"])
        below = won["stem"].flatten()
        step = transition_matrix(net, x, "block", "stem")
        torch.testing.assert_close(won["block"].flatten() @ step, below)
        parts = [won[part].flatten() @ transition_matrix(net, x, part, "stem") for part in ("left", "right")]
        torch.testing.assert_close(parts[0] + parts[1], below)


def test_the_mean_of_two_heads():
    """A cued unit is on whatever its heads said: its signal is not lost where both of them said no."""

    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU())
            self.first, self.second = nn.Linear(8, 4, bias=False), nn.Linear(8, 4, bias=False)

        def forward(self, x):
            below = self.body(x)
            return (self.first(below) + self.second(below)) / 2

    net, x = TwoHeads().eval(), torch.rand(1, 6, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        heads = torch.cat([net.first(net.body(x)), net.second(net.body(x))])
        both_negative = int((heads < 0).all(0).nonzero()[0])
    for unit in range(4):
        assert abs(float(mwp(net, x, unit, layer="body").sum()) - 1) < 1e-6
    won = mwp(net, x, both_negative, layer=["first", "second"])
    spoken = heads[:, both_negative].abs()
    torch.testing.assert_close(won["first"][0, both_negative], spoken[0] / spoken.sum())
    torch.testing.assert_close(won["second"][0, both_negative], spoken[1] / spoken.sum())


def test_the_papers_short_names():
    """Caffe's GoogleNet calls it pool2/3x3_s2, the paper pool2; a short name that fits two layers is refused."""
    names = ("conv1/7x7_s2", "conv1/relu_7x7", "pool2/3x3_s2")
    net = nn.Sequential()
    for name, module in zip(names, (nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2)), strict=True):
        net.add_module(name, module)
    net.add_module("flat", nn.Flatten())
    net.add_module("fc", nn.Linear(4 * 9, 2))
    x = torch.rand(1, 3, 8, 8)
    assert torch.equal(mwp(net, x, 0, layer="pool2"), mwp(net, x, 0, layer="pool2/3x3_s2"))
    with pytest.raises(LayerError, match=r"no layer 'conv1' .*conv1/7x7_s2"):
        mwp(net, x, 0, layer="conv1")


# --- scales of a response ---------------------------------------------------------------------------------------------


def test_two_scales_in_a_row_are_their_product():
    """The neuron is the one whose weights are scaled by both: where both are negative, nothing is turned round."""
    torch.manual_seed(5)
    first, second = (
        torch.tensor(signs, dtype=torch.float64).view(4, 1, 1) for signs in ((-2, -1, 3, 1), (-1, 2, -2, 1))
    )
    scaled = Net(lambda net, h: F.relu(net.a(h) * first * second), 4 * 16, a=conv(2, 4))
    once = Net(lambda net, h: F.relu(net.a(h)), 4 * 16, a=conv(2, 4))
    once.load_state_dict(scaled.state_dict())
    with torch.no_grad():
        for values in (once.a.weight, once.a.bias):
            values.mul_((first * second).view(4, *[1] * (values.dim() - 1)))
    images = picture(8)
    torch.testing.assert_close(
        *(mwp(net.double(), images.double(), 1, layer="input", contrastive=True) for net in (scaled, once))
    )
