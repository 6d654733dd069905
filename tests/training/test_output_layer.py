"""The output layer: found, read, and continued by whatever the network does behind it."""

import learning
import pytest
import torch
import zoo
from torch import nn
from torch.nn import functional

from excite.errors import ModelError
from excite.models import MODELS, Card, find_card
from excite.models.weights import filled_at_random
from excite.training.output_layer import Output, features_of, with_new_output

PICTURES = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def begun(card, classes=5):
    """A network with random weights below a new output layer."""
    base = filled_at_random(lambda: card.build(None))
    return base, *with_new_output(card, base, classes)


def card_of(build):
    return Card("own", build, None, lambda: None, (), "", "")


def placewise(classes):
    """Answers for each place, and then for the whole image."""
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, classes or 2, 1), nn.AvgPool2d(62), nn.Flatten())


class TestNewOutput:
    @pytest.mark.parametrize(
        ("name", "layer"),
        [("efficientnet-lite0", "classifier"), ("resnet50-caffe", "fc"), ("squeezenet-caffe", "conv_final")],
    )
    def test_known_networks(self, name, layer):
        base, network, found = begun(MODELS[name])
        new, old = network.state_dict(), base.state_dict()
        assert (found, network.training) == (layer, False)
        assert new[f"{layer}.weight"].shape[0] == new[f"{layer}.bias"].shape[0] == 5
        assert all(torch.equal(new[key], old[key]) for key in new if not key.startswith(layer))

    def test_it_begins_small_and_the_same_for_a_seed(self):
        base = learning.Tiny()
        starts = [with_new_output(learning.TINY, base, 5, seed)[0].out for seed in (0, 0, 1)]
        assert torch.equal(starts[0].weight, starts[1].weight)
        assert not torch.equal(starts[0].weight, starts[2].weight)
        assert 0.003 < float(starts[0].weight.detach().std()) < 0.03
        assert not starts[0].bias.any()
        base, network, layer = begun(learning.TINY, classes=3)  # as many as before
        assert layer == "out"
        assert not torch.equal(network.out.weight, base.out.weight)
        assert torch.equal(network.conv.weight, base.conv.weight)

    @pytest.mark.parametrize(
        ("build", "said"),
        [
            (lambda _: nn.Linear(4, 2), "has a fixed number of classes"),
            (lambda n: nn.ModuleDict({k: nn.Linear(4, n or 2) for k in "ab"}), r"several output layers \(a, b\)"),
        ],
    )
    def test_not_one_output_layer(self, build, said):
        with pytest.raises(ModelError, match=said):
            begun(card_of(build))


class TestOutput:
    @pytest.mark.parametrize("name", ["efficientnet-lite0", "timm:convnext_atto", "timm:resnet18", "placewise"])
    def test_features_and_output_are_the_network(self, name):
        if ":" in name:
            zoo.timm_models()
        _, network, layer = begun(card_of(placewise) if name == "placewise" else find_card(name))
        output = Output.of(network, layer, PICTURES)
        with torch.no_grad():
            expected = network(PICTURES)
            assert torch.allclose(output(features_of(network, layer, PICTURES)), expected, atol=1e-5)
        assert bool(output.tail) == (name == "placewise")

    def test_gradients_pass_through_what_comes_behind(self):
        """Also where the network writes to its activations in place."""

        class Behind(nn.Module):
            def __init__(self, classes):
                super().__init__()
                self.conv = nn.Conv2d(3, classes or 2, 1)

            def forward(self, pictures):
                found = functional.leaky_relu(self.conv(pictures), inplace=True)
                return 3 * (found + 1).mean(dim=(2, 3)).view(-1, found.shape[1])

        _, network, layer = begun(card_of(Behind))
        output = Output.of(network, layer, PICTURES)
        output(features_of(network, layer, PICTURES)).sum().backward()
        found = [parameter.grad.clone() for parameter in output.parameters()]
        network.zero_grad()
        network(PICTURES).sum().backward()
        assert all(torch.allclose(a, b.grad) for a, b in zip(found, output.parameters(), strict=True))
        assert all(gradient.any() for gradient in found)

    @pytest.mark.parametrize(
        "behind",
        [
            lambda out, pictures, found: found + pictures.amax(dim=(1, 2, 3))[:, None],
            lambda out, pictures, found: found + out(pictures.amax(dim=(2, 3))),
            lambda out, pictures, found: found.reshape(len(pictures) * 5).reshape(len(pictures), -1) * 1,
        ],
        ids=["added image", "called twice", "shape of one image"],
    )
    def test_what_cannot_be_repeated_is_refused(self, behind):
        class Odd(nn.Module):
            def __init__(self, classes):
                super().__init__()
                self.out = nn.Linear(3, classes or 5)

            def forward(self, pictures):
                return behind(self.out, pictures, self.out(pictures.mean(dim=(2, 3))))

        _, network, layer = begun(card_of(Odd), classes=5)
        with pytest.raises(ModelError, match="cannot be replayed"):
            Output.of(network, layer, PICTURES)

    @pytest.mark.parametrize("name", ["squeezenet-caffe", "torchvision:squeezenet1_1"])
    def test_a_network_that_cannot_say_no_is_refused(self, name):
        if ":" in name:
            zoo.torchvision_models()
        _, network, layer = begun(find_card(name))
        with pytest.raises(ModelError, match="no category could be absent"):
            Output.of(network, layer, PICTURES)
