"""Simplifies a traced graph: no branches that are always zero, no common subexpressions, reshapes and products.

While a graph is traced, values are unknown, so children of both signs compete for both signs of the response. The
operations alone imply much of it: the output of a ReLU is never negative, and no signal passes a ReLU to a negative
unit. Such branches are zero, and are cut off. This is derived from the graph and not while the network runs, because
here no operation is in place any more. torch.fx's own pass for common subexpressions takes 1 for 1.0.
"""

import operator
from collections.abc import Hashable, Sequence
from functools import partial, reduce
from itertools import dropwhile
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_flatten

aten = torch.ops.aten


def _operations(names: str) -> frozenset[Any]:
    """ATen operations by name and overload."""
    return frozenset(operator.attrgetter(name)(aten) for name in names.split())


VIEWS = _operations("view.default _unsafe_view.default")
# Where all sides are numbers these only give the same values another shape.
STEPS = {operator.getitem} | _operations("unsqueeze.default squeeze.dim squeeze.dims select.int")
SAME = _operations("detach.default alias.default clone.default lift_fresh_copy.default")
MOVING = {operator.getitem} | _operations(  # each output is a copy of an input, or a sum of some
    """reshape.default expand.default unsqueeze.default squeeze.dim squeeze.dims
    select.int slice.Tensor permute.default t.default transpose.int unbind.int split.Tensor split_with_sizes.default
    index_select.default unfold.default sum.dim_IntList mean.dim _to_copy.default avg_pool2d.default
    avg_pool3d.default _adaptive_avg_pool2d.default upsample_bilinear2d.vec upsample_nearest2d.vec
    upsample_bilinear2d.default upsample_nearest2d.default flip.default repeat.default"""
)
LINEAR = _operations("mul.Tensor mm.default bmm.default convolution.default")
ABOVE = _operations(
    "relu.default sigmoid.default hardsigmoid.default softplus.default exp.default abs.default _softmax.default"
)
ZEROS = _operations("zeros_like.default new_zeros.default zeros.default")
PLACING = _operations("cat.default slice_scatter.default")  # their numbers are indices, no values
JOINING = PLACING | {aten.add.Tensor}
FILLING = _operations("masked_fill.Scalar constant_pad_nd.default")
KEEPING_SIGN = JOINING | _operations("mul.Tensor div.Tensor add.Scalar mul.Scalar div.Scalar")
DIVISIONS = _operations("div.Tensor div.Scalar")
CLAMPS = _operations("clamp.default hardtanh.default")


def simplify(module: GraphModule) -> GraphModule:
    """Simplify a graph in place."""
    facts = _ValueFacts()
    seen: dict[Hashable, Node] = {}  # what is used for each computation
    for node in list(module.graph.nodes):
        if node.op not in {"call_function", "get_attr"}:
            continue
        key = _key(node)
        if key not in seen and node.op == "call_function":
            merge_reshapes(node)
            seen[key] = facts.learn(node)
        kept = seen.setdefault(key, node)
        if kept is not node:
            node.replace_all_uses_with(kept)
    return _tidied(module)


def _tidied(module: GraphModule) -> GraphModule:
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _key(node: Node) -> Hashable:
    """The computation of a node: numbers with their type, because 1 and 1.0 are equal and make different tensors."""
    if node.target is aten.sym_size.int:  # of any tensor: the same symbolic size is the same number
        return node.target, str(node.meta["val"])
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return node
    values, form = tree_flatten((node.args, node.kwargs))
    return node.target, str(form), *(each if isinstance(each, Node) else (type(each), str(each)) for each in values)


