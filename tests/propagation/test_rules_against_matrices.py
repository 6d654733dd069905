"""Every operation with competing children against its explicit transition matrix (paper, Eqns. 1, 3 and 10)."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Net, Units, affine, descend, flat, matrix, relu, top_of, without_bias
from torch import nn
from torch.nn import functional as F

from excite.propagation import mwp

often = settings(max_examples=30, derandomize=True, deadline=None)
CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
MODES = [(1, "linear"), (2, "bilinear"), (3, "trilinear"), (1, "area"), (2, "area"), (3, "area")]
MODES += [(1, "nearest"), (2, "nearest"), (3, "nearest"), (1, "nearest-exact"), (2, "nearest-exact")]
LARGEST = {1: 9, 2: 6, 3: 4}


@st.composite
def sizes(draw, dims, least=1):
    return tuple(draw(st.integers(least, LARGEST[dims])) for _ in range(dims))


@st.composite
def convolutions(draw):
    dims = draw(st.sampled_from([1, 2, 2, 3]))
    groups = draw(st.integers(1, 3))
    depthwise = draw(st.booleans())
    inputs = groups if depthwise else groups * draw(st.integers(1, 2))
    outputs = groups * draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(dims))
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(dims))
    mode = draw(st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"]))
    padding = tuple(draw(st.integers(0, 2)) for _ in range(dims))
    size = tuple(
        draw(st.integers(max(d * (k - 1) + 1 - 2 * p, p + 1, 1), LARGEST[dims] + 1))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    )
    if mode == "zeros" and draw(st.booleans()) and draw(st.booleans()):
        padding = draw(st.sampled_from(["same", "valid"]))
        size = tuple(d * (k - 1) + 1 + draw(st.integers(0, 2)) for k, d in zip(kernel, dilation, strict=True))
    stride = 1 if padding == "same" else tuple(draw(st.integers(1, 3)) for _ in range(dims))
    module = CONV[dims](
        inputs, outputs, kernel, stride, padding, dilation, groups, bias=draw(st.booleans()), padding_mode=mode
    )
    return module, (inputs, *size)


@st.composite
def transposed_convolutions(draw):
    dims = draw(st.sampled_from([1, 2, 3]))
    groups = draw(st.integers(1, 2))
    inputs, outputs = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(dims))
    stride = tuple(draw(st.integers(1, 2)) for _ in range(dims))
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(dims))
    extra = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    padding = tuple(draw(st.integers(0, min(1, d * (k - 1)))) for k, d in zip(kernel, dilation, strict=True))
    size = tuple(draw(st.integers(2, LARGEST[dims] - 1)) for _ in range(dims))
    module = TRANSPOSED[dims](
        inputs, outputs, kernel, stride, padding, extra, groups, bias=draw(st.booleans()), dilation=dilation
    )
    return module, (inputs, *size)


@st.composite
def full_connections(draw):
    module = nn.Linear(draw(st.integers(1, 6)), draw(st.integers(1, 5)), bias=draw(st.booleans()))
    return module, (*draw(st.sampled_from([(), (2,), (2, 3)])), module.in_features)


@st.composite
def average_pools(draw):
    dims = draw(st.sampled_from([1, 2, 2, 3]))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(dims))
    options = {
        "stride": tuple(draw(st.integers(1, 3)) for _ in range(dims)),
        "padding": tuple(draw(st.integers(0, k // 2)) for k in kernel),
        "ceil_mode": draw(st.booleans()),
        "count_include_pad": draw(st.booleans()),
    }
    if dims > 1:
        options["divisor_override"] = draw(st.sampled_from([None, 1, 3]))
    size = tuple(draw(st.integers(k, LARGEST[dims])) for k in kernel)
    return (lambda x: AVERAGE[dims](x, kernel, **options)), (draw(st.integers(1, 2)), *size)


@st.composite
def other_pools(draw):
    dims = draw(st.sampled_from([1, 2, 3]))
    size = draw(sizes(dims))
    functions = [
        lambda x: x.mean(dim=tuple(range(2, 2 + dims))),
        lambda x: x.mean(-1, keepdim=True),
        lambda x: torch.mean(x, dim=1),
        lambda x: x.sum(dim=1),
        lambda x: torch.sum(x, dim=(1, 2), keepdim=True),
        lambda x: x.flatten(1).cumsum(1),
    ]
    target = tuple(draw(st.integers(1, s + 1)) for s in size)
    functions.append(lambda x: ADAPTIVE[dims](x, target))
    return draw(st.sampled_from(functions)), (draw(st.integers(1, 2)), *size)


@st.composite
def interpolations(draw):
    dims, mode = draw(st.sampled_from(MODES))
    size = draw(sizes(dims))
    target = tuple(draw(st.integers(1, 5)) for _ in range(dims))
    smooth = mode.endswith("linear")
    options = {"align_corners": draw(st.booleans())} if smooth else {}
    if mode == "bilinear" and not options["align_corners"]:
        options["antialias"] = draw(st.booleans())
    return (lambda x: F.interpolate(x, size=target, mode=mode, **options)), (draw(st.integers(1, 2)), *size)


def steps_of(operation):
    """The operation as linear steps, each with and without its bias; padding by copies is a step of its own."""
    if not isinstance(operation, nn.Module):
        return [(operation, operation)]
    if getattr(operation, "padding_mode", "zeros") == "zeros":
        return [(operation, without_bias(operation))]
    kernel = copy.deepcopy(operation)
    kernel.padding_mode, kernel.padding = "zeros", 0
    pad = partial(F.pad, pad=operation._reversed_padding_repeated_twice, mode=operation.padding_mode)
    return [(pad, pad), (kernel, without_bias(kernel))]


def reference(steps, picture):
    """The reference layers of one image after those steps."""
    units = [Units(flat(picture))]
    for function, linear in steps:
        weights = matrix(linear, picture.shape)
        bias = flat(function(torch.zeros(1, *picture.shape, dtype=torch.float64)))
        units.append(affine(units[-1], weights, bias))
        picture = function(picture[None])[0]
    np.testing.assert_allclose(units[-1].values, flat(picture), atol=1e-12)
    return units


def pictures(draw, shape, *, signed):
    """One to three images, with exact zeros among the values."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    x = torch.randn(draw(st.integers(1, 3)), *shape, generator=generator, dtype=torch.float64)
    return x if signed else x.clamp(min=0)


