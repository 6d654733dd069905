"""Signals going down the graph of a forward pass: node by node, any number of them together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.propagation.deciding import is_known
from excite.propagation.graph import node_name, outputs_of, rule_of, top_down

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.autograd.graph import GradientEdge

    from excite.propagation.rules import Rule, Shares

    Watch = Callable[[Any, Sequence[Tensor | None], Sequence[Tensor | None]], None]

__all__ = ["Descent", "handed_down"]


class Descent:
    """The way from some starts to some probes: the nodes on it, each after every node above it.

    Args:
        starts: where signals enter the graph.
        probes: where they are read; what leads to none of them is left out.
    """

    def __init__(self, starts: Sequence[GradientEdge], probes: Sequence[Tensor]) -> None:
        self.starts = [(edge.node, edge.output_nr) for edge in starts]
        self.probes = list(probes)
        order = top_down(*dict.fromkeys(node for node, _ in self.starts))
        self._leading = _leading_to(order, set(self.probes))
        self.order = [node for node in order if node in self._leading]

    @property
    def widest(self) -> int:
        """How many numbers there are in the largest tensor on the way, for one signal."""
        return max(int(math.prod(meta.shape)) for node in self.order for meta in outputs_of(node))

    def below(self, node: Any) -> list[tuple[int, Any, int]]:
        """The inputs of a node that lead to a probe: which one, and where its share goes."""
        return [(k, child, nr) for k, (child, nr) in enumerate(node.next_functions) if child in self._leading]

    @torch.no_grad()
    def carry(self, signals: Sequence[Tensor], watch: Watch | None = None) -> list[Tensor]:
        """What arrives at each probe, [signals, *probe], of signals [signals, *output] at each start.

        ``watch`` is told of every node what arrived at its outputs and what it handed to its inputs.
        """
        count = len(signals[0])
        waiting = _Waiting()
        for (node, output), signal in zip(self.starts, signals, strict=True):
            waiting.add(node, output, signal)
        found: dict[Tensor, Tensor] = {}
        for node in self.order:
            arrived = waiting.take(node)
            if arrived is None:
                continue
            if hasattr(node, "variable"):
                found[node.variable] = arrived[0]
                continue
            shares = handed_down(node, arrived, rule_of(node))
            if watch is not None:
                watch(node, list(arrived.values()), shares)
            for k, child, output in self.below(node):
                share = shares[k]
                if share is not None:
                    waiting.add(child, output, share)
        return [found[probe] if probe in found else probe.new_zeros(count, *probe.shape) for probe in self.probes]


def handed_down(node: Any, arrived: Mapping[int, Tensor], rule: Rule | None) -> Shares:
    """What a node hands to each of its inputs: by its rule, or because it copies values by its gradient."""
    outputs = outputs_of(node)
    if rule is not None:
        return rule.down(*(arrived.get(output) for output in range(len(outputs))))
    together = _TOGETHER.get(node_name(node))
    shares = together(node, arrived[0]) if together is not None and 0 in arrived else None
    if shares is not None:
        return shares
    count = len(next(iter(arrived.values())))
    each = [_handed_one_down(node, {output: values[k] for output, values in arrived.items()}) for k in range(count)]
    if count == 1:
        return tuple(None if share is None else share[None] for share in each[0])
    return tuple(None if shares[0] is None else torch.stack(shares) for shares in zip(*each, strict=True))


def _handed_one_down(node: Any, arrived: Mapping[int, Tensor]) -> Shares:
    zeros = (
        arrived[output] if output in arrived else torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device)
        for output, meta in enumerate(outputs_of(node))
    )
    shares = node(*zeros)
    return shares if isinstance(shares, tuple) else (shares,)


def _unchanged(_node: Any, signals: Tensor) -> Shares:
    return (signals,)


def _reshaped(node: Any, signals: Tensor) -> Shares | None:
    ((below, output),) = node.next_functions
    return (signals.reshape(len(signals), *outputs_of(below)[output].shape),)


def _taken_apart(node: Any, signals: Tensor) -> Shares | None:
    """A concatenation: each part takes what is its own, without a copy."""
    if any(below is None for below, _ in node.next_functions):  # a constant, of nobody knows what size
        return None
    shapes = [outputs_of(below)[output].shape for below, output in node.next_functions]
    dim = node._saved_dim % len(shapes[0])  # noqa: SLF001 - torch has no other name for it
    return torch.split(signals, [shape[dim] for shape in shapes], dim + 1)


def _to_the_largest(node: Any, signals: Tensor) -> Shares | None:
    """Max pooling: each unit's probability goes to the child it copied.

    On flat memory torch adds at given places five times as fast as in planes, and faster than its own way back.
    """
    if not is_known():  # then the planes are of nobody knows what size
        return None
    ((below, output),) = node.next_functions
    shape = outputs_of(below)[output].shape
    chosen = node._saved_result1.contiguous()  # noqa: SLF001 - as above
    planes = torch.arange(0, math.prod(shape), shape[-2] * shape[-1], device=chosen.device)
    flat = (chosen.flatten(0, -3) + planes[:, None, None]).flatten()
    shares = signals.new_zeros(len(signals), math.prod(shape))
    for share, signal in zip(shares, signals, strict=True):
        share.scatter_add_(0, flat, signal.flatten())
    return (shares.view(len(signals), *shape),)


# Nodes that copy values and can do so for all signals at once (None: not here); others take one signal after the other.
_TOGETHER: dict[str, Callable[[Any, Tensor], Shares | None]] = {
    **dict.fromkeys(("Alias", "Clone", "Contiguous", "ToCopy"), _unchanged),
    **dict.fromkeys(("ReshapeAlias", "Squeeze", "UnsafeView", "Unsqueeze", "View"), _reshaped),
    "Cat": _taken_apart,
    "MaxPool2DWithIndices": _to_the_largest,
}


class _Waiting:
    """What has arrived at the outputs of nodes whose turn has not come yet."""

    def __init__(self) -> None:
        self._arrived: dict[Any, dict[int, Tensor]] = {}
        self._sums: set[tuple[Any, int]] = set()  # which of it was added up here, so that nobody else looks at it

    def add(self, node: Any, output: int, share: Tensor) -> None:
        """Add what comes from several parents, in the type of the output they come to (as autograd does)."""
        dtype = outputs_of(node)[output].dtype
        share = share if share.dtype == dtype else share.to(dtype)
        at_node = self._arrived.setdefault(node, {})
        if output not in at_node:
            at_node[output] = share
        elif (node, output) in self._sums:
            at_node[output].add_(share)
        else:
            at_node[output] = at_node[output] + share
            self._sums.add((node, output))

    def take(self, node: Any) -> dict[int, Tensor] | None:
        """All that has arrived at a node."""
        return self._arrived.pop(node, None)


def _leading_to(order: Sequence[Any], probes: set[Tensor]) -> set[Any]:
    """The nodes from which a probe can be reached."""
    leading: set[Any] = set()
    for node in reversed(order):
        if getattr(node, "variable", None) in probes or any(child in leading for child, _ in node.next_functions):
            leading.add(node)
    return leading
