"""A norm belongs to the neuron it normalises: the sign of its scale and the final response decide who pushed."""

from functools import partial

import numpy as np
import oracle
import pytest
import torch
from oracle import Net, agree, flat, layer, normalised, randomise, reordered, scaled
from torch import nn
from torch.nn import functional as F

from excite.propagation import mwp

SHAPE = (2, 4, 3)  # channels, height, width of the tapped layer
picture = partial(oracle.picture, shape=SHAPE)
OUT = (3, 4, 3)  # of what the convolution makes of it


def conv():
    return nn.Conv2d(2, 3, 3, padding=1)


def per_channel(values, shape=OUT):
    return np.repeat(np.asarray(values), int(np.prod(shape[1:])))


def test_batch_statistics_while_training():
    """In training mode the norm uses the statistics of the batch; they are constants on the way down."""
    net = Net(lambda net, h: net.bn(net.conv(h)), 36, conv=conv(), bn=nn.BatchNorm2d(3))
    net.bn.train()
    x = picture(1, 3)
    made = net.conv(x).detach()
    mean, spread = made.mean((0, 2, 3)), made.var((0, 2, 3), unbiased=False)
    scale = flat(net.bn.weight) / np.sqrt(flat(spread) + net.bn.eps)

    def reference(lowest):
        units, _ = layer(lowest, net.conv, SHAPE)
        shift = flat(net.bn.bias) - flat(mean) * scale
        return scaled(units, per_channel(scale), per_channel(shift))

    agree(net, x, reference)


def group_statistics(values, groups):
    each = values.reshape(groups, -1)
    return ((each - each.mean(1, keepdims=True)) / np.sqrt(each.var(1, keepdims=True) + 1e-5)).ravel()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("groups", [1, 3])
def test_group_and_instance_norm(groups, seed):
    norm = nn.GroupNorm(groups, 3) if groups == 1 else nn.InstanceNorm2d(3, affine=True)
    net = Net(lambda net, h: net.norm(net.conv(h)), 36, conv=conv(), norm=norm)
    randomise(net, seed)

    def reference(lowest):
        made, _ = layer(lowest, net.conv, SHAPE)
        scale = per_channel(flat(net.norm.weight))
        values = group_statistics(made.values, groups) * scale + per_channel(flat(net.norm.bias))
        return normalised(made, values, np.sign(scale))

    agree(net, picture(seed, 2), reference)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_layer_norm_behind_a_permutation(kind, seed):
    """ConvNeXt: convolution, channels last, layer norm, channels first again, and an inverted bottleneck."""
    net = Net(
        lambda net, h: net.norm(net.conv(h).permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
        36,
        conv=conv(),
        norm=kind(3, eps=1e-6),
    )
    randomise(net, seed)
    order = np.arange(36).reshape(OUT).transpose(1, 2, 0).ravel()
    back = np.arange(36).reshape(4, 3, 3).transpose(2, 0, 1).ravel()

    def reference(lowest):
        made, _ = layer(lowest, net.conv, SHAPE)
        moved = reordered(made, order)
        each = moved.values.reshape(-1, 3)
        if kind is nn.LayerNorm:
            each = (each - each.mean(1, keepdims=True)) / np.sqrt(each.var(1, keepdims=True) + 1e-6)
        else:
            each = each / np.sqrt((each**2).mean(1, keepdims=True) + 1e-6)
        scale = np.tile(flat(net.norm.weight), 12)
        shift = np.tile(flat(net.norm.bias), 12) if kind is nn.LayerNorm else 0.0
        return reordered(normalised(moved, each.ravel() * scale + shift, np.sign(scale)), back)

    agree(net, picture(seed, 2), reference)


SCALES = torch.tensor([-2.0, 0.0, 0.5], dtype=torch.float64).view(3, 1, 1)


CONSTANTS = {
    "h * c + c": lambda h: h * SCALES + SCALES,
    "torch.sub": lambda h: torch.sub(torch.ones_like(SCALES), h, alpha=2),
    "scaled, moved, shifted": lambda h: ((h * SCALES).permute(0, 2, 3, 1) - 0.5).permute(0, 3, 1, 2),
    "scaled, sliced, shifted": lambda h: torch.cat([(h * SCALES)[:, :2] + 0.5, h[:, 2:]], 1),
    "through another precision": lambda h: h.float().double() * -2.0 + 1.0,
}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", CONSTANTS)
def test_constant_multiples_and_shifts(name, signed):
    """A bias or scale written as an operation of its own, in any spelling."""
    net = Net(lambda net, h: CONSTANTS[name](net.conv(h)), 36, conv=conv())

    def reference(lowest):
        made, _ = layer(lowest, net.conv, SHAPE)
        inside = torch.stack([torch.zeros(1, *OUT, dtype=torch.float64), torch.ones(1, *OUT, dtype=torch.float64)])
        low, high = (flat(CONSTANTS[name](each)) for each in inside)
        return scaled(made, high - low, low)

    agree(net, picture(2, 2, signed=signed), reference, within=1e-6 if "precision" in name else 1e-10)


def test_a_norm_behind_the_classifier_itself():
    """The cued unit is on: with a negative scale its excitatory weights are the negative ones."""
    net = nn.Sequential(nn.Identity(), nn.Linear(4, 3, bias=False), nn.BatchNorm1d(3)).double().eval()
    randomise(net, 0)
    with torch.no_grad():
        net[2].weight.copy_(torch.tensor([1.0, -2.0, 0.0]))
    x = torch.rand(1, 4, dtype=torch.float64)
    weights = net[1].weight.detach().numpy()
    for cued, sign in enumerate([1, -1, 0]):
        for contrast in (False, True):
            pushes = np.clip(sign * weights[cued] * flat(x), 0, None)
            against = np.clip(-sign * weights[cued] * flat(x), 0, None)
            expected = pushes / (pushes.sum() or 1) - contrast * against / (against.sum() or 1)
            found = mwp(net, x, cued, layer="0", contrastive=contrast)
            np.testing.assert_allclose(flat(found), expected, atol=1e-12)


def test_the_layer_between_a_convolution_and_its_norm_can_be_read():
    """It has the same probabilities as the norm's own units: they are the same neurons."""
    net = Net(lambda net, h: F.relu(net.bn(net.conv(h))), 36, conv=conv(), bn=nn.BatchNorm2d(3))
    found = mwp(net, picture(1), 0, layer=["conv", "bn", "tap"])
    torch.testing.assert_close(found["conv"], found["bn"])
    assert found["conv"].sum() > 0.1
    alone = mwp(net, picture(1), 0, layer="tap")
    torch.testing.assert_close(found["tap"], alone)
