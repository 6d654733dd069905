"""The golden maps: what this version answers, for later versions to be held against.

python dev/golden_maps.py           shows how the answers of this code differ from the golden ones
python dev/golden_maps.py --write   shows it, and then writes the new ones to tests/golden
python dev/golden_maps.py --exact   how far they are from the same in double precision: what tolerances must cover

The embedded classifiers look at photographs of scikit-image, by every method, at several layers; and small networks
with random weights go through every family of rules. A map is kept at no more than 28 x 28 places.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from golden_networks import NETWORKS, PICTURE, transformer
from skimage import data
from torch.nn import functional

import excite
from excite.io.files import atomic_write, save_text
from excite.models import Preprocess
from excite.propagation import ExcitationPass, prior

FOLDER = Path(__file__).parents[1] / "tests" / "golden"
PLACES = 28

# How far a later answer may be from a golden one. Rounding moves maps by less than a tenth of this (--exact), other
# processors and numbers of threads by no more than rounding does; a rule that is wrong by 1 % moves them by more.
WINNERS = 1e-4  # L1 distance, of the golden map's L1 norm
GRADIENTS = 2e-3  # the same for gradients, which jump where a response lies at the bend of an activation
EMPTY = 1e-6  # L1 norm of a map that is empty by definition
SHARE = 1e-3  # of mass and probability, relative
PIXELS = 2  # of points and of the sides of boxes

BY_GRADIENTS = [name for name, method in excite.METHODS.items() if method.forward == "gradients"]
OF_ATTENTION = [name for name, method in excite.METHODS.items() if method.place == "attention"]
OF_ANY = [name for name in excite.METHODS if name not in OF_ATTENTION]
TRANSFORMER = "transformer"  # the small one with random weights
LAYERS = ["stem", "blocks.4", "blocks.10", "blocks.14"]
QUESTIONS: list[tuple[str, str, list[str], list[str], list[str] | None]] = [
    ("efficientnet-lite0", "chelsea", ["tabby"], OF_ANY, None),
    (TRANSFORMER, "chelsea", ["1"], ["mwp", "c-mwp", "c-mwp-channels", "attn-lrp", *OF_ATTENTION], None),
    ("efficientnet-lite0", "coffee", ["espresso", "cup"], ["mwp", "c-mwp"], LAYERS),
    ("efficientnet-lite0", "rocket", ["missile"], ["excite", "extent", "c-mwp"], None),
    ("everyday", "astronaut", ["person"], ["mwp", "c-mwp", "extent"], None),
    ("everyday", "chelsea", ["cat"], ["excite", "c-mwp"], None),
]

Case = dict[str, Any]
Loader = Callable[[str], excite.Classifier]


def load_any(name: str) -> excite.Classifier:
    """An embedded classifier, or the small transformer."""
    if name == TRANSFORMER:
        return excite.wrap(transformer(), preprocess=Preprocess(224, square=True), verify=False)
    return excite.load(name)


def cases(load: Loader = load_any, questions: list[Any] = QUESTIONS) -> Iterator[tuple[str, Case]]:
    """Every question with this code's answer: the map and what is read off it."""
    loaded: dict[str, excite.Classifier] = {}
    for model, photograph, concepts, methods, layers in questions:
        if model not in loaded:
            loaded[model] = load(model)
        classifier = loaded[model]
        picture = getattr(data, photograph)()
        for method in methods:
            for found in excite.attend(classifier, picture, concepts, layer=layers, method=method):
                yield f"{model} {photograph} {found.concept} {method} {found.layer}", _answer(found)


def _answer(found: excite.AttentionMap) -> Case:
    values = found.values.double()
    small = functional.adaptive_avg_pool2d(values[None], [min(side, PLACES) for side in values.shape])[0]
    return {
        "map": small.numpy().astype(np.float32),
        "mass": found.mass,
        "probability": found.probability,
        "point": found.point(),
        "box": found.box(alpha=1.0),  # of the map itself
    }


def network_cases(dtype: torch.dtype = torch.float32) -> Iterator[tuple[str, Case]]:
    """The same for the networks with random weights: what arrives at each place of the first layer."""
    for name, make in NETWORKS.items():
        sweep = ExcitationPass(make().to(dtype), PICTURE.to(dtype), ["first"])
        signal = prior(sweep.output, {1: 1.0})
        for method, dual in (("mwp", 0.0), ("c-mwp", -1.0)):
            arrived = sweep.down(signal, dual=dual)["first"][0].double().sum(dim=0)
            yield f"network {name} {method}", {"map": arrived.numpy().astype(np.float32), "mass": float(arrived.sum())}


