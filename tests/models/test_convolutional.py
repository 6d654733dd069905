"""Any classifier as a fully convolutional network: each place says what the network itself says of that window."""

import copy
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional
from zoo import timm_models, torchvision_models

from excite.errors import ImageError, ModelError
from excite.models import load
from excite.models.fully_convolutional import fully_convolutional
from excite.propagation import ExcitationPass, mwp, prior

SIZE, STRIDE = 14, 2  # of the network below: its last map is 4 x 4 there, and one pixel less would do


class Small(nn.Module):
    """A body without padding, so that a window of its map is the map of a crop; and any head."""

    def __init__(self, head, features=0, outputs=3):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, stride=2)
        self.conv2 = nn.Conv2d(4, 6, 3)
        self.last = nn.Linear(features, outputs) if features else nn.Identity()
        self.norm = nn.BatchNorm1d(6)
        self.layer_norm = nn.LayerNorm(6)
        self.head = head
        self.double().eval()

    def forward(self, pictures):
        return self.head(self, torch.relu(self.conv2(torch.relu(self.conv1(pictures)))))


def by_hand_mean(net, x):
    _, _, height, width = x.shape
    return net.last(x.sum((2, 3)) / (height * width))


def by_sizes(net, x):
    pictures, channels, height, width = x.size()
    return net.last(x.view(pictures, channels * height * width))


def channels_last(net, x):
    x = x.permute(0, 2, 3, 1)
    return net.last(net.layer_norm(x.mean((1, 2))))


def normed_after_pooling(net, x):
    x = functional.adaptive_avg_pool2d(x, 1).permute(0, 2, 3, 1)
    return net.last(torch.flatten(net.layer_norm(x).permute(0, 3, 1, 2), 1))


def attending(net, x):
    tokens = x.flatten(2).transpose(1, 2)
    weights = torch.softmax(tokens @ tokens.transpose(1, 2), -1)
    return net.last((weights @ tokens)[:, 0])


def in_place(net, x):
    x = functional.adaptive_avg_pool2d(x, 1)
    x += 1
    return net.last(functional.relu(x, inplace=True).squeeze(3).squeeze(2))


HEADS = {
    "flatten": (lambda net, x: net.last(x.flatten(1)), 96),
    "view with constants": (lambda net, x: net.last(x.reshape(-1, 96)), 96),
    "view by sizes": (by_sizes, 96),
    "average": (lambda net, x: net.last(functional.adaptive_avg_pool2d(x, 1).flatten(1)), 6),
    "amax": (lambda net, x: net.last(x.amax((-2, -1))), 6),
    "mean by hand": (by_hand_mean, 6),
    "window of its own": (lambda net, x: net.last(functional.avg_pool2d(x, 4).flatten(1)), 6),
    "window by sizes": (lambda net, x: net.last(functional.avg_pool2d(x, x.shape[2:]).flatten(1)), 6),
    "odd adaptive size": (lambda net, x: net.last(functional.adaptive_avg_pool2d(x, 3).flatten(1)), 54),
    "convolution": (lambda net, x: net.last(functional.conv2d(x, torch.ones(5, 6, 4, 4).double()).flatten(1)), 5),
    "both poolings": (lambda net, x: net.last(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)), 12),
    "channels last": (channels_last, 6),
    "norm after pooling": (normed_after_pooling, 6),
    "length one": (lambda net, x: net.last(functional.normalize(x.mean((2, 3)), dim=1)), 6),
    "parts": (lambda net, x: net.last(torch.mul(*x.mean((2, 3)).chunk(2, dim=1))), 3),
    "one class for a channel": (lambda net, x: x.mean((2, 3)), 0),
    "attention": (attending, 6),
    "in place": (in_place, 6),
    "a single channel": (lambda net, x: net.last(torch.stack([x[:, 0], x[:, 1]], 1).flatten(1)), 32),
    "a tuple": (lambda net, x: (net.last(x.mean((2, 3))), None), 6),
}


def answer(network, pictures):
    output = network(pictures)
    return output[0] if isinstance(output, tuple) else output


@pytest.fixture(params=HEADS)
def small(request):
    torch.manual_seed(0)
    return Small(*HEADS[request.param])


