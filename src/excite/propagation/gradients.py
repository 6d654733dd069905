"""One look at an image for the methods that follow gradients: the network runs once, then signals go down any way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn

from excite.errors import LayerError, MethodError
from excite.propagation.finite import Asked
from excite.propagation.forward import forward_pass, unread
from excite.propagation.graph import nodes_below
from excite.propagation.signals import check_shape
from excite.propagation.steps import Switch, Way
from excite.propagation.ways import operations, refuse_unruled

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Gradients"]


class Gradients:
    """The forward pass of a network, kept so that signals can go down from its output by gradients and their kin.

    ReLUs are found wherever they are called (``F.relu``, ``x.relu_()``, one module used many times), so the network
    needs no preparation. See `excite.propagation.steps` for what each way does at each operation.

    Attributes:
        output: the network's output units, exactly as the network gives them.
        activations: for each layer its output.

    Args:
        module: any network in plain PyTorch. It is left exactly as it was found.
        inputs: what it is called with: a tensor, or a tuple of arguments.
        layers: as in `Sweep`; ``input`` is the image itself.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> gradients = Gradients(net, torch.ones(1, 1, 4, 4), ["1", "input"])
        >>> signal = torch.tensor([[1.0, 0.0, 0.0]])
        >>> gradients.down(signal)["1"].shape
        torch.Size([1, 2, 2, 2])
        >>> gradients.down(signal, "guided", layers=["input"])["input"].shape
        torch.Size([1, 1, 4, 4])
    """

    def __init__(self, module: nn.Module, inputs: Tensor | tuple[Any, ...], layers: Sequence[str]) -> None:
        self._switch = Switch()
        self._traced, readings = forward_pass(module, inputs, layers, operations(self._switch))
        self.output = self._traced.detach()
        asked = Asked(module, inputs)
        asked.check_output(self.output)
        self._check_maps = asked.check_maps
        self.activations = {layer: reading.activation for layer, reading in readings.items()}
        self._probes = {layer: reading.probe for layer, reading in readings.items()}
        reached = {getattr(node, "variable", None) for node in nodes_below(self._traced.grad_fn)}
        for layer, probe in self._probes.items():
            if probe not in reached:
                raise unread(layer)
        self._judged: set[Way] = set()

    @property
    def top(self) -> Any:
        """Where the graph of the forward pass begins, in autograd's terms."""
        return self._traced.grad_fn

    def down(
        self, signal: Tensor, way: Way = "grad", *, epsilon: float = 1e-9, layers: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """Send a signal down and read what arrives at the layers.

        Args:
            signal: how much of each output unit is sent, of the output's shape.
            way: ``grad``: the gradient of the signal's weighted sum of output units. ``deconv``: the same, but at
                rectifiers positive signals pass and negative ones do not, whether or not the rectifier was active
                (Zeiler and Fergus 2014). ``guided``: positive signals pass where it was active (Springenberg 2015).
                ``lrp``: relevance by the epsilon rule (Bach 2015). There a unit of relevance starts at each cued
                output, so the relevances of a layer sum to the signal, less what biases and the epsilon took. Where
                an output is exactly 0 there is nothing to explain, and nothing starts.
            epsilon: of the way ``lrp``, in units of the responses that it stabilises.
            layers: the layers to read; None: all. What lies below them is not computed.

        Returns:
            for each layer a tensor of the shape of its output.
        """
        check_shape(signal, self.output)
        self._judge(way)
        wanted = list(self._probes) if layers is None else list(layers)
        if not wanted:
            raise LayerError("no layer is read: name at least one")
        self._switch.way, self._switch.epsilon = way, epsilon
        start = signal.to(self.output.dtype)
        if way == "lrp":
            start = torch.where(self.output == 0, 0, start / self.output)
        with torch.inference_mode(mode=False):
            probes = [self._probes[layer] for layer in wanted]
            found = torch.autograd.grad(self._traced, probes, start, retain_graph=True, materialize_grads=True)
        arrived = dict(zip(wanted, found, strict=True))
        if way == "lrp":
            arrived = {layer: self.activations[layer] * each for layer, each in arrived.items()}
        self._check_maps(arrived.values())
        return arrived

    def _judge(self, way: Way) -> None:
        """Refuse a way that this network has no rules for; a network is judged once."""
        if way not in get_args(Way):
            raise MethodError(f"there is no way down named {way!r}: use one of {', '.join(get_args(Way))}")
        if way not in self._judged:
            refuse_unruled(self._traced, way)
            self._judged.add(way)
