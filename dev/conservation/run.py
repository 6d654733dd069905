"""Conservation of the top-down signal on every architecture, with random weights.

A signal of 1 at an output unit must arrive as 1 at a layer that all of it must pass, with no negative part, while the
output of the network is unchanged. Lost signal needs an explanation: `CAUSES`.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import math
import time
import zlib
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd import _get_sequence_nr as _nodes_made  # type: ignore[attr-defined]  # it has no public name

from conservation.networks import fold_norms, randomise
from excite import propagation
from excite.errors import ExciteError, LayerError
from excite.models.layers import default_layer, passes_everything, spatial_layers
from excite.propagation import ExcitationPass
from excite.propagation.graph import rule_of
from excite.propagation.rules import Affine, Tap
from excite.propagation.taps import main_output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from conservation.networks import Architecture


Span = tuple[int, int, str]
TableRow = dict[str, Any]

UNSEEN = 1e-3  # of the signal: rounding, and many losses too small to list
SENT = {"mwp": (1.0, 0.0), "c-mwp": (1.0, -1.0)}  # the signal at the queried unit and at its dual
STATUSES = ("conserved", "kept", "lost", "refused", "wrong")
CONSERVED = 1e-4
KEPT = 0.9
SAME_MAP = 0.01  # of two maps of mass 1: by rounding, the sign of a unit of nearly 0 may change
FIELDS = ("source", "family", "model", "status")
OWN_FILES = ("run", "networks")

CAUSES = {
    "mean": "a layer or group norm takes the mean of its own input off. A unit that all its children pushed up, but "
    "less than others were, then responds below 0, and no child pushed it down.",
    "absence": "a norm behind an activation function moves units at rest away from 0, and the layer above takes that "
    "for evidence. Nothing below excited them.",
    "padding": "the zeros around a map won a pooling: nothing in the image was larger.",
    "no child": "a unit responded although no child pushed it that way.",
    "constant": "it went to a constant of the network (a class token, a table of positions), which has no place in the "
    "picture.",
}


@dataclass(frozen=True)
class Loss:
    """The share of the signal that one operation loses, its rule, and the module in which it runs."""

    share: float
    rule: str
    module: str
    kind: str


def losses(module: nn.Module, inputs: Tensor, layer: str, signal: Tensor, least: float = 1e-6) -> list[Loss]:
    """The operations between the output and ``layer`` that lose more than ``least`` of the signal, the worst first."""
    spans: list[Span] = []
    hooks = list(_timed(module, spans))
    try:
        sweep = ExcitationPass(module, inputs, [layer])
    finally:
        for hook in hooks:
            hook.remove()
    found: list[Loss] = []

    def compare(node: Any, above: Sequence[Tensor | None], below: Sequence[Tensor | None]) -> None:
        rule = rule_of(node)
        if not isinstance(rule, Tap):  # a tap hands on and records
            name = _module_of(node, spans)
            kind = "Affine" if isinstance(rule, Affine) else type(rule or node).__name__
            found.append(Loss(_sum(above) - _sum(below), kind, name, type(module.get_submodule(name)).__name__))

    sweep.propagate(sweep.start(), signal[None], observer=compare)
    return sorted((loss for loss in found if loss.share > least), key=lambda loss: -loss.share)


def _timed(module: nn.Module, spans: list[Span]) -> Iterator[Any]:
    """Hooks that record which of autograd's nodes are made while each module runs."""
    starts: list[int] = []

    def begin(_child: nn.Module, _arguments: Any) -> None:
        starts.append(_nodes_made())

    def end(name: str) -> Any:
        return lambda _child, _arguments, _answer: spans.append((starts.pop(), _nodes_made(), name))

    for name, child in module.named_modules():
        yield child.register_forward_pre_hook(begin)
        yield child.register_forward_hook(end(name))


