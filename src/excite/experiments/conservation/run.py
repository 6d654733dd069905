"""Is the top-down signal conserved? Every architecture, with random weights under which nothing can hide.

A signal of 1 at an output unit must arrive as 1 at a layer that all of it must pass, with no negative part, while the
network answers exactly what it answers without us. What is lost on the way needs an explanation.
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

from excite import propagation
from excite.errors import ExciteError, LayerError
from excite.experiments.conservation.networks import fold_norms, randomise
from excite.models.layers import default_layer, spatial_layers
from excite.propagation import ExcitationPass
from excite.propagation.graph import rule_of
from excite.propagation.rules import Affine, Tap
from excite.propagation.taps import main_output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from excite.experiments.conservation.networks import Architecture


# Where and why probability is lost on its way down: what arrives at each operation, less what it hands on.

Span = tuple[int, int, str]

UNSEEN = 1e-3  # what may be left over by rounding and by many losses too small to list

CAUSES = {
    "mean": "a layer or group norm takes the mean of its own input off. A unit that all its children pushed up, but "
    "less than others were, then responds below 0, and nobody pushed it down.",
    "absence": "a norm behind an activation function moves units at rest away from 0, and the layer above takes that "
    "for evidence. Nothing below excited them.",
    "padding": "the zeros around a map won a pooling: nothing in the image was larger.",
    "nobody": "a unit responded although no child pushed it that way.",
    "constant": "it went to a constant of the network (a class token, a table of positions), which has no place in the "
    "picture.",
}


@dataclass(frozen=True)
class Loss:
    """How much of the signal one operation lost, the rule it follows, and the module in whose code it runs."""

    share: float
    rule: str
    module: str
    kind: str


def losses(module: nn.Module, inputs: Tensor, layer: str, signal: Tensor, least: float = 1e-6) -> list[Loss]:
    """The operations between the output and ``layer`` that lose more than ``least`` of the signal, the worst first.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2)).eval()
        >>> net[2].weight.data = torch.tensor([[-1.0, -1.0], [1.0, 1.0]])  # nobody excites the first unit
        >>> net[0].weight.data.fill_(1.0)
        tensor([[1., 1.],
                [1., 1.]])
        >>> losses(net, torch.ones(1, 2), "1", torch.tensor([[1.0, 0.0]]))
        [Loss(share=1.0, rule='Affine', module='2', kind='Linear')]
    """
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
            place = _place(node, spans)
            kind = "Affine" if isinstance(rule, Affine) else type(rule or node).__name__
            found.append(Loss(_sum(above) - _sum(below), kind, place, type(module.get_submodule(place)).__name__))

    sweep.propagate(sweep.start(), signal[None], observer=compare)
    return sorted((loss for loss in found if loss.share > least), key=lambda loss: -loss.share)


def _timed(module: nn.Module, spans: list[Span]) -> Iterator[Any]:
    """Hooks that write down which of autograd's nodes are made while each module runs."""
    starts: list[int] = []

    def begin(_child: nn.Module, _arguments: Any) -> None:
        starts.append(_nodes_made())

    def end(name: str) -> Any:
        return lambda _child, _arguments, _answer: spans.append((starts.pop(), _nodes_made(), name))

    for name, child in module.named_modules():
        yield child.register_forward_pre_hook(begin)
        yield child.register_forward_hook(end(name))


def _place(node: Any, spans: Sequence[Span]) -> str:
    """The innermost module in which a node was made."""
    made = node._sequence_nr()  # noqa: SLF001 - torch's only word on the order of nodes
    around = [(end - begin, name) for begin, end, name in spans if begin <= made < end]
    return min(around)[1]


def _sum(probabilities: Sequence[Tensor | None]) -> float:
    return sum(float(probability.double().sum()) for probability in probabilities if probability is not None)


