"""Each kind of layer against an implementation of its own: loops in numpy, or one line of arithmetic."""

import itertools
import math

import numpy as np
import pytest
import torch

from excite.errors import ModelError
from excite.models.caffe.definition import Layer
from excite.models.caffe.layers import build


def layer(kind, bottoms=1, tops=1, **options):
    return Layer("one", kind, tuple("abcdefg"[:bottoms]), tuple("xyz"[:tops]), options)


def answer(kind, *inputs, **options):
    """What a layer makes of its inputs, in numpy."""
    module = build(layer(kind, len(inputs), **options), [x.shape for x in inputs]).double().eval()
    with torch.no_grad():
        return module(*(torch.from_numpy(x) for x in inputs)).numpy()


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def caffes_size(size, kernel, stride, pad, ceiled, clips):
    steps = (size + 2 * pad - kernel) / stride
    number = (math.ceil(steps) if ceiled else math.floor(steps)) + 1
    return number - 1 if clips and (number - 1) * stride >= size + pad else number


def pooled(x, method, kernel, stride, pad, *, ceiled=True):
    """Caffe's pooling, place by place: the mean is over the window cut to the padded image, zeros and all."""
    sizes = [
        caffes_size(n, k, s, p, ceiled, any(pad)) for n, k, s, p in zip(x.shape[2:], kernel, stride, pad, strict=True)
    ]
    result = np.empty((*x.shape[:2], *sizes))
    for row, column in itertools.product(*map(range, sizes)):
        spans, area = [], 1
        for place, n, k, s, p in zip((row, column), x.shape[2:], kernel, stride, pad, strict=True):
            start = place * s - p
            end = min(start + k, n + p)
            area *= end - start
            spans.append(slice(max(start, 0), min(end, n)))
        window = x[:, :, spans[0], spans[1]]
        result[:, :, row, column] = window.max((2, 3)) if method == "MAX" else window.sum((2, 3)) / area
    return result


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("ceiled", [True, False])
@pytest.mark.parametrize(
    ("kernel", "stride", "pad"),
    [(2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1), (5, 4, 2)],
)
@pytest.mark.parametrize("size", [(6, 9), (7, 8)])
def test_pooling_equals_the_loop(method, ceiled, kernel, stride, pad, size):
    x = numbers(2, 3, *size)
    options = {} if ceiled else {"round_mode": "FLOOR"}
    found = answer("Pooling", x, pool=method, kernel_size=kernel, stride=stride, pad=pad, **options)
    expected = pooled(x, method, (kernel,) * 2, (stride,) * 2, (pad,) * 2, ceiled=ceiled)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_pooling_refuses_a_window_beside_the_picture():
    with pytest.raises(ModelError, match=r"'one' \(Pooling\).*outside its input"):
        build(layer("Pooling", kernel_size=1, stride=2), [(1, 1, 4, 4)])
    build(layer("Pooling", kernel_size=1, stride=2), [(1, 1, 5, 5)])
    build(layer("Pooling", kernel_size=1, stride=2, round_mode="FLOOR"), [(1, 1, 4, 4)])


@pytest.mark.parametrize("options", [{}, {"local_size": 3, "alpha": 0.7, "beta": 0.5, "k": 2.0}, {"local_size": 7}])
def test_lrn_across_channels_equals_the_loop(options):
    x = numbers(2, 6, 3, 2)
    size, alpha = options.get("local_size", 5), options.get("alpha", 1.0)
    expected = np.empty_like(x)
    for channel in range(6):
        around = x[:, max(channel - size // 2, 0) : channel + size // 2 + 1]
        level = options.get("k", 1.0) + alpha / size * (around**2).sum(1)
        expected[:, channel] = x[:, channel] / level ** options.get("beta", 0.75)
    np.testing.assert_allclose(answer("LRN", x, **options), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "kernel", "stride", "padding"),
    [
        ({"kernel_size": 3, "stride": 2, "pad": 1}, (3, 3), (2, 2), (1, 1)),
        ({"kernel_size": (3, 2), "stride": (1, 2), "pad": (0, 1)}, (3, 2), (1, 2), (0, 1)),
        ({"kernel_h": 3, "kernel_w": 1, "stride_h": 1, "stride_w": 2, "pad_h": 2}, (3, 1), (1, 2), (2, 0)),
        ({"kernel_size": (1,), "pad": (), "stride": ()}, (1, 1), (1, 1), (0, 0)),
    ],
)
def test_both_sides_of_a_window(options, kernel, stride, padding):
    """What a convolution computes is compared with OpenCV's in test_network.py."""
    module = build(layer("Convolution", num_output=6, **options), [(2, 4, 8, 9)])
    assert (module.kernel_size, module.stride, module.padding) == (kernel, stride, padding)


@pytest.mark.parametrize(("axis", "inputs", "shape"), [(1, 24, (2, 5)), (2, 8, (2, 3, 5)), (-1, 4, (2, 3, 2, 5))])
def test_inner_product_starts_at_its_axis(axis, inputs, shape):
    x = numbers(2, 3, 2, 4)
    module = build(layer("InnerProduct", num_output=5, axis=axis), [x.shape]).double()
    expected = x.reshape(*shape[:-1], inputs) @ module.weight.detach().numpy().T + module.bias.detach().numpy()
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach().numpy(), expected, atol=1e-12)


