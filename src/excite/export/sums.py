"""Sums on the way down: what several parents hand to the same units, in as few operations as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx.node import map_arg

from excite.export.shapes import same, shape_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import Graph, Node

__all__ = ["Sums"]

aten = torch.ops.aten
_NO_KIND = ("",)


class Sums:
    """Writes sums into a graph.

    Attributes:
        here: the node that new ones are written before.
        scattered: terms that were scattered over nothing, and by which node.

    Args:
        graph: that is written to.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.here: Any = None
        self.scattered: dict[Node, Any] = {}
        self._joined: dict[Node, tuple[list[Node], list[Node]]] = {}  # inputs and weights of convolutions made one

    def new(self, target: Any, *args: Any) -> Node:
        """One more node, whose shape is known."""
        with self.graph.inserting_before(self.here):
            node = self.graph.call_function(target, args)
        node.meta["val"] = target(*map_arg(args, lambda each: each.meta["val"]))
        return node

    def total(self, terms: Sequence[Node]) -> Node:
        """A sum: convolutions of one kind first, which are one then; what is scattered over nothing last."""
        first, *others = sorted(terms, key=lambda term: (term in self.scattered, *_kind(term)))
        for other in others:
            first = self._plus(first, other)
        return first

    def _plus(self, left: Node, right: Node) -> Node:
        """A sum; what is scattered over nothing is scattered over the other term instead.

        And two convolutions of the same kind are one, of what both are given side by side.
        """
        if right in self.scattered and same(left, right):
            return self._onto(left, right)
        if _kind(left) == _kind(right) != _NO_KIND:
            (given, weights), options = self._inputs(left), left.args[2:]
            others, more = self._inputs(right)
            given, weights = [*given, *others], [*weights, *more]
            both = self.new(aten.cat.default, given, 1), self.new(aten.cat.default, weights, 1)
            joined = self.new(aten.convolution.default, *both, *options)
            self._joined[joined] = given, weights
            return joined
        return self.new(aten.add.Tensor, left, right)

    def _inputs(self, convolution: Any) -> tuple[list[Node], list[Node]]:
        return self._joined.get(convolution) or ([convolution.args[0]], [convolution.args[1]])

    def _onto(self, values: Node, scattered: Any) -> Node:
        nothing, _, places, back = self.scattered[scattered].args
        flat = self.new(aten.reshape.default, values, nothing.args[1])
        added = self.new(aten.scatter_add.default, flat, -1, places, back)
        return self.new(aten.reshape.default, added, scattered.args[1])


def _kind(node: Any) -> tuple[str, ...]:
    """What is alike in convolutions that differ in what they are given and in their weights, and serve nobody else."""
    if node.target is not aten.convolution.default or node.args[2] is not None or len(node.users) > 1:
        return _NO_KIND
    *options, groups = node.args[2:]
    return _NO_KIND if groups != 1 else ("convolution", str(shape_of(node.args[1])[2:]), str(options))
