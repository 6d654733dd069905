"""The same network written in unusual ways has the same winners: in-place writes, aliases, control flow, hooks."""

import copy
from functools import partial

import oracle
import pytest
import torch
from oracle import Net, randomise
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from excite.propagation import ExcitationPass, mwp

SHAPE = (4, 4, 4)
picture = partial(oracle.picture, shape=SHAPE, signed=True)


def parts():
    conv = {name: nn.Conv2d(4, 4, 3, padding=1) for name in "ab"}
    return {**conv, "bn": nn.BatchNorm2d(4), "relu": nn.ReLU(inplace=True), "pool": nn.MaxPool2d(2)}


def same(unusual, plain, width=64, seeds=range(2)):
    """Both bodies, in networks with the same weights: the same output to the bit, the same maps, with contrast."""
    for seed in seeds:
        first = randomise(Net(unusual, width, **parts()), seed)
        second = randomise(Net(plain, width, **parts()), seed)
        x = picture(seed)
        untouched = x.clone()
        excitation = ExcitationPass(first, x, ["tap"])
        with torch.no_grad():  # some of these bodies cannot be trained
            assert torch.equal(excitation.output, first(x))
            torch.testing.assert_close(excitation.output, second(x), rtol=1e-12, atol=1e-12)
        for options in ({}, {"contrastive": True}):
            for cued in range(3):
                torch.testing.assert_close(
                    mwp(first, x, cued, layer="tap", **options),
                    mwp(second, x, cued, layer="tap", **options),
                    rtol=1e-10,
                    atol=1e-12,
                )
        assert torch.equal(x, untouched)


# --- in-place writes -----------------------------------------------------------------------------------------------


def residual(net, h):
    out = net.relu(net.bn(net.a(h)))
    out = net.b(out)
    out += h
    return net.relu(out)


def kept_then_added(net, h):
    h = net.a(h).relu_()
    kept = net.b(h)
    h += kept
    return h


def read_then_written(read, write):
    def body(net, h):
        h = F.relu(net.a(h))
        made = read(net, h)
        write(h)
        return made

    return body


def terms_overwritten(net, h):
    left, right = F.relu(net.a(h)), F.relu(net.b(h))
    total = left + right
    left.zero_()
    right.sub_(5.0)
    return total


def response_overwritten(net, h):
    h = net.bn(net.a(h))
    made = net.b(h)
    h.neg_().mul_(3.0)
    return made + net.a(h)


