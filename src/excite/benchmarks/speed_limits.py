"""How fast a map could be: the arithmetic that cannot be avoided.

A map at a layer takes the forward pass, and, above the layer, the two steps of the paper's Algorithm 1: once more
forward with positive weights for the normaliser, and once back. That is 1 + 2 x the share of the forward pass that lies
above the layer, if nothing but multiply-adds took time.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch.utils.flop_counter import FlopCounterMode

from excite.propagation.taps import find_layer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from excite.benchmarks.speed_rounds import Stopwatch

__all__ = ["Above", "above_layers"]

RUNS = 5


@dataclass(frozen=True)
class Above:
    """How much of a forward pass lies above a layer.

    Attributes:
        arithmetic: the share of its multiply-adds,
        time: and the share of its time.
    """

    arithmetic: float
    time: float

    @property
    def limit(self) -> float:
        """The least that a map can cost, in forward passes.

        Example:
            >>> Above(arithmetic=0.25, time=0.5).limit
            1.5
        """
        return 1 + 2 * self.arithmetic


def above_layers(module: nn.Module, batch: Tensor, layers: Sequence[str], stopwatch: Stopwatch) -> dict[str, Above]:
    """For each layer how much of the forward pass is done after it.

    Example:
        >>> from torch import nn
        >>> from excite.benchmarks.speed_rounds import Stopwatch
        >>> net = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Conv2d(1, 1, 1))
        >>> above_layers(net, torch.ones(1, 1, 4, 4), ["1"], Stopwatch())["1"].arithmetic
        0.5
    """
    counter = FlopCounterMode(display=False)
    with counter:
        done, whole = _marks(module, batch, layers, lambda: float(counter.get_total_flops()))
    runs = []
    for _ in range(RUNS):
        marks, end = _marks(module, batch, layers, lambda: _now(stopwatch))
        runs.append({layer: (end - marks[layer]) / (end - marks[""]) for layer in layers})
    return {layer: Above(1 - done[layer] / whole, median(run[layer] for run in runs)) for layer in layers}


def _marks(
    module: nn.Module, batch: Tensor, layers: Sequence[str], read: Callable[[], float]
) -> tuple[dict[str, float], float]:
    """What is read when each layer has been computed (for the last time), at the start (under no name) and the end."""
    marks: dict[str, float] = {}

    def mark(layer: str) -> Callable[..., None]:
        return lambda *_: marks.update({layer: read()})

    handles = [find_layer(module, layer)[0].register_forward_hook(mark(layer)) for layer in layers]
    try:
        with torch.no_grad():
            mark("")()
            module(batch)
    finally:
        for handle in handles:
            handle.remove()
    return marks, read()


def _now(stopwatch: Stopwatch) -> float:
    stopwatch.wait()
    return stopwatch.clock()
