"""The Markov chain behind the maps: its matrices, its fundamental matrix, and walks drawn from it (section 3.1)."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
import torch
from oracle import (
    Units,
    descend,
    flat,
    layer,
    max_pool,
    randomise,
    relu,
    top_of,
)
from torch import nn

from excite.propagation import absorbing_chain, mwp, sample_winners, transition_matrix, winner_take_all


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.low = nn.Identity()
        self.conv, self.act = nn.Conv2d(1, 2, 2), nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.mid, self.high = nn.Linear(8, 5), nn.ReLU()
        self.fc = nn.Linear(5, 3)

    def forward(self, x):
        x = self.pool(self.act(self.conv(self.low(x)))).flatten(1)
        return self.fc(self.high(self.mid(x)))

    def reference(self, x):
        low = Units(flat(x))
        conv, shape = layer(low, self.conv, (1, 5, 5))
        act = relu(conv)
        pool, _ = max_pool(act, self.pool, shape)
        mid, _ = layer(pool, self.mid, (8,))
        return {"low": low, "conv": conv, "act": act, "pool": pool, "mid": mid, "high": relu(mid)}


class Normed(nn.Module):
    """A neuron in pieces: convolution, norm, activation, each of them a layer that can be read."""

    def __init__(self, act, norm="batch"):
        super().__init__()
        self.low, self.conv, self.act = nn.Identity(), nn.Conv2d(2, 3, 2), act
        self.kind = norm
        self.norm = nn.BatchNorm2d(3) if norm == "batch" else nn.LayerNorm(3)
        self.mix = nn.Conv2d(3, 2, 2)
        self.fc = nn.Linear(2, 3)

    def forward(self, x):
        x = self.conv(self.low(x))
        x = self.norm(x) if self.kind == "batch" else self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.fc(self.mix(self.act(x)).flatten(1))


class Branched(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.a, self.b = nn.Identity(), nn.Linear(4, 4), nn.Linear(4, 4)
        self.relu = nn.ReLU()
        self.joint = nn.Identity()
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        x = self.low(x)
        out = self.relu(self.a(x))
        out = self.joint(self.b(out) + x)
        return self.fc(torch.cat([self.relu(out), x], 1))


NETS = {
    "plain": (Plain, (1, 1, 5, 5), ["high", "mid", "pool", "act", "conv", "low"]),
    "norm and relu": (lambda: Normed(nn.ReLU()), (1, 2, 3, 3), ["mix", "act", "norm", "conv", "low"]),
    "norm and tanh": (lambda: Normed(nn.Tanh()), (1, 2, 3, 3), ["mix", "act", "norm", "conv", "low"]),
    "norm and relu6": (lambda: Normed(nn.ReLU6()), (1, 2, 3, 3), ["mix", "act", "norm", "conv", "low"]),
    "nothing behind the norm": (lambda: Normed(nn.Identity()), (1, 2, 3, 3), ["mix", "act", "norm", "conv", "low"]),
    "layer norm": (lambda: Normed(nn.GELU(), "layer"), (1, 2, 3, 3), ["mix", "norm", "conv", "low"]),
    "branches": (Branched, (1, 4), ["joint", "b", "relu#0", "a", "low"]),
}


def build(name, seed=0):
    make, shape, layers = NETS[name]
    net = randomise(make().double().eval(), seed)
    x = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return net, x, layers


def within(matrix, tolerance=1e-12):
    assert matrix.min() >= -tolerance
    assert matrix.sum(1).max() <= 1 + tolerance


@pytest.mark.parametrize("seed", range(3))
def test_transition_matrices_are_the_papers(seed):
    net, x, layers = build("plain", seed)
    units = net.reference(x)
    top = top_of(net, units["high"])
    for lower in layers:
        rows = np.stack([descend(top, row)[units[lower]] for row in np.eye(3)])
        found = transition_matrix(net, x, None, lower)
        np.testing.assert_allclose(found.numpy(), rows, atol=1e-12)
        within(found)
    for number, upper in enumerate(layers[:-1]):
        for lower in layers[number + 1 :]:
            size = len(units[upper].values)
            rows = np.stack([descend(units[upper], row)[units[lower]] for row in np.eye(size)])
            found = transition_matrix(net, x, upper, lower)
            np.testing.assert_allclose(found.numpy(), rows, atol=1e-12)
            within(found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NETS)
def test_the_fundamental_matrix_gives_the_maps(name, seed):
    """N = (I - Q)^-1, and P(A_0) N are the winning probabilities of all transient units."""
    net, x, layers = build(name, seed)
    expected = {cued: mwp(net, x, cued, layer=layers) for cued in range(3)}
    for several in (layers, layers[1:], [layers[0], layers[-1]], layers[-1:], [layers[-2], layers[-1]]):
        chain = absorbing_chain(net, x, several)
        for cued in range(3):
            for one in several:
                torch.testing.assert_close(chain.mwp(cued, one), expected[cued][one], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NETS)
def test_the_canonical_form(name):
    net, x, layers = build(name)
    chain = absorbing_chain(net, x, layers)
    size = len(chain.steps)
    assert chain.steps.shape == (size, size)
    assert chain.ends.shape == (size, mwp(net, x, 0, layer=layers[-1]).numel())
    within(torch.cat([chain.steps, chain.ends], 1))
    assert (chain.steps.diagonal() == 0).all()
    torch.testing.assert_close(chain.fundamental, torch.linalg.inv(torch.eye(size, dtype=torch.float64) - chain.steps))
    powers, total = torch.eye(size, dtype=torch.float64), torch.zeros(size, size, dtype=torch.float64)
    for _ in range(len(layers) + 2):  # N = sum of Q^k; a feedforward network forgets after as many steps as layers
        total, powers = total + powers, powers @ chain.steps
    assert powers.abs().max() == 0
    torch.testing.assert_close(chain.fundamental, total)
    assert sorted(chain.places) == sorted(["", *layers[:-1]])
    covered = sorted(index for place in chain.places.values() for index in range(size)[place])
    assert covered == list(range(size))


# --- drawn winners -------------------------------------------------------------------------------------------------


def binomial_bounds(probability, count, level):
    """The values that a binomial count takes but for ``level``."""
    chance = min(max(probability, 0.0), 1.0) if 1e-12 < probability < 1 - 1e-12 else round(probability)
    return scipy.stats.binom.interval(1 - level, count, chance)


def follow(net, x, signal, layers, count):
    """Every unit's count lies in its binomial interval; one chance in a thousand for all of them together."""
    won = mwp(net, x, signal, layer=layers)
    walks = sample_winners(net, x, signal, layers=layers, count=count, seed=1)
    assert walks.count == count
    level = 1e-3 / sum(values.numel() for values in won.values())
    for one, values in won.items():
        assert walks.visits[one].shape == values.shape
        for probability, visits in zip(flat(values), flat(walks.visits[one]), strict=True):
            low, high = binomial_bounds(probability, count, level)
            assert low <= visits <= high, (one, probability, visits)
        torch.testing.assert_close(walks.frequency(one), walks.visits[one] / count)


