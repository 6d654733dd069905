"""One look at an image: the network runs once, then any number of signals go down."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from excite.errors import LayerError, SignalError
from excite.propagation.affine import Affine
from excite.propagation.deciding import is_known
from excite.propagation.descent import Descent
from excite.propagation.finite import Asked
from excite.propagation.forward import forward_pass, unread
from excite.propagation.graph import check, nodes_below, rule_of, top_of
from excite.propagation.notes import leads_to_tap
from excite.propagation.operations import OPERATIONS
from excite.propagation.scaled import carry_scaled
from excite.propagation.signals import check_shape
from excite.propagation.taps import Start

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.propagation.descent import Watch
    from excite.propagation.rules import Rule

__all__ = ["Sweep"]

AT_ONCE = 2**24  # numbers in the largest tensor when several signals go down together: 64 megabytes


class Sweep:
    """The forward pass of a network, kept so that signals can go down from its output.

    Attributes:
        output: the network's output units, exactly as the network gives them.
        readings: for each layer its tap and its activation.
        check_maps: refuses what is not finite, and says where that began.

    Args:
        module: any network in plain PyTorch. It is left exactly as it was found.
        inputs: what it is called with: a tensor, or a tuple of arguments.
        layers: names of the modules to read (as in ``module.named_modules()``). A module that is called several
            times is read at its last call; ``name#0`` is its first call, ``name#1`` its second. ``input`` is what the
            network is given.
        again: signals will be sent down more than once. Otherwise what they would have in common is not kept, which
            takes less memory.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> sweep = Sweep(net, torch.ones(1, 1, 4, 4), ["1"])
        >>> sweep.down(torch.tensor([[1.0, 0.0, 0.0]]))["1"].shape
        torch.Size([1, 2, 2, 2])
    """

    def __init__(
        self, module: nn.Module, inputs: Tensor | tuple[Any, ...], layers: Sequence[str], *, again: bool = True
    ) -> None:
        self._again = again
        self._traced, self.readings = forward_pass(module, inputs, layers, OPERATIONS)
        self.output = self._traced.detach()
        asked = Asked(module, inputs)
        asked.check_output(self.output)
        self.check_maps = asked.check_maps
        self._check_way_down()
        self._top, self._above = top_of(self._traced)
        self._ways: dict[tuple[Any, ...], Descent] = {}

    @property
    def top(self) -> Any:
        """Where the graph of the forward pass begins, in autograd's terms."""
        return self._traced.grad_fn

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
        """Send a signal down and read the winning probabilities at every tapped layer.

        Args:
            signal: the probability of each output unit, of the output's shape; any linear combination of such. Or
                several in a leading dimension, which costs less than one after the other.
            unit: how much of the cued units themselves is sent,
            dual: and how much of their dual units, whose weights are the negatives (paper, section 3.3). The
                contrastive map is ``unit=1, dual=-1``.
            alpha: at every operation with weights, how much a unit hands to the children that pushed it its way,
            beta: and how much it takes from those that pushed it the other way: layer-wise relevance propagation
                without biases (Bach et al. 2015, usually with ``alpha=2, beta=1``). Where no child pushed the
                other way nothing is taken. Sums and pooling have no weights and share as always.
            normalised: False leaves out the normaliser Z of the paper's Eqn. 4. What arrives at a layer then has a
                scale that means nothing, and is given with its largest value between 1/2 and 1.
            layers: the layers to read; None: all. What lies below them is not computed.

        Returns:
            for each layer a tensor of the shape of its output, with a leading dimension where ``signal`` has one.
        """
        several = signal.dim() > self.output.dim()
        signals = signal if several else signal[None]
        check_shape(signals[0] if len(signals) else signal, self.output)
        if dual:
            self._check_contrast()
        wanted = list(self.readings) if layers is None else list(layers)
        with self._sharing(alpha, beta, normalised=normalised):
            for rule in self._top:
                rule.unit, rule.dual = unit * alpha - dual * beta, dual * alpha - unit * beta
            carried = (self._carried if normalised else self._carried_scaled)(signals, wanted)
        return carried if several else {layer: each[0] for layer, each in carried.items()}

    def _carried(self, signals: Tensor, layers: Sequence[str]) -> dict[str, Tensor]:
        """All signals together, or some at a time where their tensors would be large."""
        start = self.start()
        if not is_known():
            return self.carry(start, signals, layers=layers)
        most = max(1, AT_ONCE // max(1, self._way(start, layers).widest))  # an empty batch has no widest
        some = torch.split(signals, most)
        parts = [self.carry(start, each, layers=layers, again=self._again or len(some) > 1) for each in some]
        return parts[0] if len(parts) == 1 else {layer: torch.cat([part[layer] for part in parts]) for layer in layers}

    def _carried_scaled(self, signals: Tensor, layers: Sequence[str]) -> dict[str, Tensor]:
        way = self._way(self.start(), layers)
        with torch.inference_mode(mode=False):
            each = [carry_scaled(way, signal.to(self.output.dtype)) for signal in signals]
        self.check_maps(values for maps in each for values in maps)
        return {layer: torch.stack(values) for layer, values in zip(layers, zip(*each, strict=True), strict=True)}

    def _way(self, start: Start, layers: Sequence[str]) -> Descent:
        """The nodes between a start and some layers: the same for all signals."""
        edges = start.edges
        key = (*layers, *edges)
        if key not in self._ways:
            self._ways[key] = Descent(edges, [self.readings[layer].probe for layer in layers])
        return self._ways[key]

    @contextmanager
    def _sharing(self, alpha: float, beta: float, *, normalised: bool) -> Iterator[None]:
        """Have all rules share in another way than the paper's, for one signal."""
        rules = [] if (alpha, beta, normalised) == (1, 0, True) else self._rules
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

    @cached_property
    def _rules(self) -> list[Rule]:
        found = (rule_of(node) for node in nodes_below(self._traced.grad_fn))
        return [rule for rule in found if rule is not None]

    def carry(
        self,
        start: Start,
        probabilities: Tensor,
        *,
        absorbing: bool = False,
        layers: Sequence[str] | None = None,
        watch: Watch | None = None,
        again: bool = True,
    ) -> dict[str, Tensor]:
        """Carry winning probabilities [signals, *units] of the units at ``start`` down to tapped layers by the rules.

        Where the ``layers`` (None: all) are ``absorbing``, each keeps what arrives, and gets only what came by no
        other. ``watch`` is told what every node on the way got and gave. ``again``: so will
        others be.
        """
        scale = _headroom(self.output.dtype)
        wanted = list(self.readings) if layers is None else list(layers)
        way = self._way(start, wanted)
        with torch.inference_mode(mode=False):
            parts = start.split((probabilities * scale).to(self.output.dtype))
            try:
                for reading in self.readings.values():
                    reading.tap.absorbing = absorbing
                shares = way.carry(parts, watch, again=again)
            finally:
                for reading in self.readings.values():
                    reading.tap.absorbing = False
        shares = shares if scale == 1 else [share.float() / scale for share in shares]
        self.check_maps(shares)
        return dict(zip(wanted, shares, strict=True))

    def start(self, layer: str | None = None) -> Start:
        """Where a walk from the units of a layer starts; None: from the output units."""
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

    def _check_way_down(self) -> None:
        """Every tapped layer must feed the output, through operations that have a rule."""
        reached = check(self._traced) if leads_to_tap(self._traced) else set()
        for layer, reading in self.readings.items():
            if reading.probe not in reached:
                raise unread(layer)


def _headroom(dtype: torch.dtype) -> float:
    """float16 cannot hold small probabilities: the signal, being linear, is carried larger than it is."""
    return 4096.0 if dtype == torch.float16 else 1.0
