"""Layer-wise relevance propagation, by both rules, against captum and zennit."""

import copy

import pytest
import torch
from networks import CLASSES, Connected, made, maps, pictures
from torch import nn
from zoo import torchvision_models

from excite.methods.base import blurred
from excite.methods.gradient import ALPHA, BETA, EPSILON


def positive(relevance):
    return blurred(relevance.detach().sum(1).clamp(min=0))


def test_lrp_is_zennits_alpha_beta():
    try:
        torchvision_models()  # zennit imports it, and fails where its operators do not fit this torch
        from zennit import composites, rules
    except ImportError:
        pytest.skip("zennit is the peer of this test: pip install 'excite[dev]'")
    assert (ALPHA, BETA) == (2, 1)
    rule = rules.AlphaBeta(2.0, 1.0, stabilizer=1e-30, zero_params="bias")
    composite = composites.LayerMapComposite([((nn.Conv2d, nn.Linear), rule), (nn.ReLU, rules.Pass())])
    network, x = made(Connected), pictures() - 0.5
    for unit in range(CLASSES):
        given = x.clone().requires_grad_()
        with composite.context(copy.deepcopy(network)) as explained:
            (expected,) = torch.autograd.grad(explained(given)[:, unit].sum(), given)
        torch.testing.assert_close(maps(network, x, "lrp", "input", unit), positive(expected))


def test_lrp_epsilon_is_captums():
    captum = pytest.importorskip("captum.attr", reason="captum is the peer of this test: pip install 'excite[dev]'")
    rules = pytest.importorskip("captum.attr._utils.lrp_rules")
    network, x = made(Connected), pictures() - 0.5
    for unit in range(CLASSES):
        peer = copy.deepcopy(network)
        for module in peer.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                module.rule = rules.EpsilonRule(EPSILON)
        expected = captum.LRP(peer).attribute(x.clone().requires_grad_(), target=unit)
        expected = expected / network(x)[:, unit].view(-1, 1, 1, 1)
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(
            maps(network, x, "lrp-epsilon", "input", unit), positive(expected), rtol=1e-6, atol=0
        )