class TestEachPlaceIsACrop:
    def test_at_the_trained_size_to_the_bit(self, small):
        pictures = torch.rand(2, 3, SIZE, SIZE, dtype=torch.float64)
        plain = answer(small, pictures)
        confidences = fully_convolutional(small, SIZE)(pictures)
        assert confidences.shape == (2, plain.shape[1], 1, 1)
        assert torch.equal(confidences, plain.reshape(confidences.shape))

    @pytest.mark.parametrize("pictures", [1, 2])
    def test_on_larger_pictures(self, small, pictures):
        batch = torch.rand(pictures, 3, SIZE + 4 * STRIDE, SIZE + 2 * STRIDE, dtype=torch.float64)
        confidences = fully_convolutional(small, SIZE)(batch)
        assert confidences.shape[-2:] == (5, 3)
        for i, j in product(range(5), range(3)):
            crop = batch[..., i * STRIDE : i * STRIDE + SIZE, j * STRIDE : j * STRIDE + SIZE]
            expected = answer(small, crop).reshape(confidences[..., i, j].shape)
            torch.testing.assert_close(confidences[..., i, j], expected, rtol=1e-12, atol=1e-12)


class TestBody:
    def test_what_is_pooled_inside_the_network_stays_pooled_over_the_picture(self):
        class Gated(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.squeeze, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4, 4), nn.Linear(4, 2)

            def features(self, x):
                x = self.conv(x)
                gate = torch.sigmoid(self.squeeze(x.mean((2, 3))))
                return x * gate[:, :, None, None]

            def forward(self, x):
                return self.last(self.features(x).mean((2, 3)))

        torch.manual_seed(0)
        net, pictures = Gated(), torch.rand(2, 3, 8, 11)
        pooled = functional.avg_pool2d(net.features(pictures), 6, stride=1)
        expected = functional.conv2d(pooled, net.last.weight[:, :, None, None], net.last.bias)
        torch.testing.assert_close(fully_convolutional(net, 8)(pictures), expected)

    def test_a_network_that_answers_for_each_place_is_used_as_it_is(self):
        net, pictures = nn.Conv2d(3, 2, 3), torch.rand(1, 3, 8, 9)
        assert torch.equal(fully_convolutional(net, 5)(pictures), net(pictures))


def sequential():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()