def explain(module: nn.Module, inputs: Tensor, layer: str, signal: Tensor) -> dict[str, tuple[float, str]]:
    """For each cause (of `CAUSES`) how much of the signal is lost between the output and ``layer``, and where most.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).eval()
        >>> net[2].weight.data = torch.tensor([[-1.0, -1.0], [1.0, 1.0]])  # nobody excites the first unit
        >>> net[0].weight.data = torch.ones(2, 2)
        >>> explain(net, torch.ones(1, 2), "1", torch.tensor([[1.0, 0.0]]))
        {'nobody': (1.0, '2')}
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
    """The cause behind a loss; ``means`` says that there are norms in the network that take a mean off."""
    if loss.rule in {"Sum", "Affine"}:
        return "mean" if means else "nobody"
    return "padding" if loss.rule.startswith("ConstantPad") else "absence"


# Is a network left as it was found? Its state before and after.


def state_of(network: nn.Module) -> list[Any]:
    """All that we could have left on a network: other weights, flags, hooks, attributes.

    Example:
        >>> from torch import nn
        >>> network = nn.Linear(2, 2)
        >>> before = state_of(network)
        >>> network.seen = True
        >>> state_of(network) == before
        False
    """
    tensors = [
        (name, _digest(tensor), tensor.requires_grad) for name, tensor in network.state_dict(keep_vars=True).items()
    ]
    modules = [
        (child.training, len(child._forward_hooks), len(child._forward_pre_hooks), sorted(vars(child)))  # noqa: SLF001 - torch lists hooks nowhere else
        for child in network.modules()
    ]
    return [*tensors, *modules]


def _digest(tensor: Tensor) -> int:
    return zlib.crc32(tensor.detach().contiguous().numpy().data)


# How far a map in single precision is from the map of the same weights and the same image in double precision.

SENT = {"mwp": (1.0, 0.0), "c-mwp": (1.0, -1.0)}  # how much of the cued unit and of its dual goes down

Row = dict[str, Any]


def in_double(network: nn.Module, picture: Tensor) -> tuple[nn.Module, Tensor]:
    """The same network with the same weights in double precision, and what it is to look at.

    Example:
        >>> import torch
        >>> net, picture = in_double(torch.nn.Conv2d(1, 1, 1), torch.ones(1, 1, 2, 2))
        >>> net.weight.dtype, picture.dtype
        (torch.float64, torch.float64)
    """
    return copy.deepcopy(network).double(), picture.double()


def gaps(network: nn.Module, picture: Tensor, layers: Sequence[str], signals: Sequence[Tensor]) -> dict[str, Row]:
    """For each layer how far MWP and c-MWP are from themselves in double precision, of all signals the worst.

    Returns:
        for each layer ``mwp`` and ``c-mwp``, the L1 distance over the L1 norm of the exact map; ``contrast``, that norm
        for c-MWP, so how much of the signal is left when common winners have cancelled; and ``moved``, how much less
        than its maximum the exact map has at the place to which rounding moved the point: 0 where it stayed.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.Flatten(), torch.nn.Linear(8, 2)).eval()
        >>> gap = gaps(net, torch.rand(1, 1, 2, 2), ["0"], [torch.tensor([[1.0, 0.0]])])["0"]
        >>> gap["mwp"] < 1e-4
        True
    """
    rough, exact = ExcitationPass(network, picture, layers), ExcitationPass(*in_double(network, picture), layers)
    found: dict[str, Row] = {layer: {"layer": layer, "moved": 0.0} for layer in layers}
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
    """The L1 distance over the exact map's own L1 norm; what a map has that should be empty."""
    norm = float(exact.abs().sum())
    return float((rough.double() - exact).abs().sum()) / (norm or 1.0)


def _moved(rough: Tensor, exact: Tensor) -> float:
    """How much less than its maximum the exact map has at the rough map's point, of that maximum."""
    planes = [values.double().sum(dim=1).flatten() for values in (rough, exact)]
    most = float(planes[1].max())
    return 1 - float(planes[1][planes[0].argmax()]) / most if most > 0 else 0.0


# Is the top-down signal conserved? Every architecture, with random weights under which nothing can hide.
#
# A signal of 1 at an output unit must arrive as 1 at a layer that all of it must pass, with no negative part, while
# the network answers exactly what it answers without us. What is lost on the way needs an explanation.

STATUSES = ("conserved", "kept", "lost", "refused", "wrong")
CONSERVED = 1e-4
KEPT = 0.9
SAME_MAP = 0.01  # of two maps of mass 1: by rounding, a unit whose response is nearly 0 may turn round
FIELDS = ("source", "family", "model", "status")

OWN_FILES = ("run", "networks")


class Conservation:
    """The work of the benchmark: one architecture, one row of plain values.

    Example:
        >>> import warnings
        >>> from excite.experiments.conservation.networks import Architecture
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
