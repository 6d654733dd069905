"""``layer=net[1]``: the module itself wherever a layer is taken, and a clear line for one of another network."""

import pytest
import torch
from torch import nn

import excite
from excite.errors import LayerError
from excite.propagation import ExcitationPass, Gradients, verify


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()


X = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def test_everywhere(net):
    classifier = excite.wrap(net, layer=net[1], preprocess=lambda _: X[0], verify=False)
    assert (classifier.layer, classifier.layers) == ("1", ("1",))
    image, both = torch.rand(3, 8, 8), [net[1], "0"]
    assert [found.layer for found in excite.attend(classifier, image, 1, layer=both)] == ["1", "0"]
    cache = excite.SessionCache(classifier)
    cache.attend(image, 1, layer=net[0])
    cache.attend(image, 2, layer="0")
    assert cache.runs == 1  # one session
    assert excite.mwp(net, X, 2, layer=net[1]).equal(excite.mwp(net, X, 2, layer="1"))
    assert list(excite.mwp(net, X, 2, layer=both)) == ["1", "0"]
    for kind in (ExcitationPass, Gradients):
        assert list(kind(net, X, both).readings) == ["1", "0"]
    assert list(verify(net, X, [net[1]]).accounted) == ["1"]
    assert excite.transition_matrix(net, X, net[1], net[0]).equal(excite.transition_matrix(net, X, "1", "0"))
    assert list(excite.absorbing_chain(net, X, both).places) == ["", "1"]
    assert list(excite.winner_take_all(net, X, 0, layers=net[1])) == ["1"]


@pytest.mark.parametrize("wrong", [nn.ReLU(), 3, "net itself"], ids=str)
def test_what_is_no_layer(net, wrong):
    given = net if wrong == "net itself" else wrong
    with pytest.raises(LayerError, match=f"this {type(given).__name__} is no layer of Sequential: give one of"):
        excite.mwp(net, X, 2, layer=given)
