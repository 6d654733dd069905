"""Products on the way down, in another order: what the image alone decides is multiplied with itself first.

A competition hands a child what a response of 1 earns, times its response, and the next one multiplies that with what
its own parents' totals allow. So a signal is multiplied again and again with values that are the same for all signals.
Here each share is kept as a value and its factors until it has to be known: then the factors are multiplied first,
which the upper half of a graph does once for all signals (`excite.export.split`), and the signal once. Shares that
come from several parents and have the same factors are added up before they are multiplied.
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


# Sums on the way down: what several parents hand to the same units, in as few operations as possible.

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


# Products on the way down, in another order: what the image alone decides is multiplied with itself first.
#
# A competition hands a child what a response of 1 earns, times its response, and the next one multiplies that with
# what its own parents' totals allow. So a signal is multiplied again and again with values that are the same for all
# signals. Here each share is kept as a value and its factors until it has to be known: then the factors are
# multiplied first, which the upper half of a graph does once for all signals (`excite.export.split`), and the signal
# once. Shares that come from several parents and have the same factors are added up before they are multiplied.


class Share(NamedTuple):
    """A value times its factors, none of which depends on a signal."""

    values: Node
    factors: tuple[Node, ...]


def factored(module: GraphModule) -> GraphModule:
    """Have a graph of an image and a signal multiply and add as late as possible. It is changed in place.

    Example:
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> def course(x, signal):
        ...     return (signal * x.relu() * x.exp()).sum()
        >>> graph = make_fx(course, tracing_mode="fake")(torch.ones(2), torch.ones(2))
        >>> [node.args for node in factored(graph).graph.nodes if node.target is aten.mul.Tensor]
        [(relu, exp), (signal_1, mul_tensor)]
    """
    _Shares(module.graph).multiply()
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


class _Shares:
    """What is known of the nodes of a graph that depend on the signal."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        _, signal = (node for node in graph.nodes if node.op == "placeholder")
        self.cued: set[Any] = {signal}
        self._piles: dict[Node, list[Share]] = {}  # what a node is the sum of, where that is known
        self._totals: dict[tuple[Share, ...], list[Share]] = {}
        self._whole: dict[Node, Node] = {}
        self._products: dict[tuple[Node, ...], Node] = {}
        self._parts: dict[Node, Node] = {}
        self._given: dict[Node, Any] = {}  # what a node was given, before that was multiplied out
        self._sums = Sums(graph)

    def multiply(self) -> None:
        """Go through the graph in its order."""
        node: Any
        for node in list(self.graph.nodes):
            if self.cued.isdisjoint(node.all_input_nodes) or node.target is aten.sym_size.int:
                continue
            self.cued.add(node)
            self._sums.here = node
            pile = self._pile(node) if node.op == "call_function" else None
            if pile is None:
                self._given[node] = node.args[0] if node.args else None
                node.args = map_arg(node.args, self._multiplied_out)
                node.kwargs = map_arg(node.kwargs, self._multiplied_out)
            else:
                self._piles[node] = pile

    def _pile(self, node: Any) -> list[Share] | None:
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

    def _terms(self, node: Node) -> list[Share]:
        return self._piles.get(node) or [Share(node, ())]

    def _times(self, node: Node, cued: Any, factor: Any) -> list[Share] | None:
        """A share with one factor more, where that is a value for each unit and not of the signal's making."""
        alike = cued in self.cued and isinstance(factor, Node) and factor not in self.cued and same(node, cued)
        if not alike:
            return None
        only = self._only(cued)
        values, factors = only or Share(self._multiplied_out(cued), ())
        return [Share(values, (*factors, factor))]

    def _sum(self, node: Node, left: Any, right: Any) -> list[Share] | None:
        """All terms: they are added up when it is known which others there are."""
        if not ({left, right} <= self.cued and same(node, left) and same(node, right)):
            return None
        return [*self._terms(left), *self._terms(right)]

    def _only(self, node: Node) -> Share | None:
        """What a node is, if all of its terms have the same factors."""
        terms = self._terms(node)
        if len({factors for _, factors in terms}) > 1:
            return None
        if len(terms) > 1:
            terms = self._piles[node] = self._gathered(terms)
        return terms[0]

    def _gathered(self, terms: Sequence[Share]) -> list[Share]:
        """Terms that have the same factors are added up, once."""
        key = tuple(terms)
        if key not in self._totals:
            alike: dict[tuple[Node, ...], list[Node]] = {}
            for values, factors in terms:
                alike.setdefault(factors, []).append(values)
            self._totals[key] = [Share(self._sums.total(values), factors) for factors, values in alike.items()]
        return self._totals[key]

    def _copied(self, node: Any, scattered: Any) -> list[Share] | None:
        """Back through max pooling: a child is what the unit that copied it is, so both have the same factor."""
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
        return [Share(found, (child,))]

    def _part(self, whole: Any, number: int) -> list[Share] | None:
        """A part of what was put together from parts, as all of its factors were."""
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
        return [Share(mine, tuple(part[number] for part in parts if part is not None))]

    def _multiplied_out(self, node: Node) -> Node:
        """What stands for a node where its values are needed."""
        terms = self._piles.get(node)
        if terms is None or (len(terms) == 1 and not terms[0].factors):
            return node
        if node not in self._whole:
            self._whole[node] = self._added(node, self._gathered(terms))
        return self._whole[node]

    def _added(self, node: Node, terms: Sequence[Share]) -> Node:
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
    """Of what children some values are the largest, where it was found out by those which of them (`pools`)."""
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
    """The parts that a factor was made of, if they are those of such sizes in that dimension."""
    if factor.target is not aten.cat.default:
        return None
    parts, *dims = factor.args
    rank = len(shape_of(factor))
    same = (dims[0] if dims else 0) % rank - rank == dim
    return list(parts) if same and [shape_of(part)[dim] for part in parts] == list(sizes) else None
