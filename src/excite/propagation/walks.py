"""Walks down the network: winners drawn at random (the paper's process itself), or the strongest one (its ancestor).

Both go node by node through the graph of one forward pass and ask each rule for the conditional probabilities
P(a_j | a_i) of one unit's children, so they follow exactly what `Sweep.down` sums over.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from excite.errors import SignalError
from excite.propagation.affine import Affine
from excite.propagation.descent import handed_down
from excite.propagation.graph import outputs_of, rule_of, top_down
from excite.propagation.rules import Tap
from excite.propagation.signals import as_signal
from excite.propagation.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn

    Place = tuple[Any, int, int]  # a node of the graph, which of its outputs, which unit of that output
    Choice = Callable[[Tensor, list[int]], list[tuple[int, list[int]]]]

__all__ = ["Walks", "sample_winners", "winner_take_all"]


@dataclass(frozen=True)
class Walks:
    """Winner paths drawn by `sample_winners`.

    Attributes:
        visits: for each layer how many walks came through each of its units, in the layer's shape.
        paths: for each walk the unit it came through at each layer (its index in the layer's shape), None where the
            walk took another branch or was lost before it.
        count: how many walks were drawn.
    """

    visits: Mapping[str, Tensor]
    paths: Mapping[str, list[tuple[int, ...] | None]]
    count: int

    def frequency(self, layer: str) -> Tensor:
        """The share of the walks that came through each unit: it tends to the winning probability."""
        return self.visits[layer] / self.count


def sample_winners(
    module: nn.Module,
    inputs: Tensor,
    signal: Tensor | int | Mapping[int, float],
    *,
    layers: Sequence[str],
    count: int = 1000,
    seed: int = 0,
) -> Walks:
    """Draw winner paths from the output units down to the lowest of ``layers``.

    Args:
        module: any network in plain PyTorch.
        inputs: one image (batch of one).
        signal: the probability of each output unit; it must be a distribution.
        layers: the layers at which the paths are written down.
        count: how many paths.
        seed: the same seed gives the same paths.

    Example:
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
        >>> int(sample_winners(net, torch.ones(1, 3), 0, layers=["1"], count=10).visits["1"].sum()) <= 10
        True
    """
    sweep = Sweep(module, inputs, layers)
    start = as_signal(signal, sweep.output)[0].flatten().double()
    if bool((start < 0).any()) or abs(float(start.sum()) - 1) > 1e-4:
        raise SignalError("winners can only be drawn from a distribution: non-negative and summing to 1")
    generator = torch.Generator().manual_seed(seed)

    def draw(probabilities: Tensor, walks: list[int]) -> list[tuple[int, list[int]]]:
        children = probabilities.nonzero()[:, 0]
        reached = probabilities[children].cumsum(0)
        drawn = torch.searchsorted(
            reached, torch.rand(len(walks), generator=generator, dtype=torch.float64), right=True
        )
        chosen = defaultdict(list)
        for walk, child in zip(walks, drawn.tolist(), strict=True):
            if child < len(children):  # beyond: the probabilities sum to less than 1, and this walk is lost
                chosen[int(children[child])].append(walk)
        return list(chosen.items())

    visited = _descend(sweep, draw(start, list(range(count))), draw)
    visits, paths = {}, {}
    for layer, reading in sweep.readings.items():
        shape = reading.probe.shape
        units: list[tuple[int, ...] | None] = [None] * count
        visits[layer] = torch.zeros(shape.numel(), dtype=torch.float64)
        for unit, walks in visited[layer]:
            visits[layer][unit] += len(walks)
            for walk in walks:
                units[walk] = _unravel(unit, shape)
        visits[layer] = visits[layer].view(shape)
        paths[layer] = units
    return Walks(visits, paths, count)


def winner_take_all(
    module: nn.Module, inputs: Tensor, unit: int, *, layers: Sequence[str], tolerance: float = 0.0
) -> dict[str, Tensor]:
    """The deterministic winner-take-all of Selective Tuning, for comparison: a binary map for each layer.

    From the cued output unit down, every winner selects the strongest of its children.

    Args:
        module: any network in plain PyTorch.
        inputs: one image (batch of one).
        unit: the output unit that is selected at the top.
        layers: the layers whose winners are wanted.
        tolerance: children within this fraction of the strongest win with it (0: the strongest alone, and ties).

    Example:
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
        >>> winner_take_all(net, torch.ones(1, 3), 0, layers=["1"])["1"].shape
        torch.Size([1, 4])
    """
    sweep = Sweep(module, inputs, layers)
    start = as_signal(unit, sweep.output)[0].flatten().double()

    def strongest(probabilities: Tensor, walks: list[int]) -> list[tuple[int, list[int]]]:
        most = probabilities.max()
        if most <= 0 or most < 1 - probabilities.sum():  # nobody, or a stronger branch that leads to no layer read
            return []
        winners = (probabilities >= most * (1 - tolerance) * (1 - 1e-9)).nonzero()[:, 0]
        return [(int(winner), walks[:1]) for winner in winners]

    visited = _descend(sweep, strongest(start, [0]), strongest)
    maps = {}
    for layer, reading in sweep.readings.items():
        winners = torch.zeros(reading.probe.numel(), dtype=torch.bool)
        winners[[winner for winner, _ in visited[layer]]] = True
        maps[layer] = winners.view(reading.probe.shape)
    return maps


def _descend(
    sweep: Sweep, start: list[tuple[int, list[int]]], choose: Choice
) -> dict[str, list[tuple[int, list[int]]]]:
    """Let walks go down from output units, choosing among the children at each unit; tell who came through a probe."""
    if sweep.output.shape[0] != 1:
        raise SignalError(f"walks go through one image at a time, but the batch has {sweep.output.shape[0]}")
    layers = {reading.probe: layer for layer, reading in sweep.readings.items()}
    visited: dict[str, list[tuple[int, list[int]]]] = {layer: [] for layer in layers.values()}
    waiting: dict[Any, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    (top,) = sweep.start().edges
    for unit, walks in start:
        waiting[top.node][top.output_nr, unit].extend(walks)
    for node in top_down(top.node):
        for (output, unit), walks in waiting.pop(node, {}).items():
            if hasattr(node, "variable"):
                if node.variable in layers:
                    visited[layers[node.variable]].append((unit, walks))
                continue
            shares = _conditional(node, output, unit)
            sweep.check_maps(shares)
            for edge, child, followers in _next(node, shares, walks, choose):
                below, below_output = node.next_functions[edge]
                if below is not None:
                    waiting[below][below_output, child].extend(followers)
    return visited


def _next(node: Any, shares: list[Tensor], walks: list[int], choose: Choice) -> list[tuple[int, int, list[int]]]:
    """Where the walks at one unit go, with its shares: (edge of the graph, unit there, walks)."""
    recorded = isinstance(rule_of(node), Tap)  # then the second edge leads to the probe
    moves = [(edge, int(share.argmax()), walks) for edge, share in enumerate(shares) if edge and recorded]
    ways = [share.double().flatten() for share in (shares[:1] if recorded else shares)]
    ends = torch.tensor([len(way) for way in ways]).cumsum(0).tolist()
    for child, followers in choose(torch.cat(ways), walks):
        edge = next(k for k, end in enumerate(ends) if child < end)
        moves.append((edge, child - (ends[edge] - len(ways[edge])), followers))
    return moves


def _conditional(node: Any, output: int, unit: int) -> list[Tensor]:
    """P(a_j | a_i) over the children of one unit, for each input of the node."""
    shapes = [list(meta.shape) for meta in outputs_of(node)]
    dtype = outputs_of(node)[output].dtype
    place = list(_unravel(unit, torch.Size(shapes[output])))
    rule = rule_of(node)
    if isinstance(rule, Affine) and rule.row_dim is not None and not rule.grouped:
        dim = rule.row_dim
        rule, place[dim] = rule.row(place[dim]), 0
        for shape in shapes:
            shape[dim] = 1
    won = torch.zeros(shapes[output], dtype=dtype)
    won[tuple(place)] = 1
    shares = handed_down(node, {output: won[None]}, rule)
    return [torch.zeros(0) if share is None else share[0] for share in shares]


def _unravel(index: int, shape: torch.Size) -> tuple[int, ...]:
    return tuple(int(place) for place in np.unravel_index(index, shape))
