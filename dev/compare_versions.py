"""Time the maps of two checkouts in one process, interleaved: no network may have become slower.

    python dev/compare_versions.py OTHER_CHECKOUT [--rounds 15] [--seconds 40]
    python dev/compare_versions.py OTHER_CHECKOUT --architectures excite-out/versions.jsonl

The package of the other checkout is copied and renamed to ``excite_before``, so that both can be imported. In each
round both compute the same contrastive map of the same network and image, in turns; printed are the median ratio of
times (this checkout over the other one) with its 95 % interval, and the largest difference of the maps.

With ``--architectures`` the maps themselves are compared, on every architecture of `python dev/conservation` with
random weights: what was explained before must be explained now, with the same map. Resumes from the file.
"""

import argparse
import importlib
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from conservation.networks import architectures, randomise
from skimage import data

import excite
from excite.models.layers import passes_everything, spatial_layers

NAME = "excite_before"
NETWORKS = ("efficientnet-lite0", "resnet50-caffe", "googlenet", "vgg16")


def renamed(checkout: Path, folder: Path) -> Any:
    """The package of another checkout under another name.

    Returns:
        The module.
    """
    package = folder / NAME
    shutil.copytree(checkout / "src" / "excite", package, ignore=shutil.ignore_patterns("__pycache__"))
    parts = "|".join(path.stem for path in (checkout / "src" / "excite").iterdir() if path.stem[0] != "_")
    for path in package.rglob("*.py"):
        text = re.sub(rf"\bexcite\.({parts})\b", rf"{NAME}.\1", path.read_text(encoding="utf-8"))
        path.write_text(re.sub(r"^( *)(from|import) excite\b(?!\.)", rf"\1\2 {NAME}", text, flags=re.MULTILINE))
    sys.path.insert(0, str(folder))
    return importlib.import_module(NAME)


def timed(call: Callable[[], Any]) -> float:
    """The seconds of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def interval(ratios: list[float]) -> tuple[float, float]:
    """A 95 % interval of the median, by resampling."""
    drawn = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


def explained(package: Any, network: torch.nn.Module, image: torch.Tensor, layer: str) -> torch.Tensor | str:
    """Both maps of the class with the largest output, or why there is none."""
    try:
        forward = package.propagation.ExcitationPass(network, image, [layer])
        signal = package.propagation.prior(forward.output, {int(forward.output[0].argmax()): 1.0})
        return torch.stack([forward.down(signal)[layer], forward.down(signal, dual=-1.0)[layer]])
    except (package.errors.ExciteError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"[:200]


def compared(before: Any, architecture: Any) -> dict[str, Any]:
    """One row: whether both checkouts explain an architecture, and how far their maps are apart."""
    torch.manual_seed(0)
    row = {"source": architecture.source, "model": architecture.name}
    try:
        network = architecture.build().eval()
        image = architecture.picture(network, 1)
        randomise(network, image, 0)
        layers = [one.name for one in spatial_layers(network, image)]
    except (excite.errors.ExciteError, RuntimeError) as error:
        return row | {"refused": str(error)[:200]}
    layer = next((name for name in layers if passes_everything(network, image, name)), "input")
    now, then = (explained(package, network, image, layer) for package in (excite, before))
    if isinstance(now, str) or isinstance(then, str):
        return row | {"layer": layer} | {k: v for k, v in (("now", now), ("before", then)) if isinstance(v, str)}
    return row | {"layer": layer, "apart": float((now - then).abs().sum() / then[0].abs().sum().clamp(min=1e-30))}


def compare_architectures(before: Any, out: Path) -> None:
    """All architectures, one line of the file each; then the summary."""
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else []
    done = {(row["source"], row["model"]) for row in rows}
    for architecture in architectures(None, None):
        if (architecture.source, architecture.name) not in done:
            rows.append(compared(before, architecture))
            with out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    lost = [row["model"] for row in rows if "now" in row and "before" not in row]
    gained = [row["model"] for row in rows if "before" in row and "now" not in row]
    apart = [row["apart"] for row in rows if "apart" in row]
    print(f"{len(rows)} architectures: {len(apart)} explained by both, at most {max(apart):.1e} apart")
    print(f"explained before and refused now: {lost}\nrefused before and explained now: {gained}")


def main() -> None:
    """Compare all networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rounds", type=int, default=15, help="at least so many for each network")
    parser.add_argument("--seconds", type=float, default=40, help="and for so long")
    parser.add_argument("--network", action="append", choices=NETWORKS)
    parser.add_argument("--architectures", type=Path, metavar="FILE", help="compare the maps of all architectures")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        before = renamed(asked.checkout, Path(folder))
        if asked.architectures is not None:
            compare_architectures(before, asked.architectures)
            return
        for name in asked.network or NETWORKS:
            weights = {} if name == "efficientnet-lite0" else {"weights": "random"}
            torch.manual_seed(0)
            ours = excite.load(name, **weights)
            theirs = before.load(name, **weights)
            theirs.module.load_state_dict(ours.module.state_dict())
            image = ours.prepared(excite.images.read_image(data.chelsea()))[None]
            calls = [
                partial(package.mwp, one.module, image, 281, layer=one.layer, contrastive=True)
                for package, one in ((excite, ours), (before, theirs))
            ]
            gap = float((calls[0]() - calls[1]()).abs().max())
            ratios: list[float] = []
            began = time.perf_counter()
            while len(ratios) < asked.rounds or time.perf_counter() - began < asked.seconds:
                order = (0, 1) if len(ratios) % 2 else (1, 0)
                seconds = {k: timed(calls[k]) for k in order}
                ratios.append(seconds[0] / seconds[1])
            low, high = interval(ratios)
            print(
                f"{name:20} {median(ratios):.3f} ({low:.3f} to {high:.3f}), {len(ratios)} rounds, maps {gap:.1e} apart"
            )


if __name__ == "__main__":
    main()
