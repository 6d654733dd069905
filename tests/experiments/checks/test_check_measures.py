"""What each check measures: on a classifier of colours, whose maps are known."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from annotated import SIDE, colour_classifier
from PIL import Image
from torch import nn

from excite.errors import ModelError
from excite.experiments.checks import perturbation
from excite.experiments.checks.base import CheckedImage, judge_response, mass_kept, response_seen, values_agree
from excite.experiments.checks.run import CheckMeasurement
from excite.metrics.ranking import rank_correlation

LAYERS = {"c-mwp": ("1",), "mwp": ("1",), "center": ("1",)}


def scene():
    """A red square at the upper left on dark noise, and a smaller green one."""
    pixels = np.random.default_rng(0).integers(0, 30, (SIDE, SIDE, 3), dtype=np.uint8)
    pixels[4:20, 4:20] = (220, 10, 10)
    pixels[30:36, 30:40] = (10, 200, 10)
    return Image.fromarray(pixels)


def seen(classifier=None, layers=LAYERS):
    return CheckedImage(classifier or colour_classifier(), layers, scene(), seed=3)


def test_mass_is_told_from_the_top_down():
    found = mass_kept(seen(layers={"c-mwp": ("0",), "mwp": ("0",)}))
    assert found["reading"] == "0"
    assert list(found["layers"]) == ["3", "2", "1", "0"]
    assert all(mass == pytest.approx(1, abs=1e-5) for mass in found["layers"].values())
    assert found["negative"] == 0


def test_places_that_are_stepped_over_count_for_nothing():
    """Maps that agree only in where nobody looks are not alike."""
    net = nn.Sequential(nn.Identity(), nn.Conv2d(3, 2, 1, stride=2, bias=False), nn.Flatten(), nn.LazyLinear(2)).eval()
    classifier = replace(colour_classifier(), module=net)
    net(classifier.prepared(scene())[None])
    with torch.no_grad():
        for weights in net.parameters():
            weights.abs_()
    stepping = CheckedImage(classifier, {"mwp": ("0",)}, scene(), 0)
    assert stepping.reached.float().mean() == 0.25
    assert mass_kept(stepping)["heard"] == 0.25
    own = stepping.maps["mwp"]
    shuffled = torch.zeros_like(own.values)
    shuffled[::2, ::2] = own.values[::2, ::2].flip(0).flip(1)
    assert rank_correlation(own.values, shuffled) > 0.8
    assert abs(stepping.likeness("mwp", replace(own, values=shuffled))) < 0.5
    assert stepping.likeness("mwp", own) == pytest.approx(1)


def test_a_response_that_is_not_seen_fails(monkeypatch):
    found = response_seen(seen())
    assert (found["reading"], found["repeats"]) == ("1", True)
    assert found["found"] == pytest.approx(found["expected"], rel=1e-6)
    monkeypatch.setattr("excite.propagation.taint.only_selects", lambda *_: True)  # the first guard would refuse it

    class Around(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            h = self.inner[:2](x)
            with torch._C.DisableTorchFunction(), torch.no_grad():
                unseen = self.inner[2:](h).clone()
            return self.inner[2:](h) + unseen

    classifier = replace(colour_classifier(), module=Around(colour_classifier().module).eval())
    found = response_seen(CheckedImage(classifier, {"mwp": ("inner.1",)}, scene(), 0))
    verdict = judge_response([found], "mwp")
    assert verdict.standing == "fails"
    assert "only 50.0000% passes" in verdict.sentences[0]


def test_a_network_that_changes_when_it_is_looked_at_is_found_out():
    class Counting(nn.Module):
        """Answers otherwise each time."""

        def __init__(self, inner):
            super().__init__()
            self.inner, self.times = inner, 0

        def forward(self, x):
            self.times += 1
            return self.inner(x) * self.times

    assert values_agree(seen()) == {"while": 0.0, "after": 0.0, "rounding": pytest.approx(0, abs=1e-5)}
    classifier = colour_classifier()
    counting = replace(classifier, module=Counting(classifier.module))
    found = values_agree(CheckedImage(counting, {"mwp": ("inner.1",)}, scene(), 0))
    assert min(found["while"], found["after"]) > 0


def test_layers_are_drawn_anew_from_the_top_and_the_network_is_left_alone():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)).eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert perturbation.learned_layers(module) == ["3", "1", "0"]
    state = torch.get_rng_state()
    changed = []
    for name, random in perturbation.randomised_top_down(module, 0, [1, 2, 3]):
        drawn = {
            key.split(".")[0] for key, tensor in random.state_dict().items() if not torch.equal(tensor, before[key])
        }
        changed.append((name, sorted(drawn)))
        assert not random.training
    assert changed == [("3", ["3"]), ("1", ["3"]), ("0", ["0", "3"])]  # this norm is as it begins already
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ModelError, match="drawn anew"):
        perturbation.learned_layers(nn.Sequential(nn.ReLU()))


def test_a_map_of_nothing_learned_stays_and_those_of_learned_things_and_concepts_differ():
    found = perturbation.under_randomisation(seen())
    assert found["down_to"] == ["5", "0"]
    assert found["shares"] == [0.5, 1.0]
    assert found["curves"]["center"] == pytest.approx([1, 1])
    assert found["curves"]["mwp"][1] < 0.99
    found = perturbation.between_classes(seen())
    assert found["others"] == ["green"]
    assert found["likeness"]["center"] == pytest.approx([1])
    assert found["likeness"]["c-mwp"][0] < found["likeness"]["mwp"][0]
    assert found["likeness"]["c-mwp"][0] < 0.2


def test_what_is_evidence_fades_the_answer():
    found = perturbation.under_removal(seen())
    assert set(found["deletion"]) == {*LAYERS, "random"}
    assert all(len(curve) == 21 for curves in found.values() for curve in curves.values())
    deleted, inserted = found["deletion"]["c-mwp"], found["insertion"]["c-mwp"]
    assert deleted[0] == pytest.approx(float(seen().probabilities.max()))
    assert inserted[-1] == pytest.approx(deleted[0])
    assert min(deleted[:6]) < min(found["deletion"]["random"][:6])  # the red square goes first
    assert found == perturbation.under_removal(seen())


def test_small_changes():
    found = perturbation.under_small_changes(seen())
    assert set(found["likeness"]) == set(LAYERS)
    assert found["likeness"]["mwp"]["flip"] > 0.99  # this network sees every place alike, but images are made smaller
    assert found["likeness"]["mwp"]["noise"] < 1
    assert 0 < found["moved"]["mwp"] < 0.5
    assert found["moved"]["center"] == 0
    assert found["likeness"]["mwp"]["shift"] > found["likeness"]["center"]["shift"] - 0.3
    small = CheckedImage(colour_classifier(), LAYERS, scene().resize((3, 3)), 0)
    assert "shift" not in perturbation.under_small_changes(small)["likeness"]["mwp"]


def test_the_work_can_be_sent_to_another_process(tmp_path):
    scene().save(tmp_path / "scene.png")
    work = CheckMeasurement(colour_classifier(), LAYERS, ("values", "classes"))
    sent = pickle.loads(pickle.dumps(work))  # noqa: S301 - our own
    assert sent(tmp_path / "scene.png") == work(tmp_path / "scene.png")
    assert sent.key(tmp_path / "scene.png") == work.key(tmp_path / "scene.png")
    assert replace(work, seed=1).key(tmp_path / "scene.png") != work.key(tmp_path / "scene.png")
