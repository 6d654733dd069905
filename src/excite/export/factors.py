"""Reorders the products of the top-down pass: factors that depend on the image alone are multiplied first.

Each layer multiplies the signal by the activations A and by 1 / Z, which are the same for all signals. Here each value
is kept as a sum of terms, each a product of a signal and such factors, until it is needed: then the factors are
multiplied with each other, which the first part of a split graph does once for all signals
(`excite.export.compiled.SplitGraph`), and with the signal once. Terms with the same factors are added up before they
are multiplied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from excite.export.simplify import only_leading, same, shape_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import Graph, GraphModule

aten = torch.ops.aten


class Term(NamedTuple):
    """A value times its factors, none of which depends on a signal."""

    values: Node
    factors: tuple[Node, ...]


def factor_products(module: GraphModule) -> GraphModule:
    """Reorder a graph of an image and a signal, in place, to multiply and add as late as possible.

    Example:
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> def product(x, signal):
        ...     return (signal * x.relu() * x.exp()).sum()
        >>> graph = make_fx(product, tracing_mode="fake")(torch.ones(2), torch.ones(2))
        >>> [node.args for node in factor_products(graph).graph.nodes if node.target is aten.mul.Tensor]
        [(relu, exp), (signal_1, mul_tensor)]
    """
    _Factoring(module.graph).multiply()
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


class _Factoring:
    """The nodes of a graph that depend on the signal, as sums of terms."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        _, signal = (node for node in graph.nodes if node.op == "placeholder")
        self.dependent: set[Any] = {signal}
        self._here: Any = None  # the node before which new ones are inserted
        self._sums_of: dict[Node, list[Term]] = {}  # the terms of a node, where they are known
        self._totals: dict[tuple[Term, ...], list[Term]] = {}
        self._whole: dict[Node, Node] = {}
        self._products: dict[tuple[Node, ...], Node] = {}

    def multiply(self) -> None:
        """Visit the nodes in order."""
        node: Any
        for node in list(self.graph.nodes):
            if self.dependent.isdisjoint(node.all_input_nodes) or node.target is aten.sym_size.int:
                continue
            self.dependent.add(node)
            self._here = node
            terms = self._terms_of_call(node, node.args) if node.op == "call_function" else None
            if terms is None:
                node.args = map_arg(node.args, self._multiplied_out)
                node.kwargs = map_arg(node.kwargs, self._multiplied_out)
            else:
                self._sums_of[node] = terms

    def _terms_of_call(self, node: Node, args: tuple[Any, ...]) -> list[Term] | None:
        if node.target is aten.mul.Tensor:
            return self._times(node, *args) or self._times(node, *args[::-1])
        if node.target is aten.add.Tensor and len(args) == 2 and not node.kwargs:
            alike = self.dependent.issuperset(args) and all(same(node, each) for each in args)
            return [term for each in args for term in self._terms(each)] if alike else None
        return self._terms(args[0]) if only_leading(node) else None

    def _terms(self, node: Node) -> list[Term]:
        return self._sums_of.get(node) or [Term(node, ())]

    def _times(self, node: Node, dependent: Any, factor: Any) -> list[Term] | None:
        """A term with one factor more, if that has a value for each unit and does not depend on the signal."""
        if not (dependent in self.dependent and isinstance(factor, Node) and factor not in self.dependent):
            return None
        if not same(node, dependent):
            return None
        terms = self._terms(dependent)
        if len({factors for _, factors in terms}) > 1:
            return [Term(self._multiplied_out(dependent), (factor,))]
        ((values, factors),) = self._sums_of[dependent] = self._gathered(terms)
        return [Term(values, (*factors, factor))]

    def _gathered(self, terms: Sequence[Term]) -> list[Term]:
        """The terms, with those of the same factors added up."""
        key = tuple(terms)
        if key not in self._totals:
            alike: dict[tuple[Node, ...], list[Node]] = {}
            for values, factors in terms:
                alike.setdefault(factors, []).append(values)
            self._totals[key] = [Term(self._total(values), factors) for factors, values in alike.items()]
        return self._totals[key]

    def _multiplied_out(self, node: Node) -> Node:
        """The node for the values of a node, with its products computed."""
        terms = self._sums_of.get(node)
        if terms is None or (len(terms) == 1 and not terms[0].factors):
            return node
        if node not in self._whole:
            whole = self._total([self._product(*term) for term in self._gathered(terms)])
            for _ in range(len(shape_of(whole)) - len(shape_of(node))):
                whole = self._new(aten.squeeze.dim, whole, 0)
            for _ in range(len(shape_of(node)) - len(shape_of(whole))):
                whole = self._new(aten.unsqueeze.default, whole, 0)
            self._whole[node] = whole
        return self._whole[node]

    def _product(self, values: Node, factors: tuple[Node, ...]) -> Node:
        if not factors:
            return values
        if factors not in self._products:
            first, *others = factors
            for other in others:
                first = self._new(aten.mul.Tensor, first, other)
            self._products[factors] = first
        return self._new(aten.mul.Tensor, values, self._products[factors])

    def _total(self, terms: Sequence[Node]) -> Node:
        first, *others = terms
        for other in others:
            first = self._new(aten.add.Tensor, first, other)
        return first

    def _new(self, target: Any, *args: Any) -> Node:
        """A new node, with its shape."""
        with self.graph.inserting_before(self._here):
            node = self.graph.call_function(target, args)
        node.meta["val"] = target(*map_arg(args, lambda each: each.meta["val"]))
        return node
