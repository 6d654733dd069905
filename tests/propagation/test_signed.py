"""Units pushed up and units pushed down; the cued unit; the dual unit; what the rules do not depend on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Net, Units, affine, cue, descend, direction_of, flat, layer, matrix, randomise, transitions
from torch import nn
from torch.nn import functional as F

from excite.propagation import mwp, prior


def tensor(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def one_layer(weights, bias=None):
    net = nn.Sequential(nn.Identity(), nn.Linear(len(weights[0]), len(weights), bias=bias is not None)).double()
    with torch.no_grad():
        net[1].weight.copy_(tensor(*weights))
        if bias is not None:
            net[1].bias.copy_(tensor(*bias))
    return net


# --- by hand ----------------------------------------------------------------------------------------------------------


BY_HAND = {  # weights, bias, children, options, winners
    "by activation times weight": ([1.0, 3.0, -5.0], 0.0, [2.0, 2.0, 2.0], {}, [0.25, 0.75, 0.0]),
    "nothing excites": ([-1.0, -2.0], 9.0, [1.0, 1.0], {}, [0.0, 0.0]),
    "the bias takes nothing": ([1.0, 3.0], 1000.0, [1.0, 1.0], {}, [0.25, 0.75]),
    "two negatives excite": ([-1.0, 3.0, 1.0], 0.0, [-1.0, 1.0, -2.0], {}, [0.25, 0.75, 0.0]),
    "the dual": ([1.0, -3.0, -2.0, 3.0], 0.0, [1.0] * 4, {"dual": True}, [0.0, 0.6, 0.4, 0.0]),
    "the contrast": ([1.0, -3.0, -2.0, 3.0], 0.0, [1.0] * 4, {"contrastive": True}, [0.25, -0.6, -0.4, 0.75]),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name):
    weights, bias, children, options, winners = BY_HAND[name]
    found = mwp(one_layer([weights], [bias]), tensor(children), 0, layer="0", **options)
    torch.testing.assert_close(found, tensor(winners))


# --- the classifier's own weights need not be the last operation ------------------------------------------------------


def fully_convolutional(pool):
    class Fully(nn.Module):
        def __init__(self):
            super().__init__()
            self.tap = nn.Identity()
            self.conv = nn.Conv2d(2, 3, 2)

        def forward(self, x):
            return pool(self.conv(self.tap(x)))

    return randomise(Fully().double().eval(), 3)


@pytest.mark.parametrize(("unit", "dual"), [(1, 0), (1, -1), (0, 1)])
def test_pooling_above_the_classifier(unit, dual):
    """Pooled class maps: pooling hands to the places that speak for the class, there the cued weights decide."""
    net = fully_convolutional(lambda y: y.mean((2, 3)))
    x = torch.randn(1, 2, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    lowest = Units(flat(x))
    maps, shape = layer(lowest, net.conv, (2, 4, 3))
    top = affine(maps, matrix(lambda y: y.mean((2, 3)), shape))
    top.turn(1.0)
    cue(maps, unit, dual)
    for cued in range(3):
        assert maps.values.reshape(3, -1)[cued].min() < 0 < maps.values.reshape(3, -1)[cued].max()
        found = mwp(net, x, cued, layer="tap", contrastive=dual == -1, dual=unit == 0)
        np.testing.assert_allclose(flat(found), descend(top, np.eye(3)[cued])[lowest], atol=1e-12)


def test_class_maps_start_where_the_classifier_is_confident():
    """A spatial output: the signal is exp(logit) of the cued class, normalised over space."""
    net = fully_convolutional(lambda y: y)
    x = torch.rand(2, 2, 4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    output = net(x).detach()
    signal = np.zeros(output.shape)
    each = np.exp(output[:, 1].numpy())
    signal[:, 1] = 0.5 * each / each.sum((1, 2), keepdims=True)
    each = np.exp(output[:, 2].numpy())
    signal[:, 2] = -2.0 * each / each.sum((1, 2), keepdims=True)
    torch.testing.assert_close(prior(output, {1: 0.5, 2: -2.0}), torch.from_numpy(signal))
    found = mwp(net, x, {1: 0.5, 2: -2.0}, layer="tap")
    for place, one in enumerate(x):
        lowest = Units(flat(one))
        top = cue(layer(lowest, net.conv, (2, 4, 3))[0])
        np.testing.assert_allclose(flat(found[place]), descend(top, signal[place].ravel())[lowest], atol=1e-12)


# --- what the probabilities do not depend on --------------------------------------------------------------------------


def deep(seed):
    net = Net(
        lambda net, h: F.relu(net.b(F.max_pool2d(F.relu(net.a(h)), 2))),
        8,
        a=nn.Conv2d(2, 3, 3, padding=1),
        b=nn.Conv2d(3, 2, 2, stride=1, padding=0),
    )
    return randomise(net, seed)


@given(st.integers(0, 10**6), st.lists(st.floats(-3, 3), min_size=2, max_size=2))
@settings(max_examples=15, derandomize=True, deadline=None)
def test_linear_in_the_signal(seed, factors):
    net = deep(seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(2, 2, 6, 6, generator=generator, dtype=torch.float64)
    first, second = torch.randn(2, 2, 3, generator=generator, dtype=torch.float64)
    both = factors[0] * first + factors[1] * second
    maps = [mwp(net, x, signal, layer="tap", contrastive=seed % 2 == 1) for signal in (first, second, both)]
    torch.testing.assert_close(maps[2], factors[0] * maps[0] + factors[1] * maps[1])


def test_every_way_to_say_a_signal():
    net = deep(1)
    x = torch.rand(3, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    cues = torch.eye(3, dtype=torch.float64)

    def maps(signal):
        return mwp(net, x, signal, layer="tap")

    each = [maps(cues[None, cued].expand(3, -1)) for cued in range(3)]
    torch.testing.assert_close(maps(1), each[1])
    torch.testing.assert_close(maps(-1), each[2])
    torch.testing.assert_close(maps(np.int64(1)), each[1])
    torch.testing.assert_close(maps(np.argmax([0, 9, 1])), each[1])
    torch.testing.assert_close(maps(torch.tensor(1)), each[1])
    torch.testing.assert_close(maps({0: 0.25, 2: -1.5}), 0.25 * each[0] - 1.5 * each[2])
    torch.testing.assert_close(maps(torch.tensor([0.5, 0.25, 0.25])), 0.5 * each[0] + 0.25 * (each[1] + each[2]))
    torch.testing.assert_close(maps(torch.tensor([2, 0, 1])), torch.stack([each[2][0], each[0][1], each[1][2]]))
    several = maps(torch.stack([cues[None, cued].expand(3, -1) for cued in (2, 0)]))
    torch.testing.assert_close(several, torch.stack([each[2], each[0]]))
    alone = maps(cues[None, None, 1].expand(1, 3, -1))
    assert alone.shape == (1, *x.shape)
    torch.testing.assert_close(alone[0], each[1])


def test_the_oracle_itself_by_hand():
    """The twin is only worth something if it is right: the paper's Eqn. 4 with numbers."""
    steps = transitions(np.array([1.0, 2.0, 3.0]), np.array([[1.0, -1.0], [2.0, -1.0], [-4.0, 0.0]]), np.array([1, -1]))
    np.testing.assert_allclose(steps, [[0.2, 0.8, 0.0], [1 / 3, 2 / 3, 0.0]])
    assert direction_of(np.array([-0.5, 0.0, 2.0])).tolist() == [-1.0, 1.0, 1.0]
