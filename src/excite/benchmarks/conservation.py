"""Is the top-down signal conserved? Every architecture, with random weights under which nothing can hide.

A signal of 1 at an output unit must arrive as 1 at a layer that all of it must pass, with no negative part, while the
network answers exactly what it answers without us. What is lost on the way needs an explanation.
"""

from __future__ import annotations

import gc
import hashlib
import math
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from excite import propagation
from excite.benchmarks.leaving import state_of
from excite.benchmarks.losses import explain
from excite.benchmarks.randomising import fold_norms, randomise
from excite.benchmarks.rounding import gaps
from excite.errors import ExciteError, LayerError
from excite.models.layers import default_layer, spatial_layers
from excite.propagation import ExcitationPass
from excite.propagation.taps import main_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.benchmarks.architectures import Architecture

__all__ = ["FIELDS", "STATUSES", "Conservation", "passes_everything", "status", "versions"]

STATUSES = ("conserved", "kept", "lost", "refused", "wrong")
CONSERVED = 1e-4
KEPT = 0.9
SAME_MAP = 0.01  # of two maps of mass 1: by rounding, a unit whose response is nearly 0 may turn round
FIELDS = ("source", "family", "model", "status")

OWN_FILES = ("architectures", "conservation", "leaving", "losses", "randomising", "rounding")

Row = dict[str, Any]


class Conservation:
    """The work of the benchmark: one architecture, one row of plain values.

    Example:
        >>> import warnings
        >>> from excite.benchmarks.architectures import Architecture
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     row = Conservation()(Architecture("torchvision", "SqueezeNet", "squeezenet1_1"))
        >>> row["status"], row["lowest"]["layer"]
        ('conserved', 'features.0')
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.basis = _basis()

    def key(self, task: Architecture) -> str:
        """Changes with the seed, the packages and the engine itself."""
        return f"{task.source}/{task.name} {self.seed} {self.basis}"

    def __call__(self, task: Architecture) -> Row:
        """Build the network, draw its weights, send signals down and compare."""
        begin = time.monotonic()
        row: Row = {"source": task.source, "family": task.family, "model": task.name}
        torch.manual_seed(self.seed)
        network = task.build()
        picture = task.picture(network, self.seed + 1)
        row |= {"parameters": sum(weight.numel() for weight in network.parameters()), "size": picture.shape[-1]}
        try:
            _measure(row, network, picture, self.seed)
        except ExciteError as error:
            row["reason"] = str(error)
        except Exception as error:  # noqa: BLE001 - a crash is a finding: it is written down, and the row is wrong
            row["crash"] = f"{type(error).__name__}: {error}".splitlines()[0]
        row["status"] = status(row)
        row["seconds"] = round(time.monotonic() - begin, 2)
        gc.collect()  # graphs and networks refer to themselves, and the next one wants their memory
        return row


def status(row: Row) -> str:
    """What a row says: one of `STATUSES`."""
    readings = [row[place] for place in ("lowest", "default") if place in row]
    if _faults(row, readings):
        return "wrong"
    if "reason" in row:
        return "refused"
    masses = [mass for reading in readings if reading["whole"] for mass in (*reading["mass"], *reading["dual"])]
    worst = min(masses)
    return "conserved" if worst >= 1 - CONSERVED else "kept" if worst >= KEPT else "lost"


def _faults(row: Row, readings: Sequence[Row]) -> list[str]:
    """What must never happen."""
    masses = [mass for reading in readings for mass in (*reading["mass"], *reading["dual"])]
    faults = {
        "crash": "crash" in row,
        "nothing measured": not readings and "reason" not in row,
        "other values": row.get("difference", 0.0) != 0,
        "negative": any(reading["negative"] < 0 for reading in readings),
        "no number": not all(map(math.isfinite, masses)),
        "too much": any(mass > 1 + CONSERVED for mass in masses),
        "changed": not row.get("as_found", True),
        "turned": (row.get("turned") or 0.0) > SAME_MAP,
    }
    return [name for name, there in faults.items() if there]


def _measure(row: Row, network: nn.Module, picture: Tensor, seed: int) -> None:
    """Fill the row; what was found until something is refused stays there."""
    randomise(network, picture, seed)
    places = _places(network, picture)
    if places:
        row |= _read(network, picture, places)
    if "lowest" not in row:
        row.setdefault("reason", "all of the signal passes no layer that is a map: read a layer inside by its name")
        return
    places = {place: row[place]["layer"] for place in ("lowest", "default") if place in row}
    layer = places["lowest"]
    signals = _signals(main_output(network(picture)).detach())
    if status(row) in {"kept", "lost"}:
        worst = min(range(len(signals)), key=lambda cue: row["lowest"]["mass"][cue])
        row["lost"] = explain(network, picture, layer, signals[worst])
    row["rounding"] = _rounding(network, picture, places, signals)
    row["turned"] = _turned(network, picture, layer, signals[0])
    randomise(network, picture, seed, biases=True)
    row["biased"] = float(ExcitationPass(network, picture, [layer]).down(signals[0])[layer].sum())


def _places(network: nn.Module, picture: Tensor) -> dict[str, str]:
    """The lowest map that all of the signal must pass, the strictest place of all; and where maps are read unasked."""
    places = {}
    for layer in spatial_layers(network, picture):
        if passes_everything(network, picture, layer.name):
            places["lowest"] = layer.name
            break
    try:
        places["default"] = default_layer(network, picture)
    except LayerError:  # no places below the classifier's weights
        return places
    return places


def passes_everything(network: nn.Module, inputs: Tensor, layer: str) -> bool:
    """Whether everything that the output knows of the inputs has come through that layer.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())
        >>> passes_everything(network, torch.rand(1, 1, 4, 4), "0")
        True
    """
    asked = [parameter for parameter in network.parameters() if parameter.requires_grad]
    hook = network.get_submodule(layer).register_forward_hook(lambda _module, _arguments, answer: answer.detach())
    try:
        network.requires_grad_(False)
        with torch.enable_grad():
            return not main_output(network(inputs.clone().requires_grad_())).requires_grad
    finally:
        hook.remove()
        for parameter in asked:
            parameter.requires_grad_()


def _read(network: nn.Module, picture: Tensor, places: dict[str, str]) -> Row:
    """The readings at those places; where one cannot be reached, the reason and what can be read alone."""
    try:
        return _readings(network, picture, places)
    except ExciteError as error:
        row: Row = {"reason": str(error)}
    if len(set(places.values())) > 1:
        for place, layer in places.items():
            try:
                row |= _readings(network, picture, {place: layer})
            except ExciteError as error:
                row["reason"] = str(error)
    return row


def _readings(network: nn.Module, picture: Tensor, places: dict[str, str]) -> Row:
    expected = main_output(network(picture)).detach()
    signals = _signals(expected)
    before = state_of(network)
    sweep = ExcitationPass(network, picture, list(dict.fromkeys(places.values())))
    units = [sweep.down(signal) for signal in signals]
    duals = [sweep.down(signal, unit=0.0, dual=1.0) for signal in signals]
    row: Row = {
        "difference": float((sweep.output - expected).abs().max()),
        "as_found": state_of(network) == before,
    }
    for place, layer in places.items():
        row[place] = {
            "layer": layer,
            "whole": passes_everything(network, picture, layer),
            "mass": [float(maps[layer].sum()) for maps in units],
            "dual": [float(maps[layer].sum()) for maps in duals],
            "negative": min(float(maps[layer].clamp(max=0).sum()) for maps in (*units, *duals)),
        }
    return row


def _rounding(network: nn.Module, picture: Tensor, places: dict[str, str], signals: Sequence[Tensor]) -> Row:
    """How far the maps at those places are from the same network's in double precision, where it runs in that."""
    try:
        found = gaps(network, picture, list(dict.fromkeys(places.values())), signals)
    except RuntimeError as error:  # torch's, for code that makes tensors of one type whatever it is given
        return {"reason": str(error).splitlines()[0]}
    return {place: found[layer] for place, layer in places.items()}