class _ValueFacts:
    """Facts about the values of nodes that hold for every image."""

    def __init__(self) -> None:
        self.zero: set[Any] = set()
        self.positive: set[Any] = set()  # nowhere below 0
        self.within: dict[Any, set[Any]] = {}  # not 0 only where all of those are above 0

    def learn(self, node: Node) -> Node:
        """Record the facts about a node; return an equivalent one, or the node itself."""
        args: tuple[Any, ...] = node.args
        for other in self._unchanged(node.target, args):
            is_alike = isinstance(other, Node) and shape_words(node) == shape_words(other)
            if is_alike and node.meta["val"].dtype == other.meta["val"].dtype:
                return other  # type: ignore[no-any-return]  # a node
        if self._is_zero(node, args):
            self.zero.add(node)
            self.positive.add(node)
        elif self._is_positive(node, args):
            self.positive.add(node)
        self.within[node] = self._support(node, args)
        return node

    def _unchanged(self, target: Any, args: tuple[Any, ...]) -> list[Any]:
        """The inputs whose values the node returns, if they have its shape and type."""
        if target in {aten.add.Tensor, aten.sub.Tensor} and len(args) == 2:
            left, right = args
            other = [right] if target is aten.add.Tensor and left in self.zero else []
            return [left] if right in self.zero else other
        if target is aten.mul.Tensor:  # by 1, or by a mask outside of which the other factor is 0
            both = (args, args[::-1])
            return [one for one, other in both if other == 1 or self._is_masked(one, other, aten.gt.Scalar)]
        if target is aten.clamp.default:
            return [args[0]] if args[1:] == (0,) and args[0] in self.positive else []
        if target is aten.select.int and args[1:] == (0, 0):  # of what only added that dimension
            given = args[0]
            return [given.args[0]] if given.target is aten.unsqueeze.default and given.args[1:] == (0,) else []
        if target is aten.copy.default:  # written over
            return [args[1]]
        return [args[0]] if target in {*SAME, aten.reshape.default, aten.expand.default} else []

    def _is_zero(self, node: Node, args: tuple[Any, ...]) -> bool:
        target, given = node.target, args[0] if args and isinstance(args[0], Node) else None
        if target in LINEAR:
            pairs = (args, args[::-1]) if target is aten.mul.Tensor else ()
            if any(self._is_masked(one, other, aten.lt.Scalar) for one, other in pairs):
                return True  # nowhere are both factors nonzero
            bias = target is aten.convolution.default and args[2] is not None
            return not bias and any(each in self.zero for each in args[:2])
        if target in JOINING:
            numbers = target not in PLACING and not all(isinstance(each, Node) for each in args)
            return not numbers and bool(node.all_input_nodes) and self.zero.issuperset(node.all_input_nodes)
        if target is aten.clamp.default:
            return given in self.positive and args[1:] == (None, 0)
        if target is aten.lt.Scalar:
            return given in self.positive and args[1] == 0
        keeps = target in MOVING or target is aten.threshold_backward.default
        keeps = keeps or (target in FILLING and (len(args) < 3 or args[2] == 0))
        keeps = keeps or (target is aten.scatter_add.default and args[3] in self.zero)
        return target in ZEROS or (keeps and given in self.zero)

    def _is_positive(self, node: Node, args: tuple[Any, ...]) -> bool:
        target = node.target
        if target is aten.pow.Tensor_Scalar:
            return args[0] in self.positive or bool(args[1] % 2 == 0)
        if target in ABOVE or (target is aten.mul.Tensor and args[0] is args[1]):
            return True
        if target in CLAMPS:
            return len(args) > 1 and args[1] is not None and bool(args[1] >= 0)
        if target is aten.constant_pad_nd.default:
            return args[0] in self.positive and (len(args) < 3 or bool(args[2] >= 0))
        if target in MOVING or target is aten.max_pool2d_with_indices.default:
            return args[0] in self.positive
        numbers = [] if target in PLACING else [each for each in args if not isinstance(each, Node)]
        plain = all(isinstance(each, (int, float)) and each >= 0 for each in numbers)
        return target in KEEPING_SIGN and plain and all(each in self.positive for each in node.all_input_nodes)

    def _support(self, node: Node, args: tuple[Any, ...]) -> set[Any]:
        """The nodes such that this one is 0 wherever they are not above 0."""
        target = node.target
        if target is aten.relu.default or (target in CLAMPS and args[1:2] == (0,)):
            return {node, args[0]}
        if target is aten.gt.Scalar and args[1] == 0:
            return {args[0], *self._known(args[0])}
        if target is aten.threshold_backward.default and args[2] == 0:
            return {*self._known(args[0]), args[1], *self._known(args[1])}
        if target is aten.mul.Tensor:
            return set[Any]().union(*(self._known(each) for each in args))
        if target is aten.add.Tensor and all(isinstance(each, Node) for each in args):
            return set[Any].intersection(*(self._known(each) for each in args))
        return self._known(args[0]) if target in DIVISIONS or only_leading(node) else set()

    def _known(self, node: Any) -> set[Any]:
        return self.within.get(node, set()) if isinstance(node, Node) else set()

    def _is_masked(self, one: Any, other: Any, comparison: Any) -> bool:
        """Whether one is nonzero only where the node that the other compares with 0 is above 0."""
        return bool(
            isinstance(one, Node)
            and isinstance(other, Node)
            and other.target is comparison
            and other.args[1] == 0
            and other.args[0] in self._known(one)
            and shape_words(one)[-len(shape_of(other)) :] == shape_words(other)
        )


