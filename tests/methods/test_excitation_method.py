"""Excitation Backprop as methods: what is asked of a sweep, and that it is what the paper says."""

import pytest
import torch
from networks import Connected, made, maps, one_signal, pictures, session
from torch import nn
from torch.nn import functional

import excite
from excite.errors import MethodError
from excite.methods import METHODS, Method, find_method

ABLATIONS = ["c-mwp-post-norm", "c-mwp-no-norm"]
LAYERS = ["1", "0"]
NOT_HERE = {"cam", "c-cam", *(name for name, method in METHODS.items() if method.place == "attention")}
"""The network of this file has neither average pooling nor attention."""


@pytest.fixture(scope="module")
def seen():
    """A network, its images, and a session of them for every method."""
    torch.manual_seed(3)
    network = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 5 * 4, 7)).double()
    x = torch.rand(2, 3, 5, 4, dtype=torch.float64)
    return (
        network.eval(),
        x,
        session(network, x, {method: LAYERS for name, method in METHODS.items() if name not in NOT_HERE}),
    )


def features_and_weights(seen):
    network, x, _ = seen
    with torch.no_grad():
        return functional.relu(network[0](x)), network[3].weight.detach()


def shared(features, weights):
    """P(a_j) = a_j w_j+ / sum_k a_k w_k+: the paper's Eqn. 4 for a single cued unit, summed over channels."""
    pushes = features * weights.clamp(min=0).view_as(features[0])
    return (pushes / pushes.sum((1, 2, 3), keepdim=True)).sum(1)


def test_mwp_is_the_papers_rule_summed_over_channels(seen):
    features, weights = features_and_weights(seen)
    found = one_signal(seen[2], METHODS["mwp"], {4: 1.0})
    assert list(found) == LAYERS
    assert found["1"].shape == (2, 5, 4)
    torch.testing.assert_close(found["1"], shared(features, weights[4]))
    torch.testing.assert_close(found["1"].sum((1, 2)), torch.ones(2, dtype=torch.float64))


def test_c_mwp_subtracts_the_map_of_the_unit_with_negated_weights(seen):
    features, weights = features_and_weights(seen)
    found = one_signal(seen[2], METHODS["c-mwp"], {4: 1.0})["1"]
    torch.testing.assert_close(found, shared(features, weights[4]) - shared(features, -weights[4]))
    assert found.min() < 0  # the positive part is taken later, by whoever draws
    torch.testing.assert_close(found.sum((1, 2)), torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", sorted(METHODS.keys() - NOT_HERE))
def test_a_method_leaves_nothing_behind_for_the_next(seen, name):
    before = one_signal(seen[2], METHODS[name], {2: 1.0})
    for other in METHODS.keys() - NOT_HERE:
        one_signal(seen[2], METHODS[other], {2: 1.0})
    for layer, values in one_signal(seen[2], METHODS[name], {2: 1.0}).items():
        assert torch.equal(values, before[layer])


# --- the ablations, on a network with two weighted layers above the map ---------------------------------------------


def passed(network, x, sign, unit=2):
    """Eqn. 4 without its normaliser, by hand: p_j = a_j * sum_i w_ji+ p_i, down to the last map."""
    features = network.features(x).flatten(1).detach()
    hidden = network.fc[:2](features).detach()
    top = (sign * network.fc[2].weight[unit].detach()).clamp(min=0)
    below = features * ((hidden * top) @ network.fc[0].weight.detach().clamp(min=0))
    return below.view(len(x), 6, 5, 7).sum(1)


def over_its_sum(maps):
    return maps / maps.abs().sum((1, 2), keepdim=True)


def test_without_norm_the_contrastive_signal_goes_down_unnormalised():
    network, x = made(Connected), pictures()
    expected = over_its_sum(passed(network, x, 1) - passed(network, x, -1))
    torch.testing.assert_close(maps(network, x, "c-mwp-no-norm"), expected)


def test_post_norm_subtracts_normalised_maps_that_went_down_unnormalised():
    network, x = made(Connected), pictures()
    expected = over_its_sum(passed(network, x, 1)) - over_its_sum(passed(network, x, -1))
    torch.testing.assert_close(maps(network, x, "c-mwp-post-norm"), expected)


@pytest.mark.parametrize("name", ABLATIONS)
def test_a_picture_does_not_depend_on_its_neighbours(name):
    network, x = made(Connected), pictures()
    x[1] *= 1e-6
    together = maps(network, x, name)
    for place in range(2):
        torch.testing.assert_close(together[place], maps(network, x[place : place + 1], name)[0])


# --- the table of methods -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"), [("cmwp", "did you mean c-mwp?"), ("mpw", "did you mean mwp?"), ("saliency", None)]
)
def test_an_unknown_method_names_the_known_ones(name, hint):
    with pytest.raises(MethodError, match=f"there is no method '{name}'.*: use one of .*c-mwp, mwp") as caught:
        find_method(name)
    assert ("did you mean" in str(caught.value)) == (hint is not None)
    assert hint is None or hint in str(caught.value)


def test_a_new_method_is_one_entry(monkeypatch):
    """What docs promise: anything that makes maps of a session and signals can be asked for by name."""
    brightness = Method(
        "even",
        "the same everywhere",
        lambda session, units, _: {"0": torch.ones(len(units), len(session.output), 2, 3)},
    )
    monkeypatch.setitem(METHODS, "even", brightness)
    classifier = excite.wrap(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.LazyLinear(2)).eval())
    (found,) = excite.attend(classifier, torch.rand(3, 9, 9), 1, layer="0", method="even")
    assert (found.method, found.mass) == ("even", 6)
