"""Time the maps of two checkouts in one process, interleaved: no network may have become slower.

    python dev/compare_versions.py OTHER_CHECKOUT [--rounds 15] [--seconds 40]

The package of the other checkout is copied and renamed to ``excite_before``, so that both can be imported. In each
round both compute the same contrastive map of the same network and image, in turns; printed are the median ratio of
times (this checkout over the other one) with its 95 % interval, and the largest difference of the maps.
"""

import argparse
import importlib
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
from skimage import data

import excite

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


def main() -> None:
    """Compare all networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rounds", type=int, default=15, help="at least so many for each network")
    parser.add_argument("--seconds", type=float, default=40, help="and for so long")
    parser.add_argument("--network", action="append", choices=NETWORKS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        before = renamed(asked.checkout, Path(folder))
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