def shape_of(node: Any) -> list[Any]:
    """The shape of a node's value."""
    return list(node.meta["val"].shape)


def shape_words(node: Node) -> list[str]:
    """A shape for comparisons: comparing symbolic sizes themselves would add guards."""
    return [str(side) for side in shape_of(node)]


def merge_reshapes(node: Node) -> None:
    """Merge a chain of reshapes into one from the source of the values; the node is changed in place."""
    if node.target in VIEWS:  # without the copy before it, the source may not be contiguous
        node.target = aten.reshape.default
    source: Any = node.args[0] if node.args else None
    if node.target is operator.getitem:  # the source of an unbound part is the whole
        source = source.args[0] if source.target is aten.unbind.int else None
    if node.target in STEPS and isinstance(source, Node):
        sides = [*shape_of(node), *shape_of(source)]
        known = all(isinstance(side, int) for side in sides)
        if known and node.meta["val"].numel() == source.meta["val"].numel():  # so the same values in the same order
            node.target, node.args = aten.reshape.default, (source, shape_of(node))
    while node.target is aten.reshape.default and node.args[0].target is aten.reshape.default:  # type: ignore[union-attr]
        node.args = (node.args[0].args[0], *node.args[1:])  # type: ignore[union-attr]  # a reshape is of a node


def only_leading(node: Node) -> bool:
    """Whether a node only adds or removes leading dimensions of size 1."""
    given: Any = node.args[0] if node.args else None
    steps = {aten.reshape.default, aten.unsqueeze.default, aten.squeeze.dim, aten.select.int}
    return node.target in steps and isinstance(given, Node) and same(node, given)


def same(node: Node, other: Node) -> bool:
    """Whether both have the same shape, but for leading dimensions of size 1."""
    one, two = (list(dropwhile("1".__eq__, shape_words(each))) for each in (node, other))
    return one == two


# The products of the top-down pass, reordered: each layer multiplies the signal by the activations and by 1 / Z, which
# are the same for all signals. Here each value is kept as a sum of terms, each a product of a signal and such factors,
# until it is needed: then the factors are multiplied with each other, which the first part of a split graph does once
# for all signals (`excite.export.compiled.SplitGraph`), and with the signal once. Terms with the same factors are added
# up before they are multiplied.


class Term(NamedTuple):
    """A value times its factors, none of which depends on a signal."""

    values: Node
    factors: tuple[Node, ...]


def factor_products(module: GraphModule) -> GraphModule:
    """Reorder a graph of an image and a signal, in place, to multiply and add as late as possible."""
    _Factoring(module.graph).multiply()
    return _tidied(module)


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
        is_factor = isinstance(factor, Node) and factor not in self.dependent
        if not (is_factor and dependent in self.dependent and same(node, dependent)):
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
            self._products[factors] = reduce(partial(self._new, aten.mul.Tensor), factors)
        return self._new(aten.mul.Tensor, values, self._products[factors])

    def _total(self, terms: Sequence[Node]) -> Node:
        return reduce(partial(self._new, aten.add.Tensor), terms)

    def _new(self, target: Any, *args: Any) -> Node:
        """A new node, with its shape."""
        with self.graph.inserting_before(self._here):
            node = self.graph.call_function(target, args)
        node.meta["val"] = target(*map_arg(args, lambda each: each.meta["val"]))
        return node
