"""One forward pass of a network, kept so that any number of signals can be propagated top-down."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from excite.errors import LayerError, SignalError
from excite.propagation.fast import choose, is_concrete
from excite.propagation.graph import Subgraph, carried, carry, check, down, memory_of, rule_of, sums, top_of
from excite.propagation.operations import OPERATIONS
from excite.propagation.provenance import leads_to_tap, nodes_below
from excite.propagation.rules import Affine
from excite.propagation.taps import ForwardPass, Layers, Start

if TYPE_CHECKING:
    from excite.propagation.graph import Observer
    from excite.propagation.rules import Rule
    from excite.propagation.token_pass import TokenPass

MANY = 8  # signals, for which another way than one after the other is looked for
AT_ONCE = 2**24  # elements of the largest tensor when several signals are propagated together: 64 MB


class ExcitationPass(ForwardPass):
    """The forward pass of a network, and the winning probabilities of its layers for any signal over its output.

    Attributes:
        output: the network's output units, exactly as the network gives them.
        readings: for each layer its tap and its activation.
        check_maps: refuses what is not finite, and names the layer where that began.

    Args:
        module: any network in plain PyTorch. It is left exactly as it was found.
        inputs: what it is called with: a tensor, or a tuple of arguments.
        layers: the modules to read, or their names (as in ``module.named_modules()``). A module that is called several
            times is read at its last call; ``name#0`` is its first call, ``name#1`` its second. ``input`` is what the
            network is given.
        reuse: signals will be propagated more than once. Otherwise the normalisers that they share are not kept, which
            takes less memory.
        compared: names of more layers, anywhere, whose activations are kept; that costs next to nothing.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> excitation = ExcitationPass(net, torch.ones(1, 1, 4, 4), ["1"])
        >>> excitation.down(torch.tensor([[1.0, 0.0, 0.0]]))["1"].shape
        torch.Size([1, 2, 2, 2])
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Tensor | tuple[Any, ...],
        layers: Layers,
        *,
        reuse: bool = True,
        compared: Sequence[str] = (),
    ) -> None:
        self._reuse, self._carry, self._sums = reuse, choose(carry), choose(sums)
        super().__init__(module, inputs, layers, OPERATIONS, compared)
        self._top, self._above = top_of(self._traced)
        self._subgraphs: dict[tuple[Any, ...], Subgraph] = {}

    top = ForwardPass.top  # part of the public interface

    def _probes_reached(self) -> set[Tensor]:
        return check(self._traced) if leads_to_tap(self._traced) else set()

    def down(
        self,
        signal: Tensor,
        *,
        unit: float = 1.0,
        dual: float = 0.0,
        alpha: float = 1.0,
        beta: float = 0.0,
        normalised: bool = True,
        layers: Sequence[str] | None = None,
    ) -> dict[str, Tensor]:
        """The winning probabilities of every tapped layer for a signal P(A_0) over the output units.

        Args:
            signal: the probability of each output unit, of the output's shape; any linear combination of such. Or
                several in a leading dimension, which costs less than one after the other.
            unit: how much of the cued units themselves is propagated,
            dual: and how much of their dual units, whose weights are the negatives (paper, section 3.3). The
                contrastive map is ``unit=1, dual=-1``.
            alpha: at every operation with weights, the factor for the children that moved a unit in the direction of
                its response,
            beta: and what is taken from those that moved it the other way: layer-wise relevance propagation without
                biases (Bach et al. 2015, usually with ``alpha=2, beta=1``). Where no child moved it the other way
                nothing is taken. Sums and pooling have no weights and share as always.
            normalised: False leaves out the normaliser Z of the paper's Eqn. 4. The map of a layer then has no
                meaningful scale, and is given with its largest value between 1/2 and 1.
            layers: the layers to read; None: all. What lies below them is not computed.

        Returns:
            for each layer a tensor of the shape of its output, with a leading dimension where ``signal`` has one.
        """
        several = signal.dim() > self.output.dim()
        signals = signal if several else signal[None]
        wanted = list(self.readings) if layers is None else list(layers)
        with self._cued(signals, unit, dual, alpha, beta, normalised=normalised):
            maps = (self._all_signals if normalised else self._scaled_signals)(signals, wanted)
        if not several:
            for layer in wanted:
                maps[layer] = maps[layer][0]
        return self.in_places(maps)

    def sums(self, signals: Tensor, *, layers: Sequence[str], **options: Any) -> dict[str, Tensor]:
        """The winning probabilities of each position, summed over channels: [signals, N, h, w] for each layer.

        The same as the sum of what `down` gives, for several signals. Where there are many, they take one matrix, from
        output units to positions, whose making takes as long as `down` does for some ten signals.

        Args:
            signals: several P(A_0), in a leading dimension.
            layers: the layers to read.
            options: those of `down`.
        """
        found, alone = None, len(layers) == 1 and layers[0] not in self.grids
        if len(signals) >= MANY and alone and is_concrete() and options.get("normalised", True):
            factors = {"unit": 1.0, "dual": 0.0, "alpha": 1.0, "beta": 0.0, "normalised": True, **options}
            with self._cued(signals, **factors), torch.inference_mode(mode=False):
                found = self._sums(self._subgraph(self.start(), layers), signals.to(self.output.dtype))
        if found is not None:
            self.check_maps([found])
            return {layers[0]: found}
        return {layer: values.sum(dim=-3) for layer, values in self.down(signals, layers=layers, **options).items()}

    @contextmanager
    def _cued(
        self, signals: Tensor, unit: float, dual: float, alpha: float, beta: float, *, normalised: bool
    ) -> Iterator[None]:
        """Have the rules propagate signals with these factors; see `down`."""
        check_shape(signals[0] if len(signals) else signals, self.output)
        if dual:
            self._check_contrast()
        with self._sharing(alpha, beta, normalised=normalised):
            for rule in self._top:
                rule.unit, rule.dual = unit * alpha - dual * beta, dual * alpha - unit * beta
            yield

    def _all_signals(self, signals: Tensor, layers: Sequence[str]) -> dict[str, Tensor]:
        """All signals together, or some at a time where their tensors would be large."""
        start = self.start()
        if not is_concrete():
            return self.propagate(start, signals, layers=layers)
        most = max(1, AT_ONCE // max(1, self._subgraph(start, layers).largest))  # an empty batch has no elements
        if len(signals) <= most:
            return self.propagate(start, signals, layers=layers, reuse=self._reuse)
        parts = [self.propagate(start, some, layers=layers) for some in torch.split(signals, most)]
        return {layer: torch.cat([part[layer] for part in parts]) for layer in layers}

    def _scaled_signals(self, signals: Tensor, layers: Sequence[str]) -> dict[str, Tensor]:
        graph = self._subgraph(self.start(), layers)
        with torch.inference_mode(mode=False):
            each = [carry_scaled(graph, signal.to(self.output.dtype)) for signal in signals]
        self.check_maps(values for maps in each for values in maps)
        return {layer: torch.stack(values) for layer, values in zip(layers, zip(*each, strict=True), strict=True)}

    def _subgraph(self, start: Start, layers: Sequence[str]) -> Subgraph:
        """The nodes between a start and some layers: the same for all signals."""
        key = (*layers, *start.edges)
        if key not in self._subgraphs:
            self._subgraphs[key] = Subgraph(start.edges, [self.readings[layer].probe for layer in layers])
        return self._subgraphs[key]

    @contextmanager
    def _sharing(self, alpha: float, beta: float, *, normalised: bool) -> Iterator[None]:
        """Change the factors or the normaliser of all rules, for one signal."""
        rules = []
        if (alpha, beta, normalised) != (1, 0, True):
            rules = [rule for node in nodes_below(self.top) if (rule := rule_of(node)) is not None]
        try:
            for rule in rules:
                rule.normalised = normalised
                if isinstance(rule, Affine) and rule.weight is not None:
                    rule.unit, rule.dual = alpha, -beta
            yield
        finally:
            for rule in rules:
                rule.normalised = True
                if isinstance(rule, Affine):
                    rule.unit, rule.dual = 1.0, 0.0

    def propagate(
        self,
        start: Start,
        probabilities: Tensor,
        *,
        absorbing: bool = False,
        layers: Sequence[str] | None = None,
        observer: Observer | None = None,
        reuse: bool = True,
    ) -> dict[str, Tensor]:
        """Winning probabilities of tapped layers, from those [signals, *units] of the units at ``start``.

        Where the ``layers`` (None: all) are ``absorbing``, each keeps what arrives, and gets only what passed no other.
        ``observer`` is called for every node between with what it got and gave. ``reuse``: other signals follow.
        """
        scale = 4096.0 if self.output.dtype == torch.float16 else 1.0  # float16 cannot hold small probabilities
        wanted = list(self.readings) if layers is None else list(layers)
        graph = self._subgraph(start, wanted)
        run = partial(self._carry, reuse=reuse) if observer is None else partial(carry, observer=observer)
        with torch.inference_mode(mode=False):
            parts = start.split((probabilities * scale).to(self.output.dtype))
            try:
                for reading in self.readings.values():
                    reading.tap.absorbing = absorbing
                shares = run(graph, parts)
            finally:
                for reading in self.readings.values():
                    reading.tap.absorbing = False
        shares = shares if scale == 1 else [share.float() / scale for share in shares]
        self.check_maps(shares)
        return dict(zip(wanted, shares, strict=True))

    def start(self, layer: str | None = None) -> Start:
        """Where paths from the units of a layer start; None: from the output units."""
        if not self.readings:
            raise LayerError("no layer is read: name at least one")
        start = Start([get_gradient_edge(self._traced)]) if layer is None else self.readings[layer].start
        if not start.edges:
            raise LayerError(f"layer {layer!r} is the lowest one that is read: no walk can start there")
        return start

    def _check_contrast(self) -> None:
        for layer, reading in self.readings.items():
            if reading.probe in self._above:
                raise SignalError(
                    f"layer {layer!r} lies above the classifier's weights, where there is no dual unit to contrast "
                    "with: choose a lower layer, or a map without contrast"
                )


# Without the normaliser of Eqn. 4 the values grow or shrink by a factor at every layer, and over fifty layers they
# leave the range of floats. So every tensor gets an exponent of its own: the pass is linear in the signal.


class Scaled(NamedTuple):
    """``values * 2 ** exponent``, the largest of the values between 1/2 and 1."""

    values: Tensor
    exponent: int

    @classmethod
    def of(cls, values: Tensor, exponent: int = 0) -> Scaled:
        """Move the scale of ``values`` into the exponent."""
        _, more = math.frexp(float(values.abs().max()) if values.numel() else 0.0)
        return cls(values * math.ldexp(1.0, -more), exponent + more)

    def at(self, exponent: int) -> Tensor:
        """The values in units of another exponent."""
        return self.values * math.ldexp(1.0, self.exponent - exponent)


def carry_scaled(graph: Subgraph, signal: Tensor) -> list[Tensor]:
    """As `graph.carry`, for one signal and with values that no float could hold; each probe at a scale of its own."""

    def backward(node: Any, rule: Rule | None, arrived: Mapping[int, Scaled], _below: Any) -> list[Scaled | None]:
        exponent = max(each.exponent for each in arrived.values())
        shares = down(node, {output: each.at(exponent)[None] for output, each in arrived.items()}, rule)
        return [None if share is None else Scaled.of(share[0], exponent) for share in shares]

    def join(before: Scaled | None, share: Scaled, dtype: torch.dtype) -> Scaled:
        share = Scaled(share.values.to(dtype), share.exponent)
        if before is None:
            return share
        common = max(share.exponent, before.exponent)
        return Scaled.of(share.at(common) + before.at(common), common)

    found = carried(graph, [Scaled.of(signal)], backward, join)
    return [found[probe].values if probe in found else torch.zeros_like(probe) for probe in graph.probes]


def position_sums(
    forward: ExcitationPass | TokenPass, signals: Tensor, layers: Sequence[str], **options: Any
) -> dict[str, Tensor]:
    """What arrives at each position for several signals, by either forward pass: `ExcitationPass.sums`."""
    if isinstance(forward, ExcitationPass):
        return forward.sums(signals, layers=layers, **options)
    return {layer: values.sum(dim=-3) for layer, values in forward.down(signals, layers=layers, **options).items()}


# --- signals: distributions over output units, P(A_0) in the paper -------------------------------------------------

Units = Sequence[Sequence[Mapping[int, float]]]
"""Where signals start: for each signal and each image, the weights of output units."""


def prior(output: Tensor, units: Mapping[int, float]) -> Tensor:
    """A signal that cues some classes with given weights, the same for every image of the batch.

    Where the output is a map (a fully convolutional network), the share of each class is spread over space in
    proportion to ``exp(logit)``, the classifier's own confidence at each position, as in the authors' code.

    Example:
        >>> prior(torch.zeros(1, 3), {0: 0.5, 2: 0.5})
        tensor([[0.5000, 0.0000, 0.5000]])
    """
    classes = output.shape[1]
    signal = torch.zeros_like(output)
    for unit, weight in units.items():
        if not -classes <= unit < classes:
            raise SignalError(f"there is no output unit {unit}: this network has units 0 to {classes - 1}")
        if not math.isfinite(weight):
            raise SignalError(f"the weight of output unit {unit} is {weight}: give a finite number")
        signal[:, unit] += weight * _confidence(output[:, unit])
    return signal


def signals_at(output: Tensor, units: Units) -> Tensor:
    """The signals [signals, *output.shape]: for each image a prior over its output units (paper: P(A_0))."""
    rows = [prior(output[k : k + 1], weights) for each in units for k, weights in enumerate(each)]
    return torch.cat(rows).view(len(units), *output.shape)


def check_shape(signal: Tensor, output: Tensor) -> None:
    """Refuse a signal that is not of the output's shape."""
    if signal.shape != output.shape:
        shapes = f"the signal has shape {tuple(signal.shape)} but the output has {tuple(output.shape)}"
        raise SignalError(f"{shapes}: give one number for each output unit")


def as_signal(signal: Tensor | SupportsIndex | Mapping[int, float], output: Tensor) -> Tensor:
    """Any form of signal, as in `excite.mwp`, as [signals, *output.shape]. A single signal is one signal."""
    if isinstance(signal, SupportsIndex) and not isinstance(signal, Tensor):
        signal = {index(signal): 1.0}
    if isinstance(signal, Mapping):
        return prior(output, signal)[None]
    if not isinstance(signal, Tensor):
        raise SignalError(f"a signal is a class, weights for classes, or a tensor, not {type(signal).__name__}")
    if not signal.is_floating_point():
        return _class_for_each(signal, output)[None]
    if not bool(torch.isfinite(signal).all()):
        raise SignalError("the signal has values that are not finite")
    signal = signal.detach().to(output.device, output.dtype)
    if signal.shape == output.shape[1:2]:
        return prior(output, dict(enumerate(signal.tolist())))[None]
    if signal.shape[-output.dim() :] == output.shape and signal.dim() <= output.dim() + 1:
        return signal.reshape(-1, *output.shape)
    raise SignalError(
        f"a signal of shape {tuple(signal.shape)} does not fit an output of shape {tuple(output.shape)}: give one "
        "weight for each class, or a tensor of the output's shape, or several of those in a leading dimension"
    )


def _class_for_each(classes: Tensor, output: Tensor) -> Tensor:
    if classes.dim() == 0:
        return prior(output, {int(classes): 1.0})
    if classes.shape != output.shape[:1]:
        raise SignalError(
            f"{classes.numel()} classes were given for {output.shape[0]} pictures: give one for each picture, or use "
            "a tensor of floats to cue several"
        )
    return torch.cat([prior(row[None], {int(unit): 1.0}) for row, unit in zip(output, classes, strict=True)])


def _confidence(logits: Tensor) -> Tensor:
    """exp(logit), normalised over space; 1 for a single unit."""
    if logits.dim() == 1:
        return torch.ones_like(logits)
    exact = torch.promote_types(logits.dtype, torch.float32)
    return torch.softmax(logits.flatten(1), dim=1, dtype=exact).to(logits.dtype).view_as(logits)


# --- memory -------------------------------------------------------------------------------------------------------


def held_bytes(module: nn.Module, passes: Iterable[Any]) -> int:
    """The bytes of all tensors that forward passes of a network hold, each memory counted once, without its own."""
    found: list[Tensor] = []
    seen: set[int] = set()
    for each in passes:
        found += [each.output, *each.compared.values()]
        for node in nodes_below(each.top):
            _collect(rule_of(node), found, seen)
            for name in dir(node):
                if name == "variable" or name.startswith("_saved_"):
                    _collect(getattr(node, name), found, seen)
    known = {memory_of(each) for each in (*module.parameters(), *module.buffers()) if not each.is_mkldnn}
    sizes = {memory_of(each): each.untyped_storage().nbytes() for each in found if not each.is_mkldnn}
    return sum(size for memory, size in sizes.items() if memory not in known)


def _collect(value: Any, found: list[Tensor], seen: set[int]) -> None:
    """All tensors that a value refers to through its attributes, lists, dicts and closures."""
    if isinstance(value, Tensor):
        found.append(value)
    if value is None or isinstance(value, (Tensor, str, int, float, bool, type)) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        parts: Iterable[Any] = value.values() if isinstance(value, dict) else value
    elif callable(value) and getattr(value, "__closure__", None):
        parts = [cell.cell_contents for cell in value.__closure__ or ()]
    else:
        slots = (getattr(value, name, None) for name in getattr(type(value), "__slots__", ()) if name != "__weakref__")
        parts = [*getattr(value, "__dict__", {}).values(), *slots]
    for part in parts:
        _collect(part, found, seen)
