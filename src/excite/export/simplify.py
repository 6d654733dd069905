"""Simplifies a traced graph: removes branches that are always zero, common subexpressions and redundant reshapes.

While a graph is traced, values are unknown, so children of both signs compete for both signs of the response. The
operations alone imply much of it: the output of a ReLU is never negative, and no signal passes a ReLU to a negative
unit. Such branches are zero, and are cut off. This is derived from the graph and not while the network runs, because
here no operation is in place any more.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

if TYPE_CHECKING:
    from collections.abc import Hashable

    from torch.fx import GraphModule

aten = torch.ops.aten

VIEWS = {aten.view.default, aten._unsafe_view.default}  # noqa: SLF001 - torch's own name
# Where all sides are numbers these only give the same values another shape.
STEPS = {aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.select.int, operator.getitem}


def _operations(names: str) -> frozenset[Any]:
    """ATen operations by name and overload."""
    return frozenset(operator.attrgetter(name)(aten) for name in names.split())


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
JOINING = _operations("cat.default add.Tensor slice_scatter.default")
KEEPING_SIGN = JOINING | _operations("mul.Tensor div.Tensor add.Scalar mul.Scalar div.Scalar")
PLACING = _operations("cat.default slice_scatter.default")  # their numbers are indices, no values
DIVISIONS = _operations("div.Tensor div.Scalar")
CLAMPS = _operations("clamp.default hardtanh.default")


def simplify(module: GraphModule) -> GraphModule:
    """Simplify a graph in place.

    Example:
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> graph = make_fx(lambda x: x.relu() + x.relu().clamp(max=0))(torch.ones(2))
        >>> [node.name for node in simplify(graph).graph.nodes]
        ['x_1', 'relu', 'output']
    """
    facts, common = _ValueFacts(), CommonSubexpressions()
    for node in list(module.graph.nodes):
        kept = common.first(node)
        if kept is node and node.op == "call_function":
            merge_reshapes(node)
            kept = facts.learn(node)
            common.replace(node, kept)
        if kept is not node:
            node.replace_all_uses_with(kept)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


class _ValueFacts:
    """Facts about the values of nodes that hold for every image."""

    def __init__(self) -> None:
        self.zero: set[Any] = set()
        self.positive: set[Any] = set()  # nowhere below 0
        self.within: dict[Any, set[Any]] = {}  # not 0 only where all of those are above 0

    def learn(self, node: Node) -> Node:
        """Record the facts about a node; return an equivalent one, or the node itself."""
        args: tuple[Any, ...] = node.args
        if node.target in SAME:
            return args[0]  # type: ignore[no-any-return]  # the input of a copy is a node
        if node.target is aten.copy.default and interchangeable(node, args[1]):  # written over
            return args[1]  # type: ignore[no-any-return]  # only nodes are alike
        if node.target is aten.addmm.default and args[0] in self.zero and not node.kwargs:
            return self.learn(_product(node))
        same = self._unchanged(node, args)
        if same is not None:
            return same
        if self._is_zero(node, args):
            self.zero.add(node)
            self.positive.add(node)
        elif self._is_positive(node, args):
            self.positive.add(node)
        self.within[node] = self._support(node, args)
        return node

    def _unchanged(self, node: Node, args: tuple[Any, ...]) -> Node | None:
        """The input that the node returns unchanged."""
        target, given = node.target, args[0] if args and isinstance(args[0], Node) else None
        if target in {aten.add.Tensor, aten.sub.Tensor} and len(args) == 2:
            return self._lone_term(node, args)
        same = (
            (target is aten.mul.Tensor and args[1] == 1)
            or (target is aten.clamp.default and args[1:] == (0,) and given in self.positive)
            or (target is aten.index_select.default and is_all(args[2], shape_of(given)[args[1]]))
            or (target in {aten.reshape.default, aten.expand.default} and interchangeable(node, given))
        )
        if target is aten.select.int and args[1:] == (0, 0) and is_first(given):
            return given.args[0]  # type: ignore[union-attr,return-value]  # both are nodes, as was just seen
        if target is aten.mul.Tensor and _all_nodes(args):
            return self._lone_factor(node, args)
        return given if same else None

    def _lone_factor(self, node: Node, args: tuple[Any, ...]) -> Node | None:
        """The factor that is 0 wherever the other one, a mask of 0 and 1, is 0."""
        for one, other in (args, args[::-1]):
            if self._is_masked(one, other, aten.gt.Scalar) and interchangeable(node, one):
                return one  # type: ignore[no-any-return]  # only nodes are alike
        return None

    def _lone_term(self, node: Node, args: tuple[Any, ...]) -> Node | None:
        """The term of a sum whose other term is 0."""
        left, right = args
        if right in self.zero and interchangeable(node, left):
            return left  # type: ignore[no-any-return]  # only nodes are alike
        if node.target is aten.add.Tensor and left in self.zero and interchangeable(node, right):
            return right  # type: ignore[no-any-return]  # as above
        return None

    def _is_zero(self, node: Node, args: tuple[Any, ...]) -> bool:
        target = node.target
        if target in ZEROS:
            return True
        if target in LINEAR:
            bias = target is aten.convolution.default and args[2] is not None
            none = not bias and any(each in self.zero for each in args[:2])
            return none or (target is aten.mul.Tensor and self._never_meet(args))
        if target in JOINING:
            numbers = target not in PLACING and not _all_nodes(args)
            return not numbers and bool(node.all_input_nodes) and self.zero.issuperset(node.all_input_nodes)
        given = args[0] if args else None
        if target is aten.clamp.default:
            return given in self.positive and args[1:] == (None, 0)
        if target is aten.lt.Scalar:
            return given in self.positive and args[1] == 0
        return isinstance(given, Node) and given in self.zero and _keeps_zero(target, args, self.zero)

    def _is_positive(self, node: Node, args: tuple[Any, ...]) -> bool:
        target = node.target
        if target in ABOVE or _is_square(target, args):
            return True
        if target in CLAMPS:
            return len(args) > 1 and args[1] is not None and bool(args[1] >= 0)
        if target is aten.constant_pad_nd.default:
            return args[0] in self.positive and (len(args) < 3 or bool(args[2] >= 0))
        if target in {*MOVING, aten.max_pool2d_with_indices.default, aten.pow.Tensor_Scalar}:
            return args[0] in self.positive
        plain = target in PLACING or all(_is_positive_term(each) for each in args)
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
        if target is aten.add.Tensor and _all_nodes(args):
            return set[Any].intersection(*(self._known(each) for each in args))
        return self._known(args[0]) if target in DIVISIONS or only_leading(node) else set()

    def _known(self, node: Any) -> set[Any]:
        return self.within.get(node, set()) if isinstance(node, Node) else set()

    def _never_meet(self, args: tuple[Any, ...]) -> bool:
        """Whether two factors are nowhere both nonzero."""
        if not _all_nodes(args):
            return False
        return any(self._is_masked(one, other, aten.lt.Scalar) for one, other in (args, args[::-1]))

    def _is_masked(self, one: Node, other: Node, comparison: Any) -> bool:
        """Whether one is nonzero only where the node that the other compares with 0 is above 0."""
        return bool(
            other.target is comparison
            and other.args[1] == 0
            and other.args[0] in self._known(one)
            and shape_words(one)[-len(shape_of(other)) :] == shape_words(other)
        )


def _product(node: Node) -> Node:
    """An ``addmm`` onto zeros as a product."""
    with node.graph.inserting_before(node):
        product = node.graph.call_function(aten.mm.default, node.args[1:3])
    product.meta.update(node.meta)
    return product


def _keeps_zero(target: Any, args: tuple[Any, ...], zero: set[Any]) -> bool:
    """Whether an operation maps zeros to zeros."""
    if target in {aten.masked_fill.Scalar, aten.constant_pad_nd.default}:
        return len(args) < 3 or args[2] == 0
    if target is aten.scatter_add.default:
        return args[3] in zero
    return target is aten.threshold_backward.default or target in MOVING


def _all_nodes(args: Any) -> bool:
    return bool(args) and all(isinstance(each, Node) for each in args)


def _is_square(target: Any, args: tuple[Any, ...]) -> bool:
    if target is aten.pow.Tensor_Scalar:
        return bool(args[1] % 2 == 0)
    return target is aten.mul.Tensor and args[0] is args[1]


def _is_positive_term(term: Any) -> bool:
    """Whether it is a node, or a number that is not negative."""
    return isinstance(term, Node) or (isinstance(term, (int, float)) and term >= 0)


# Common subexpressions.


class CommonSubexpressions:
    """Finds nodes that compute the same values as an earlier one.

    Example:
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> graph, common = make_fx(lambda x: x.relu() + x.relu())(torch.ones(2)).graph, CommonSubexpressions()
        >>> [common.first(node) is node for node in graph.nodes]
        [True, True, False, True, True]
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, Node] = {}
        self._instead: dict[Node, Node] = {}

    def first(self, node: Node) -> Node:
        """The first node with the same values: an earlier one, or this."""
        if not _is_pure(node):
            return node
        first = self._seen.setdefault(_key(node), node)
        return self._instead.get(first, first)

    def replace(self, node: Node, kept: Node) -> None:
        """Use another node for this one from now on, and for its duplicates."""
        self._instead[node] = kept


