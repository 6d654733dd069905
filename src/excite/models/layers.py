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
NEARLY = 1.4  # borders make a stride of 16 a ratio of 17 or 18; the next stride would be 32


@dataclass(frozen=True)
class SpatialLayer:
    """A layer whose output is a map: its name, kind, channels, size, and how many pixels one step is."""

    name: str
    kind: str
    channels: int
    height: int
    width: int
    stride: float

    @property
    def depth(self) -> int:
        """How many modules it lies within."""
        return self.name.count(".")


def spatial_layers(module: nn.Module, inputs: Tensor) -> list[SpatialLayer]:
    """All layers that give [pictures, channels, height, width], in the order in which they are computed.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
        >>> [layer.name for layer in spatial_layers(network, torch.ones(1, 3, 8, 8))]
        ['0', '1']
    """
    return [layer for layer in _run(module, inputs) if isinstance(layer, SpatialLayer) and layer.name]


def default_layer(module: nn.Module, inputs: Tensor) -> str:
    """A layer to read when nobody named one.

    It has places, and lies below the classifier's own weights, where there is something to contrast. Of the layers
    with a stride of 16, or else the largest stride below that, the last one of those that lie within the fewest
    modules: the branches inside a block each see only a part of the signal.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1))
        >>> default_layer(network, torch.ones(1, 3, 8, 8))
        '1'
    """
    layers = _run(module, inputs)
    last_weights = max((k for k, layer in enumerate(layers) if not isinstance(layer, SpatialLayer)), default=0)
    below = [layer for layer in layers[:last_weights] if isinstance(layer, SpatialLayer)]
    places = [layer for layer in below if layer.height * layer.width > 1 and layer.name]
    if not places:
        raise LayerError(
            "no layer below the classifier's weights has places to show: name a layer, or use excite.mwp for neurons"
        )
    fine = [layer for layer in places if layer.stride <= USUAL_STRIDE * NEARLY] or places
    coarsest = max(layer.stride for layer in fine)
    even = [layer for layer in fine if layer.stride * NEARLY >= coarsest]
    return min(reversed(even), key=lambda layer: layer.depth).name


def _run(module: nn.Module, inputs: Tensor) -> list[SpatialLayer | str]:
    """What happens in one run, in the order in which it ends: layers that are maps, and names of modules with weights.

    A module that is called several times is there where its last call is.
    """
    module = plain_network(module)
    seen: dict[tuple[str, str], SpatialLayer | str] = {}

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(child: nn.Module, _arguments: Any, answer: Any) -> None:
            if any(weight.dim() > 1 for weight in child.parameters(recurse=False)):
                seen.pop((name, "weights"), None)
                seen[name, "weights"] = name
            if isinstance(answer, Tensor) and answer.dim() == 4:
                _, channels, height, width = answer.shape
                stride = inputs.shape[-2] / height
                seen.pop((name, "map"), None)
                seen[name, "map"] = SpatialLayer(name, type(child).__name__, channels, height, width, stride)

        return hook

    handles = [child.register_forward_hook(note(name)) for name, child in module.named_modules()]
    try:
        with as_found(module), torch.no_grad():
            module(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return list(seen.values())
