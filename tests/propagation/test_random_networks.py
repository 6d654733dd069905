"""Networks put together at random, run twice: by the engine and by explicit matrices."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import (
    Net,
    activated,
    agree,
    batch_norm,
    bounded,
    gated,
    joined,
    layer,
    matrix,
    max_pool,
    pooled,
    randomise,
    relu,
    reordered,
    summed,
)
from torch import nn
from torch.nn import functional as F

SIDE = 3
ACTS = {
    "none": (lambda h: h, None),
    "relu": (F.relu, None),
    "relu in place": (lambda h: h.relu_(), None),
    "silu": (F.silu, None),
    "leaky": (lambda h: F.leaky_relu(h, 0.1), None),
    "tanh": (torch.tanh, -1.0),
    "elu": (F.elu, -1.0),
    "relu6": (F.relu6, 0.0),
    "sigmoid": (torch.sigmoid, 0.0),
}


@dataclass
class Step:
    """One operation of a random network: what it does, to which earlier results, with which module."""

    kind: str
    sources: tuple[int, ...]
    channels: int
    module: Any = None
    norm: Any = None
    act: str = "none"


@st.composite
def plans(draw):
    channels, steps = [draw(st.integers(1, 2))], []
    for _ in range(draw(st.integers(3, 8))):
        source = len(channels) - 1 if draw(st.integers(0, 2)) else draw(st.integers(0, len(channels) - 1))
        alike = [k for k, c in enumerate(channels) if c == channels[source]]
        kind = draw(
            st.sampled_from(["conv", "conv", "conv", "sum", "sum", "cat", "max", "mean", "gate", "norm", "turn"])
        )
        step = Step(kind, (source,), channels[source])
        if kind == "conv":
            step.channels = draw(st.integers(1, 3))
            kernel = draw(st.sampled_from([1, 3]))
            step.module = nn.Conv2d(
                channels[source], step.channels, kernel, padding=kernel // 2, bias=draw(st.booleans())
            )
            step.norm = nn.BatchNorm2d(step.channels) if draw(st.booleans()) else None
            step.act = draw(st.sampled_from(sorted(ACTS)))
        elif kind == "sum":
            step.sources = (source, draw(st.sampled_from(alike)))
        elif kind == "cat":
            other = draw(st.integers(0, len(channels) - 1))
            step.sources, step.channels = (source, other), channels[source] + channels[other]
            if step.channels > 5:
                continue
        elif kind == "gate":
            step.module = nn.Conv2d(channels[source], channels[source], 1)
        elif kind == "norm":
            step.norm = nn.BatchNorm2d(channels[source])
        channels.append(step.channels)
        steps.append(step)
    return channels[0], steps


def body_of(steps):
    """The network in torch."""

    def body(net, h):
        maps = [h]
        for step in steps:
            maps.append(MADE[step.kind](step, *(maps[source] for source in step.sources)))
        return maps[-1]

    return body


MADE = {
    "conv": lambda step, h: ACTS[step.act][0]((step.norm or nn.Identity())(step.module(h))),
    "sum": lambda _step, left, right: left + right,
    "cat": lambda _step, *each: torch.cat(each, 1),
    "max": lambda _step, h: F.max_pool2d(h, 3, 1, 1),
    "mean": lambda _step, h: F.avg_pool2d(h, 3, 1, 1),
    "gate": lambda step, h: h * torch.sigmoid(step.module(h.mean((2, 3), keepdim=True))),
    "norm": lambda step, h: step.norm(h),
    "turn": lambda _step, h: h.transpose(2, 3),
}


class Twin:
    """The same network in matrices. ``again`` makes a result's neuron anew, for another norm behind it."""

    def __init__(self, steps, channels):
        self.steps, self.channels = steps, channels

    def __call__(self, lowest):
        units, again = [lowest], [lambda: lowest]
        sizes = [self.channels]
        for step in self.steps:
            make = self.maker(step, units, again, sizes)
            units.append(make())
            ends_a_neuron = step.kind in {"max", "gate"} or step.act != "none"
            again.append(partial(units.__getitem__, len(units) - 1) if ends_a_neuron else make)
            sizes.append(step.channels)
        return units[-1]

    def maker(self, step, units, again, sizes):
        first, shape = step.sources[0], (sizes[step.sources[0]], SIDE, SIDE)

        def conv():
            made, out = layer(units[first], step.module, shape)
            made = made if step.norm is None else batch_norm(made, step.norm, out)
            function, least = ACTS[step.act]
            values = function(torch.from_numpy(made.values.copy())).numpy()
            if step.act == "none":
                return made
            if step.act.startswith("relu") and step.act != "relu6":
                return relu(made)
            if least is None:
                return activated(made, values)
            acted = bounded(made, values, least)
            if step.act == "relu6":
                acted.ways = [(made, np.diag((values > 0).astype(float)))]
            return acted

        def gate():
            values = torch.from_numpy(units[first].values).view(1, *shape)
            factor = torch.sigmoid(step.module(values.mean((2, 3), keepdim=True))).detach().expand_as(values)
            return gated(units[first], factor.numpy().ravel())

        places = np.arange(int(np.prod(shape))).reshape(shape)
        return {
            "conv": conv,
            "sum": lambda: summed(*(units[source] for source in step.sources)),
            "cat": lambda: joined(*(again[source]() for source in step.sources)),
            "max": lambda: max_pool(units[first], nn.MaxPool2d(3, 1, 1), shape)[0],
            "mean": lambda: pooled(units[first], matrix(lambda h: F.avg_pool2d(h, 3, 1, 1), shape)),
            "gate": gate,
            "norm": lambda: batch_norm(again[first](), step.norm, shape),
            "turn": lambda: reordered(again[first](), places.swapaxes(1, 2)),
        }[step.kind]


@given(plan=plans(), seed=st.integers(0, 10**6), signed=st.booleans())
@settings(max_examples=80, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_networks(plan, seed, signed):
    channels, steps = plan
    if not steps:
        return
    parts = {"ops": nn.ModuleList(part for step in steps for part in (step.module, step.norm) if part is not None)}
    net = randomise(Net(body_of(steps), steps[-1].channels * SIDE * SIDE, classes=2, **parts), seed)
    x = torch.randn(1, channels, SIDE, SIDE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    agree(net, x if signed else x.abs(), Twin(steps, channels), within=1e-9)
