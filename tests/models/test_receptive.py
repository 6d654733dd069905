"""Stride and receptive field from the operations, against what a gradient reaches in the image."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional
from zoo import torchvision_models

from excite.models.layers import spatial_layers
from excite.models.positions import WHOLE, Pairs, grid_of, is_map
from excite.models.receptive_field import Receptive, view_of

SIZE = 64
PICTURES = torch.rand(1, 4, 16, 16, dtype=torch.float64)


def seen(network, pictures):
    """What the network's answer sees, as told."""
    with Receptive(pictures) as receptive:
        return view_of(network(receptive.pictures))


def side_of(network, pictures=PICTURES):
    """The first side behind the channels: its dimension, stride, and the field of position 0."""
    view = seen(network, pictures)
    side = (view.mixed({1}) or view)[0]
    return side.outer, side.stride, side.first, side.last


def reached(network, pictures, place):
    """First and last pixel, along both sides, that a unit's gradient reaches; weights must be positive."""
    pictures = pictures.clone().requires_grad_()
    network(pictures)[(0, slice(None), *place)].sum().backward()
    touched = pictures.grad[0].abs().sum(0).nonzero()
    assume(len(touched))  # a place that is all padding sees nothing
    return touched.min(0).values.tolist(), touched.max(0).values.tolist()


def weight(*shape):
    return torch.rand(*shape, dtype=torch.float64) + 0.1


def convolution(kernel, stride, padding, dilation):
    def call(x):
        return functional.conv2d(x, weight(2, x.shape[1], *kernel), None, stride, padding, dilation)

    return call


