"""Other ways of sharing over the same engine: alpha-beta relevance, and the ablation without the normaliser."""

import copy

import numpy as np
import pytest
import torch
from oracle import Units, descend, direction_of, flat, layer, max_pool, randomise, relu, summed, transitions
from test_peers import NETS
from torch import nn
from zoo import torchvision_models

from excite.errors import SignalError
from excite.propagation import ExcitationPass
from excite.propagation.graph import nodes_below, rule_of
from excite.propagation.rules import Affine

VARIANTS = {"alpha": 2.0, "beta": 1.0}, {"alpha": 1.5, "beta": 0.5}, {"alpha": 1.0, "beta": 0.0}


def picture(*shape, seed=1):
    return torch.rand(*(shape or (2, 3, 16, 16)), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def down(net, x, layers, cued=1, **options):
    excitation = ExcitationPass(net, x, layers)
    signal = torch.zeros_like(excitation.output)
    signal[:, cued] = 1
    return excitation.down(signal, **options)


# --- explicit matrices ----------------------------------------------------------------------------------------------


class Branched(nn.Module):
    """Sums of convolutions, one of them signed, and of what they came from; a signed input."""

    def __init__(self):
        super().__init__()
        self.tap = nn.Identity()
        self.low, self.left, self.right = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 3, padding=1)
        self.pool, self.fc = nn.MaxPool2d(2), nn.Linear(12, 4)
        randomise(self.double().eval(), 6)

    def forward(self, x):
        x = self.low(self.tap(x)).relu()
        x = self.left(x) + self.right(x).relu() + x
        return self.fc(self.pool(x).flatten(1))


def reference(net, one, share):
    """The same network of explicit matrices; ``share(units, cued)`` says how an operation with weights shares."""
    lowest = Units(flat(one))
    low, shape = layer(lowest, net.low, (2, 6, 6))
    bent = relu(low)
    left, right = layer(bent, net.left, shape)[0], layer(bent, net.right, shape)[0]
    branches = summed(left, relu(right))
    total = summed(branches, bent)
    pooled, _ = max_pool(total, net.pool, shape)
    top, _ = layer(pooled, net.fc, (12,))
    for units in (low, left, right):
        units.ways = [(units.child, share(units, direction_of(units.values)))]
    top.ways = [(top.child, share(top, 1.0))]
    return lowest, (branches, total), top


def agrees(share, tidy=lambda values: values, sums=None, **options):
    net, x = Branched(), picture(2, 2, 6, 6, seed=2) - 0.4
    for unit in range(4):
        found = down(net, x, ["tap"], unit, **options)["tap"]
        for place, one in enumerate(x):
            lowest, totals, top = reference(net, one, share)
            for total in totals if sums is not None else ():
                total.ways = [(child, np.diag(sums(child, direction_of(total.rate)))) for child, _ in total.ways]
            expected = descend(top, np.eye(4)[unit])[lowest]
            assert np.abs(expected).max() > 0
            np.testing.assert_allclose(tidy(flat(found[place])), tidy(expected), atol=1e-10)


@pytest.mark.parametrize("options", VARIANTS)
def test_alpha_beta_is_its_matrices(options):
    alpha, beta = options["alpha"], options["beta"]

    def share(units, towards):
        child, weights = units.child.rate, units.weights
        return alpha * transitions(child, weights, towards) - beta * transitions(child, weights, -towards)

    agrees(share, **options)


def positive(units, towards):
    """Eqn. 4 without its normaliser: a_j * w_ji+."""
    contributions = (units.child.rate[:, None] * units.weights).T
    return np.clip(contributions * np.broadcast_to(towards, len(contributions))[:, None], 0, None)


def tidy(values):
    """The scale of an unnormalised map means nothing."""
    return values / np.abs(values).max()


@pytest.mark.parametrize(("unit", "dual"), [(1.0, 0.0), (0.0, 1.0), (1.0, -1.0)])
def test_without_the_normaliser_it_is_the_product_of_pushes(unit, dual):
    def share(units, towards):
        if np.ndim(towards):
            return positive(units, towards)
        return unit * positive(units, 1.0) + dual * positive(units, -1.0)  # the classifier's own weights

    def sums(child, towards):
        return np.clip(child.rate * towards, 0, None)

    agrees(share, tidy, sums, normalised=False, unit=unit, dual=dual)