@pytest.mark.parametrize("name", ["plain", "norm and tanh", "layer norm", "branches", "norm and relu6"])
def test_drawn_winners_follow_the_probabilities(name):
    net, x, layers = build(name, 2)
    signal = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    follow(net, x, signal, layers, count=3000)


class Over(nn.Module):
    """A full connection over the last dimension of a map."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x.permute(0, 2, 3, 1))


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(9, 5))

    def forward(self, x):
        return x.flatten(2) @ self.weight


WEIGHTS = {
    "grouped": lambda: nn.Conv2d(4, 6, 2, groups=2),
    "dilated": lambda: nn.Conv2d(4, 3, 2, dilation=2, padding=1, stride=2),
    "transposed": lambda: nn.ConvTranspose2d(4, 2, 2, stride=2),
    "reflected": lambda: nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect"),
    "over channels": Over,
    "average": lambda: nn.AvgPool2d(2, padding=1),
    "one dimension": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 3, 3)),
    "three dimensions": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Conv3d(2, 2, 2)),
    "product": Product,
}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", WEIGHTS)
def test_walks_through_every_kind_of_weights(name, signed):
    """Walks look at one unit at a time: they must take that unit's own weights."""
    operation = WEIGHTS[name]().double()
    x = torch.rand(1, 4, 3, 3, dtype=torch.float64) - 0.5 * signed
    width = operation(x).numel()
    net = randomise(nn.Sequential(nn.Identity(), operation, nn.Flatten(), nn.Linear(width, 2).double()).eval(), 2)
    follow(net, x, 1, ["1", "0"], count=2000)
    strongest = winner_take_all(net, x, 1, layers=["1", "0"])
    first = transition_matrix(net, x, None, "1")[1].argmax()
    assert strongest["1"].flatten().nonzero()[:, 0].tolist() == [int(first)]
    second = transition_matrix(net, x, "1", "0")[first]
    assert strongest["0"].flatten().nonzero()[:, 0].tolist() == [int(second.argmax())]


def test_paths_are_steps_of_the_chain():
    """Each step of each path has positive probability, and its units are the ones that were counted."""
    net, x, layers = build("plain", 3)
    walks = sample_winners(net, x, 1, layers=layers, count=200, seed=3)
    shapes = {one: values.shape for one, values in mwp(net, x, 1, layer=layers).items()}
    for upper, lower in pairwise(layers):
        steps = transition_matrix(net, x, upper, lower)
        for above, below in zip(walks.paths[upper], walks.paths[lower], strict=True):
            if below is not None:
                assert above is not None
                row = np.ravel_multi_index(above, shapes[upper])
                assert steps[row, np.ravel_multi_index(below, shapes[lower])] > 0
    for one in layers:
        counted = torch.zeros(shapes[one])
        for path in walks.paths[one]:
            if path is not None:
                counted[path] += 1
        assert torch.equal(counted.double(), walks.visits[one])


# --- the strongest winner ------------------------------------------------------------------------------------------


def test_nobody_wins_where_nothing_excites():
    net = nn.Sequential(nn.Identity(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        net[1].weight.fill_(-1.0)
    maps = winner_take_all(net, torch.ones(1, 2, dtype=torch.float64), 0, layers=["0"])
    assert maps["0"].tolist() == [[False, False]]


class Skipped(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.low, self.a = nn.Identity(), nn.Linear(2, 2, bias=False)
        self.fc = nn.Linear(2, 1, bias=False)
        with torch.no_grad():
            self.a.weight.fill_(weight)
            self.fc.weight.copy_(torch.tensor([[1.0, 0.1]]))

    def forward(self, x):
        return self.fc(self.a(self.low(x)) + x)


@pytest.mark.parametrize(("weight", "wins"), [(0.1, False), (10.0, True)])
def test_a_stronger_branch_that_is_not_read_wins(weight, wins):
    """The strongest child may lead past the layer: then nobody in that layer has won."""
    net = Skipped(weight).double()
    maps = winner_take_all(net, torch.tensor([[1.0, 1.0]], dtype=torch.float64), 0, layers=["low", "a"])
    assert maps["a"].tolist() == [[wins, False]]
    assert maps["low"].any() == wins
