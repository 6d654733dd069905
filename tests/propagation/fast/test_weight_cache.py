"""Parts of weights are kept between images, and never one image longer than they are right."""

import gc

import numpy as np
import pytest
import torch
from torch import nn

from excite.errors import SignalError
from excite.propagation import ExcitationPass, mwp
from excite.propagation.fast import kernels
from excite.propagation.fast.shortcuts import CACHE, SignedWeight, WeightCache


def network(side=3):
    torch.manual_seed(3)
    layers = [nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, side), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten()]
    net = nn.Sequential(*layers, nn.Linear(64 * (5 - side) ** 2, 4)).eval()
    nn.init.normal_(net[3].weight)
    return net


@pytest.fixture
def net():
    return network()


X = torch.rand(1, 3, 6, 6)


def signed_part(weight, sign, orientation=None):
    return SignedWeight(weight, sign, orientation, weight.dtype, kept=False).tensor()


def kept_part(kept, weight, sign, turns=None):
    return kept.part(weight, sign, turns, "as it is", lambda: signed_part(weight, sign, turns))


def rows(change):
    return pytest.param(change, id=change.__name__)


def in_place(net):
    with torch.no_grad():
        net[2].weight.neg_()


def through_data(net):
    net[2].weight.data.neg_()


def one_row_through_data(net):
    net[2].weight.data[3].zero_()


def one_channel_through_data(net):
    net[2].weight.data[:, 2].zero_()


def through_numpy(net):
    net[2].weight.detach().numpy()[:] *= -1


def new_data(net):
    net[2].weight.data = -net[2].weight.data


def loaded(net):
    net.load_state_dict({name: -value if value.dim() > 1 else value for name, value in net.state_dict().items()})


def replaced(net):
    net[2].weight = nn.Parameter(-net[2].weight.detach())


def other_norm(net):
    with torch.no_grad():
        net[3].weight.neg_()


def stepped(net):
    optimiser = torch.optim.SGD(net.parameters(), lr=10.0)
    net(X).sum().backward()
    optimiser.step()


CHANGES = [
    in_place,
    through_data,
    one_row_through_data,
    one_channel_through_data,
    through_numpy,
    new_data,
    loaded,
    replaced,
    other_norm,
    stepped,
]


@pytest.mark.parametrize("side", [1, 3])
@pytest.mark.parametrize("change", [rows(change) for change in CHANGES])
def test_changed_weights_are_never_used(side, change, monkeypatch):
    monkeypatch.setattr(kernels, "MANY", 16)  # so that kernels of one place are kept, too
    net = network(side)
    before = mwp(net, X, 1, layer="1", contrastive=True)
    change(net)
    found = mwp(net, X, 1, layer="1", contrastive=True)
    CACHE.clear()
    assert torch.equal(found, mwp(net, X, 1, layer="1", contrastive=True))
    assert not torch.allclose(found, before)


def test_a_change_between_up_and_down_is_refused(net):
    excitation = ExcitationPass(net, X, ["1"])
    in_place(net)
    with pytest.raises(SignalError, match="weights were changed"):
        excitation.down(torch.eye(4)[:1])


def test_they_are_kept(net):
    """For the way up and the way down, in the forms that kernels read."""
    CACHE.clear()
    mwp(net, X, 1, layer="1")
    first = [id(part) for part in CACHE.parts()]
    assert len(first) == 2
    mwp(net, X, 2, layer="1")
    assert [id(part) for part in CACHE.parts()] == first


def test_rows_of_kernels_of_one_place_are_kept(monkeypatch):
    monkeypatch.setattr(kernels, "MANY", 16)
    CACHE.clear()
    net = network(side=1)
    found = mwp(net, X, 1, layer="1", contrastive=True)
    kept = CACHE.parts()
    assert kept
    assert all(part.shape == (64, 64) for part in kept)
    monkeypatch.setattr("excite.propagation.fast.shortcuts.signed_part", None)  # they are not split again
    assert torch.equal(mwp(net, X, 1, layer="1", contrastive=True), found)
    assert [id(part) for part in CACHE.parts()] == [id(part) for part in kept]


def test_they_go_with_the_network():
    CACHE.clear()
    net = network()
    mwp(net, X, 1, layer="1")
    assert CACHE.size == 2 * net[2].weight.numel() * 4
    del net
    gc.collect()
    other = nn.Parameter(torch.ones(1, 1))
    kept_part(CACHE, other, 1)
    assert CACHE.size == 4


def test_the_least_recently_used_are_forgotten_first():
    kept = WeightCache(most_bytes=100)
    weights = [nn.Parameter(torch.randn(2, 5)) for _ in range(4)]  # 40 bytes each
    parts = [kept_part(kept, weight, 1) for weight in weights[:2]]
    kept_part(kept, weights[0], 1)
    kept_part(kept, weights[2], 1)
    assert kept.size == 80
    assert kept_part(kept, weights[0], 1) is parts[0]
    assert kept_part(kept, weights[1], 1) is not parts[1]
    large = nn.Parameter(torch.randn(2, 50))
    assert torch.equal(kept_part(kept, large, -1), large.detach().clamp(max=0))
    assert kept.size == 400  # alone


@pytest.mark.parametrize("sign", [1, -1])
def test_turned_rows(sign):
    weight = nn.Parameter(torch.randn(3, 4, 2, 2))
    kept, turns = WeightCache(), torch.tensor([1.0, -1.0, -1.0])
    expected = weight.detach().numpy() * np.array([1, -1, -1])[:, None, None, None]
    expected = np.maximum(expected, 0) if sign > 0 else np.minimum(expected, 0)
    for _ in range(2):
        np.testing.assert_array_equal(kept_part(kept, weight, sign, turns).numpy(), expected)
        np.testing.assert_array_equal(signed_part(weight, sign, turns).numpy(), expected)
        assert torch.equal(
            kept_part(kept, weight, sign), signed_part(weight, sign)
        )  # the other orientation asked in between
