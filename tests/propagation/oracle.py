"""A slow twin of the engine, written from the paper alone: explicit matrices in float64, none of excite's own rules.

`transitions` is the whole theory. `Units` are the layers of a reference network: each knows its responses and the
transition matrix to each layer it was computed from, and `descend` multiplies those matrices from the top down.
"""

import copy
from itertools import count

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from excite.propagation import mwp

_order = count()


def matrix(function, shape):
    """The matrix [inputs, outputs] of a linear function of ``shape`` (without a batch), found with unit inputs."""
    inputs = int(np.prod(shape))
    rows = function(torch.eye(inputs, dtype=torch.float64).view(inputs, *shape))
    return rows.detach().reshape(inputs, -1).numpy()


def without_bias(module):
    module = copy.deepcopy(module)
    module.bias = None
    return module


def flat(tensor):
    return tensor.detach().double().flatten().numpy()


def direction_of(response):
    """Which way each unit responded."""
    return np.where(response >= 0, 1.0, -1.0)


def transitions(children, weights, towards=1.0):
    """P[i, j] = P(a_j | a_i): the contributions x_j * w_ji with the sign ``towards`` share unit i (Eqn. 4)."""
    contributions = (children[:, None] * weights).T
    positive = np.clip(contributions * np.broadcast_to(towards, len(contributions))[:, None], 0, None)
    total = positive.sum(axis=1, keepdims=True)
    return np.divide(positive, total, out=np.zeros_like(positive), where=total > 0)


def nobody(_towards):
    """The turn of units that are no neuron's plain response."""


class Units:
    """A layer of the reference network: responses, where each rests (lambda), and the ways down."""

    def __init__(self, values, ways=(), rest=0.0):
        self.values = np.asarray(values, dtype=np.float64)
        self.rest = np.broadcast_to(np.asarray(rest, dtype=np.float64), self.values.shape)
        self.ways = list(ways)
        self.order = next(_order)
        self.turn = nobody  # lets a norm or an activation behind a neuron say which way it responded

    @property
    def rate(self):
        return self.values - self.rest


def affine(child, weights, bias=0.0):
    """Weights and a bias; which way its units respond may still be changed by what follows."""
    units = Units(child.values @ weights + bias)

    def turn(towards):
        units.ways = [(child, transitions(child.rate, weights, towards))]

    units.turn, units.weights, units.child = turn, weights, child
    turn(direction_of(units.values))
    return units


def pooled(child, weights):
    """An affine operation with positive weights rests where its children rest."""
    units = affine(child, weights)
    units.rest = child.rest @ weights
    units.turn(direction_of(units.rate))
    return units


def scaled(child, scale, shift=0.0):
    """A norm with fixed statistics: part of the neuron it normalises, or else it moves where units rest."""
    scale = np.broadcast_to(scale, child.values.shape)
    units = Units(child.values * scale + shift, [(child, np.diag(np.where(scale == 0, 0.0, 1.0)))])
    if child.turn is nobody:
        if (child.rest != 0).any() or (child.values >= 0).all():
            units.rest = child.rest * scale + shift
        return units
    units.turn = lambda towards: child.turn(towards * np.sign(scale))
    units.turn(direction_of(units.values))
    return units


def normalised(child, values, sign):
    """A norm whose statistics come from the image: its ``values`` are given, and the sign of its scale."""
    units = scaled(child, sign)
    units.values = np.asarray(values, dtype=np.float64)
    units.turn(direction_of(units.values))
    return units


def relu(child):
    values = np.maximum(child.values, 0)
    return Units(values, [(child, np.diag((values > 0).astype(float)))], np.maximum(child.rest, 0))


def activated(child, values):
    """A function that leaves the signal as it is."""
    return Units(values, [(child, np.eye(len(values)))])


def bounded(child, values, least):
    """A lower-bounded activation: its neuron is never negative, counted from the least value."""
    units = Units(values, [(child, np.eye(len(values)))], rest=least)
    child.turn(1.0)
    return units


def picked(child, index):
    """Units that are copies: reshaping, slicing, padding by reflection, max pooling."""
    index = np.asarray(index).reshape(-1)
    ways = [(child, np.eye(len(child.values))[index])]
    return Units(child.values[index], ways, child.rest[index])


def reordered(child, index):
    """A permutation or a change of shape: a norm behind it still belongs to the neuron before it."""
    units = picked(child, index)
    if child.turn is nobody:
        return units
    index = np.asarray(index).reshape(-1)

    def turn(towards):
        original = np.empty(len(index))
        original[index] = np.broadcast_to(towards, len(index))
        child.turn(original)

    units.turn = turn
    return units


def joined(*children):
    sizes = [len(child.values) for child in children]
    ends = np.cumsum(sizes)
    eye = np.eye(ends[-1])
    ways = [(child, eye[:, end - size : end]) for child, size, end in zip(children, sizes, ends, strict=True)]
    units = Units(
        np.concatenate([child.values for child in children]), ways, np.concatenate([child.rest for child in children])
    )
    if all(child.turn is nobody for child in children):
        return units

    def turn(towards):
        each = np.split(np.broadcast_to(towards, ends[-1]), ends[:-1])
        for child, part in zip(children, each, strict=True):
            child.turn(part)

    units.turn = turn
    return units


