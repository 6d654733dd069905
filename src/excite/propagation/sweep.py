"""One look at a picture: the network runs once, then any number of signals go down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from excite.errors import LayerError, SignalError
from excite.propagation.graph import check, top_of
from excite.propagation.mode import Downward
from excite.propagation.networks import as_found, find_layer, forget_activations, main_output, plain_network
from excite.propagation.notes import Note, leads_to_tap, set_note
from excite.propagation.operations import OPERATIONS
from excite.propagation.taps import Reading, Start, tapped

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Sweep"]


class Sweep:
    """The forward pass of a network, kept so that signals can go down from its output.

    Attributes:
        output: the network's output units, exactly as the network gives them.
        readings: for each layer its tap and its activation.

    Args:
        module: any network in plain PyTorch. It is left exactly as it was found.
        inputs: what it is called with: a tensor, or a tuple of arguments.
        layers: names of the modules to read (as in ``module.named_modules()``). A module that is called several
            times is read at its last call; ``name#0`` is its first call, ``name#1`` its second.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> sweep = Sweep(net, torch.ones(1, 1, 4, 4), ["1"])
        >>> sweep.down(torch.tensor([[1.0, 0.0, 0.0]]))["1"].shape
        torch.Size([1, 2, 2, 2])
    """

    def __init__(self, module: nn.Module, inputs: Tensor | tuple[Any, ...], layers: Sequence[str]) -> None:
        module = plain_network(module)
        wanted = {layer: find_layer(module, layer) for layer in layers}
        calls: dict[nn.Module, list[Reading | str]] = {child: [] for child, _ in wanted.values()}
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        mode = Downward(OPERATIONS, module)
        with torch.inference_mode(mode=False), torch.enable_grad(), as_found(module), tapped(calls), mode:
            answer = module(*(_live(argument) for argument in arguments))
        self._traced = main_output(answer)
        self.output = self._traced.detach()
        self.readings = {layer: _chosen(layer, calls[child], call) for layer, (child, call) in wanted.items()}
        self._check_way_down()
        self._top, self._above = top_of(self._traced)
        forget_activations(module)

    def down(self, signal: Tensor, *, unit: float = 1.0, dual: float = 0.0) -> dict[str, Tensor]:
        """Send a signal down and read the winning probabilities at every tapped layer.

        Args:
            signal: the probability of each output unit, of the output's shape; any linear combination of such.
            unit: how much of the cued units themselves is sent,
            dual: and how much of their dual units, whose weights are the negatives (paper, section 3.3). The
                contrastive map is ``unit=1, dual=-1``.

        Returns:
            for each layer a tensor of the shape of its output.
        """
        if signal.shape != self.output.shape:
            raise SignalError(
                f"the signal has shape {tuple(signal.shape)} but the output has {tuple(self.output.shape)}: give "
                "one number for each output unit"
            )
        if dual:
            self._check_contrast()
        for rule in self._top:
            rule.unit, rule.dual = unit, dual
        return self.carry(self.start(), signal)

    def carry(self, start: Start, probability: Tensor, *, absorbing: bool = False) -> dict[str, Tensor]:
        """Carry the winning probabilities of the units at ``start`` down to all tapped layers, by the rules.

        Where the layers are ``absorbing``, each keeps what arrives, and gets only what came by no other.
        """
        scale = _headroom(self.output.dtype)
        probes = [reading.probe for reading in self.readings.values()]
        with torch.inference_mode(mode=False):
            parts = start.split((probability * scale).to(self.output.dtype))
            try:
                for reading in self.readings.values():
                    reading.tap.absorbing = absorbing
                shares = torch.autograd.grad(start.edges, probes, parts, retain_graph=True, materialize_grads=True)
            finally:
                for reading in self.readings.values():
                    reading.tap.absorbing = False
        shares = shares if scale == 1 else tuple(share.float() / scale for share in shares)
        return dict(zip(self.readings, shares, strict=True))

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
                raise LayerError(f"layer {layer!r} does not feed the output of this network: choose another layer")


def _chosen(layer: str, readings: list[Reading | str], call: int) -> Reading:
    if not readings:
        raise LayerError(f"layer {layer!r} was not used for this input: choose another layer")
    if call >= len(readings):
        raise LayerError(
            f"layer {layer!r}: that module was called {len(readings)} times, so its last call is #{len(readings) - 1}"
        )
    reading = readings[call]
    if isinstance(reading, str):
        raise LayerError(f"layer {layer!r} returns {reading}, not a tensor: choose a layer inside it")
    return reading


def _live(argument: Any) -> Any:
    """A network's input is where activations begin (an alias: nothing is left on the user's own tensor)."""
    if isinstance(argument, Tensor):
        return set_note(argument.clone() if argument.is_inference() else argument.detach(), Note())
    if type(argument) in {tuple, list}:
        return type(argument)(_live(item) for item in argument)
    return {key: _live(item) for key, item in argument.items()} if type(argument) is dict else argument


def _headroom(dtype: torch.dtype) -> float:
    """float16 cannot hold small probabilities: the signal, being linear, is carried larger than it is."""
    return 4096.0 if dtype == torch.float16 else 1.0