def _is_pure(node: Node) -> bool:
    """Whether equal arguments give equal values."""
    if node.op == "get_attr":
        return True
    tags = getattr(node.target, "tags", ())
    return node.op == "call_function" and torch.Tag.nondeterministic_seeded not in tags


def _key(node: Node) -> Hashable:
    if node.target is torch.ops.aten.sym_size.int:  # of any tensor: the same symbolic size is the same number
        return node.target, str(node.meta["val"])
    return node.op, node.target, _hashed(node.args), _hashed(node.kwargs)


def _hashed(value: Any) -> Hashable:
    """A key of arguments: numbers with their type, because 1 and 1.0 are equal and make different tensors."""
    if isinstance(value, (tuple, list)):
        return tuple(_hashed(each) for each in value)
    if isinstance(value, dict):
        return tuple((key, _hashed(each)) for key, each in value.items())
    return value if isinstance(value, Node) else (type(value).__name__, str(value))


# Changes of shape.


def shape_of(node: Any) -> list[Any]:
    """The shape of a node's value."""
    return list(node.meta["val"].shape)


def shape_words(node: Node) -> list[str]:
    """A shape for comparisons: comparing symbolic sizes themselves would add guards."""
    return [str(side) for side in shape_of(node)]


def interchangeable(one: Node, other: Any) -> bool:
    """Whether one can replace the other: of the same shape and type."""
    if not isinstance(other, Node):
        return False
    same_type: bool = one.meta["val"].dtype == other.meta["val"].dtype
    return same_type and shape_words(one) == shape_words(other)


