"""Grad, Deconv, guided backpropagation and their contrasts, against captum."""

import copy
import warnings

import pytest
import torch
from networks import CLASSES, Connected, Pooled, made, maps, pictures
from torch import nn

import excite
from excite.methods import METHODS
from excite.methods.base import blurred, normalised

captum = pytest.importorskip("captum.attr", reason="captum is the peer of these tests: pip install 'excite[dev]'")
PEERS = {"grad": captum.Saliency, "deconv": captum.Deconvolution, "guided": captum.GuidedBackprop}
every_peer = pytest.mark.parametrize("name", PEERS)


def captums(name, network, x, unit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it sets hooks
        found = PEERS[name](copy.deepcopy(network)).attribute(x.clone().requires_grad_(), target=unit)
    return blurred(found.detach().abs().amax(1))


@every_peer
@pytest.mark.parametrize("kind", [Pooled, Connected])
def test_captum_agrees(name, kind):
    network, x = made(kind), pictures()
    for unit in range(CLASSES):
        found = maps(network, x, name, "input", unit)
        assert found.shape == (2, 10, 14)
        assert found.max() > 0
        torch.testing.assert_close(found, captums(name, network, x, unit))


@every_peer
def test_also_at_a_layer(name):
    """As in the paper's study of layers: the largest magnitude over the channels of the layer."""
    network, x = made(Connected), pictures()
    upper = nn.Sequential(*network.features[3:], nn.Flatten(), network.fc)
    torch.testing.assert_close(
        maps(network, x, name, "features.2"), captums(name, upper, network.features[:3](x).detach(), 2)
    )


@pytest.mark.parametrize("kind", [Pooled, Connected])
def test_the_contrast_of_grad_is_nothing(kind):
    """The gradients of the dual are the negatives, and their size is the same."""
    for layer in ("input", "features.1", "features.4"):
        assert not maps(made(kind), pictures(), "c-grad", layer).any()


@pytest.mark.parametrize("name", ["deconv", "guided"])
def test_the_contrast_is_the_difference_of_normalised_maps(name):
    network, x = made(Connected), pictures()
    dual = captums(name, nn.Sequential(network, Negated()), x, 2)
    expected = normalised(captums(name, network, x, 2)) - normalised(dual)
    assert expected.abs().max() > 1e-4
    torch.testing.assert_close(maps(network, x, f"c-{name}", "input"), expected)


class Negated(nn.Module):
    """A classifier of the dual units."""

    def forward(self, x):
        return -x


@pytest.mark.parametrize("name", ["c-grad", "c-deconv", "c-guided", "c-cam"])
def test_a_named_contrast_needs_no_dual(name):
    """Against another concept the signal is a difference already: the plain method is asked."""
    plain = METHODS[name].plain
    assert plain.name == name[2:]
    layer = "features.4"
    classifier = excite.wrap(made(Pooled).float(), labels=list("abcde"), preprocess=None)
    picture = (pictures(1)[0] * 255).to(torch.uint8)
    (found,) = excite.attend(classifier, picture, "a", layer=layer, method=name, against="b")
    (expected,) = excite.attend(classifier, picture, "a", layer=layer, method=plain.name, against="b")
    assert torch.equal(found.values, expected.values)
