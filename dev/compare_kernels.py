"""Compare the maps of the plain and the fast kernels on every architecture of `python dev/conservation`.

    python dev/compare_kernels.py --out kernels.jsonl [--source timm] [--family resnet]

For each architecture, with random weights and norms of both signs, at the lowest layer that all of the signal passes:
the L1 distance of the maps of both kernels over what was propagated (the mass of the plain map, twice that for a
contrastive map), in float32 and float64. Resumes from the file.
"""

import argparse
import copy
import gc
import json
from pathlib import Path
from typing import Any

import torch
from conservation.networks import architectures, randomise
from torch import Tensor, nn

from excite.errors import ExciteError
from excite.models.layers import passes_everything, spatial_layers
from excite.propagation import ExcitationPass, plain_kernels, prior

BOUNDS = {"float32": 1e-6, "float64": 1e-12}


def maps(network: nn.Module, image: Tensor, layer: str) -> tuple[Tensor, Tensor]:
    """MWP and c-MWP of the class with the largest output."""
    forward = ExcitationPass(network, image, [layer])
    signal = prior(forward.output, {int(forward.output[0].argmax()): 1.0})
    return forward.down(signal)[layer], forward.down(signal, dual=-1.0)[layer]


def distances(network: nn.Module, image: Tensor, layer: str) -> dict[str, float]:
    """The larger of both distances, in each precision."""
    found = {}
    for name, dtype in (("float32", torch.float32), ("float64", torch.float64)):
        net, x = copy.deepcopy(network).to(dtype), image.to(dtype)
        fast = maps(net, x, layer)
        with plain_kernels():
            plain = maps(net, x, layer)
        mass = float(plain[0].abs().sum())
        found[name] = max(
            float((one - other).abs().sum()) / (factor * mass)
            for one, other, factor in zip(fast, plain, (1, 2), strict=True)
        )
    return found


def compare(architecture: Any) -> dict[str, Any]:
    """One row."""
    row = {"source": architecture.source, "model": architecture.name}
    torch.manual_seed(0)
    try:
        network = architecture.build()
        image = architecture.picture(network, 1)
        randomise(network, image, 0)
        layers = (one.name for one in spatial_layers(network, image))
        layer = next((name for name in layers if passes_everything(network, image, name)), None)
        if layer is None:
            return row | {"refused": "no layer is a map that all of the signal passes"}
        return row | {"layer": layer} | distances(network, image, layer)
    except (ExciteError, RuntimeError) as error:
        return row | {"refused": str(error).splitlines()[0][:200]}


def main() -> None:
    """Compare all, then print the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("excite-out/kernels.jsonl"))
    parser.add_argument("--source")
    parser.add_argument("--family")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.is_file() else []
    done = {(row["source"], row["model"]) for row in rows}
    for architecture in architectures(asked.source, asked.family):
        if (architecture.source, architecture.name) in done:
            continue
        rows.append(compare(architecture))
        with asked.out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        gc.collect()
    compared = [row for row in rows if "float64" in row]
    print(f"{len(compared)} of {len(rows)} architectures compared, {len(rows) - len(compared)} refused")
    for name, bound in BOUNDS.items():
        worst = max(compared, key=lambda row: row[name])
        over = [f"{row['model']} {row[name]:.1e}" for row in compared if row[name] > bound]
        print(f"{name}: worst {worst[name]:.1e} ({worst['model']}); {len(over)} above {bound:g}: {', '.join(over)}")


if __name__ == "__main__":
    main()