class Buffered(nn.Module):
    """With parameters and buffers of its own, not only of its children."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("shift", torch.ones(1))

    def forward(self, x):
        return self.conv(x).mean((2, 3)) * self.scale + self.shift


class TestTheNetworkItself:
    def test_both_stay_the_same(self):
        net = Buffered()
        converted = fully_convolutional(net, 8)
        converted.double()
        assert net.shift.dtype == net.scale.dtype == net.conv.weight.dtype == torch.float64
        converted.eval()
        assert not net.training
        assert not net.conv.training
        converted.load_state_dict({name: value * 2 for name, value in converted.state_dict().items()})
        assert net.shift == converted.shift == 2

    def test_left_as_it_was_found(self):
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2)).train()
        before = copy.deepcopy(net.state_dict())
        converted = fully_convolutional(net, 8)
        assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
        net.eval()
        pictures = torch.rand(2, 3, 8, 8)
        plain = net(pictures)
        converted(torch.rand(1, 3, 8, 12))
        assert torch.equal(net(pictures), plain)
        assert not any(part._forward_hooks for part in net.modules())


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (lambda net, x: x.flatten(2), "only one that gives"),  # no classes
        (lambda net, x: x.mean(), "only one that gives"),
        (lambda net, x: torch.zeros(2, 3), "does not depend on the image"),
        (
            lambda net, x: x.reshape(3, -1).mean(1).reshape(1, 3).expand(len(x), 3),  # mixes images
            r"'reshape', called by the model itself, cannot be slid",
        ),
        (lambda net, x: x.mean((2, 3)) if x.shape[3] == 4 else x.amax((2, 3)), "takes another course for this size"),
    ],
)
def test_a_head_that_cannot_be_slid_is_refused(head, message):
    with pytest.raises(ModelError, match=message):
        fully_convolutional(Small(head), SIZE)(torch.rand(2, 3, SIZE, 2 * SIZE, dtype=torch.float64))


def test_images_that_do_not_fit_are_refused():
    with pytest.raises(ImageError, match=r"12 x 7 pixels.*at least 8 x 8"):
        fully_convolutional(sequential(), 8)(torch.rand(1, 3, 7, 12))
    with pytest.raises(ModelError, match="give a batch"):
        fully_convolutional(sequential(), 8)(torch.rand(3, 8, 8))


class TestTopDown:
    def test_layers_of_the_head_are_maps_too(self):
        net, pictures = sequential(), torch.rand(2, 3, 8, 10)
        converted = fully_convolutional(net, 8)
        heard = []
        for layer in (1, 2, 4):
            net[layer].register_forward_hook(lambda _module, _arguments, output: heard.append(output))
        output = converted(pictures)
        features, pooled, logits = heard
        torch.testing.assert_close(pooled, functional.avg_pool2d(features, 6, stride=1))
        assert torch.equal(logits, output)

    def test_the_signal_starts_where_the_class_is_seen(self):
        """The map of a larger image is the sum of those of its crops, weighted by exp(logit)."""
        torch.manual_seed(2)
        net = Small(lambda net, x: net.last(x.flatten(1)), 96)
        picture = torch.rand(1, 3, SIZE, SIZE + 2 * STRIDE, dtype=torch.float64)
        converted = fully_convolutional(net, SIZE)
        weights = torch.softmax(converted(picture)[0, 1, 0], 0)
        for contrastive in (False, True):
            whole = mwp(converted, picture, 1, layer="conv1", contrastive=contrastive)
            expected = torch.zeros_like(whole)
            for j, weight in enumerate(weights):
                crop = picture[..., j * STRIDE : j * STRIDE + SIZE]
                expected[..., j : j + 6] += weight * mwp(net, crop, 1, layer="conv1", contrastive=contrastive)
            torch.testing.assert_close(whole, expected, rtol=1e-9, atol=1e-12)

    def test_the_embedded_classifier(self):
        """Equal to the network converted by hand: pooling over the trained window, and a convolution."""

        class ByHand(nn.Module):
            def __init__(self, network):
                super().__init__()
                self.stem, self.blocks, self.head = network.stem, network.blocks, network.head
                self.last = network.classifier

            def forward(self, pictures):
                pooled = functional.avg_pool2d(self.head(self.blocks(self.stem(pictures))), 2, stride=1)
                return functional.conv2d(pooled, self.last.weight[:, :, None, None], self.last.bias)

        net = load("efficientnet-lite0").module
        picture = torch.linspace(-1, 1, 101).expand(1, 3, 64, 101).clone()
        picture[..., 20:40, 30:60] = 1
        ours, expected = (
            ExcitationPass(one, picture, ["blocks.10"]) for one in (fully_convolutional(net, 64), ByHand(net))
        )
        assert ours.output.shape == (1, 1000, 1, 3)
        torch.testing.assert_close(ours.output, expected.output, rtol=1e-4, atol=1e-5)
        for dual in (0.0, -1.0):
            maps = [one.down(prior(one.output, {281: 1.0}), dual=dual)["blocks.10"] for one in (ours, expected)]
            torch.testing.assert_close(*maps, rtol=1e-3, atol=1e-7)


NETWORKS = {  # the layer that is read, and a small size that serves as the trained one
    ("torchvision", "resnet18"): ("layer3", 64),
    ("torchvision", "googlenet"): ("inception4a", 64),
    ("torchvision", "squeezenet1_1"): ("features.7", 64),
    ("torchvision", "densenet121"): ("features.transition2", 64),
    ("torchvision", "mobilenet_v3_small"): ("features.8", 64),
    ("torchvision", "shufflenet_v2_x0_5"): ("stage3", 64),
    ("torchvision", "inception_v3"): ("Mixed_6a", 128),
    ("timm", "convnext_atto"): ("stages.2", 64),
    ("timm", "efficientnet_lite0"): ("blocks.4", 64),
    ("timm", "dla34"): ("level4", 64),
    ("timm", "hrnet_w18_small"): ("layer1", 64),
}
OPTIONS = {name: {"init_weights": False, "transform_input": True} for name in ("googlenet", "inception_v3")}


def built(package, name):
    torch.manual_seed(0)
    try:
        if package == "timm":
            return timm_models().create_model(name, pretrained=False).eval()
        build = getattr(torchvision_models(), name)
    except ImportError as error:
        pytest.skip(str(error))
    return build(weights=None, **OPTIONS.get(name, {})).eval()


@pytest.mark.parametrize(("package", "name"), NETWORKS)
def test_of_well_known_networks(package, name):
    """The network's own answer and maps at the trained size; as much mass on a longer image, where places differ."""
    net = built(package, name)
    layer, size = NETWORKS[package, name]
    converted = fully_convolutional(net, size)
    picture = torch.rand(1, 3, size, size)
    plain, sliding = (ExcitationPass(network, picture, [layer]) for network in (net, converted))
    assert torch.equal(sliding.output.flatten(1), plain.output)
    for dual in (0.0, -1.0):
        expected = plain.down(prior(plain.output, {3: 1.0}), dual=dual)[layer]
        torch.testing.assert_close(
            sliding.down(prior(sliding.output, {3: 1.0}), dual=dual)[layer], expected, rtol=1e-6, atol=1e-6
        )
    mass = float(plain.down(prior(plain.output, {3: 1.0}))[layer].sum())
    longer = ExcitationPass(converted, torch.rand(1, 3, size, size + 64), [layer])
    assert longer.output.shape[:3] == (1, 1000, 1)
    assert longer.output.shape[3] > 1
    assert abs(float(longer.down(prior(longer.output, {3: 1.0}))[layer].sum()) - mass) < 0.05 * mass
