"""Numbers at the ends of what floats hold: the map is that of double precision, or an error says what went wrong."""

import copy
import math

import pytest
import torch
from oracle import randomise
from torch import nn

from excite.errors import NumberError
from excite.propagation import (
    ExcitationPass,
    Gradients,
    absorbing_chain,
    mwp,
    sample_winners,
    transition_matrix,
    winner_take_all,
)

NAN, INFINITY = math.nan, math.inf


class Block(nn.Module):
    """Every kind of competition: a sum of branches, one of them depthwise, one of them a wide mixing of channels."""

    def __init__(self, activation=nn.ReLU):
        super().__init__()
        self.stem = nn.Conv2d(3, 512, 3, padding=1, bias=False)
        self.activation = activation()
        self.depthwise = nn.Conv2d(512, 512, 3, padding=1, groups=512, bias=False)
        self.mixing = nn.Conv2d(512, 512, 1, bias=False)
        self.pool = nn.AvgPool2d(2)
        self.fc = nn.Linear(512 * 4, 4, bias=False)

    def forward(self, x):
        x = self.activation(self.stem(x))
        x = self.activation(self.depthwise(x)) + self.activation(self.mixing(x))
        return self.fc(self.pool(x).flatten(1))


def network(activation=nn.ReLU):
    """Responses that stay near 1, so that each extreme is of our own making."""
    net = randomise(Block(activation), 0).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.div_(parameter[0].numel() ** 0.5)
    return net


PICTURE = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def scaled(net, **scales):
    with torch.no_grad():
        for name, scale in scales.items():
            weight = net.get_submodule(name).weight
            weight.copy_((weight.double() * scale).float())
    return net


def assert_as_in_double(net, picture, contrastive=False, layer="stem", tolerance=2e-4):
    exact = mwp(copy.deepcopy(net).double(), picture.double(), 2, layer=layer, contrastive=contrastive)
    found = mwp(net, picture, 2, layer=layer, contrastive=contrastive)
    assert float(exact.abs().sum()) > 1e-3  # there is something to compare
    assert float((found.double() - exact).abs().sum()) < tolerance * float(exact.abs().sum())


@pytest.mark.parametrize("contrastive", [False, True])
@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e30])
@pytest.mark.parametrize("name", ["stem", "fc"])
def test_weights_at_the_ends_of_the_range(name, scale, contrastive):
    assert_as_in_double(scaled(network(), **{name: scale}), PICTURE, contrastive)


@pytest.mark.parametrize("layer", ["stem", "input"])
@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e30])
def test_pictures_at_the_ends_of_the_range(scale, layer):
    assert_as_in_double(network(), PICTURE * scale, layer=layer)


def test_what_overflows_and_is_bounded_then():
    """ReLU6 makes 6 of infinity: the answer is finite, and so must be the total that its children share."""
    net = scaled(network(nn.ReLU6), stem=1e38)
    net.stem.weight.data.abs_()  # with both signs the network itself would answer otherwise than in double precision
    picture = PICTURE * 100
    assert bool(torch.isinf(net.stem(picture)).any())
    assert_as_in_double(net, picture, layer="input")


def test_extreme_weights_that_become_ordinary_again():
    """Also behind torch's back, which counts no changes through ``.data``."""
    net = scaled(network(), fc=1e-40)
    mwp(net, PICTURE, 2, layer="stem")
    net.fc.weight.data = network().fc.weight.data
    assert torch.equal(mwp(net, PICTURE, 2, layer="stem"), mwp(network(), PICTURE, 2, layer="stem"))


@pytest.mark.parametrize(("net", "picture"), [(scaled(network(), fc=0.0), PICTURE), (network(), PICTURE * 0)])
def test_nothing_to_explain_is_an_empty_map(net, picture):
    """All weights 0, all pixels 0: every logit is exactly 0, also in double precision."""
    net = copy.deepcopy(net)
    assert not mwp(net, picture, 2, layer="stem").any()
    assert not mwp(net.double(), picture.double(), 2, layer="stem").any()


def test_an_empty_batch():
    net = network()
    for contrastive in (False, True):
        assert mwp(net, PICTURE[:0], 2, layer="stem", contrastive=contrastive).shape == (0, 512, 4, 4)


def with_value(values, value):
    changed = values.detach().clone()
    changed.view(-1)[1] = value
    return changed


ASKED = {
    "mwp": lambda net, x: mwp(net, x, 2, layer="stem"),
    "c-mwp": lambda net, x: mwp(net, x, 2, layer="stem", contrastive=True),
    "unnormalised": lambda net, x: ExcitationPass(net, x, ["stem"]).down(torch.eye(4)[:1], normalised=False),
    "gradients": lambda net, x: Gradients(net, x, ["stem"]).down(torch.eye(4)[:1]),
    "sample_winners": lambda net, x: sample_winners(net, x, 2, layers=["pool"], count=3),
    "winner_take_all": lambda net, x: winner_take_all(net, x, 2, layers=["pool"]),
    "transition_matrix": lambda net, x: transition_matrix(net, x, None, "pool"),
    "absorbing_chain": lambda net, x: absorbing_chain(net, x, ["pool"]),
}


@pytest.mark.parametrize("question", ASKED)
def test_what_is_no_number_and_the_layer_that_overflows_are_named(question):
    for value, kind in ((NAN, "NaN"), (INFINITY, "infinity")):
        net = network()
        with pytest.raises(NumberError, match=rf"^the input of the network holds {kind} \(1 of 48 numbers\)"):
            ASKED[question](net, with_value(PICTURE, value))
        net.mixing.weight.data = with_value(net.mixing.weight, value)
        with pytest.raises(NumberError, match=rf"weights hold {kind} in 'mixing.weight'"):
            ASKED[question](net, PICTURE)
    net = scaled(network(), mixing=1e38)
    with pytest.raises(NumberError, match=r"in layer 'mixing' \(Conv2d\) numbers first become infinity.*module.double"):
        ASKED[question](net, PICTURE * 1e10)


def test_an_operation_between_layers():
    class Between(nn.Sequential):
        def forward(self, x):
            return self[1](self[0](x) / 0)

    net = Between(nn.Linear(2, 2), nn.Linear(2, 2)).eval()
    with pytest.raises(NumberError, match=r"before layer '1' \(Linear\)"):
        mwp(net, torch.ones(1, 2), 0, layer="0")


def test_infinity_that_the_answer_does_not_show():
    """Behind a sigmoid the answer is finite, but whoever won below is not known."""
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.Sigmoid(), nn.Linear(2, 2))
    for layer in net[:2]:
        layer.weight.data.fill_(1e30)
    with pytest.raises(NumberError, match=r"in layer '0' .* first become infinity"):
        mwp(net.eval(), torch.full((1, 2), 1e30), 0, layer="0")


def test_a_class_that_is_never_meant():
    """-inf is an answer: a network may rule classes out, and the others can be explained."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(2, 3, bias=False)

        def forward(self, x):
            return self.body(x) + torch.tensor([0.0, 0.0, -INFINITY])

    net = Masked().eval()
    net.body.weight.data.fill_(1.0)
    assert float(mwp(net, torch.ones(1, 2), 0, layer="input").sum()) == pytest.approx(1)
