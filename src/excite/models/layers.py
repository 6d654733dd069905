"""The layers of a network that can be read as maps, seen in one run of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from excite.errors import LayerError
from excite.propagation.networks import as_found, plain_network

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SpatialLayer", "default_layer", "spatial_layers"]

USUAL_STRIDE = 16  # fine enough to point, coarse enough to mean something (the paper's pool4 of VGG16)


@dataclass(frozen=True)
class SpatialLayer:
    """A layer whose output is a map: its name, kind, channels, size, and how many pixels one step is."""

    name: str
    kind: str
    channels: int
    height: int
    width: int
    stride: float


def spatial_layers(module: nn.Module, inputs: Tensor) -> list[SpatialLayer]:
    """All layers that give [pictures, channels, height, width], in the order in which they are computed.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
        >>> [layer.name for layer in spatial_layers(network, torch.ones(1, 3, 8, 8))]
        ['0', '1']
    """
    module = plain_network(module)
    seen: dict[str, SpatialLayer] = {}

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(child: nn.Module, _arguments: Any, answer: Any) -> None:
            if isinstance(answer, Tensor) and answer.dim() == 4:
                _, channels, height, width = answer.shape
                stride = inputs.shape[-2] / height
                seen.pop(name, None)
                seen[name] = SpatialLayer(name, type(child).__name__, channels, height, width, stride)

        return hook

    handles = [child.register_forward_hook(note(name)) for name, child in module.named_modules() if name]
    try:
        with as_found(module), torch.no_grad():
            module(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return list(seen.values())


def default_layer(module: nn.Module, inputs: Tensor) -> str:
    """A layer to read when nobody named one: the last with a stride of 16 or less that still has places."""
    layers = [layer for layer in spatial_layers(module, inputs) if layer.height * layer.width > 1]
    if not layers:
        raise LayerError("no layer of this network has places to show: use excite.mwp for its neurons")
    fine = [layer for layer in layers if layer.stride <= USUAL_STRIDE]
    return (fine or layers)[-1].name