A, B, C = (numbers(2, 3, 4, 5, seed=seed) for seed in range(3))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (answer("ReLU", A), np.maximum(A, 0)),
        (answer("ReLU", A, negative_slope=0.1), np.where(A > 0, A, 0.1 * A)),
        (answer("PReLU", A), np.where(A > 0, A, 0.25 * A)),
        (answer("ELU", A), np.where(A > 0, A, np.exp(A) - 1)),
        (answer("ELU", A, alpha=0.5), np.where(A > 0, A, 0.5 * (np.exp(A) - 1))),
        (answer("Sigmoid", A), 1 / (1 + np.exp(-A))),
        (answer("TanH", A), np.tanh(A)),
        (answer("Softmax", A), np.exp(A) / np.exp(A).sum(1, keepdims=True)),
        (answer("Softmax", A, axis=2), np.exp(A) / np.exp(A).sum(2, keepdims=True)),
        (answer("Dropout", A, dropout_ratio=0.9), A),
        (answer("Split", A), A),
        (answer("Concat", A, B, C), np.concatenate([A, B, C], 1)),
        (answer("Concat", A, B, axis=2), np.concatenate([A, B], 2)),
        (answer("Concat", A, B, concat_dim=0), np.concatenate([A, B], 0)),
        (answer("Eltwise", A, B, C), A + B + C),
        (answer("Eltwise", A, B, operation="SUM", coeff=(1.0, -2.0)), A - 2 * B),
        (answer("Eltwise", A, B, C, operation="PROD"), A * B * C),
        (answer("Eltwise", A, B, C, operation="MAX"), np.maximum(np.maximum(A, B), C)),
        (answer("Pooling", A, pool="MAX", global_pooling=True), A.max((2, 3), keepdims=True)),
        (answer("Pooling", A, pool="AVE", global_pooling=True), A.mean((2, 3), keepdims=True)),
        (answer("Power", A), A),
        (answer("Power", A, power=2.0, scale=3.0, shift=-1.0), (3 * A - 1) ** 2),
        (answer("Power", A, scale=-0.5), -0.5 * A),
        (answer("Flatten", A), A.reshape(2, -1)),
        (answer("Flatten", A, axis=1, end_axis=2), A.reshape(2, 12, 5)),
        (answer("Reshape", A, shape=(0, -1, 5)), A.reshape(2, 12, 5)),
        (answer("Reshape", A, shape=(0, 0, -1)), A.reshape(2, 3, 20)),
    ],
)
def test_arithmetic(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_norm_scale_and_bias_in_any_number_of_dimensions(shape):
    x = numbers(*shape)
    mean, variance, factor = numbers(3, seed=1), numbers(3, seed=2) ** 2, np.array([4.0])
    weight, bias = numbers(3, seed=3), numbers(3, seed=4)
    norm = build(layer("BatchNorm", eps=0.01), [shape]).double()
    norm.load_state_dict(
        {k: torch.from_numpy(v) for k, v in zip(norm.state_dict(), (mean, variance, factor), strict=True)}
    )
    scale = build(layer("Scale", bias_term=True), [shape]).double()
    scale.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
    shift = build(layer("Bias"), [shape]).double()
    shift.load_state_dict({"bias": torch.from_numpy(bias)})
    found = shift(scale(norm(torch.from_numpy(x)))).detach().numpy()
    along = (3, *[1] * (len(shape) - 2))
    mean, variance, weight, bias = (v.reshape(along) for v in (mean / 4, variance / 4, weight, bias))
    np.testing.assert_allclose(found, (x - mean) / np.sqrt(variance + 0.01) * weight + 2 * bias, atol=1e-12)


def test_a_norm_with_factor_zero_has_statistics_of_zero():
    norm = build(layer("BatchNorm"), [(1, 2, 1, 1)])
    norm.load_state_dict({"mean": torch.ones(2), "variance": torch.ones(2), "factor": torch.zeros(1)})
    torch.testing.assert_close(norm(torch.ones(1, 2, 1, 1)), torch.full((1, 2, 1, 1), 1e-5**-0.5))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (layer("SPP"), r"'one' \(SPP\) is of a kind that excite cannot build; it knows BatchNorm, Bias, Concat"),
        (layer("ReLU", colour=1, age=2), r"options that excite does not understand: age, colour"),
        (layer("Scale", bottoms=2), r"reads 2 blobs where excite can take one"),
        (layer("Pooling", tops=2, kernel_size=2), r"writes 2 blobs where excite can give one"),
        (layer("Convolution", kernel_size=(3,)), r"does not say its num_output"),
        (layer("Convolution", num_output=3), r"does not say its kernel_size"),
        (layer("Convolution", num_output=3, kernel_h=3), r"does not say its kernel_size"),
        (layer("Pooling", kernel_size=2, stride_h=2), r"does not say its stride"),
        (layer("Convolution", num_output=3, kernel_size=(1,), axis=2), r"axis: 2, where excite can take only 1"),
        (layer("Pooling", pool="STOCHASTIC", kernel_size=2), r"pools by STOCHASTIC"),
        (layer("Pooling"), r"does not say its kernel_size"),
        (layer("BatchNorm", use_global_stats=False), r"set use_global_stats: true"),
        (layer("Scale", num_axes=2), r"num_axes: 2, where excite can take only 1"),
        (layer("LRN", local_size=4), r"even local_size 4"),
        (layer("Eltwise", bottoms=2, coeff=(1.0,)), r"one for each term"),
        (layer("Eltwise", bottoms=2, coeff=(1.0, 2.0), operation="MAX"), r"only a sum may have"),
        (layer("Reshape", shape=(-1, 48)), r"does not keep the images apart"),
        (layer("Reshape", shape=(0, -1), axis=1), r"axis: 1, where excite can take only 0"),
    ],
)
def test_refusals_name_the_layer_and_the_reason(wrong, message):
    with pytest.raises(ModelError, match=message) as caught:
        build(wrong, [(1, 3, 4, 4)] * len(wrong.bottoms))
    assert f"Layer 'one' ({wrong.kind}) " in str(caught.value)
