"""The Markov chain itself, for networks small enough to write it down (paper, section 3.1).

A walk starts at an output unit drawn from the signal, goes from parent to child with the rules' probabilities, and
ends at a unit of the lowest layer (or is lost at a unit that nothing but its bias excites). In canonical form

    P = [ Q  R ]      N = (I - Q)^-1
        [ 0  I ]

Q holds the steps among the transient units (the output and all layers but the lowest), R those into the lowest
layer, and entry (i, j) of the fundamental matrix N is the expected number of visits to j of a walk from i. A unit of
a feedforward network is visited at most once, so that number is its winning probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from excite.errors import SizeError
from excite.propagation.signals import as_signal
from excite.propagation.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

__all__ = ["AbsorbingChain", "absorbing_chain", "transition_matrix"]

UNITS = 64  # go down together
LARGEST = 2**26  # entries of a matrix: half a gigabyte in float64


@dataclass(frozen=True)
class AbsorbingChain:
    """The absorbing Markov chain of a network and one image.

    Attributes:
        steps: Q, the transition probabilities among the transient units.
        ends: R, the transition probabilities into the units of the lowest layer. What is missing from a row of
            [Q R] is lost: units excited by their bias alone have nobody to hand their probability to.
        fundamental: N = (I - Q)^-1.
        places: where each layer's units stand in Q ("" is the output); the lowest layer's stand in R.
        shapes: the shape of each layer.
    """

    steps: Tensor
    ends: Tensor
    fundamental: Tensor
    places: Mapping[str, slice]
    shapes: Mapping[str, torch.Size]
    output: Tensor

    def mwp(self, signal: Tensor | int | Mapping[int, float], layer: str) -> Tensor:
        """The winning probabilities of a layer: P(A_0) times the fundamental matrix.

        Example:
            >>> from torch import nn
            >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
            >>> absorbing_chain(net, torch.ones(1, 3), ["1"]).mwp(0, "1").shape
            torch.Size([1, 4])
        """
        start = as_signal(signal, self.output)[0].flatten().to(self.steps.dtype)
        visits = start @ self.fundamental[self.places[""]]
        values = visits[self.places[layer]] if layer in self.places else visits @ self.ends
        return values.reshape(self.shapes[layer])


def transition_matrix(module: nn.Module, inputs: Tensor, upper: str | None, lower: str) -> Tensor:
    """The probability that a walk at each unit of ``upper`` comes through each unit of ``lower``.

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
    sweep = Sweep(module, inputs, [lower] if upper is None else [upper, lower])
    shape = sweep.output.shape if upper is None else sweep.readings[upper].probe.shape
    _check_size(shape.numel(), sweep.readings[lower].probe.numel())
    return _steps(sweep, upper, shape, [lower], absorbing=False)[0]


def absorbing_chain(module: nn.Module, inputs: Tensor, layers: Sequence[str]) -> AbsorbingChain:
    """The absorbing chain over the output units and the units of ``layers``, of which the last one absorbs.

    ``layers`` are given from the top down. Networks with branches are welcome: a step goes from a unit to the next
    of these layers on its way, whichever branch it takes.

    Example:
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
        >>> chain = absorbing_chain(net, torch.ones(1, 3), ["1", "0"])
        >>> chain.fundamental.shape  # 2 output units and 4 of layer 1; those of layer 0 absorb
        torch.Size([6, 6])
    """
    sweep = Sweep(module, inputs, layers)
    lowest = layers[-1]
    shapes = {layer: reading.probe.shape for layer, reading in sweep.readings.items()}
    sizes = {"": sweep.output.numel(), **{layer: shapes[layer].numel() for layer in layers[:-1]}}
    transient = sum(sizes.values())
    _check_size(transient, transient + shapes[lowest].numel())
    places, position = {}, 0
    for layer, size in sizes.items():
        places[layer] = slice(position, position + size)
        position += size
    rows = []
    for layer, size in sizes.items():
        shape = shapes[layer] if layer else sweep.output.shape
        blocks = _steps(sweep, layer or None, shape, layers, absorbing=True)
        rows.append(torch.cat([torch.zeros(size, sizes[""], dtype=blocks[0].dtype), *blocks], dim=1))
    matrix = torch.cat(rows)
    steps, ends = matrix[:, :transient], matrix[:, transient:]
    fundamental = torch.linalg.inv(torch.eye(transient, dtype=steps.dtype) - steps)
    return AbsorbingChain(steps, ends, fundamental, places, shapes, sweep.output)


def _steps(
    sweep: Sweep, upper: str | None, shape: torch.Size, layers: Sequence[str], *, absorbing: bool
) -> list[Tensor]:
    """For each layer the probabilities of reaching its units from each unit of ``upper``, a row each."""
    start = sweep.start(upper)
    units = torch.eye(shape.numel(), dtype=sweep.output.dtype).view(-1, *shape)
    parts = [sweep.carry(start, some, absorbing=absorbing) for some in torch.split(units, UNITS)]
    return [torch.cat([part[layer].flatten(1) for part in parts]) for layer in layers]


def _check_size(height: int, width: int) -> None:
    if height * width > LARGEST:
        raise SizeError(
            f"the matrix would have {height:,} x {width:,} entries, {height * width * 8 / 2**30:,.1f} GiB in float64: "
            f"the limit is {math.isqrt(LARGEST):,} x {math.isqrt(LARGEST):,}; use excite.mwp, which never builds it"
        )