# --- peers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("options", VARIANTS)
def test_zennit_agrees(name, options):
    try:
        torchvision_models()  # zennit imports it, and fails where its operators do not fit this torch
        from zennit import composites, rules
    except ImportError:
        pytest.skip("zennit is the peer of this test: pip install 'excite[dev]'")
    net, x = randomise(NETS[name][0]().double().eval(), 4), picture()
    exact = {"stabilizer": 1e-30}
    composite = composites.LayerMapComposite(
        [
            ((nn.Conv2d, nn.Linear), rules.AlphaBeta(**options, **exact, zero_params="bias")),
            (nn.ReLU, rules.Pass()),
            ((nn.AvgPool2d, nn.AdaptiveAvgPool2d), rules.Norm(**exact)),
        ]
    )
    for unit in range(4):
        given = x.clone().requires_grad_()
        peer = copy.deepcopy(net)
        with composite.context(peer) as explained:
            (expected,) = torch.autograd.grad(explained(given)[:, unit].sum(), given)
        torch.testing.assert_close(down(net, x, ["input"], unit, **options)["input"], expected, rtol=1e-8, atol=1e-10)


# --- what is promised -----------------------------------------------------------------------------------------------


def test_relevance_is_kept_where_children_push_both_ways():
    """alpha - beta = 1: all of it arrives. Where nobody positive the other way nothing is taken: alpha arrives."""
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    randomise(net, 3)
    x = picture(3, 6)
    found = down(net, x, ["1", "input"], alpha=2.0, beta=1.0)
    torch.testing.assert_close(found["1"].sum(1), torch.ones(3, dtype=torch.float64))
    net[2].weight.data.abs_()
    torch.testing.assert_close(
        down(net, x, ["1"], alpha=2.0, beta=1.0)["1"].sum(1), torch.full((3,), 2.0, dtype=torch.float64)
    )


@pytest.mark.parametrize("options", [{"alpha": 2.0, "beta": 1.0}, {"normalised": False}, {"dual": -1.0}])
def test_a_variant_leaves_no_trace(options):
    net, x = randomise(NETS["deep"][0]().eval(), 4), picture().float()
    excitation = ExcitationPass(net, x, ["features.4", "features.1"])
    signal = torch.eye(4)[:2]
    before = excitation.down(signal)
    excitation.down(signal, **options)
    for name, values in excitation.down(signal).items():
        assert torch.equal(values, before[name])
        assert torch.equal(values, ExcitationPass(net, x, [name]).down(signal)[name])
        assert torch.equal(values, excitation.down(signal, layers=[name])[name])
    with pytest.raises(SignalError):
        excitation.down(signal[:1], **options)


def test_only_the_layers_asked_for_are_computed():
    net, x = randomise(NETS["deep"][0]().double().eval(), 4), picture()
    for options in ({}, {"alpha": 2.0, "beta": 1.0}, {"normalised": False}):
        excitation = ExcitationPass(net, x, ["input", "features.4"])
        rules = [rule for node in nodes_below(excitation.top) if isinstance(rule := rule_of(node), Affine)]
        (lowest,) = (rule for rule in rules if rule.child.tensor.shape == x.shape)
        used = []
        lowest.check_weights = lambda used=used: used.append(True)
        found = excitation.down(torch.eye(4, dtype=torch.float64)[:2], layers=["features.4"], **options)
        assert list(found) == ["features.4"]
        assert not used
        excitation.down(torch.eye(4, dtype=torch.float64)[:2], **options)
        assert used


class Deep(nn.Module):
    """Sixty blocks, each of which multiplies what comes down by thousands (or by thousandths)."""

    def __init__(self, size):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(60))
        self.fc = nn.Linear(4, 3)
        randomise(self.eval(), 8)
        self.size = size

    def forward(self, x):
        for block in self.blocks:
            x = block(x).relu() * self.size + x
            x = x / x.amax((1, 2, 3), keepdim=True) * self.size
        return self.fc(x.mean((2, 3)) / self.size)


@pytest.mark.parametrize("size", [1e3, 1e-3])
def test_values_that_no_float_could_hold(size):
    net, x = Deep(size), picture(2, 4, 5, 5).float()
    layers = ["blocks.0", "blocks.58"]
    found = down(net, x, layers, normalised=False, dual=-1.0)
    exact = down(copy.deepcopy(net).double(), x.double(), layers, normalised=False, dual=-1.0)
    for name in layers:
        assert 0.25 < found[name].abs().max() <= 1
        torch.testing.assert_close(found[name].double(), exact[name], rtol=1e-2, atol=1e-3)
    normalised = down(net, x, layers)
    assert (found["blocks.0"] - normalised["blocks.0"]).abs().max() > 1e-3
