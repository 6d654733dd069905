"""How much of the signal is kept on its way down?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from excite.benchmarks.conservation import passes_everything
from excite.checking.check import Check, Panel, Verdict
from excite.checking.means import mean
from excite.models.layers import spatial_layers
from excite.propagation import ExcitationPass, prior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.checking.check import Measured, Standing
    from excite.checking.seen import Seen

__all__ = ["MASS", "judge_mass", "mass_kept"]

EXACT = 1e-4
MOST_PLACES = 0.9  # with fewer, it is worth a word
ENOUGH = 0.1  # of the signal: less, and nine tenths of the answer are not in the map


def mass_kept(seen: Seen) -> dict[str, Any]:
    """The share of the signal that arrives at each layer through which all of it must pass, from the top down.

    What a unit owes to its bias alone is lost by definition; nothing may be gained, and nothing be negative.
    """
    module, inputs = seen.classifier.module, seen.inputs
    names = [layer.name for layer in spatial_layers(module, inputs)]
    reading = seen.layers["mwp"][0]
    above = names[names.index(reading) :] if reading in names else [reading]
    layers = [name for name in above if passes_everything(module, inputs, name)]
    sweep = ExcitationPass(module, inputs, list(dict.fromkeys([*layers, reading])))
    arrived = sweep.down(prior(sweep.output, dict.fromkeys(seen.finding.units, 1.0)))
    return {
        "reading": reading,
        "layers": {name: float(arrived[name].sum()) for name in reversed(layers)},
        "read": float(arrived[reading].sum()),
        "heard": float(seen.heard.float().mean()),
        "negative": min(float(values.clamp(max=0).sum()) for values in arrived.values()),
        "finite": all(bool(torch.isfinite(values).all()) for values in arrived.values()),
    }


def judge_mass(measured: Sequence[Measured], _method: str) -> Verdict:
    """Nothing gained, nothing negative, and enough of it kept to speak of."""
    layers = [name for name in measured[0]["layers"] if all(name in one["layers"] for one in measured)]
    kept = {layer: [one["layers"][layer] for one in measured] for layer in layers}
    reads = [one["read"] for one in measured]
    most = max([*reads, *(value for values in kept.values() for value in values)])
    broken = (
        most > 1 + EXACT
        or min(one["negative"] for one in measured) < -EXACT
        or not all(one["finite"] for one in measured)
    )
    read = mean(reads)
    where = measured[0]["reading"]
    if broken:
        standing: Standing = "fails"
        said = f"The signal is not conserved: up to {most:.4f} of it arrives. This is a fault, please report it."
    else:
        standing = "holds" if read.value >= ENOUGH else "doubtful"
        said = f"Of the signal {read} arrives at {where}, at least {min(reads):.2f}; the rest ends in biases."
        if standing == "doubtful":
            said += " The map speaks for that share only: read a layer nearer to the output."
        heard = mean([one["heard"] for one in measured]).value
        if heard < MOST_PLACES:
            said += f" Only {heard:.0%} of its places are heard by the layers above, which step over the others."
    rows = [
        {"layer": layer, "mean": f"{float(mean(values).value):.3f}", "least": f"{min(values):.3f}"}
        for layer, values in kept.items()
    ]
    curve = [(float(place), mean(values).value) for place, values in enumerate(kept.values())]
    panel = Panel("Signal kept", "layers that all of it must pass, from the top", "share of the signal", {"mwp": curve})
    return Verdict(standing, (said,), rows, (panel,))


MASS = Check("mass", "How much of the signal is kept on its way down?", mass_kept, judge_mass)
