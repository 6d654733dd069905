"""dev/conservation, which tries every architecture: what it measures, and that it notices when something is wrong."""

import json
import math
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from zoo import timm_models, torchvision_models

from excite.models.layers import passes_everything
from excite.propagation import ExcitationPass
from excite.propagation.fast.shortcuts import FlippedRows
from excite.propagation.provenance import Neuron

sys.path.insert(0, str(Path(__file__).parents[2] / "dev"))

from conservation import __main__ as command
from conservation import run as conservation
from conservation.networks import Architecture, architectures, fold_norms, randomise
from conservation.page import over_the_bound, page
from conservation.run import CAUSES, Conservation, explain, gaps, losses, status

try:
    torchvision, timm = torchvision_models(), timm_models()
except ImportError:
    pytest.skip("the architectures are those of torchvision and timm", allow_module_level=True)


def measured(name, source="timm"):
    return Conservation()(Architecture(source, "family", name))


class Block(nn.Module):
    """A convolution and its norm beside a skip connection."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)) + x)


def small_network():
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)]
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), Block(), *head).eval()


PICTURE = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_every_family_of_both_packages_is_there():
    listed = architectures()
    assert {each.family for each in listed if each.source == "timm"} == set(timm.list_modules())
    families = {name.split("_")[0].rstrip("0123456789") for name in torchvision.list_models(module=torchvision)}
    ours = {each.name.split("_")[0].rstrip("0123456789") for each in listed if each.source == "torchvision"}
    # wide_resnet and resnext, mnasnet0_5 and so on: the part before the numbers
    assert ours == families
    for each in architectures("timm"):
        assert each.name in timm.list_models(module=each.family)
    assert {each.name for each in architectures("torchvision")} <= set(torchvision.list_models(module=torchvision))
    assert set(Counter((each.source, each.name) for each in listed).values()) == {1}


def test_scales_are_of_both_signs_and_nothing_else_shifts():
    net = nn.Sequential(nn.Conv2d(3, 600, 1), nn.BatchNorm2d(600), nn.GroupNorm(2, 600)).eval()
    randomise(net, PICTURE, seed=0, biases=True)
    assert all(bool(values.any()) for values in (net[0].bias, net[1].bias, net[1].running_mean))
    randomise(net, PICTURE, seed=0)
    for norm in net[1:]:
        assert 0.28 < float((norm.weight < 0).float().mean()) < 0.39
        sizes = norm.weight.detach().abs()
        assert 0.5 <= float(sizes.min()) < float(sizes.max()) <= 1.5
        assert not norm.bias.any()
    assert not net[0].bias.any()
    assert not net[1].running_mean.any()
    power = float(net[0](PICTURE).detach().square().mean())
    assert 0.5 * power <= float(net[1].running_var.min()) < float(net[1].running_var.max()) <= 2 * power


def test_the_same_seed_gives_the_same_network_and_folding_leaves_its_function_and_no_scales():
    one, two, other = small_network(), small_network(), small_network()
    for net, seed in ((one, 3), (two, 3), (other, 4)):
        randomise(net, PICTURE, seed=seed)
    assert torch.equal(one(PICTURE), two(PICTURE))
    assert not torch.equal(one(PICTURE), other(PICTURE))
    assert not any(child._forward_pre_hooks for child in one.modules())
    net = one
    expected = net(PICTURE)
    assert bool((net[3].norm.weight < 0).any())
    assert fold_norms(net, PICTURE) == 2
    torch.testing.assert_close(net(PICTURE), expected, rtol=1e-5, atol=1e-6)
    assert bool((net[3].norm.weight == 1).all())
    assert fold_norms(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.BatchNorm2d(4)).eval(), PICTURE) == 0


@pytest.mark.parametrize(("layer", "everything"), [("0", True), ("3", True), ("3.conv", False), ("3.norm", False)])
def test_what_everything_must_pass(layer, everything):
    net = small_network()
    assert passes_everything(net, PICTURE, layer) is everything
    assert all(parameter.requires_grad for parameter in net.parameters())
    assert not any(child._forward_hooks for child in net.modules())


def test_a_layer_that_two_branches_share_passes_what_its_last_call_passes():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.shared = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, images, *, chained=True):
            once = self.shared(self.first(images))
            return self.shared(once) if chained else once + self.shared(images)

    net = Twice().eval()
    assert passes_everything(net, PICTURE, "shared")
    net.forward = partial(net.forward, chained=False)
    assert not passes_everything(net, PICTURE, "shared")


def test_a_norm_that_takes_its_mean_off():
    """Three units pushed up by 1, 2 and 3: behind the norm the first is negative, and no child pushed it down."""
    net = nn.Sequential(nn.ReLU(), nn.Linear(1, 3, bias=False), nn.LayerNorm(3), nn.Linear(3, 1, bias=False)).eval()
    net[1].weight.data = torch.tensor([[1.0], [2.0], [3.0]])
    net[3].weight.data = torch.tensor([[-1.0, 0.0, 1.0]])  # the first and the last push the output up alike
    (loss,) = losses(net, torch.ones(1, 1), "0", torch.ones(1, 1))
    assert loss.share == pytest.approx(0.5, abs=1e-3)
    assert (loss.rule, loss.module, loss.kind) == ("Affine", "1", "Linear")
    assert explain(net, torch.ones(1, 1), "0", torch.ones(1, 1)) == {"mean": (loss.share, "1")}


def test_a_unit_at_rest_that_a_norm_moved():
    """Behind an instance norm it is unknown where units rest."""
    norm = nn.InstanceNorm1d(1)
    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), norm, nn.Flatten(), nn.Linear(2, 1, bias=False)).eval()
    net[0].weight.data = torch.tensor([[1.0], [-1.0]])  # the second unit stays at 0,
    net[0].bias.data.zero_()
    net[4].weight.data = torch.tensor([[1.0, -1.0]])  # and is at -1 behind the norm, which the output likes
    causes = explain(net, torch.ones(1, 1, 1), "0", torch.ones(1, 1))
    assert causes["absence"][0] == pytest.approx(0.5, abs=1e-4)


def test_zeros_that_win_a_pooling():
    net = nn.Sequential(
        *(nn.Conv2d(1, 1, 1), nn.ZeroPad2d(1), nn.MaxPool2d(3), nn.Sigmoid(), nn.Flatten(), nn.Linear(1, 1))
    ).eval()
    for parameter in net.parameters():
        parameter.data.fill_(1.0 if parameter.dim() > 1 else 0.0)
    assert explain(net, -torch.ones(1, 1, 1, 1), "0", torch.ones(1, 1)) == {"padding": (1.0, "1")}


def test_what_goes_to_a_constant():
    class WithToken(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.ReLU(), nn.Linear(4, 1, bias=False)
            self.token = nn.Parameter(torch.ones(1, 2))

        def forward(self, x):
            return self.head(torch.cat([self.token, self.body(x)], dim=1))

    net = WithToken().eval()
    net.head.weight.data.fill_(1.0)
    causes = explain(net, torch.ones(1, 2), "body", torch.ones(1, 1))
    assert sum(share for share, _ in causes.values()) == pytest.approx(0.5)
    assert set(causes) <= set(CAUSES)


@pytest.mark.parametrize("name", ["test_byobnet", "test_nfnet"])
def test_networks_that_lose_nothing(name):
    row = measured(name)
    assert (row["status"], row["difference"], row["as_found"]) == ("conserved", 0, True)
    assert all(abs(mass - 1) < 1e-5 for mass in row["lowest"]["mass"] + row["lowest"]["dual"])
    assert row["lowest"]["negative"] == 0
    assert row["turned"] is None or row["turned"] < 1e-4
    assert 0 < row["biased"] < 1.0001
    assert set(row["rounding"]) == {"lowest", "default"}
    for gap in row["rounding"].values():
        assert 0 < gap["mwp"] < 1e-5
        assert gap["mwp"] < gap["c-mwp"] < 1e-3  # the contrast is smaller, its rounding is not
        assert gap["moved"] == 0
        assert 0 < gap["contrast"] < 2


def test_a_network_that_loses_something_says_where_and_one_that_is_refused_says_why():
    row = measured("test_convnext")
    assert row["status"] == "kept"
    assert row["lost"]["mean"][0] == pytest.approx(1 - min(row["lowest"]["mass"]), abs=1e-3)
    row = measured("sequencer2d_s")
    assert row["status"] == "refused"
    assert "lstm" in row["reason"]
    assert "lowest" not in row


def test_signs_that_are_not_read_are_noticed(monkeypatch):
    """The mass would still be 1: only the folded network tells."""
    unturned = lambda rows, _signs, starts: Neuron(rows.positive, rows.negative, None, starts)  # noqa: E731 - one line
    monkeypatch.setattr(FlippedRows, "flip", unturned)  # says that it turned the rows, and did not
    row = measured("test_resnet")
    assert row["status"] == "wrong"
    assert row["turned"] > 0.05


def test_other_values_and_things_left_behind_are_noticed(monkeypatch):
    class Careless(ExcitationPass):
        def __init__(self, module, inputs, layers):
            super().__init__(module, inputs, layers)
            module.conv1[0].weight.data.mul_(1.5)

    monkeypatch.setattr(conservation, "ExcitationPass", Careless)
    row = measured("test_resnet")
    assert row["as_found"] is False
    assert row["status"] == "wrong"


READING = {"layer": "a", "whole": True, "mass": [1.0, 1.0], "dual": [1.0, 1.0], "negative": 0.0}
ROW = {"source": "timm", "family": "f", "model": "m", "difference": 0.0, "as_found": True, "lowest": READING}


CHANGES = {
    "conserved": [
        *({}, {"lowest": READING | {"mass": [1.0, 0.99991]}}, {"turned": 1e-5}),
        {"default": READING | {"mass": [0.3], "whole": False}},
    ],
    "kept": [{"lowest": READING | {"mass": [1.0, 0.9998]}}],
    "lost": [{"lowest": READING | {"dual": [0.89, 1.0]}}, {"default": READING | {"mass": [0.3]}}],
    "refused": [{"reason": "no rule"}],
    "wrong": [
        *({"lowest": READING | broken} for broken in ({"mass": [1.001]}, {"negative": -1e-9}, {"mass": [math.nan]})),
        *({"difference": 1e-9}, {"difference": 1e-9, "reason": "no rule"}, {"as_found": False}, {"turned": 0.02}),
        {"crash": "ValueError: no"},
    ],
}


@pytest.mark.parametrize(("expected", "change"), [(name, one) for name, many in CHANGES.items() for one in many])
def test_status(change, expected):
    assert status(ROW | change) == expected


GAP = {"layer": "a", "mwp": 1e-7, "c-mwp": 0.02, "contrast": 1e-5, "moved": 0.0}
FAINT = "float32: of the contrast only 1e-05 of the signal is left at `a`, the rest cancelled"
ROWS = [
    ROW | {"family": "b", "model": "second", "status": "kept", "lost": {"mean": [0.01, "x.y"]}, "biased": 0.5},
    ROW | {"family": "A", "model": "first", "status": "conserved", "turned": 2e-7, "rounding": {"default": GAP}},
    {"source": "timm", "family": "c", "model": "third", "status": "refused", "reason": "no rule for 'x', called in "
     "'y': read a layer above it, or so"},
]  # fmt: skip


def test_the_table_is_sorted_and_counted():
    text = page(ROWS, seed=5)
    first, second, third = text.strip().splitlines()[-3:]
    assert page(ROWS[::-1], seed=5) == text
    assert first == "| A | first (timm) | conserved | 1.00000 |  | 0e+00 | 2e-07 | 1e-07 | 2e-02 |  | " + FAINT + " |"
    assert second.endswith("| 0.500 | mean 0.0100 (most in `x.y`) |")
    assert third.endswith("| no rule for 'x', called in 'y' |")
    assert "--seed 5" in text
    assert "| kept | 1 |" in text
    assert "| wrong | 0 |" in text
    assert f"torch {torch.__version__}" in text
    assert "Over 1 networks the median is 1e-07 for MWP and 2e-02 for c-MWP" in text
    assert all(f"**{cause}**" in text for cause in CAUSES)


def test_rounding_that_moves_maps_is_measured(monkeypatch):
    """Half of the signal turned away from where double precision has it."""
    down = ExcitationPass.down

    def careless(sweep, signal, **options):
        maps = down(sweep, signal, **options)
        return {layer: values.flip(-1) if values.dtype == torch.float32 else values for layer, values in maps.items()}

    net = small_network()
    randomise(net, PICTURE, seed=0)
    signals = [torch.eye(5)[:1]]
    honest = gaps(net, PICTURE, ["0"], signals)["0"]
    monkeypatch.setattr(ExcitationPass, "down", careless)
    found = gaps(net, PICTURE, ["0"], signals)["0"]
    assert honest["mwp"] < 1e-6
    assert found["mwp"] > 0.1
    assert found["moved"] > 0.01
    said = over_the_bound({"rounding": {"lowest": found}})
    assert "turned round" in said[0]
    assert "the point moves" in said[1]


def test_the_command(tmp_path, capsys, monkeypatch):
    """From end to end; what is done is not done again; a wrong answer is an exit code."""
    small = ["--family", "test_resnet", "--out", str(tmp_path)]
    assert command.main([*small, "--markdown", str(tmp_path / "page.md"), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["model"], row["status"]) == ("test_resnet", "conserved")
    assert "| resnet | test_resnet (timm) | conserved | 1.00000 |" in (tmp_path / "page.md").read_text()
    monkeypatch.setattr(conservation, "ExcitationPass", lambda *_: 1 // 0)
    assert command.main(small) == 0
    assert capsys.readouterr().out.startswith("conserved  test_resnet (timm) ")
    assert command.main([*small, "--seed", "1"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert command.main(["--list", "--family", "vgg", "--source", "torchvision"]) == 0
    assert "VGG" in capsys.readouterr().out
    for wrong, said in ((["--family", "zzz"], "--list"), (["--source", "keras"], "torchvision, timm")):
        with pytest.raises(SystemExit):
            command.main(wrong)
        assert said in capsys.readouterr().err
