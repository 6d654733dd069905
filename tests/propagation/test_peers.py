"""An independent implementation of the same rule on plain networks: captum's LRP with alpha 1, beta 0, no biases."""

import copy

import pytest
import torch
from oracle import randomise
from torch import nn

from excite.propagation import mwp

captum = pytest.importorskip("captum.attr", reason="captum is the peer of these tests: pip install 'excite[dev]'")
rules = pytest.importorskip("captum.attr._utils.lrp_rules")


class Plain(nn.Module):
    """Convolutions, ReLU, pooling and full connections, each a module of its own as captum needs it."""

    def __init__(self, features, classifier):
        super().__init__()
        self.features, self.classifier = nn.Sequential(*features), nn.Sequential(*classifier)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def strided():
    return Plain(
        [nn.Conv2d(3, 6, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(6, 8, 3, groups=2), nn.ReLU(), nn.MaxPool2d(2)],
        [nn.Linear(8 * 9, 12), nn.ReLU(), nn.Linear(12, 4)],
    )


def averaged():
    return Plain(
        [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 6, 3, padding=1), nn.ReLU()],
        [nn.Linear(6 * 64, 4)],
    )


def deep():
    features = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1), nn.ReLU()]
    features += [nn.Conv2d(8, 8, 1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(8, 8, 3), nn.ReLU()]
    return Plain([*features, nn.AdaptiveAvgPool2d(1)], [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)])


# Each layer that we read is the input of a module that captum has a rule for.
NETS = {
    "strided": (strided, {"features.1": "features.2", "features.3": "features.4", "classifier.1": "classifier.2"}),
    "averaged": (averaged, {"features.1": "features.2", "features.2": "features.3"}),
    "deep": (
        deep,
        {
            "features.1": "features.2",
            "features.2": "features.3",
            "features.4": "features.5",
            "features.6": "features.7",
            "features.9": "features.10",
            "classifier.1": "classifier.2",
        },
    ),
}


def relevance(net, x, cued, name):
    """Relevance of the input of a module, divided by the logit it was started with."""
    net = copy.deepcopy(net)
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.AvgPool2d, nn.AdaptiveAvgPool2d)):
            module.rule = rules.Alpha1_Beta0_Rule(set_bias_to_zero=True)
    found = captum.LayerLRP(net, net.get_submodule(name)).attribute(
        x.clone().requires_grad_(), target=cued, attribute_to_layer_input=True
    )
    return (found / net(x)[:, cued].reshape(-1, *[1] * (found.dim() - 1))).detach()


@pytest.mark.parametrize("name", NETS)
def test_captum_agrees(name):
    make, layers = NETS[name]
    net = randomise(make().double().eval(), 4)
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for cued in range(4):
        assert net(x)[:, cued].abs().min() > 1e-3
        for layer, found in mwp(net, x, cued, layer=list(layers)).items():
            assert found.sum() > 0.1
            torch.testing.assert_close(found, relevance(net, x, cued, layers[layer]), rtol=1e-6, atol=1e-6)