def pooling(kernel, stride, padding, ceil_mode):
    padding = tuple(min(pad, size // 2) for pad, size in zip(padding, kernel, strict=True))
    return lambda x: functional.avg_pool2d(x, kernel, stride, padding, ceil_mode)


def branches(small, large, adding):
    def call(x):
        one = functional.conv2d(x, weight(2, x.shape[1], small, small), padding=small // 2)
        two = functional.conv2d(x, weight(2, x.shape[1], large, large), padding=large // 2)
        return one + two if adding else torch.cat([one, two], 1)

    return call


def gated(x):
    """Squeeze-and-excite: counts as nothing."""
    return x * torch.sigmoid(x.mean((2, 3), keepdim=True)).detach()


def last_and_back(x):
    return functional.linear(x.permute(0, 2, 3, 1), weight(3, x.shape[1])).movedim(-1, 1)


def shuffled(x):
    pictures, channels, height, width = x.shape
    return x.view(pictures, channels, 1, height, width).transpose(1, 2).flatten(1, 2)


def both(low, high):
    return st.tuples(st.integers(low, high), st.integers(low, high))


OPERATIONS = st.one_of(
    st.builds(convolution, both(1, 4), both(1, 2), both(0, 2), both(1, 2)),
    st.builds(pooling, both(1, 3), st.one_of(st.none(), both(1, 2)), both(0, 1), st.booleans()),
    st.builds(branches, st.sampled_from([1, 3]), st.sampled_from([3, 5]), st.booleans()),
    st.tuples(*[st.integers(0, 3)] * 4).map(lambda amounts: lambda x: functional.pad(x, amounts)),
    both(0, 2).map(lambda start: lambda x: x[:, :, start[0] :, start[1] :: 2]),
    st.sampled_from([gated, last_and_back, shuffled, functional.relu, torch.clone]),
)


def chained(operations):
    def network(x):
        torch.manual_seed(0)
        for operation in operations:
            assume(min(x.shape[-2:]) > 9)  # or the kernel would not fit
            x = operation(x)
        return x

    return network


@settings(max_examples=40, deadline=None)
@given(st.lists(OPERATIONS, min_size=1, max_size=5))
def test_places_see_what_their_gradient_reaches(operations):
    """Field, stride and position, exactly, of two neighbours in the middle."""
    network, pictures = chained(operations), torch.rand(1, 2, SIZE, SIZE, dtype=torch.float64)
    view = seen(network, pictures)
    answer = network(pictures)
    height, width = view
    assert (height.alone, width.alone) == (2, 3)
    for back in (0, 1):
        place = answer.shape[2] // 2 - back, answer.shape[3] // 2 - back
        first = [side.first + side.stride * k for side, k in zip(view, place, strict=True)]
        last = [side.last + side.stride * k for side, k in zip(view, place, strict=True)]
        assume(min(first) >= 0 and max(last) < SIZE)  # not cut off by the border
        assert reached(network, pictures, place) == (first, last)
    assert height.field == height.last - height.first + 1


def transposed(kernel, stride):
    return lambda x: functional.conv_transpose2d(x, weight(x.shape[1], 2, kernel, kernel), None, stride)


UPSAMPLING = st.one_of(
    st.builds(transposed, st.integers(2, 4), st.integers(1, 2)),
    st.sampled_from(
        [
            lambda x: functional.interpolate(x, scale_factor=2),
            lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
            lambda x: functional.interpolate(x, size=x.shape[-1] // 2, mode="area") if x.shape[-1] % 2 == 0 else x,
        ]
    ),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(OPERATIONS, max_size=2), UPSAMPLING, st.lists(OPERATIONS, max_size=2))
def test_behind_upsampling_the_field_is_a_close_bound(before, upsampling, after):
    network, pictures = chained([*before, upsampling, *after]), torch.rand(1, 2, 48, 48, dtype=torch.float64)
    view = seen(chained([*before, upsampling]), pictures)
    assume(view and not any(side.whole for side in view))
    coarse = max(side.stride for side in seen(chained([torch.clone, *before]), pictures))
    view = seen(network, pictures)
    answer = network(pictures)
    middle = [size // 2 for size in answer.shape[2:]]
    places = [(middle[0] - i, middle[1] - i) for i in range(5)]
    ends = [reached(network, pictures, place) for place in places if min(place) >= 0]
    assume(all(min(first) > 0 and max(last) < 47 for first, last in ends))
    for k, side in enumerate(view):
        largest = max(last[k] - first[k] + 1 for first, last in ends)
        assert largest <= side.field <= largest + 2 * coarse


@pytest.mark.parametrize(
    ("name", "layer", "stride", "field"),
    [  # by hand: the field grows by (kernel - 1) * stride so far
        ("vgg16", "features.30", 32, 212),
        ("alexnet", "features.12", 32, 195),
        ("resnet50", "layer3", 16, 267),
        ("shufflenet_v2_x0_5", "maxpool", 4, 7),
        ("densenet121", "features.transition1", 8, 63),
        ("efficientnet_b0", "features.8", 32, 851),
    ],
)
def test_well_known_networks(name, layer, stride, field):
    with torch.device("meta"):  # only shapes are needed
        network = getattr(torchvision_models(), name)(weights=None).eval()
    found = {one.name: one for one in spatial_layers(network, torch.zeros(1, 3, 64, 64, device="meta"))}[layer]
    assert (found.stride, found.receptive_field) == (stride, field)


@pytest.mark.parametrize(
    "network",
    [
        lambda x: x.mean((2, 3), keepdim=True),
        lambda x: x.flatten(2) @ x.flatten(2).transpose(1, 2),
        lambda x: functional.scaled_dot_product_attention(x, x, x),
        lambda x: functional.linear(x, weight(16, 16)),
        lambda x: x.cumsum(3).diagonal(dim1=2, dim2=3),
        lambda x: torch.cat([x, x], 2),
        lambda x: x.amax(),
    ],
)
def test_what_mixes_all_places_sees_the_whole_picture(network):
    assert seen(network, PICTURES) == WHOLE


@pytest.mark.parametrize(
    "network",
    [
        lambda x: functional.adaptive_avg_pool2d(x, 5),
        lambda x: x + functional.interpolate(x.mean((2, 3), keepdim=True), size=16),
        lambda x: x + (x.flatten(2) @ weight(256, 256)).view(1, 4, 16, 16),
        lambda x: torch.cat([x, functional.scaled_dot_product_attention(x, x, x)], 1),
    ],
)
def test_positions_stay_where_they_are_though_each_sees_the_whole_picture(network):
    view = seen(network, PICTURES)
    assert is_map(view, network(PICTURES))
    assert [side.field for side in view] == [None, None]


@pytest.mark.parametrize(
    ("network", "side"),
    [
        (lambda x: x.flatten(2).relu().reshape(1, 4, 16, 16), (2, 1, 0, 0)),
        (lambda x: x.flatten(2).transpose(1, 2).unflatten(1, (16, 16)), (1, 1, 0, 0)),
        (lambda x: (x.flatten(2).mT @ weight(4, 6)).mT.view(1, 6, 16, 16), (2, 1, 0, 0)),
        (lambda x: x.view(1, 4, 8, 2, 8, 2).permute(0, 3, 5, 1, 2, 4).reshape(1, 16, 8, 8), (2, 2, 0, 1)),
    ],
)
def test_tokens_and_patches_are_followed(network, side):
    assert side_of(network) == side


def test_weights_of_an_attention_are_pairs():
    def scores(x):
        return (x.flatten(2).mT @ x.flatten(2)).softmax(-1)

    assert isinstance(seen(scores, PICTURES), Pairs)
    assert isinstance(seen(lambda x: functional.conv2d(scores(x)[:, None], weight(2, 1, 1, 1)), PICTURES), Pairs)
    assert side_of(lambda x: scores(x) @ x.flatten(2).mT) == (1, 1, 0, 0)
    assert seen(lambda x: scores(x) @ x.flatten(2).mT, PICTURES)[0].whole


@pytest.mark.parametrize(
    ("network", "side"),
    [
        (lambda x: functional.max_pool2d(x, 3, 2, 1), (2, 2, -1, 1)),
        (lambda x: functional.max_pool2d(x, 2, 1, dilation=3), (2, 1, 0, 3)),
        (lambda x: functional.lp_pool2d(x, 2, 3, 2), (2, 2, 0, 2)),
        (lambda x: functional.adaptive_max_pool2d(x, 4), (2, 4, 0, 3)),
        (lambda x: functional.conv2d(x, weight(1, 4, 3, 3), padding="same"), (2, 1, -1, 1)),
        (lambda x: functional.conv2d(x, weight(1, 4, 3, 3), padding="valid"), (2, 1, 0, 2)),
        (lambda x: functional.pixel_unshuffle(x, 2), (2, 2, 0, 1)),
        (lambda x: functional.pixel_shuffle(x, 2), (2, 0.5, 0, 0)),
        (lambda x: functional.interpolate(x, scale_factor=2), (2, 0.5, -0.5, 0)),
        (lambda x: x.mean(1), (1, 1, 0, 0)),
        (lambda x: x.max(1).values, (1, 1, 0, 0)),
        (lambda x: torch.max(x, x), (2, 1, 0, 0)),
        (lambda x: x.norm(2, 1), (1, 1, 0, 0)),
        (lambda x: x.unbind(1)[2], (1, 1, 0, 0)),
        (lambda x: x.chunk(2, dim=1)[1], (2, 1, 0, 0)),
        (lambda x: functional.layer_norm(x, x.shape[1:]), (2, 1, 0, 0)),
        (lambda x: torch.zeros_like(x).copy_(x), (2, 1, 0, 0)),
    ],
)
def test_single_operations(network, side):
    assert side_of(network) == side


def test_views_of_permuted_activations():
    """A view that torch allows for the activation's layout of memory is followed in that layout."""

    def network(x):
        permuted = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        return permuted.permute(0, 2, 3, 1).view(1, -1, 4)

    grid = grid_of(seen(network, PICTURES), network(PICTURES), 1)
    assert (grid.height, grid.width, grid.tokens, grid.dims) == (16, 16, tuple(range(256)), (-2,))