def summed(*children):
    """An element-wise sum: the terms that have the sign of the sum share it."""
    units = Units(sum(child.values for child in children), rest=sum(child.rest for child in children))
    rates = np.stack([child.rate for child in children])

    def turn(towards):
        positive = np.clip(rates * towards, 0, None)
        total = positive.sum(axis=0)
        shares = np.divide(positive, total, out=np.zeros_like(positive), where=total > 0)
        units.ways = [(child, np.diag(share)) for child, share in zip(children, shares, strict=True)]

    units.turn = turn
    turn(direction_of(units.rate))
    return units


def gated(child, factor):
    """A product with a gate: everything to what is gated."""
    return Units(child.values * factor, [(child, np.eye(len(child.values)))], child.rest * factor)


def cue(top, unit=1.0, dual=0.0):
    """The classifier's own weights: the cued units are on, whatever they answered; and so are their duals."""
    up = transitions(top.child.rate, top.weights, 1.0)
    down = transitions(top.child.rate, -top.weights, 1.0)
    top.ways = [(top.child, unit * up + dual * down)]
    return top


def descend(top, signal):
    """The winning probabilities of all units below ``top``: P(a_j) = sum_i P(a_j | a_i) P(a_i) (Eqn. 1)."""
    won = {top: np.asarray(signal, dtype=np.float64)}
    waiting = {top}
    while waiting:
        units = max(waiting, key=lambda each: each.order)
        waiting.remove(units)
        for child, steps in units.ways:
            won[child] = won.get(child, 0) + won[units] @ steps
            waiting.add(child)
    return won


# --- the same pieces, read off torch modules and tensors of a single image ----------------------------------------


def layer(child, module, shape):
    """A convolution or a full connection, and the shape of what it gives."""
    module = module.double()
    bias = 0.0
    out = module(torch.zeros(1, *shape, dtype=torch.float64)).shape[1:]
    if module.bias is not None:
        bias = flat(module(torch.zeros(1, *shape, dtype=torch.float64)))
    return affine(child, matrix(without_bias(module), shape), bias), tuple(out)


def batch_norm(child, module, shape):
    each = np.ones((shape[0], int(np.prod(shape[1:]))))
    scale = flat(module.weight) / np.sqrt(flat(module.running_var) + module.eps)
    shift = flat(module.bias) - flat(module.running_mean) * scale
    return scaled(child, (scale[:, None] * each).ravel(), (shift[:, None] * each).ravel())


def max_pool(child, module, shape):
    """One child for each unit; the least it can be is the largest of what its candidates can be at least."""
    options = module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode, True
    places = F.max_pool2d(torch.from_numpy(child.values).view(1, *shape), *options)[1]
    units = picked(child, (places + torch.arange(shape[0]).view(1, -1, 1, 1) * shape[1] * shape[2]).numpy())
    units.rest = F.max_pool2d(torch.from_numpy(child.rest.copy()).view(1, *shape), *options)[0].numpy().ravel()
    return units, tuple(places.shape[1:])


# --- networks for the tests -----------------------------------------------------------------------------------------


class Net(nn.Module):
    """``body(self, tapped input)`` below a full connection; ``parts`` are its modules."""

    def __init__(self, body, width, classes=3, **parts):
        super().__init__()
        self.tap = nn.Identity()
        self.body = body
        for name, part in parts.items():
            setattr(self, name, part)
        self.fc = nn.Linear(width, classes)
        self.double().eval()
        randomise(self)

    def forward(self, x):
        return self.fc(self.body(self, self.tap(x)).flatten(1))


def randomise(module, seed=0):
    """Weights of both signs, biases that matter, norms with negative scales and some that are zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator))
            if name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return module


def picture(seed=0, batch=2, *, shape=(2, 4, 4), signed=False):
    """Images [batch, *shape] of that seed."""
    x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x if signed else x.abs()


def top_of(net, child, unit=1.0, dual=0.0):
    """The full connection of a `Net`, cued."""
    return cue(affine(child, net.fc.weight.detach().double().numpy().T, flat(net.fc.bias)), unit, dual)


def agree(net, x, reference, within=1e-10):
    """Engine and matrices on every image and class, with and without contrast, and the dual alone.

    ``reference(lowest units)`` builds the reference network up to the classifier's input.
    """
    classes = net.fc.out_features
    signal = torch.eye(classes, dtype=x.dtype)[:, None].expand(-1, len(x), -1)
    sent = {(1.0, 0.0): {}, (1.0, -1.0): {"contrastive": True}, (0.0, 1.0): {"dual": True}}
    found = {key: mwp(net, x, signal, layer="tap", **options) for key, options in sent.items()}
    given = net.body(net, x.clone()).flatten(1)
    for place, one in enumerate(x):
        lowest = Units(flat(one))
        body = reference(lowest)
        np.testing.assert_allclose(body.values, flat(given[place]), atol=within)
        for key, maps in found.items():
            for cued in range(classes):
                expected = descend(top_of(net, body, *key), np.eye(classes)[cued])[lowest]
                np.testing.assert_allclose(flat(maps[cued, place]), expected, atol=within)