def _module_of(node: Any, spans: Sequence[Span]) -> str:
    """The innermost module in which a node was made."""
    made = node._sequence_nr()  # noqa: SLF001 - torch's only word on the order of nodes
    around = [(end - begin, name) for begin, end, name in spans if begin <= made < end]
    return min(around)[1]


def _sum(probabilities: Sequence[Tensor | None]) -> float:
    return sum(float(probability.double().sum()) for probability in probabilities if probability is not None)


def explain(module: nn.Module, inputs: Tensor, layer: str, signal: Tensor) -> dict[str, tuple[float, str]]:
    """For each cause (of `CAUSES`) the share of the signal lost between the output and ``layer``, and the main module.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).eval()
        >>> net[2].weight.data = torch.tensor([[-1.0, -1.0], [1.0, 1.0]])  # no child excites the first unit
        >>> net[0].weight.data = torch.ones(2, 2)
        >>> explain(net, torch.ones(1, 2), "1", torch.tensor([[1.0, 0.0]]))
        {'no child': (1.0, '2')}
    """
    found = losses(module, inputs, layer, signal)
    means = any(isinstance(child, nn.LayerNorm | nn.GroupNorm) for child in module.modules())
    causes: dict[str, tuple[float, str]] = {}
    for loss in found:
        cause = _cause(loss, means=means)
        share, place = causes.get(cause, (0.0, loss.module))
        causes[cause] = share + loss.share, place
    arrived = float(ExcitationPass(module, inputs, [layer]).down(signal)[layer].double().sum())
    rest = float(signal.sum()) - arrived - sum(loss.share for loss in found)
    if rest > UNSEEN:
        causes["constant"] = rest, ""
    return dict(sorted(causes.items(), key=lambda cause: -cause[1][0]))


def _cause(loss: Loss, *, means: bool) -> str:
    """The cause of a loss; ``means``: the network has norms that subtract a mean."""
    if loss.rule in {"Sum", "Affine"}:
        return "mean" if means else "no child"
    return "padding" if loss.rule.startswith("ConstantPad") else "absence"


def state_of(network: nn.Module) -> list[Any]:
    """The state that an explanation could change: weights, flags, hooks, attributes."""
    tensors = [
        (name, zlib.crc32(tensor.detach().contiguous().numpy().data), tensor.requires_grad)
        for name, tensor in network.state_dict(keep_vars=True).items()
    ]
    modules = [
        (child.training, len(child._forward_hooks), len(child._forward_pre_hooks), sorted(vars(child)))  # noqa: SLF001 - torch lists hooks nowhere else
        for child in network.modules()
    ]
    return [*tensors, *modules]


def gaps(network: nn.Module, picture: Tensor, layers: Sequence[str], signals: Sequence[Tensor]) -> dict[str, TableRow]:
    """The rounding errors of MWP and c-MWP at each layer, the worst of all signals.

    Returns:
        for each layer ``mwp`` and ``c-mwp``, the L1 distance to double precision over the L1 norm of the exact map;
        ``contrast``, that norm for c-MWP: the share of the signal left after common winners have cancelled; and
        ``moved``, the relative drop of the exact map at the maximum of the rounded one.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.Flatten(), torch.nn.Linear(8, 2)).eval()
        >>> gap = gaps(net, torch.rand(1, 1, 2, 2), ["0"], [torch.tensor([[1.0, 0.0]])])["0"]
        >>> gap["mwp"] < 1e-4
        True
    """
    rough = ExcitationPass(network, picture, layers)
    exact = ExcitationPass(copy.deepcopy(network).double(), picture.double(), layers)
    found: dict[str, TableRow] = {layer: {"layer": layer, "moved": 0.0} for layer in layers}
    for name, (unit, dual) in SENT.items():
        for signal in signals:
            here = rough.down(signal, unit=unit, dual=dual)
            there = exact.down(signal.double(), unit=unit, dual=dual)
            for layer, row in found.items():
                row[name] = max(row.get(name, 0.0), _distance(here[layer], there[layer]))
                row["moved"] = max(row["moved"], _moved(here[layer], there[layer]))
                if dual:
                    size = float(there[layer].abs().sum())
                    row["contrast"] = min(row.get("contrast", size), size)
    return found


