"""The golden maps: this version answers as the one that wrote them, within tolerances that a real change leaves."""

import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("skimage.data")

import excite
from excite.propagation import plain_kernels, rules
from excite.propagation.fast import convolution, kernels

DEV = Path(__file__).parents[2] / "dev"
RENEW = "\nIf you meant this, renew them: python dev/golden_maps.py --write, and say why in the commit."


@pytest.fixture(scope="module")
def recipe():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DEV)
        import golden_maps

        yield golden_maps


@pytest.fixture(scope="module")
def golden(recipe):
    return recipe.read()


def chosen(golden, made):
    return {name: golden[name] for name in made}


@pytest.fixture(params=["fast", "plain"])
def on_both(request):
    """The golden maps hold for the fast kernels and for the plain ones."""
    with plain_kernels() if request.param == "plain" else nullcontext():
        yield request.param


@pytest.mark.usefixtures("on_both")
def test_every_answer_is_golden(recipe, golden):
    said = recipe.differences(golden, recipe.all_cases())
    assert not said, "\n".join(said) + RENEW


def test_they_cover_every_method_and_are_small(recipe, golden):
    asked = ("efficientnet-lite0 chelsea", "transformer chelsea")
    methods = {name.split()[3] for name in golden if name.startswith(asked)}
    assert methods == set(excite.METHODS)
    assert sum(name.startswith("network") for name in golden) == 2 * len(recipe.NETWORKS)
    assert sum(path.stat().st_size for path in recipe.FOLDER.iterdir() if path.is_file()) < 300_000


def test_rounding_lies_far_within_the_tolerance(recipe, golden):
    """Double precision moves no map of a network by a tenth of what is allowed."""
    exact = dict(recipe.network_cases(torch.float64))
    gaps = [recipe.moved(case["map"], golden[name]["map"]) for name, case in exact.items()]
    assert max(gaps) < recipe.WINNERS / 10


def slightly(part):
    return part.sign() * part.abs() ** 1.01


def slightly_split(old):
    return lambda *given: [(slightly(part), sign) for part, sign in old(*given)]


# A rule changed by 1 %: how much heavier weights win, the normaliser, how children above their baseline are taken.
CHANGED = {
    "weights": [
        (rules, "signed_part", lambda old: lambda *given: slightly(old(*given))),
        (convolution.SignedWeight, "tensor", lambda old: lambda *given: slightly(old(*given))),
    ],
    "normaliser": [(rules.Rule, "reciprocal", lambda old: lambda rule, total, sign: old(rule, total, sign) * 1.01)],
    "children": [
        (rules, "split_by_sign", lambda old: lambda *given: tuple(map(slightly, old(*given)))),
        (kernels, "split", slightly_split),
    ],
}


@pytest.mark.usefixtures("on_both")
@pytest.mark.parametrize("change", CHANGED)
def test_a_rule_that_is_off_by_one_percent_is_noticed(recipe, golden, monkeypatch, change):
    """In each network that has such a rule below its head."""
    for owner, name, made in CHANGED[change]:
        monkeypatch.setattr(owner, name, made(getattr(owner, name)))
    found = dict(recipe.network_cases())
    changed = {said.partition(":")[0] for said in recipe.differences(chosen(golden, found), found)}
    assert len(changed) > len(found) / 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mass": 1.01}, "the mass was 1 and now is 1.01"),
        ({"probability": 0.5006}, "the probability was 0.5 and now is 0.5006"),
        ({"point": [13, 10]}, r"the point was \[10, 10\] and now is \[13, 10\], more than 2 pixels off"),
        ({"point": None}, "and now is None"),
        ({"box": [0, 0, 20, 23]}, "the box was"),
        ({"map": np.eye(3, dtype=np.float32) * 1.001}, "the map moved by 0.001 of itself, more than 0.0001"),
        ({"map": np.eye(4, dtype=np.float32)}, r"the map had the shape \(3, 3\)"),
    ],
)
def test_what_is_said(recipe, change, words):
    case = {"map": np.eye(3, dtype=np.float32), "mass": 1.0, "probability": 0.5}
    case |= {"point": [10, 10], "box": [0, 0, 20, 20]}
    near = case | {"mass": 1.0005, "point": [12, 9], "map": case["map"] * np.float32(1.00005)}
    assert recipe.differences({"a": case}, {"a": near}) == []
    (said,) = recipe.differences({"a": case}, {"a": case | change})
    assert re.search(words, said), said


def test_cases_that_come_and_go_and_empty_maps(recipe):
    case = {"map": np.eye(2)}
    said = ["b: there is no golden map of it", "a: it is not made any more"]
    assert recipe.differences({"a": case}, {"b": case}) == said
    empty = {"a": {"map": np.zeros((2, 2))}}
    assert recipe.differences(empty, {"a": {"map": np.full((2, 2), 1e-8)}}) == []
    assert recipe.differences(empty, {"a": case})


def test_the_recipe_shows_and_writes(recipe, monkeypatch, tmp_path, capsys):
    """It shows what differs before it writes, and refuses to pass in silence."""
    made = dict(recipe.network_cases())
    monkeypatch.setattr(recipe, "all_cases", lambda: made)
    monkeypatch.setattr(recipe, "FOLDER", tmp_path / "golden")
    monkeypatch.setattr("sys.argv", ["golden_maps.py"])
    with pytest.raises(SystemExit, match="--write"):
        recipe.main()
    assert "there is no golden map" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["golden_maps.py", "--write"])
    recipe.main()
    monkeypatch.setattr("sys.argv", ["golden_maps.py"])
    recipe.main()
    assert f"all {len(made)} golden maps are as they were" in capsys.readouterr().out
