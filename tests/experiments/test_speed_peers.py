"""Peers: those that are missing or fail are rows with their reasons."""

import sys
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn
from zoo import torchvision_models

from excite.errors import ModelError
from excite.experiments.speed.candidates import (
    PEER_NAMES,
    PEERS,
    TORCHRAY,
    ZENNIT,
    candidate,
    peer_candidate,
    plain_forward,
    top_classes,
)
from excite.experiments.speed.networks import TimedNetwork, open_network, open_twin, private_copy
from excite.experiments.speed.timing import Rounds
from excite.propagation import mwp

try:
    torchvision_models()
except ImportError:
    pytest.skip("peers run on networks of torchvision", allow_module_level=True)


@pytest.fixture
def subject():
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3))
    module = nn.Sequential(features, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()
    return TimedNetwork("tiny", module, "0.2", torch.rand(1, 3, 16, 16), "random")


def raced(subject, peers):
    rounds = Rounds(plain_forward(subject, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rounds.run([peer_candidate(peer, subject) for peer in peers], budget=0.0, least=1)
    return rounds


def test_all_that_are_installed_run(subject):
    rounds = raced(subject, PEERS)
    ran = {case.method for case in rounds.timings}
    failed = {case.method: why for case, why in rounds.failed.items()}
    assert ran | set(failed) == set(PEER_NAMES)
    assert {"captum saliency", "captum guided backprop", "captum grad-cam", "zennit excitation"} <= ran, failed
    assert "Flatten" in failed.pop("captum lrp")  # it has no rule for that
    assert all("not installed" in why and "pip install" in why for why in failed.values()), failed


def test_a_contrast_by_zennit_is_ours(subject):
    """It is made for the race alone, so that both are timed for the same map."""
    pytest.importorskip("zennit")
    for module in subject.module.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.zeros_(module.bias)  # zennit has the bias compete
    batch = subject.batch(1)
    start = PEER_NAMES["zennit excitation, contrastive"].start
    theirs = start(private_copy(subject.module), subject.layer, batch)(batch, 2)
    ours = mwp(subject.module, batch, 2, layer=subject.layer, contrastive=True)
    assert ours.abs().max() > 0
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("package", "peer"), [("captum", PEERS[0]), ("zennit", ZENNIT), ("torchray", TORCHRAY)])
def test_a_missing_one_says_how_to_get_it(subject, monkeypatch, package, peer):
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    ((case, why),) = raced(subject, [peer]).failed.items()
    assert case.method == peer.name
    assert why.startswith("DataError: not installed")
    assert peer.install in why


def test_one_that_fails_says_why(subject):
    ((case, why),) = raced(replace(subject, layer="nowhere"), [ZENNIT]).failed.items()
    assert case.layer == "nowhere"
    assert "nowhere" in why


def test_several_concepts_are_several_calls(subject):
    calls = []
    peer = replace(ZENNIT, start=lambda network, layer, batch: lambda batch, unit: calls.append(unit))
    one = peer_candidate(peer, subject, 3)
    one.prepare()()
    assert (one.case.concepts, calls) == (3, top_classes(subject.output(subject.picture), 3))


def test_a_copy_shares_weights_and_nothing_else(subject):
    copy = private_copy(subject.module)
    assert copy[4].weight.data_ptr() == subject.module[4].weight.data_ptr()
    copy.requires_grad_(False)
    copy[0].register_forward_hook(lambda *_: None)
    assert all(weight.requires_grad for weight in subject.module.parameters())
    assert not subject.module[0]._forward_hooks
    assert (copy[0][1].inplace, subject.module[0][1].inplace) == (False, True)


def test_zennit_computes_the_same_map(subject):
    """Not only the time of something: up to its bias rule, zennit's map is ours on a network without biases."""
    for child in subject.module.modules():
        if getattr(child, "bias", None) is not None:
            nn.init.zeros_(child.bias)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (theirs,) = peer_candidate(ZENNIT, subject).prepare()()[0]
    ours = candidate(subject, "mwp").prepare()()
    assert torch.allclose(ours, theirs, atol=1e-4)


def test_twins():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin = open_twin(replace(open_network("efficientnet-lite0"), name="googlenet"))
    assert (twin.name, twin.layer) == ("torchvision:googlenet", "maxpool2")
    assert any(isinstance(child, nn.ReLU) for child in twin.module.modules())
    twin.module.get_submodule(twin.layer)
    own = open_twin(open_network("efficientnet-lite0"))
    assert own.name == "copy of efficientnet-lite0"


def test_the_paper_s_networks_and_sizes():
    subject = open_network("googlenet")
    assert (subject.layer, subject.size, subject.weights) == ("pool2/3x3_s2", "224x335", "random")
    assert subject.batch(2).shape == (2, 3, 224, 335)
    assert not torch.equal(*subject.batch(2))
    with pytest.raises(ModelError):
        open_network("no-such-network")
