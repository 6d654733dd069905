"""dev/speed_peers.py: those that are missing or fail are rows with their reasons."""

import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from zoo import torchvision_models

from excite.experiments.speed.run import plain_forward, top_classes
from excite.experiments.speed.timing import Rounds, TimedNetwork
from excite.propagation import mwp

sys.path.insert(0, str(Path(__file__).parents[2] / "dev"))

from speed_peers import PEER_NAMES, PEERS, TORCHRAY, ZENNIT, open_twin, peer_candidate, private_copy, timed

try:
    torchvision_models()
except ImportError:
    pytest.skip("peers run on networks of torchvision", allow_module_level=True)


@pytest.fixture
def subject():
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3))
    module = nn.Sequential(features, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()
    for child in module.modules():
        if getattr(child, "bias", None) is not None:
            nn.init.zeros_(child.bias)  # zennit has the bias compete
    return TimedNetwork("tiny", module, "0.2", torch.rand(1, 3, 16, 16), "random")


def test_all_that_are_installed_run(subject):
    rows = {(row["method"], row["concepts"]): row for row in timed(subject, (1, 2), 0.0, compiled=False)}
    ran = {method for (method, _), row in rows.items() if row["ratio_to_forward"] is not None}
    failed = {name: rows[name, 1]["note"] for name in PEER_NAMES if name not in ran}
    assert {"c-mwp", "captum saliency", "captum guided backprop", "captum grad-cam", "zennit excitation"} <= ran, failed
    assert rows["captum saliency", 1]["times_c_mwp"] > 0
    assert "Flatten" in failed.pop("captum lrp")  # it has no rule for that
    assert all("not installed" in why and "pip install" in why for why in failed.values()), failed


@pytest.mark.parametrize("contrastive", [False, True])
def test_zennit_computes_the_same_map(subject, contrastive):
    """Both are timed for the same map."""
    pytest.importorskip("zennit")
    batch = subject.batch(1)
    peer = PEER_NAMES["zennit excitation, contrastive"] if contrastive else ZENNIT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = peer.start(private_copy(subject.module), subject.layer, batch)(batch, 2)
    ours = mwp(subject.module, batch, 2, layer=subject.layer, contrastive=contrastive)
    assert ours.abs().max() > 0
    torch.testing.assert_close(theirs if contrastive else theirs[0], ours, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("package", "peer"), [("captum", PEERS[0]), ("zennit", ZENNIT), ("torchray", TORCHRAY)])
def test_a_missing_one_says_how_to_get_it(subject, monkeypatch, package, peer):
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    rounds = Rounds(plain_forward(subject, 1))
    rounds.run([peer_candidate(peer, subject)], budget=0.0, least=1)
    ((case, why),) = rounds.failed.items()
    assert case.method == peer.name
    assert why.startswith("DataError: not installed")
    assert peer.install in why


def test_several_concepts_are_several_calls(subject):
    calls = []
    peer = replace(ZENNIT, start=lambda network, layer, batch: lambda batch, unit: calls.append(unit))
    one = peer_candidate(peer, subject, 3)
    one.prepare()()
    assert (one.case.concepts, calls) == (3, top_classes(subject.output(subject.picture), 3))


def test_twins_and_copies(subject):
    copy = open_twin(subject).module
    assert copy[4].weight.data_ptr() == subject.module[4].weight.data_ptr()
    copy.requires_grad_(False)
    assert all(weight.requires_grad for weight in subject.module.parameters())
    assert (copy[0][1].inplace, subject.module[0][1].inplace) == (False, True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin = open_twin(replace(subject, name="googlenet"))
    assert (twin.name, twin.layer) == ("torchvision:googlenet", "maxpool2")
    assert any(isinstance(child, nn.ReLU) for child in twin.module.modules())
