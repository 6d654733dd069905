"""The metrics of `excite check` beside those of Quantus: the same numbers on the same small network.

python dev/compare_quantus.py            # compares what is recorded in docs/trust/quantus.json; needs no Quantus
python dev/compare_quantus.py --ask      # asks Quantus and records what it says

Quantus wants another build of OpenCV than excite's tests, so it is no part of them: install it beside, in an
environment of its own, with
pip install --no-deps quantus scikit-learn joblib threadpoolctl cachetools cloudpickle narwhals
"""

import argparse
import copy
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import excite
from excite.experiments.checks.perturbation import learned_layers, relative_distance
from excite.io.files import save_json
from excite.metrics.ranking import rank_correlation
from excite.metrics.removal import steps_between

RECORD = Path(__file__).parents[1] / "docs" / "trust" / "quantus.json"
PICTURES, SIDE, CLASSES, SEED = 4, 16, 5, 42
STEPS = 8
AGREE = 1e-5

Found = dict[str, list[float]]


def network() -> nn.Module:
    """A small classifier with random weights."""
    torch.manual_seed(SEED)
    features = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*features, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, CLASSES)).eval()


def pictures() -> torch.Tensor:
    """Noise will do: the metrics do not care."""
    return torch.rand(PICTURES, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(SEED))


def labels(module: nn.Module) -> list[int]:
    """What the network finds in each image."""
    with torch.no_grad():
        return [int(unit) for unit in module(pictures()).argmax(dim=1)]


def maps(module: nn.Module, inputs: torch.Tensor, units: Sequence[int]) -> torch.Tensor:
    """Winning probabilities at the first layer, [n, h, w]."""
    signal = nn.functional.one_hot(torch.tensor(units), CLASSES).float()
    return excite.mwp(module, inputs, signal, layer="1").sum(dim=1)


def changed(inputs: np.ndarray) -> np.ndarray:
    """The images with a little noise."""
    return inputs + np.random.default_rng(SEED).normal(0.0, 0.05, inputs.shape)


def redrawn(module: nn.Module) -> Iterator[nn.Module]:
    """The network with ever more of its top layers drawn anew: each from the same seed, as Quantus does it."""
    copied = copy.deepcopy(module)
    for name in learned_layers(copied):
        torch.manual_seed(SEED + 1)
        copied.get_submodule(name).reset_parameters()
        yield copied


def ours(others: Sequence[int]) -> Found:
    """What excite measures.

    Args:
        others: for each image another class, as Quantus has drawn them.
    """
    module, inputs = network(), pictures()
    units = labels(module)
    own = maps(module, inputs, units)

    def answer(k: int) -> Any:
        def probability(mixed: torch.Tensor) -> list[float]:
            with torch.no_grad():
                return module(mixed).softmax(dim=1)[:, units[k]].tolist()

        return probability

    def likeness(found: torch.Tensor) -> list[float]:
        return [rank_correlation(own[k], found[k]) for k in range(PICTURES)]

    blank = torch.zeros_like(inputs[0])
    fading = [steps_between(inputs[k], blank, own[k], answer(k), steps=STEPS)[1:] for k in range(PICTURES)]
    noisy = maps(module, torch.from_numpy(changed(inputs.numpy())).float(), units)
    return {
        "rank correlation under randomisation": [
            value for random in redrawn(module) for value in likeness(maps(random, inputs, units))
        ],
        "rank correlation between classes": likeness(maps(module, inputs, others)),
        "deletion curve": [value for curve in fading for value in curve],
        "distance moved by noise": [relative_distance(own[k], noisy[k]) for k in range(PICTURES)],
    }


def theirs() -> tuple[Found, list[int], str]:
    """What Quantus measures, the other classes that it has drawn, and its version."""
    from excite.models.sources import torchvision_models

    torchvision_models()  # declares the operators without which torchvision, and with it Quantus, cannot be imported
    import quantus
    from quantus.functions.similarity_func import correlation_spearman

    module, inputs = network(), pictures()
    units = np.array(labels(module))
    own = maps(module, inputs, units.tolist()).numpy()[:, None]
    drawn: list[int] = []

    def explain(model: nn.Module, inputs: np.ndarray, targets: np.ndarray, **_more: Any) -> np.ndarray:
        drawn[:] = [int(target) for target in targets]
        return maps(model, torch.as_tensor(inputs).float(), drawn).numpy()[:, None]

    plain = {"abs": False, "normalise": False, "disable_warnings": True}
    asked = {"model": module, "x_batch": inputs.numpy(), "y_batch": units, "a_batch": own, "explain_func": explain}
    flipping = quantus.PixelFlipping(
        features_in_step=SIDE * SIDE // STEPS,
        perturb_func=quantus.perturb_func.batch_baseline_replacement_by_indices,
        perturb_baseline=0.0,
        **plain,
    )(**asked, softmax=True)
    randomised = quantus.MPRT(similarity_func=correlation_spearman, layer_order="top_down", seed=SEED, **plain)(**asked)
    moved = quantus.MaxSensitivity(
        nr_samples=1, perturb_func=lambda arr, **_more: changed(arr.reshape(inputs.shape)).reshape(arr.shape), **plain
    )(**asked)
    classes = quantus.RandomLogit(similarity_func=correlation_spearman, num_classes=CLASSES, seed=SEED, **plain)(
        **asked
    )
    found = {
        "rank correlation under randomisation": [
            float(value) for layer, values in randomised.items() if layer != "original" for value in values
        ],
        "rank correlation between classes": [float(value) for value in classes],
        "deletion curve": [float(value) for curve in flipping for value in curve],
        "distance moved by noise": [float(value) for value in moved],
    }
    return found, list(drawn), quantus.__version__


def gaps(found: Found, expected: Found) -> dict[str, float]:
    """How far apart the numbers are at most, for each metric."""
    return {name: float(np.abs(np.array(found[name]) - np.array(expected[name])).max()) for name in expected}


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, or ask and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ask", action="store_true", help="ask Quantus, which must be installed")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args(arguments)
    if options.ask:
        expected, others, version = theirs()
        record = {"made by": "python dev/compare_quantus.py --ask", "quantus": version, "others": others}
        save_json({**record, "found": expected}, options.record)
    record = json.loads(options.record.read_text(encoding="utf-8"))
    apart = gaps(ours(record["others"]), record["found"])
    for name, gap in apart.items():
        print(f"{name}: {len(record['found'][name])} numbers, at most {gap:.1g} apart")
    if max(apart.values()) > AGREE:
        sys.exit(f"excite and Quantus {record['quantus']} differ by more than {AGREE}")


if __name__ == "__main__":
    main()
