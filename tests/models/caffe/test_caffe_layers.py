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


def caffes_size(size, kernel, stride, pad, ceiled):
    steps = (size + 2 * pad - kernel) / stride
    number = (math.ceil(steps) if ceiled else math.floor(steps)) + 1
    return number - 1 if pad and (number - 1) * stride >= size + pad else number


def pooled(x, method, kernel, stride, pad, *, ceiled=True):
    """Caffe's pooling, place by place: the mean is over the window cut to the padded image, zeros and all."""
    sizes = [caffes_size(size, kernel, stride, pad, ceiled) for size in x.shape[2:]]
    result = np.empty((*x.shape[:2], *sizes))
    for place in itertools.product(*map(range, sizes)):
        spans, area = [], 1
        for at, size in zip(place, x.shape[2:], strict=True):
            start = at * stride - pad
            end = min(start + kernel, size + pad)
            area *= end - start
            spans.append(slice(max(start, 0), min(end, size)))
        window = x[:, :, spans[0], spans[1]]
        result[:, :, *place] = window.max((2, 3)) if method == "MAX" else window.sum((2, 3)) / area
    return result


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("ceiled", [True, False])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1), (5, 4, 2)])
@pytest.mark.parametrize("size", [(6, 9), (7, 8)])
def test_pooling_equals_the_loop(method, ceiled, kernel, stride, pad, size):
    x = numbers(2, 3, *size)
    options = {} if ceiled else {"round_mode": "FLOOR"}
    found = answer("Pooling", x, pool=method, kernel_size=kernel, stride=stride, pad=pad, **options)
    expected = pooled(x, method, kernel, stride, pad, ceiled=ceiled)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"local_size": 3, "alpha": 0.7, "beta": 0.5, "k": 2.0}])
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
        (answer("ELU", A), np.where(A > 0, A, np.exp(A) - 1)),
        (answer("Softmax", A, axis=2), np.exp(A) / np.exp(A).sum(2, keepdims=True)),
        (answer("Dropout", A, dropout_ratio=0.9), A),
        (answer("Concat", A, B, axis=2), np.concatenate([A, B], 2)),
        (answer("Concat", A, B, concat_dim=0), np.concatenate([A, B], 0)),
        (answer("Eltwise", A, B, C), A + B + C),
        (answer("Eltwise", A, B, C, operation="PROD"), A * B * C),
        (answer("Eltwise", A, B, C, operation="MAX"), np.maximum(np.maximum(A, B), C)),
        (answer("Pooling", A, pool="MAX", global_pooling=True), A.max((2, 3), keepdims=True)),
        (answer("Power", A), A),
        (answer("Flatten", A, axis=1, end_axis=2), A.reshape(2, 12, 5)),
        (answer("Reshape", A, shape=(0, -1, 5)), A.reshape(2, 12, 5)),
    ],
)
def test_arithmetic(found, expected):
    """What the whole networks that test_network.py compares with OpenCV leave out."""
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
        (layer("Convolution", num_output=0), r"has no outputs: its num_output is 0"),
        (layer("Convolution", num_output=3, kernel_size=(0,)), r"has a kernel_size of 0 x 0"),
        (layer("Convolution", num_output=3, kernel_size=(1, 2, 3)), r"3 numbers for its kernel_size"),
        (layer("Convolution", num_output=3), r"does not say its kernel_size"),
        (layer("Pooling", kernel_size=2, stride_h=2), r"does not say its stride"),
        (layer("Convolution", num_output=3, kernel_size=(1,), axis=2), r"axis: 2, where excite can take only 1"),
        (layer("Pooling", pool="STOCHASTIC", kernel_size=2), r"pools by STOCHASTIC"),
        (layer("Pooling", kernel_size=1, stride=2), r"a last window outside its input"),
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