def compare(net, x, steps, *, rectified, unit, dual):
    """Engine and matrices on a batch, for three signals."""
    generator = torch.Generator().manual_seed(1)
    signal = torch.randn(3, x.shape[0], 3, generator=generator, dtype=torch.float64)
    found = mwp(net, x, signal, layer="tap", contrastive=unit == 1 and dual == -1, dual=unit == 0)
    assert found.shape == (3, *x.shape)
    for place, picture in enumerate(x):
        units = reference(steps, picture)
        top = top_of(net, relu(units[-1]) if rectified else units[-1], unit, dual)
        for number in range(3):
            expected = descend(top, flat(signal[number, place]))[units[0]]
            np.testing.assert_allclose(flat(found[number, place]), expected, atol=1e-10)


SENT = [(1, 0), (1, -1), (0, 1)]  # the unit, the contrast, the dual
FAMILIES = [
    convolutions(),
    transposed_convolutions(),
    full_connections(),
    average_pools(),
    other_pools(),
    interpolations(),
]
family = pytest.mark.parametrize(
    "operations", FAMILIES, ids=["conv", "transposed", "linear", "average", "pool", "interpolate"]
)


@family
@given(data=st.data())
@often
def test_rectified_operation_is_its_matrix(operations, data):
    """The paper's own case: non-negative children, a ReLU behind."""
    check(data, operations, signed=False, rectified=True)


@family
@given(data=st.data())
@often
def test_signed_operation_is_its_matrix(operations, data):
    """Children and responses of both signs: the winners pushed the way the unit responded."""
    check(data, operations, signed=True, rectified=data.draw(st.booleans()))


def check(data, operations, *, signed, rectified):
    operation, shape = data.draw(operations)
    x = pictures(data.draw, shape, signed=signed)
    parts = {"op": operation.double()} if isinstance(operation, nn.Module) else {}
    width = operation(x).flatten(1).shape[1]

    def body(net, h):
        h = operation(h)
        return F.relu(h) if rectified else h

    net = Net(body, width, **parts)
    unit, dual = data.draw(st.sampled_from(SENT))
    compare(net, x, steps_of(operation), rectified=rectified, unit=unit, dual=dual)