OVERWRITTEN = {  # unusual, plain, the width of both
    "residual block": (residual, lambda net, h: F.relu(net.b(F.relu(net.bn(net.a(h)))) + h), 64),
    "kept by a convolution": (kept_then_added, lambda net, h: F.relu(net.a(h)) + net.b(F.relu(net.a(h))), 64),
    "input of max pooling": (
        read_then_written(lambda _, h: F.max_pool2d(h, 2), lambda h: h.mul_(-7.0)),
        lambda net, h: F.max_pool2d(F.relu(net.a(h)), 2),
        16,
    ),
    "terms of a sum": (terms_overwritten, lambda net, h: F.relu(net.a(h)) + F.relu(net.b(h)), 64),
    "a norm": (response_overwritten, lambda net, h: net.b(net.bn(net.a(h))) + net.a(-net.bn(net.a(h)) * 3.0), 64),
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_what_is_overwritten_after_it_was_read(name):
    same(*OVERWRITTEN[name], seeds=range(2))


def test_what_is_written_below_the_layer_is_no_constant():
    """A buffer filled from the image, beside the tapped layer: it takes its share of a sum as the image would."""

    def network(filled):
        class Beside(nn.Module):
            def __init__(self):
                super().__init__()
                self.tap, self.fc = nn.ReLU(), nn.Linear(64, 3)

            def forward(self, x):
                beside = filled(x.abs())
                return self.fc((self.tap(x) + beside).flatten(1))

        return randomise(Beside().double())

    def fill(h):
        out = torch.zeros(h.shape, dtype=h.dtype)
        out[:, :2] = h[:, 2:]
        out[:, 2:].copy_(h[:, :2])
        return out

    found = mwp(network(fill), picture(), 1, layer="tap")
    expected = mwp(network(lambda h: h.roll(2, 1)), picture(), 1, layer="tap")
    torch.testing.assert_close(found, expected)
    assert expected.sum() < 1.5  # of 2 images: the rest went beside


def test_an_alias_is_overwritten_before_a_norm():
    """The norm normalises what is in the tensor now, not what the convolution once wrote."""

    def through_a_view(net, h):
        h = net.a(h)
        h[:, :2].relu_()
        return net.bn(h)

    def through_the_base(net, h):
        h = net.a(h)
        alias = h.view(len(h), 4, 4, 4)
        h[:, :2] = F.relu(h[:, :2])
        return net.bn(alias)

    def plain(net, h):
        h = net.a(h)
        return net.bn(torch.where(torch.arange(4).view(4, 1, 1) < 2, F.relu(h), h))

    same(through_the_base, through_a_view)
    same(through_a_view, plain)


# --- where the values come from and go to --------------------------------------------------------------------------


@pytest.mark.parametrize("parametrise", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_parametrised_weights(parametrise):
    plain = Net(lambda net, h: F.relu(net.a(h)), 64, **parts())
    net = copy.deepcopy(plain)
    parametrise(net.a)
    with torch.no_grad():
        plain.a.weight.copy_(net.eval().a.weight)
    x = picture()
    torch.testing.assert_close(mwp(net, x, 0, layer="tap"), mwp(plain, x, 0, layer="tap"))


# --- modules used more than once -----------------------------------------------------------------------------------


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(64, 3)
        self.again = self.relu
        randomise(self.double().eval(), 0)

    def forward(self, x):
        for _ in range(3):
            x = self.relu(self.conv(x))
        return self.fc(x.flatten(1))


class Unrolled(Reused):
    def __init__(self):
        super().__init__()
        self.relu0, self.relu1, self.relu2 = nn.ReLU(), nn.ReLU(), nn.ReLU()
        self.conv0 = self.conv1 = self.conv2 = self.conv

    def forward(self, x):
        x = self.relu0(self.conv(x))
        x = self.relu1(self.conv(x))
        return self.fc(self.relu2(self.conv(x)).flatten(1))


def test_a_module_called_several_times():
    net, twin, x = Reused(), Unrolled(), picture()
    expected = mwp(twin, x, 2, layer=["relu0", "relu1", "relu2"])
    found = mwp(net, x, 2, layer=["relu#0", "relu#1", "relu#2", "relu"])
    for call in range(3):
        torch.testing.assert_close(found[f"relu#{call}"], expected[f"relu{call}"])
        torch.testing.assert_close(mwp(net, x, 2, layer=f"relu#{call}"), expected[f"relu{call}"])
    torch.testing.assert_close(found["relu"], expected["relu2"])
    torch.testing.assert_close(mwp(net, x, 2, layer="again#1"), expected["relu1"])
    assert not torch.allclose(expected["relu0"], expected["relu1"])


# --- inputs and modes ----------------------------------------------------------------------------------------------


def deep():
    return Net(lambda net, h: net.pool(residual(net, h)), 16, **parts())


@pytest.mark.parametrize(
    "lay",
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
        lambda x: x.clone().requires_grad_(),
        lambda x: nn.Parameter(x.clone()),
    ],
)
def test_the_layout_of_the_input_does_not_matter(lay):
    net, x = deep(), picture()
    expected = mwp(net, x, 1, layer="tap", contrastive=True)
    torch.testing.assert_close(mwp(net, lay(x), 1, layer="tap", contrastive=True), expected, rtol=1e-10, atol=1e-12)


def test_the_gradient_mode_around_does_not_matter():
    net, x = deep(), picture()
    expected = mwp(net, x, 1, layer="tap", contrastive=True)
    for mode in (torch.no_grad(), torch.enable_grad(), torch.inference_mode()):
        with mode:
            assert torch.equal(mwp(net, x, 1, layer="tap", contrastive=True), expected)
            made_there = x.clone()
    assert made_there.is_inference()
    assert torch.equal(mwp(net, made_there, 1, layer="tap", contrastive=True), expected)
    assert not expected.requires_grad


@pytest.mark.parametrize("nest", [lambda y: y, lambda y: {"y": y}, lambda y: [y], lambda y: ((y,),)])
def test_several_inputs(nest):
    """All tensors that come in are activations, wherever they stand: each takes its share of a sum."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.tap = nn.Identity()
            self.fc = nn.Linear(4, 2)

        def forward(self, x, y, factor=1.0, extra=None):
            while not isinstance(y, torch.Tensor):
                y = y["y"] if isinstance(y, dict) else y[0]
            return self.fc(self.tap(x) * factor + y)

    net = randomise(Two().double())
    x, y = torch.rand(2, 1, 4, dtype=torch.float64)
    total = 2.0 * x + y
    pushes = (net.fc.weight[1].detach() * total).clamp(min=0)
    found = mwp(net, (x, nest(y), 2.0, None), 1, layer="tap")
    torch.testing.assert_close(found, pushes / pushes.sum() * 2.0 * x / total)


def test_outputs_inside_dicts_and_tuples():
    class Wrapped(nn.Module):
        def __init__(self, wrap):
            super().__init__()
            self.net, self.wrap = deep(), wrap

        def forward(self, x):
            return self.wrap(self.net(x))

    x = picture()
    expected = mwp(deep(), x, 1, layer="tap")
    for wrap in (lambda y: {"out": y, "aux": None}, lambda y: (y, y * 2), lambda y: [y]):
        torch.testing.assert_close(mwp(Wrapped(wrap), x, 1, layer="net.tap"), expected)


def test_dropped_units_cannot_win_even_when_something_is_made_of_their_zeros():
    """Dropout, then a shift: the dropped units respond again, but not because of what was below them."""

    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.tap, self.drop, self.fc = nn.ReLU(), nn.Dropout(0.5), nn.Linear(30, 2)

        def forward(self, x):
            return self.fc(self.drop(self.tap(x)) + 1.0)

    net = randomise(Shifted().double().train())
    x = torch.rand(3, 30, dtype=torch.float64) + 0.1
    torch.manual_seed(6)
    found = mwp(net, x, 0, layer="tap")
    torch.manual_seed(6)
    kept = F.dropout(torch.ones(3, 30, dtype=torch.float64), 0.5, training=True) > 0
    assert (found[~kept] == 0).all()
    assert (found[kept] > 0).any()