def merge_reshapes(node: Node) -> None:
    """Merge a chain of reshapes into one from the source of the values; the node is changed in place.

    Example:
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> graph = make_fx(lambda x: x.reshape(6).unsqueeze(0).reshape(3, 2))(torch.ones(2, 3)).graph
        >>> for node in graph.nodes:
        ...     merge_reshapes(node)
        >>> [str(node.args[0]) for node in graph.nodes if node.op == "call_function"]
        ['x_1', 'x_1', 'x_1']
    """
    if node.target in VIEWS:  # without the copy before it, the source may not be contiguous
        node.target = aten.reshape.default
    source = _source(node)
    if node.target in STEPS and source is not None and _same_values(node, source):
        node.target, node.args = aten.reshape.default, (source, shape_of(node))
    if node.target is aten.reshape.default:
        given: Any = node.args[0]
        while isinstance(given, Node) and given.target is aten.reshape.default:
            given = given.args[0]
        node.args = (given, *node.args[1:])


def _source(node: Node) -> Node | None:
    """The source of a node's values; of an unbound part, the whole."""
    given: Any = node.args[0] if node.args else None
    if node.target is operator.getitem:
        given = given.args[0] if isinstance(given, Node) and given.target is aten.unbind.int else None
    return given if isinstance(given, Node) else None


def _same_values(node: Node, source: Node) -> bool:
    """Whether both have the same number of values, and so the same values in the same order."""
    sides = shape_of(node), shape_of(source)
    if not all(isinstance(side, int) for each in sides for side in each):
        return False
    return bool(node.meta["val"].numel() == source.meta["val"].numel())


def only_leading(node: Node) -> bool:
    """Whether a node only adds or removes leading dimensions of size 1."""
    given: Any = node.args[0] if node.args else None
    steps = {aten.reshape.default, aten.unsqueeze.default, aten.squeeze.dim, aten.select.int}
    return node.target in steps and isinstance(given, Node) and same(node, given)


def same(node: Node, other: Node) -> bool:
    """Whether both have the same shape, but for leading dimensions of size 1."""
    return _stripped(shape_words(node)) == _stripped(shape_words(other))


def _stripped(words: list[str]) -> list[str]:
    while words and words[0] == "1":
        words = words[1:]
    return words


def is_first(node: Any) -> bool:
    """Whether a node only added a leading dimension."""
    return isinstance(node, Node) and node.target is aten.unsqueeze.default and node.args[1:] == (0,)


def is_all(index: Any, length: Any) -> bool:
    """Whether an index selects everything, in order."""
    if not isinstance(length, int) or shape_words(index) != [str(length)]:
        return False
    while isinstance(index, Node) and index.target in {operator.getitem, aten.split.Tensor}:
        index = index.args[0]
    counted = isinstance(index, Node) and index.target is aten.arange.default
    return counted and str(index.args[0]) == str(length)
