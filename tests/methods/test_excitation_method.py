"""The methods: what is asked of a sweep, and that it is what the paper says."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import excite
from excite.errors import MethodError
from excite.methods import METHODS, Method, find_method
from excite.propagation import Sweep, prior


@pytest.fixture(scope="module")
def sweep():
    torch.manual_seed(3)
    network = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 5 * 4, 7)).double()
    pictures = torch.rand(2, 3, 5, 4, dtype=torch.float64)
    return network.eval(), pictures, Sweep(network, pictures, ["1", "0"])


def features_and_weights(sweep):
    network, pictures, _ = sweep
    with torch.no_grad():
        return functional.relu(network[0](pictures)), network[3].weight.detach()


def shared(features, weights):
    """P(a_j) = a_j w_j+ / sum_k a_k w_k+: the paper's Eqn. 3 for a single cued unit, summed over channels."""
    pushes = features * weights.clamp(min=0).view_as(features[0])
    return (pushes / pushes.sum((1, 2, 3), keepdim=True)).sum(1)


def test_mwp_is_the_papers_rule_summed_over_channels(sweep):
    features, weights = features_and_weights(sweep)
    maps = METHODS["mwp"].maps(sweep[2], prior(sweep[2].output, {4: 1.0}))
    assert list(maps) == ["1", "0"]
    assert maps["1"].shape == (2, 5, 4)
    torch.testing.assert_close(maps["1"], shared(features, weights[4]))
    torch.testing.assert_close(maps["1"].sum((1, 2)), torch.ones(2, dtype=torch.float64))


def test_c_mwp_subtracts_the_map_of_the_unit_with_negated_weights(sweep):
    features, weights = features_and_weights(sweep)
    maps = METHODS["c-mwp"].maps(sweep[2], prior(sweep[2].output, {4: 1.0}))
    torch.testing.assert_close(maps["1"], shared(features, weights[4]) - shared(features, -weights[4]))
    assert maps["1"].min() < 0  # the positive part is taken later, by whoever draws
    torch.testing.assert_close(maps["1"].sum((1, 2)), torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", METHODS)
def test_linear_in_the_signal(sweep, name):
    output = sweep[2].output
    one, two = prior(output, {0: 1.0}), prior(output, {5: 1.0})
    mixed = METHODS[name].maps(sweep[2], 0.25 * one - 3 * two)
    for layer, values in mixed.items():
        expected = 0.25 * METHODS[name].maps(sweep[2], one)[layer] - 3 * METHODS[name].maps(sweep[2], two)[layer]
        torch.testing.assert_close(values, expected)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_leaves_nothing_behind_for_the_next(sweep, name):
    signal = prior(sweep[2].output, {2: 1.0})
    before = METHODS[name].maps(sweep[2], signal)
    for other in METHODS.values():
        other.maps(sweep[2], signal)
    for layer, values in METHODS[name].maps(sweep[2], signal).items():
        assert torch.equal(values, before[layer])


def test_the_default_comes_first_and_every_method_describes_itself():
    assert next(iter(METHODS)) == "c-mwp"
    assert METHODS is excite.METHODS
    for name, method in METHODS.items():
        assert isinstance(method, Method)
        assert method.name == name
        assert method.description
        assert find_method(name) is method


@pytest.mark.parametrize(
    ("name", "hint"), [("cmwp", "did you mean c-mwp?"), ("mpw", "did you mean mwp?"), ("cam", None)]
)
def test_an_unknown_method_names_the_known_ones(name, hint):
    with pytest.raises(MethodError, match=f"there is no method '{name}'.*: use one of c-mwp, mwp") as caught:
        find_method(name)
    assert ("did you mean" in str(caught.value)) == (hint is not None)
    assert hint is None or hint in str(caught.value)


def test_a_new_method_is_one_entry(monkeypatch):
    """What docs promise: anything that makes maps of a sweep and a signal can be asked for by name."""
    brightness = Method("even", "the same everywhere", lambda sweep, signal: {"0": torch.ones(len(signal), 2, 3)})
    monkeypatch.setitem(METHODS, "even", brightness)
    classifier = excite.wrap(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.LazyLinear(2)).eval())
    (found,) = excite.attend(classifier, torch.rand(3, 9, 9), 1, layer="0", method="even")
    assert (found.method, found.mass) == ("even", 6)