def _distance(rough: Tensor, exact: Tensor) -> float:
    """The L1 distance over the exact map's L1 norm, or over 1 for an empty map."""
    norm = float(exact.abs().sum())
    return float((rough.double() - exact).abs().sum()) / (norm or 1.0)


def _moved(rough: Tensor, exact: Tensor) -> float:
    """The relative drop of the exact map from its maximum to the position of the rough map's maximum."""
    planes = [values.double().sum(dim=1).flatten() for values in (rough, exact)]
    most = float(planes[1].max())
    return 1 - float(planes[1][planes[0].argmax()]) / most if most > 0 else 0.0


class Conservation:
    """Computes the row of one architecture, as plain values."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.basis = _basis()

    def key(self, task: Architecture) -> str:
        """The architecture, the seed, the packages and the code."""
        return f"{task.source}/{task.name} {self.seed} {self.basis}"

    def __call__(self, task: Architecture) -> TableRow:
        """Build the network, draw its weights, run the top-down passes and compare."""
        begin = time.monotonic()
        row: TableRow = {"source": task.source, "family": task.family, "model": task.name}
        torch.manual_seed(self.seed)
        network = task.build()
        picture = task.picture(network, self.seed + 1)
        row |= {"parameters": sum(weight.numel() for weight in network.parameters()), "size": picture.shape[-1]}
        try:
            _measure(row, network, picture, self.seed)
        except ExciteError as error:
            row["reason"] = str(error)
        except Exception as error:  # noqa: BLE001 - a crash is recorded, and the row is wrong
            row["crash"] = f"{type(error).__name__}: {error}".splitlines()[0]
        row["status"] = status(row)
        row["seconds"] = round(time.monotonic() - begin, 2)
        gc.collect()  # graphs and networks are reference cycles
        return row


def status(row: TableRow) -> str:
    """The status of a row: one of `STATUSES`."""
    readings = [row[role] for role in ("lowest", "default") if role in row]
    if _faults(row, readings):
        return "wrong"
    if "reason" in row:
        return "refused"
    masses = [mass for reading in readings if reading["whole"] for mass in (*reading["mass"], *reading["dual"])]
    worst = min(masses)
    return "conserved" if worst >= 1 - CONSERVED else "kept" if worst >= KEPT else "lost"


def _faults(row: TableRow, readings: Sequence[TableRow]) -> list[str]:
    """The faults of a row, which must never happen."""
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


def _measure(row: TableRow, network: nn.Module, picture: Tensor, seed: int) -> None:
    """Fill the row, up to the first refusal."""
    randomise(network, picture, seed)
    layers = _layers(network, picture)
    if layers:
        row |= _read(network, picture, layers)
    if "lowest" not in row:
        row.setdefault("reason", "all of the signal passes no layer that is a map: read a layer inside by its name")
        return
    layers = {role: row[role]["layer"] for role in ("lowest", "default") if role in row}
    layer = layers["lowest"]
    signals = _signals(main_output(network(picture)).detach())
    if status(row) in {"kept", "lost"}:
        worst = min(range(len(signals)), key=lambda k: row["lowest"]["mass"][k])
        row["lost"] = explain(network, picture, layer, signals[worst])
    row["rounding"] = _rounding(network, picture, layers, signals)
    row["turned"] = _turned(network, picture, layer, signals[0])
    randomise(network, picture, seed, biases=True)
    row["biased"] = float(ExcitationPass(network, picture, [layer]).down(signals[0])[layer].sum())


def _layers(network: nn.Module, picture: Tensor) -> dict[str, str]:
    """The lowest layer that all of the signal must pass, the strictest test; and the default layer."""
    layers = {}
    for layer in spatial_layers(network, picture):
        if passes_everything(network, picture, layer.name):
            layers["lowest"] = layer.name
            break
    try:
        layers["default"] = default_layer(network, picture)
    except LayerError:  # no spatial layer below the classifier's weights
        return layers
    return layers


def _read(network: nn.Module, picture: Tensor, layers: dict[str, str]) -> TableRow:
    """The readings at those layers; where one cannot be reached, the reason and the readings of the others."""
    try:
        return _readings(network, picture, layers)
    except ExciteError as error:
        row: TableRow = {"reason": str(error)}
    if len(set(layers.values())) > 1:
        for role, layer in layers.items():
            try:
                row |= _readings(network, picture, {role: layer})
            except ExciteError as error:
                row["reason"] = str(error)
    return row


def _readings(network: nn.Module, picture: Tensor, layers: dict[str, str]) -> TableRow:
    expected = main_output(network(picture)).detach()
    with torch.no_grad():  # torch then has other kernels for attention, which round otherwise: either will do
        other = main_output(network(picture))
    signals = _signals(expected)
    before = state_of(network)
    sweep = ExcitationPass(network, picture, list(dict.fromkeys(layers.values())))
    units = [sweep.down(signal) for signal in signals]
    duals = [sweep.down(signal, unit=0.0, dual=1.0) for signal in signals]
    row: TableRow = {
        "difference": min(float((sweep.output - each).abs().max()) for each in (expected, other)),
        "as_found": state_of(network) == before,
    }
    for role, layer in layers.items():
        row[role] = {
            "layer": layer,
            "whole": passes_everything(network, picture, layer),
            "mass": [float(maps[layer].sum()) for maps in units],
            "dual": [float(maps[layer].sum()) for maps in duals],
            "negative": min(float(maps[layer].clamp(max=0).sum()) for maps in (*units, *duals)),
        }
    return row


def _rounding(network: nn.Module, picture: Tensor, layers: dict[str, str], signals: Sequence[Tensor]) -> TableRow:
    """The rounding errors at those layers, if the network runs in double precision."""
    try:
        found = gaps(network, picture, list(dict.fromkeys(layers.values())), signals)
    except RuntimeError as error:  # of code that makes tensors of a fixed type
        return {"reason": str(error).splitlines()[0]}
    return {role: found[layer] for role, layer in layers.items()}


def _turned(network: nn.Module, picture: Tensor, layer: str, signal: Tensor) -> float | None:
    """The L1 change of the map when norms are folded into convolutions: 0 if signs are handled rightly."""
    sweep = ExcitationPass(network, picture, [layer])
    output, expected = sweep.output, sweep.down(signal)[layer]  # before its weights change
    if not fold_norms(network, picture):
        return None
    sweep = ExcitationPass(network, picture, [layer])
    if not torch.allclose(sweep.output, output, rtol=0.0, atol=1e-3 * float(output.abs().max())):
        return None  # not the same function: the convolution's output is used elsewhere too
    return float((sweep.down(signal)[layer] - expected).abs().sum())


def _signals(output: Tensor) -> list[Tensor]:
    """One signal for the class with the largest output, and one for that with the smallest."""
    units = [int(output.argmax())] if output.max() > 0 else []
    units += [int(output.argmin())] if output.min() < 0 else []
    if not units or not bool(torch.isfinite(output).all()):
        raise ValueError("with these weights the network has no finite answer other than 0")
    return [nn.functional.one_hot(torch.tensor(unit), output.numel()).float().view_as(output) for unit in units]


def versions() -> dict[str, str]:
    """The packages that a result depends on."""
    packages = ("torch", "torchvision", "timm")
    return {package: version(package) for package in packages if find_spec(package) is not None}


def _basis() -> str:
    """A digest of the packages and of the code on which a row depends."""
    own = Path(__file__).parent
    code = [*Path(propagation.__file__).parent.rglob("*.py"), *(own / f"{name}.py" for name in OWN_FILES)]
    content = repr(versions()).encode() + b"".join(path.read_bytes() for path in sorted(code))
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()[:12]