def _turned(network: nn.Module, picture: Tensor, layer: str, signal: Tensor) -> float | None:
    """How far the map moves when convolutions do the scaling of their norms: not at all, if signs are read rightly."""
    sweep = ExcitationPass(network, picture, [layer])
    output, expected = sweep.output, sweep.down(signal)[layer]  # now: its rules refer to the weights that are changed
    if not fold_norms(network, picture):
        return None
    sweep = ExcitationPass(network, picture, [layer])
    if not torch.allclose(sweep.output, output, rtol=0.0, atol=1e-3 * float(output.abs().max())):
        return None  # not the same function: that convolution's own values are used elsewhere too
    return float((sweep.down(signal)[layer] - expected).abs().sum())


def _signals(output: Tensor) -> list[Tensor]:
    """One signal for the class that the network is surest of, and one for the class it denies most."""
    cues = [int(output.argmax())] if output.max() > 0 else []
    cues += [int(output.argmin())] if output.min() < 0 else []
    if not cues or not bool(torch.isfinite(output).all()):
        raise ValueError("with these weights the network has no finite answer other than 0")
    signals = []
    for cue in cues:
        signal = torch.zeros(output.numel())
        signal[cue] = 1.0
        signals.append(signal.view_as(output))
    return signals


def versions() -> dict[str, str]:
    """The packages that a result depends on."""
    packages = ("torch", "torchvision", "timm")
    return {package: version(package) for package in packages if find_spec(package) is not None}


def _basis() -> str:
    """A digest of the packages and of the code that a row depends on."""
    own = Path(__file__).parent
    code = [*Path(propagation.__file__).parent.rglob("*.py"), *(own / f"{name}.py" for name in OWN_FILES)]
    content = repr(versions()).encode() + b"".join(path.read_bytes() for path in sorted(code))
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()[:12]
