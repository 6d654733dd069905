"""Carrying values down that no float could hold: every tensor on the way has a scale of its own.

Without the normaliser of Eqn. 4 the values grow or shrink by a factor at every layer, and over fifty layers they leave
the range of floats. The way down is linear, so this does not matter as long as what meets at a unit has one scale.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from excite.propagation.descent import handed_down
from excite.propagation.graph import outputs_of, rule_of

if TYPE_CHECKING:
    from excite.propagation.descent import Descent

__all__ = ["carry_scaled"]


class Scaled(NamedTuple):
    """``values * 2 ** exponent``, the largest of the values between 1/2 and 1."""

    values: Tensor
    exponent: int

    @classmethod
    def of(cls, values: Tensor, exponent: int = 0) -> Scaled:
        """Move the scale of ``values`` into the exponent."""
        _, more = math.frexp(float(values.abs().max()) if values.numel() else 0.0)
        return cls(values * math.ldexp(1.0, -more), exponent + more)

    def at(self, exponent: int) -> Tensor:
        """The values in units of another exponent."""
        return self.values * math.ldexp(1.0, self.exponent - exponent)

    def plus(self, other: Scaled | None) -> Scaled:
        """The sum of two, at the larger scale."""
        if other is None:
            return self
        exponent = max(self.exponent, other.exponent)
        return Scaled.of(self.at(exponent) + other.at(exponent), exponent)


@torch.no_grad()
def carry_scaled(way: Descent, signal: Tensor) -> list[Tensor]:
    """What a signal brings to each probe by the rules of the graph, each probe at a scale of its own."""
    waiting: dict[Any, dict[int, Scaled]] = defaultdict(dict)
    ((top, top_output),) = way.starts
    waiting[top][top_output] = Scaled.of(signal)
    found: dict[Tensor, Tensor] = {}
    for node in way.order:
        arrived = waiting.pop(node, {})
        if not arrived:
            continue
        if hasattr(node, "variable"):
            found[node.variable] = arrived[0].values
            continue
        exponent = max(each.exponent for each in arrived.values())
        values = {output: each.at(exponent)[None] for output, each in arrived.items()}
        shares = handed_down(node, values, rule_of(node))
        for k, below, output in way.below(node):
            share = shares[k]
            if share is not None:
                fitting = share[0].to(outputs_of(below)[output].dtype)
                waiting[below][output] = Scaled.of(fitting, exponent).plus(waiting[below].get(output))
    return [found.get(probe, torch.zeros_like(probe)) for probe in way.probes]
