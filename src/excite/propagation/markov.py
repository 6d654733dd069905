"""The Markov chain of a network (paper, section 3.1; docs/theory.md): its matrices, and paths that are drawn from it.

Paths are drawn node by node through the graph of one forward pass, from the conditional probabilities P(a_j | a_i) of
each rule, so they follow exactly what `ExcitationPass.down` sums over.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from excite.errors import SignalError, SizeError
from excite.propagation.excitation_pass import ExcitationPass, as_signal
from excite.propagation.fast.kernels import FastAffine
from excite.propagation.graph import Subgraph, down, outputs_of
from excite.propagation.rules import Tap
from excite.propagation.taps import Layer, Layers, is_edges, layer_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor, nn

    Visits = list[tuple[int, list[int]]]  # a unit, and the paths that passed it
    Choice = Callable[[Tensor, list[int]], Visits]

UNITS = 64  # whose signals are propagated together
LARGEST = 2**26  # entries of a matrix: half a gigabyte in float64


@dataclass(frozen=True)
class AbsorbingChain:
    """The absorbing Markov chain of a network and one image.

    Attributes:
        steps: Q, the transition probabilities among the transient units.
        ends: R, the transition probabilities into the units of the lowest layer. What is missing from a row of
            [Q R] is lost at units that only their bias excites.
        fundamental: N = (I - Q)^-1.
        places: the rows of each layer's units in Q ("" is the output); the lowest layer's are the columns of R.
        shapes: the shape of each layer.
    """

    steps: Tensor
    ends: Tensor
    fundamental: Tensor
    places: Mapping[str, slice]
    shapes: Mapping[str, torch.Size]
    output: Tensor

    def mwp(self, signal: Tensor | int | Mapping[int, float], layer: str) -> Tensor:
        """The winning probabilities of a layer: P(A_0) times the fundamental matrix."""
        start = as_signal(signal, self.output)[0].flatten().to(self.steps.dtype)
        visits = start @ self.fundamental[self.places[""]]
        values = visits[self.places[layer]] if layer in self.places else visits @ self.ends
        return values.reshape(self.shapes[layer])


def transition_matrix(module: nn.Module, inputs: Tensor, upper: Layer | None, lower: Layer) -> Tensor:
    """The probability that a path from each unit of ``upper`` passes each unit of ``lower``.

    Args:
        module: a small network.
        inputs: one image (batch of one).
        upper: a layer; None for the output units.
        lower: a layer below it.

    Returns:
        [units of upper, units of lower], in the order of the flattened layers. Rows sum to 1 less what is lost.

    Example:
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
        >>> transition_matrix(net, torch.ones(1, 3), None, "1").shape
        torch.Size([2, 4])
    """
    *above, below = layer_names(module, [lower] if upper is None else [upper, lower])
    excitation, start = ExcitationPass(module, inputs, [*above, below]), above[0] if above else None
    shape = excitation.output.shape if start is None else excitation.readings[start].probe.shape
    _check_size(shape.numel(), excitation.readings[below].probe.numel())
    return _steps(excitation, start, shape, [below], absorbing=False)[0]


def absorbing_chain(module: nn.Module, inputs: Tensor, layers: Layers) -> AbsorbingChain:
    """The absorbing chain over the output units and the units of ``layers``, of which the last one absorbs.

    ``layers`` are given from the top down. In networks with branches a step goes from a unit to the next of these
    layers on its path, whichever branch it takes.

    Example:
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
        >>> chain = absorbing_chain(net, torch.ones(1, 3), ["1", "0"])
        >>> chain.fundamental.shape  # 2 output units and 4 of layer 1; those of layer 0 absorb
        torch.Size([6, 6])
        >>> chain.mwp(0, "1").shape
        torch.Size([1, 4])
    """
    layers = layer_names(module, layers)
    _check_units(layers)
    excitation = ExcitationPass(module, inputs, layers)
    lowest = layers[-1]
    shapes = {layer: reading.probe.shape for layer, reading in excitation.readings.items()}
    sizes = {"": excitation.output.numel(), **{layer: shapes[layer].numel() for layer in layers[:-1]}}
    transient = sum(sizes.values())
    _check_size(transient, transient + shapes[lowest].numel())
    ends_at = list(accumulate(sizes.values()))
    places = {layer: slice(end - size, end) for (layer, size), end in zip(sizes.items(), ends_at, strict=True)}
    rows = []
    for layer, size in sizes.items():
        shape = shapes[layer] if layer else excitation.output.shape
        blocks = _steps(excitation, layer or None, shape, layers, absorbing=True)
        rows.append(torch.cat([blocks[0].new_zeros(size, sizes[""]), *blocks], dim=1))
    matrix = torch.cat(rows)
    steps, ends = matrix[:, :transient], matrix[:, transient:]
    fundamental = torch.linalg.inv(torch.eye(transient, dtype=steps.dtype, device=steps.device) - steps)
    return AbsorbingChain(steps, ends, fundamental, places, shapes, excitation.output)


def _steps(
    excitation: ExcitationPass, upper: str | None, shape: torch.Size, layers: Sequence[str], *, absorbing: bool
) -> list[Tensor]:
    """For each layer the probabilities of reaching its units from each unit of ``upper``, a row each."""
    start = excitation.start(upper)
    output = excitation.output
    units = torch.eye(shape.numel(), dtype=output.dtype, device=output.device).view(-1, *shape)
    parts = [excitation.propagate(start, some, absorbing=absorbing) for some in torch.split(units, UNITS)]
    return [torch.cat([part[layer].flatten(1) for part in parts]) for layer in layers]


def _check_size(height: int, width: int) -> None:
    if height * width > LARGEST:
        raise SizeError(
            f"the matrix would have {height:,} x {width:,} entries, {height * width * 8 / 2**30:,.1f} GiB in float64: "
            f"the limit is {math.isqrt(LARGEST):,} x {math.isqrt(LARGEST):,}; use excite.mwp, which never builds it"
        )


def _check_units(layers: Iterable[str]) -> None:
    for layer in filter(is_edges, layers):
        raise SignalError(f"walks pass units, and {layer!r} are edges between them: read a module, or use mwp")


@dataclass(frozen=True)
class Walks:
    """Winner paths drawn by `sample_winners`.

    Attributes:
        visits: for each layer how many paths passed each of its units, in the layer's shape.
        paths: for each path the unit it passed at each layer (its index in the layer's shape), None where it took
            another branch or was lost before.
        count: how many paths were drawn.
    """

    visits: Mapping[str, Tensor]
    paths: Mapping[str, list[tuple[int, ...] | None]]
    count: int

    def frequency(self, layer: str) -> Tensor:
        """The fraction of the paths that passed each unit: it tends to the winning probability."""
        return self.visits[layer] / self.count


def sample_winners(
    module: nn.Module,
    inputs: Tensor,
    signal: Tensor | int | Mapping[int, float],
    *,
    layers: Layers,
    count: int = 1000,
    seed: int = 0,
) -> Walks:
    """Draw winner paths from the output units down to the lowest of ``layers``.

    Args:
        module: any network in plain PyTorch.
        inputs: one image (batch of one).
        signal: the probability of each output unit; it must be a distribution.
        layers: the layers at which the paths are recorded.
        count: how many paths.
        seed: the same seed gives the same paths.

    Example:
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
        >>> int(sample_winners(net, torch.ones(1, 3), 0, layers=["1"], count=10).visits["1"].sum()) <= 10
        True
    """
    excitation = ExcitationPass(module, inputs, layers)
    start = as_signal(signal, excitation.output)[0].flatten().cpu().double()
    if bool((start < 0).any()) or abs(float(start.sum()) - 1) > 1e-4:
        raise SignalError("winners can only be drawn from a distribution: non-negative and summing to 1")
    generator = torch.Generator().manual_seed(seed)

    def draw(probabilities: Tensor, walks: list[int]) -> Visits:
        children = probabilities.nonzero()[:, 0]
        reached = probabilities[children].cumsum(0)
        chances = torch.rand(len(walks), generator=generator, dtype=torch.float64)
        drawn = torch.searchsorted(reached, chances, right=True)
        chosen = defaultdict(list)
        for walk, child in zip(walks, drawn.tolist(), strict=True):
            if child < len(children):  # beyond: the probabilities sum to less than 1, and this walk is lost
                chosen[int(children[child])].append(walk)
        return list(chosen.items())

    visited = _descend(excitation, draw(start, list(range(count))), draw)
    visits = {layer: torch.zeros(each.probe.shape, dtype=torch.float64) for layer, each in excitation.readings.items()}
    paths: dict[str, list[tuple[int, ...] | None]] = {layer: [None] * count for layer in visits}
    for layer, counts in visits.items():
        for unit, walks in visited[layer]:
            counts.view(-1)[unit] += len(walks)
            for walk in walks:
                paths[layer][walk] = _unravel(unit, counts.shape)
    return Walks(visits, paths, count)


def winner_take_all(
    module: nn.Module, inputs: Tensor, unit: int, *, layers: Layers, tolerance: float = 0.0
) -> dict[str, Tensor]:
    """The deterministic winner-take-all of Selective Tuning, for comparison: a binary map for each layer.

    From the cued output unit on, every winner selects the strongest of its children.

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
    excitation = ExcitationPass(module, inputs, layers)
    start = as_signal(unit, excitation.output)[0].flatten().cpu().double()

    def strongest(probabilities: Tensor, walks: list[int]) -> Visits:
        most = probabilities.max()
        if most <= 0 or most < 1 - probabilities.sum():  # nobody, or a stronger branch that leads to no layer read
            return []
        winners = (probabilities >= most * (1 - tolerance) * (1 - 1e-9)).nonzero()[:, 0]
        return [(int(winner), walks[:1]) for winner in winners]

    visited = _descend(excitation, strongest(start, [0]), strongest)
    maps = {layer: torch.zeros_like(reading.probe, dtype=torch.bool) for layer, reading in excitation.readings.items()}
    for layer, winners in maps.items():
        places = torch.tensor([winner for winner, _ in visited[layer]], dtype=torch.long)
        winners.view(-1).index_fill_(0, places.to(winners.device), value=True)
    return maps


def _descend(excitation: ExcitationPass, start: Visits, choose: Choice) -> dict[str, Visits]:
    """Draw paths from output units, choosing among the children at each unit; for each layer which passed where."""
    if excitation.output.shape[0] != 1:
        raise SignalError(f"walks go through one image at a time, but the batch has {excitation.output.shape[0]}")
    _check_units(excitation.readings)
    layers = {reading.probe: layer for layer, reading in excitation.readings.items()}
    visited: dict[str, Visits] = {layer: [] for layer in layers.values()}
    waiting: dict[Any, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    (top,) = excitation.start().edges
    for unit, walks in start:
        waiting[top.node][top.output_nr, unit].extend(walks)
    for node, rule, _ in Subgraph([top], list(layers)).steps:
        for (output, unit), walks in waiting.pop(node, {}).items():
            if hasattr(node, "variable"):
                if node.variable in layers:
                    visited[layers[node.variable]].append((unit, walks))
                continue
            shares = _conditional(node, rule, output, unit)
            excitation.check_maps(shares)
            for edge, child, followers in _next(rule, shares, walks, choose):
                below, below_output = node.next_functions[edge]
                if below is not None:
                    waiting[below][below_output, child].extend(followers)
    return visited


def _next(rule: Any, shares: list[Tensor], walks: list[int], choose: Choice) -> list[tuple[int, int, list[int]]]:
    """Where the paths at one unit continue, with its shares: (edge of the graph, unit there, paths)."""
    recorded = isinstance(rule, Tap)  # then the second edge leads to the probe
    moves = [(edge, int(share.argmax()), walks) for edge, share in enumerate(shares) if edge and recorded]
    ways = [share.flatten().cpu().double() for share in (shares[:1] if recorded else shares)]
    ends = torch.tensor([len(way) for way in ways]).cumsum(0).tolist()
    for child, followers in choose(torch.cat(ways), walks):
        edge = next(k for k, end in enumerate(ends) if child < end)
        moves.append((edge, child - (ends[edge] - len(ways[edge])), followers))
    return moves


def _conditional(node: Any, rule: Any, output: int, unit: int) -> list[Tensor]:
    """P(a_j | a_i) over the children of one unit, for each input of the node."""
    shapes = [list(meta.shape) for meta in outputs_of(node)]
    meta = outputs_of(node)[output]
    place = list(_unravel(unit, torch.Size(shapes[output])))
    if isinstance(rule, FastAffine) and rule.hints.row_dim is not None and not rule.hints.grouped:
        dim = rule.hints.row_dim  # only the row of that unit
        rule, place[dim] = rule.restricted(slice(place[dim], place[dim] + 1)), 0
        for shape in shapes:
            shape[dim] = 1
    won = torch.zeros(shapes[output], dtype=meta.dtype, device=meta.device)
    won[tuple(place)] = 1
    shares = down(node, {output: won[None]}, rule)
    return [torch.zeros(0) if share is None else share[0] for share in shares]


def _unravel(index: int, shape: torch.Size) -> tuple[int, ...]:
    return tuple(int(place) for place in np.unravel_index(index, shape))
