"""Which layers of a network are worth trying."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from torch import nn

from excite.errors import LayerError, SignalError
from excite.models.layers import spatial_layers
from excite.propagation import ExcitationPass, prior

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from excite.models.layers import SpatialLayer

__all__ = ["candidate_layers"]

MOST = 12
UNCHANGING = ("Dropout", "Identity")  # the layer before them is the one people know
NEARLY = 1.4  # borders make a stride of 16 a ratio of 17 or 18


def candidate_layers(module: nn.Module, inputs: Tensor, most: int = MOST) -> list[SpatialLayer]:
    """The ends of a network's blocks below its last weights, in the order in which they are computed.

    Of too many, the last one of each resolution is kept, and the others from the top down: what lies low knows edges
    and textures, but no concepts.

    Args:
        module: the network.
        inputs: a batch of one picture to try it with.
        most: how many layers at most, except that each resolution keeps one.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
        >>> [layer.name for layer in candidate_layers(network, torch.ones(1, 3, 8, 8))]  # doctest: +SKIP
        ['1']
    """
    seen = {layer.name: layer for layer in spatial_layers(module, inputs) if layer.height * layer.width > 1}
    names = set(_block_names(module, seen))
    steps = [layer for name, layer in seen.items() if name in names and not layer.kind.startswith(UNCHANGING)]
    steps = _without_halves(module, steps)
    blocks = [seen[_shortest_name(module, step.name, steps)] for step in steps]
    blocks = _below_the_weights(module, inputs, blocks)
    if not blocks:
        raise LayerError("no layer below the classifier's weights has places to show: name the layers to try")
    return _thinned(blocks, most)


def _block_names(parent: nn.Module, seen: dict[str, SpatialLayer], prefix: str = "") -> Iterator[str]:
    """The steps of a network. Steps inside a block are none: the branches there each see a part of the signal."""
    for child_name, child in parent.named_children():
        name = prefix + child_name
        if isinstance(child, nn.Sequential | nn.ModuleList) or _is_network(name, seen):
            yield from _block_names(child, seen, name + ".")
        elif name in seen:
            yield name


def _is_network(name: str, seen: dict[str, SpatialLayer]) -> bool:
    """A module that goes through several resolutions is no block, but a network of blocks within the network."""
    strides = [layer.stride for layer in seen.values() if layer.name.startswith(name + ".")]
    return bool(strides) and max(strides) > 2 * NEARLY * min(strides)


def _without_halves(module: nn.Module, steps: Sequence[SpatialLayer]) -> list[SpatialLayer]:
    """Leave out what is only normalised or clipped by the step behind it: a convolution before its ReLU."""

    def finishes(step: SpatialLayer, before: SpatialLayer) -> bool:
        has_weights = any(weight.dim() > 1 for weight in module.get_submodule(step.name).parameters())
        shapes = {(layer.channels, layer.height, layer.width) for layer in (step, before)}
        return not has_weights and len(shapes) == 1

    return [*(step for step, behind in pairwise(steps) if not finishes(behind, step)), *steps[-1:]]


def _shortest_name(module: nn.Module, name: str, steps: Sequence[SpatialLayer]) -> str:
    """Of a chain from which only the last step is left, such as convolution, norm and ReLU, the name of the chain."""
    parent, _, child = name.rpartition(".")
    siblings = [step for step in steps if step.name.startswith(parent + ".")]
    chain = module.get_submodule(parent)
    is_last = isinstance(chain, nn.Sequential) and child == [name for name, _ in chain.named_children()][-1]
    return parent if parent and is_last and len(siblings) == 1 else name


def _below_the_weights(module: nn.Module, inputs: Tensor, layers: list[SpatialLayer]) -> list[SpatialLayer]:
    """Leave out the top ones, which have no dual unit to contrast with because they lie above the last weights."""
    while layers:
        sweep = ExcitationPass(module, inputs, [layers[-1].name])
        try:
            sweep.down(prior(sweep.output, {0: 1.0}), dual=-1.0)
        except SignalError:
            layers = layers[:-1]
        else:
            break
    return layers


def _thinned(layers: Sequence[SpatialLayer], most: int) -> list[SpatialLayer]:
    ends = [layer for layer, behind in pairwise(layers) if behind.stride > NEARLY * layer.stride] + [layers[-1]]
    others = [layer for layer in reversed(layers) if layer not in ends][: max(most - len(ends), 0)]
    return [layer for layer in layers if layer in ends or layer in others]
