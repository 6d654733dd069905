"""Carrying values down that no float could hold: every tensor on the way has a scale of its own.

Without the normaliser of Eqn. 3 the values grow or shrink by a factor at every layer, and over fifty layers they leave
the range of floats. The way down is linear, so this does not matter as long as what meets at a unit has one scale.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from excite.propagation.graph import outputs_of, rule_of, top_down

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.autograd.graph import GradientEdge

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
def carry_scaled(start: GradientEdge, signal: Tensor, probes: Sequence[Tensor]) -> list[Tensor]:
    """What a signal at ``start`` brings to each probe by the rules of the graph, each probe at a scale of its own."""
    order = top_down(start.node)
    needed = _leading_to(order, probes)
    waiting: dict[Any, dict[int, Scaled]] = defaultdict(dict)
    waiting[start.node][start.output_nr] = Scaled.of(signal)
    found: dict[Tensor, Tensor] = {}
    for node in order:
        arrived = waiting.pop(node, {}) if node in needed else {}
        if not arrived:
            continue
        if hasattr(node, "variable"):
            found[node.variable] = arrived[0].values
            continue
        exponent = max(each.exponent for each in arrived.values())
        shares = _handed_down(node, {output: each.at(exponent) for output, each in arrived.items()})
        for (below, output), share in zip(node.next_functions, shares, strict=True):
            if below in needed and share is not None:
                waiting[below][output] = Scaled.of(_fitting(share, below, output), exponent).plus(
                    waiting[below].get(output)
                )
    return [found.get(probe, torch.zeros_like(probe)) for probe in probes]


def _leading_to(order: Sequence[Any], probes: Sequence[Tensor]) -> set[Any]:
    """The nodes from which a probe can be reached."""
    leading: set[Any] = set()
    for node in reversed(order):
        if any(below in leading for below, _ in node.next_functions) or getattr(node, "variable", None) in set(probes):
            leading.add(node)
    return leading


def _handed_down(node: Any, arrived: Mapping[int, Tensor]) -> tuple[Tensor | None, ...]:
    """What a node hands to each of its inputs."""
    outputs = outputs_of(node)
    rule = rule_of(node)
    if rule is not None:
        return rule.down(*(arrived.get(output) for output in range(len(outputs))))
    zeros = [torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device) for meta in outputs]
    shares = node(*(arrived.get(output, zero) for output, zero in enumerate(zeros)))
    return shares if isinstance(shares, tuple) else (shares,)


def _fitting(share: Tensor, node: Any, output: int) -> Tensor:
    """A share in the shape and type of the output it goes to, as autograd sees to it."""
    meta = outputs_of(node)[output]
    return share.sum_to_size(meta.shape).to(meta.dtype)
