"""Reorders the products of the top-down pass: factors that depend on the image alone are multiplied first.

Each layer multiplies the signal by the activations A and by 1 / Z, which are the same for all signals. Here each value
is kept as a sum of terms, each a product of a signal and such factors, until it is needed: then the factors are
multiplied with each other, which the first part of a split graph does once for all signals (`excite.export.split`), and
with the signal once. Terms with the same factors are added up before they are multiplied.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from excite.export.simplify import only_leading, same, shape_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import Graph, GraphModule

aten = torch.ops.aten
_NO_KIND = ("",)


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
        self._sums_of: dict[Node, list[Term]] = {}  # the terms of a node, where they are known
        self._totals: dict[tuple[Term, ...], list[Term]] = {}
        self._whole: dict[Node, Node] = {}
        self._products: dict[tuple[Node, ...], Node] = {}
        self._parts: dict[Node, Node] = {}
        self._given: dict[Node, Any] = {}  # the first argument of a node, before it was multiplied out
        self._sums = SumBuilder(graph)

    def multiply(self) -> None:
        """Visit the nodes in order."""
        node: Any
        for node in list(self.graph.nodes):
            if self.dependent.isdisjoint(node.all_input_nodes) or node.target is aten.sym_size.int:
                continue
            self.dependent.add(node)
            self._sums.here = node
            terms = self._terms_of_call(node) if node.op == "call_function" else None
            if terms is None:
                self._given[node] = node.args[0] if node.args else None
                node.args = map_arg(node.args, self._multiplied_out)
                node.kwargs = map_arg(node.kwargs, self._multiplied_out)
            else:
                self._sums_of[node] = terms

    def _terms_of_call(self, node: Any) -> list[Term] | None:
        args = node.args
        if node.target is aten.mul.Tensor:
            return self._times(node, *args) or self._times(node, *args[::-1])
        if node.target is aten.add.Tensor and len(args) == 2 and not node.kwargs:
            return self._sum(node, *args)
        if node.target is operator.getitem:
            return self._part(*args)
        if only_leading(node):
            return self._terms(args[0])
        return self._copied(node, args[0]) if node.target is aten.reshape.default else None

    def _terms(self, node: Node) -> list[Term]:
        return self._sums_of.get(node) or [Term(node, ())]

    def _times(self, node: Node, dependent: Any, factor: Any) -> list[Term] | None:
        """A term with one factor more, if that has a value for each unit and does not depend on the signal."""
        interchangeable = (
            dependent in self.dependent
            and isinstance(factor, Node)
            and factor not in self.dependent
            and same(node, dependent)
        )
        if not interchangeable:
            return None
        only = self._only(dependent)
        values, factors = only or Term(self._multiplied_out(dependent), ())
        return [Term(values, (*factors, factor))]

    def _sum(self, node: Node, left: Any, right: Any) -> list[Term] | None:
        """The terms of both; those with the same factors are added up later."""
        if not ({left, right} <= self.dependent and same(node, left) and same(node, right)):
            return None
        return [*self._terms(left), *self._terms(right)]

    def _only(self, node: Node) -> Term | None:
        """A node as a single term, if all of its terms have the same factors."""
        terms = self._terms(node)
        if len({factors for _, factors in terms}) > 1:
            return None
        if len(terms) > 1:
            terms = self._sums_of[node] = self._gathered(terms)
        return terms[0]

    def _gathered(self, terms: Sequence[Term]) -> list[Term]:
        """The terms, with those of the same factors added up."""
        key = tuple(terms)
        if key not in self._totals:
            interchangeable: dict[tuple[Node, ...], list[Node]] = {}
            for values, factors in terms:
                interchangeable.setdefault(factors, []).append(values)
            self._totals[key] = [Term(self._sums.total(values), factors) for factors, values in interchangeable.items()]
        return self._totals[key]

    def _copied(self, node: Any, scattered: Any) -> list[Term] | None:
        """The transpose of max pooling: a child equals the unit that copied it, so both have the same factor."""
        if scattered.target is not aten.scatter_add.default:
            return None
        nothing, _, places, flat = scattered.args
        given = self._given.get(flat)
        only = self._only(given) if given is not None else None
        if only is None or nothing.target is not aten.new_zeros.default:
            return None
        values, factors = only
        child = _pooled(places, factors[0]) if len(factors) == 1 else None
        if child is None or not same(node, child):
            return None
        back = self._sums.new(aten.reshape.default, values, flat.args[1])
        size = nothing.args[1]
        added = self._sums.new(
            aten.scatter_add.default, self._sums.new(aten.new_zeros.default, back, size), -1, places, back
        )
        found = self._sums.new(aten.reshape.default, added, node.args[1])
        self._sums.scattered[found] = added
        return [Term(found, (child,))]

    def _part(self, whole: Any, number: int) -> list[Term] | None:
        """A part of a split, whose factors were concatenated from parts of the same sizes."""
        if whole.target is not aten.split_with_sizes.default:
            return None
        _, sizes, *dims = whole.args
        given = self._given[whole]
        values, factors = self._only(given) or (given, ())
        if not factors:
            return None
        dim = (dims[0] if dims else 0) % len(shape_of(given)) - len(shape_of(given))  # counted from the last one
        parts = [_put_together(factor, sizes, dim) for factor in factors]
        if any(part is None for part in parts):
            return None
        if whole not in self._parts:
            self._parts[whole] = self._sums.new(aten.split_with_sizes.default, values, sizes, dim)
        mine = self._sums.new(operator.getitem, self._parts[whole], number)
        return [Term(mine, tuple(part[number] for part in parts if part is not None))]

    def _multiplied_out(self, node: Node) -> Node:
        """The node for the values of a node, with its products computed."""
        terms = self._sums_of.get(node)
        if terms is None or (len(terms) == 1 and not terms[0].factors):
            return node
        if node not in self._whole:
            self._whole[node] = self._added(node, self._gathered(terms))
        return self._whole[node]

    def _added(self, node: Node, terms: Sequence[Term]) -> Node:
        whole = self._sums.total([self._product(*term) for term in terms])
        for _ in range(len(shape_of(whole)) - len(shape_of(node))):
            whole = self._sums.new(aten.squeeze.dim, whole, 0)
        for _ in range(len(shape_of(node)) - len(shape_of(whole))):
            whole = self._sums.new(aten.unsqueeze.default, whole, 0)
        return whole

    def _product(self, values: Node, factors: tuple[Node, ...]) -> Node:
        if not factors:
            return values
        if factors not in self._products:
            first, *others = factors
            for other in others:
                first = self._sums.new(aten.mul.Tensor, first, other)
            self._products[factors] = first
        return self._sums.new(aten.mul.Tensor, values, self._products[factors])


def _pooled(places: Any, largest: Any) -> Node | None:
    """The children of max pooling, if ``largest`` are its maxima and ``places`` their indices (see `lowering`)."""
    while places.target in {aten.reshape.default, aten._to_copy.default}:  # noqa: SLF001 - that is its name
        places = places.args[0]
    if places.target is not aten.where.self or largest.target is not operator.getitem or largest.args[1] != 0:
        return None
    is_later, pooling = places.args[0], largest.args[0]
    if is_later.target is not aten.lt.Tensor or is_later.args[1] is not largest:
        return None
    child: Node = pooling.args[0]
    return child if pooling.target is aten.max_pool2d_with_indices.default else None


def _put_together(factor: Any, sizes: Sequence[int], dim: int) -> list[Node] | None:
    """The parts of a concatenated factor, if they have these sizes in that dimension."""
    if factor.target is not aten.cat.default:
        return None
    parts, *dims = factor.args
    rank = len(shape_of(factor))
    same = (dims[0] if dims else 0) % rank - rank == dim
    return list(parts) if same and [shape_of(part)[dim] for part in parts] == list(sizes) else None


class SumBuilder:
    """Adds sums to a graph.

    Attributes:
        here: the node before which new ones are inserted.
        scattered: terms that were scattered onto zeros -> the scattering node.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.here: Any = None
        self.scattered: dict[Node, Any] = {}
        self._joined: dict[Node, tuple[list[Node], list[Node]]] = {}  # inputs and weights of merged convolutions

    def new(self, target: Any, *args: Any) -> Node:
        """A new node, with its shape."""
        with self.graph.inserting_before(self.here):
            node = self.graph.call_function(target, args)
        node.meta["val"] = target(*map_arg(args, lambda each: each.meta["val"]))
        return node

    def total(self, terms: Sequence[Node]) -> Node:
        """A sum: convolutions of one kind first, which are merged; terms scattered onto zeros last."""
        first, *others = sorted(terms, key=lambda term: (term in self.scattered, *_kind(term)))
        for other in others:
            first = self._plus(first, other)
        return first

    def _plus(self, left: Node, right: Node) -> Node:
        """A sum: a term scattered onto zeros is scattered onto the other one instead.

        Two convolutions of the same kind become one of their concatenated inputs.
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
    """The options of a convolution that can be merged with others of the same: without bias, with a single use."""
    if node.target is not aten.convolution.default or node.args[2] is not None or len(node.users) > 1:
        return _NO_KIND
    *options, groups = node.args[2:]
    return _NO_KIND if groups != 1 else ("convolution", str(shape_of(node.args[1])[2:]), str(options))
