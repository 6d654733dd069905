"""Pictures as a network sees them: it runs once for each way down and each size, whatever is asked of it then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from excite.errors import LayerError
from excite.propagation import ExcitationPass, Gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn

    from excite.methods.method import Method, Way

__all__ = ["View"]


class View:
    """A batch of pictures, with the forward passes that methods ask for.

    Excitation Backprop and gradients keep different things of a forward pass, so there are at most two for each size
    of the picture, however many concepts, layers and methods follow.

    Args:
        module: the network.
        prepare: the pictures as the network takes them, at a scale (1: the size that the classifier was made for).
        layers: for each method the layers at which it is read.

    Example:
        >>> from torch import nn, ones
        >>> from excite.methods import METHODS
        >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
        >>> view = View(net, lambda scale: ones(1, 1, 4, 4), {METHODS["mwp"]: ["1"]})
        >>> view.output.shape
        torch.Size([1, 3])
    """

    def __init__(
        self, module: nn.Module, prepare: Callable[[float], Tensor], layers: Mapping[Method, Sequence[str]]
    ) -> None:
        self.module = module
        self.prepare = prepare
        self.layers = {method: tuple(names) for method, names in layers.items()}
        self._winners: dict[float, ExcitationPass] = {}
        self._gradients: dict[float, Gradients] = {}

    @property
    def output(self) -> Tensor:
        """What the network says of the pictures."""
        ways = {method.way for method in self.layers}
        return self.gradients().output if ways == {"gradients"} else self.winners().output

    def winners(self, scale: float = 1.0) -> ExcitationPass:
        """The forward pass from which winning probabilities go down."""
        if scale not in self._winners:
            sweep = ExcitationPass(self.module, self.prepare(scale), self._read_by("winners", scale))
            check_spatial({layer: reading.probe for layer, reading in sweep.readings.items()})
            self._winners[scale] = sweep
        return self._winners[scale]

    def gradients(self, scale: float = 1.0) -> Gradients:
        """The forward pass from which gradients go down."""
        if scale not in self._gradients:
            gradients = Gradients(self.module, self.prepare(scale), self._read_by("gradients", scale))
            check_spatial(gradients.activations)
            self._gradients[scale] = gradients
        return self._gradients[scale]

    def passes(self) -> list[ExcitationPass | Gradients]:
        """The forward passes so far."""
        return [*self._winners.values(), *self._gradients.values()]

    def maps(self, method: Method, cue: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """The maps [pictures, h, w] of a method, at the layers at which it is read."""
        found = method.maps(self, cue)
        return {layer: found[layer] for layer in self.layers[method]}

    def maps_of(self, method: Method, cues: Sequence[Callable[[Tensor], Tensor]]) -> list[dict[str, Tensor]]:
        """The maps of several cues, as `maps` gives them for each: together where the method can do that."""
        if not method.together or len(cues) < 2:
            return [self.maps(method, cue) for cue in cues]
        found = self.maps(method, lambda output: torch.stack([cue(output) for cue in cues]))
        apart = {layer: torch.chunk(maps, len(cues)) for layer, maps in found.items()}
        return [{layer: maps[k] for layer, maps in apart.items()} for k in range(len(cues))]

    def _read_by(self, way: Way, scale: float) -> list[str]:
        """All layers at which methods of that way look from that scale."""
        asking = [method for method in self.layers if method.way == way and scale in method.scales]
        places = ((method, place) for method in asking for place in self.layers[method])
        return list(dict.fromkeys(layer for method, place in places for layer in method.taps(place)))


def check_spatial(activations: Mapping[str, Tensor]) -> None:
    """Refuse layers whose output has no places to draw."""
    for layer, values in activations.items():
        if values.dim() != 4:
            raise LayerError(
                f"layer {layer!r} has no places: its output has shape {tuple(values.shape)}, not [N, C, H, W]; "
                "choose a convolutional layer (`excite ls layers` lists them), or use excite.mwp for its neurons"
            )
