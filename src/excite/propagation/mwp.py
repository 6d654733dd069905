"""The whole method in one call, for a bare module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import torch
from torch import nn

from excite.propagation.excitation_pass import ExcitationPass, as_signal
from excite.propagation.taps import layer_names
from excite.propagation.verify import verify as verification

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from excite.propagation.taps import Layer, Layers


@overload
def mwp(
    module: nn.Module,
    inputs: Tensor | tuple[Any, ...],
    signal: Tensor | int | Mapping[int, float],
    *,
    layer: Layer,
    contrastive: bool = False,
    dual: bool = False,
    verify: bool = False,
) -> Tensor: ...


@overload
def mwp(
    module: nn.Module,
    inputs: Tensor | tuple[Any, ...],
    signal: Tensor | int | Mapping[int, float],
    *,
    layer: list[Layer] | tuple[Layer, ...],
    contrastive: bool = False,
    dual: bool = False,
    verify: bool = False,
) -> dict[str, Tensor]: ...


def mwp(
    module: nn.Module,
    inputs: Tensor | tuple[Any, ...],
    signal: Tensor | int | Mapping[int, float],
    *,
    layer: Layers,
    contrastive: bool = False,
    dual: bool = False,
    verify: bool = False,
) -> Tensor | dict[str, Tensor]:
    """The marginal winning probability of every neuron of a layer, by Excitation Backprop.

    Args:
        module: any network in plain PyTorch, [images, ...] -> [images, classes] or [images, classes, h, w]. It
            is run once and left exactly as it was found.
        inputs: what it is called with: a batch, or a tuple of arguments.
        signal: the top-down signal P(A_0). A class index; weights for several classes, ``{cat: 1, dog: -1}`` (any
            linear combination); a tensor of integers with one class for each image; a tensor of floats with one
            weight for each class, or of the output's shape, or several of those in a leading dimension.
        layer: a module of the network, or its name as in ``module.named_modules()``; several give a dict, by names.
        contrastive: subtract the map of the dual unit, whose weights are the negatives (c-MWP). Signed, not truncated.
        dual: the map of the dual unit alone.
        verify: run the network a few more times, with changed activations, and refuse it where its output responds
            otherwise than the graph says: values left it unseen (see `excite.propagation.verify`).

    Returns:
        the winning probabilities, of the shape of the layer's output, with a leading dimension where ``signal`` has
        one. They sum to 1, less what was lost at units that only their bias excites.

    Raises:
        NoRuleError: an operation between the layer and the output has no top-down rule.
        LayerError: there is no such layer, or it does not feed the output.
        SignalError: the signal does not fit the output.
        VerificationError: the response of the output is not that of the graph.

    Example:
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> mwp(net, torch.ones(1, 1, 4, 4), 2, layer="1").shape
        torch.Size([1, 2, 2, 2])
    """
    layers = layer_names(module, layer)
    excitation = ExcitationPass(module, inputs, layers, reuse=False)
    signals = as_signal(signal, excitation.output)
    if verify:
        verification(module, inputs, layers).check()
    sent = (0.0, 1.0) if dual else (1.0, -1.0 if contrastive else 0.0)
    maps = excitation.down(signals, unit=sent[0], dual=sent[1])
    several = isinstance(signal, torch.Tensor) and signal.dim() > excitation.output.dim()
    result = {name: maps[name] if several else maps[name][0] for name in layers}
    return result[layers[0]] if isinstance(layer, str | nn.Module) else result