def all_cases() -> dict[str, Case]:
    """All answers by name."""
    return dict([*cases(), *network_cases()])


def read() -> dict[str, Case]:
    """The golden answers."""
    facts: dict[str, Case] = json.loads((FOLDER / "facts.json").read_text(encoding="utf-8"))
    with np.load(FOLDER / "maps.npz") as maps:
        return {name: {**fact, "map": maps[name]} for name, fact in facts.items()}


def write(made: dict[str, Case]) -> None:
    """Make these the golden answers."""
    FOLDER.mkdir(exist_ok=True)
    facts = {name: {key: value for key, value in case.items() if key != "map"} for name, case in made.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(fact)}" for name, fact in facts.items())
    save_text("{\n" + lines + "\n}\n", FOLDER / "facts.json")
    maps = {name: case["map"] for name, case in made.items()}
    atomic_write(FOLDER / "maps.npz", lambda file: np.savez_compressed(file, **maps))


def differences(golden: dict[str, Case], made: dict[str, Case]) -> list[str]:
    """In words, what changed by more than the tolerances."""
    said = [f"{name}: there is no golden map of it" for name in made if name not in golden]
    said += [f"{name}: it is not made any more" for name in golden if name not in made]
    for name, case in made.items():
        if name in golden:
            said += [f"{name}: {each}" for each in _changes(golden[name], case, _tolerance(name))]
    return said


def _tolerance(name: str) -> float:
    return GRADIENTS if any(name.find(f" {method} ") > 0 for method in BY_GRADIENTS) else WINNERS


def _changes(old: Case, new: Case, tolerance: float) -> Iterator[str]:
    if old["map"].shape != new["map"].shape:
        yield f"the map had the shape {old['map'].shape} and now has {new['map'].shape}"
        return
    distance = moved(old["map"], new["map"])
    if distance > tolerance:
        yield f"the map moved by {distance:.2g} of itself, more than {tolerance:g}"
    cancelling = float(np.abs(old["map"].astype(np.float64)).sum())  # of a signed map only rounding may be left as mass
    for key, scale in (("mass", cancelling), ("probability", 0.0)):
        if old.get(key) is not None and abs(new[key] - old[key]) > SHARE * max(abs(old[key]), scale, EMPTY):
            yield f"the {key} was {old[key]:.6g} and now is {new[key]:.6g}, more than {SHARE:g} off"
    for key in ("point", "box"):
        one, two = old.get(key), new.get(key)
        if (one is None) != (two is None) or (one and max(abs(a - b) for a, b in zip(one, two, strict=True)) > PIXELS):
            yield f"the {key} was {one} and now is {two}, more than {PIXELS} pixels off"


def moved(old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> float:
    """The L1 distance over the old map's L1 norm; 0 where both are empty."""
    norm = float(np.abs(old.astype(np.float64)).sum())
    distance = float(np.abs(old.astype(np.float64) - new).sum())
    return 0.0 if max(norm, distance) < EMPTY else distance / max(norm, EMPTY)


def in_double(model: str) -> excite.Classifier:
    """A classifier that computes in double precision, on the same float32 images."""
    classifier = load_any(model)
    classifier.module.double().register_forward_pre_hook(lambda _module, given: (given[0].double(),))
    return classifier


def exact_gaps() -> dict[str, float]:
    """How far each map is from itself in double precision."""
    rough, exact = all_cases(), dict([*cases(in_double), *network_cases(torch.float64)])
    return {name: moved(exact[name]["map"], case["map"]) for name, case in rough.items()}


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--exact", action="store_true")
    asked = parser.parse_args()
    if asked.exact:
        for name, gap in sorted(exact_gaps().items(), key=lambda each: -each[1]):
            print(f"{gap:.1e}  {name}")
        return
    made = all_cases()
    golden = read() if (FOLDER / "facts.json").exists() else {}
    said = differences(golden, made)
    print("\n".join(said) or f"all {len(made)} golden maps are as they were")
    if asked.write:
        write(made)
        print(f"written to {FOLDER}: commit both files, with the reason for each change above")
    elif said:
        sys.exit("if you meant this, run it again with --write; if not, mend the code")


if __name__ == "__main__":
    main()
