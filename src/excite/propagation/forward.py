"""One forward pass of somebody's network, with a table of rules for its operations and taps on its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from excite.errors import LayerError
from excite.propagation.mode import Downward
from excite.propagation.networks import as_found, find_layer, forget_activations, main_output, plain_modules
from excite.propagation.notes import Note, is_live, set_note
from excite.propagation.taps import Reading, tap_on, tapped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.propagation.call import Operation

__all__ = ["INPUT", "forward_pass", "unread"]

INPUT = "input"  # as a layer: what the network is given (a module of that name is still there as ``input#0``)


def forward_pass(
    module: nn.Module, inputs: Tensor | tuple[Any, ...], layers: Sequence[str], operations: Mapping[str, Operation]
) -> tuple[Tensor, dict[str, Reading]]:
    """The network's output units, traced down to the taps on its layers; the network is left as it was found."""
    modules = plain_modules(module)
    module = modules[0]
    wanted = {layer: find_layer(module, layer) for layer in layers if layer != INPUT}
    calls: dict[nn.Module, list[Reading | str]] = {child: [] for child, _ in wanted.values()}
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    mode = Downward(operations, module, modules)
    with torch.inference_mode(mode=False), torch.enable_grad(), as_found(modules), tapped(calls, mode.begin), mode:
        pictures = None
        if INPUT in layers:
            mode.begin()
            pictures, arguments = _tapped_input(arguments)
        answer = module(*(_live(argument) for argument in arguments))
    output = main_output(answer)
    read = {layer: _chosen(layer, calls[child], call) for layer, (child, call) in wanted.items()}
    if pictures is not None:
        read[INPUT] = pictures
    forget_activations(modules)
    return output, {layer: read[layer] for layer in layers}


def unread(layer: str) -> LayerError:
    """The error for a layer that has no part in the output."""
    return LayerError(f"layer {layer!r} does not feed the output of this network: choose another layer")


def _tapped_input(arguments: tuple[Any, ...]) -> tuple[Reading, tuple[Any, ...]]:
    first, *others = arguments
    if not isinstance(first, Tensor) or not first.is_floating_point():
        raise LayerError("the input of this network is no tensor of floats and cannot be read: choose a layer")
    with torch._C.DisableTorchFunction():  # noqa: SLF001 - our own mode must not see the tap
        reading, given = tap_on(first.clone() if first.is_inference() else first.detach())
    return reading, (given, *others)


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
    if is_live(argument):
        return argument
    if isinstance(argument, Tensor):
        return set_note(argument.clone() if argument.is_inference() else argument.detach(), Note())
    if type(argument) in {tuple, list}:
        return type(argument)(_live(item) for item in argument)
    return {key: _live(item) for key, item in argument.items()} if type(argument) is dict else argument
