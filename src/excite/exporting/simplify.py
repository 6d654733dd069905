"""Work that is never needed, left out of a graph.

While a graph is written down nothing is known of the values, so children of both signs compete for both ports. What
the operations themselves tell is found out here: a ReLU gives nothing negative, and no signal comes through one to a
unit that was pushed down. The rest of such a branch is zero, and is cut off.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

if TYPE_CHECKING:
    from torch.fx import GraphModule

__all__ = ["simplify"]

aten = torch.ops.aten


def _operations(names: str) -> frozenset[Any]:
    """Torch's operations by name and overload."""
    return frozenset(operator.attrgetter(name)(aten) for name in names.split())


SAME = _operations("detach.default alias.default clone.default lift_fresh_copy.default")
VIEWS = _operations("view.default _unsafe_view.default")
MOVING = {operator.getitem} | _operations(  # each output is a copy of an input, or a sum of some
    """reshape.default expand.default unsqueeze.default squeeze.dim squeeze.dims
    select.int slice.Tensor permute.default t.default transpose.int unbind.int split.Tensor split_with_sizes.default
    index_select.default unfold.default sum.dim_IntList mean.dim _to_copy.default avg_pool2d.default
    _adaptive_avg_pool2d.default"""
)
LINEAR = _operations("mul.Tensor mm.default bmm.default convolution.default")
ABOVE = _operations("relu.default sigmoid.default exp.default abs.default _softmax.default")
ZEROS = _operations("zeros_like.default new_zeros.default zeros.default")
JOINING = _operations("cat.default add.Tensor")
KEEPING_SIGN = JOINING | _operations("mul.Tensor div.Tensor")
CLAMPS = _operations("clamp.default hardtanh.default")


def simplify(module: GraphModule) -> GraphModule:
    """Take out of a graph what changes nothing. It is changed in place.

    Example:
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> graph = make_fx(lambda x: x.relu() + x.relu().clamp(max=0))(torch.ones(2))
        >>> [node.name for node in simplify(graph).graph.nodes]
        ['x_1', 'relu', 'output']
    """
    facts = _Facts()
    for node in list(module.graph.nodes):
        if node.op == "call_function":
            if node.target in VIEWS:  # without the copy before it, what is viewed may lie elsewhere in memory
                node.target = aten.reshape.default
            kept = facts.learn(node)
            if kept is not node:
                node.replace_all_uses_with(kept)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


class _Facts:
    """What is known of the nodes of a graph, whatever the picture."""

    def __init__(self) -> None:
        self.zero: set[Any] = set()
        self.positive: set[Any] = set()  # nowhere below 0
        self.within: dict[Any, set[Any]] = {}  # not 0 only where all of those are above 0

    def learn(self, node: Node) -> Node:
        """Note what is known of a node; give the one that can stand for it."""
        args: tuple[Any, ...] = node.args
        if node.target in SAME:
            return args[0]  # type: ignore[no-any-return]  # the input of a copy is a node
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
        """The input that the node only gives back."""
        target, given = node.target, args[0] if args and isinstance(args[0], Node) else None
        if target in {aten.add.Tensor, aten.sub.Tensor} and len(args) == 2:
            return self._lone_term(node, args)
        same = (
            (target is aten.mul.Tensor and args[1] == 1)
            or (target is aten.clamp.default and args[1:] == (0,) and given in self.positive)
            or (target is aten.index_select.default and _is_all(args[2], _shape(given)[args[1]]))
        )
        if target is aten.select.int and args[1:] == (0, 0) and _is_first(given):
            return given.args[0]  # type: ignore[union-attr,return-value]  # both are nodes, as was just seen
        return given if same else None

    def _lone_term(self, node: Node, args: tuple[Any, ...]) -> Node | None:
        """The term of a sum whose other term is 0."""
        left, right = args
        if right in self.zero and _alike(node, left):
            return left  # type: ignore[no-any-return]  # only nodes are alike
        if node.target is aten.add.Tensor and left in self.zero and _alike(node, right):
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
            return all(each in self.zero for each in node.all_input_nodes) and bool(node.all_input_nodes)
        given = args[0] if args else None
        if target is aten.clamp.default:
            return given in self.positive and args[1:] == (None, 0)
        if target is aten.lt.Scalar:
            return given in self.positive and args[1] == 0
        return _is_nothing(given, self.zero) and _hands_on(target, args, self.zero)

    def _is_positive(self, node: Node, args: tuple[Any, ...]) -> bool:
        target = node.target
        if target in ABOVE:
            return True
        if target in CLAMPS:
            return len(args) > 1 and args[1] is not None and bool(args[1] >= 0)
        if target is aten.constant_pad_nd.default:
            return args[0] in self.positive and (len(args) < 3 or bool(args[2] >= 0))
        if target is aten.max_pool2d_with_indices.default or target in MOVING:
            return args[0] in self.positive
        nodes = node.all_input_nodes
        plain = target is aten.cat.default or _all_nodes(args)  # a number among them may be negative
        return target in KEEPING_SIGN and plain and all(each in self.positive for each in nodes)

    def _support(self, node: Node, args: tuple[Any, ...]) -> set[Any]:
        """Of which nodes it is known that this one is 0 where they are not above 0."""
        target = node.target
        if target is aten.relu.default or (target is aten.clamp.default and args[1:] == (0,)):
            return {node, args[0]}
        if target is aten.threshold_backward.default and args[2] == 0:
            return {*self._known(args[0]), args[1], *self._known(args[1])}
        if target is aten.mul.Tensor:
            return set[Any]().union(*(self._known(each) for each in args))
        if target is aten.add.Tensor and _all_nodes(args):
            return set[Any].intersection(*(self._known(each) for each in args))
        leading = (target is aten.unsqueeze.default and args[1] == 0) or (
            target is aten.select.int and args[1:] == (0, 0)
        )
        return self._known(args[0]) if leading else set()

    def _known(self, node: Any) -> set[Any]:
        return self.within.get(node, set()) if isinstance(node, Node) else set()

    def _never_meet(self, args: tuple[Any, ...]) -> bool:
        """A product of two that are never other than 0 at the same place."""
        if not _all_nodes(args):
            return False
        return any(
            other.target is aten.lt.Scalar
            and other.args[1] == 0
            and other.args[0] in self._known(one)
            and _shape_words(one)[-len(_shape(other)) :] == _shape_words(other)
            for one, other in (args, args[::-1])
        )


def _product(node: Node) -> Node:
    """An ``addmm`` to nothing."""
    with node.graph.inserting_before(node):
        product = node.graph.call_function(aten.mm.default, node.args[1:3])
    product.meta.update(node.meta)
    return product


def _is_nothing(given: Any, zero: set[Any]) -> bool:
    return isinstance(given, Node) and given in zero


def _hands_on(target: Any, args: tuple[Any, ...], zero: set[Any]) -> bool:
    """Whether an operation makes nothing out of nothing."""
    if target in {aten.masked_fill.Scalar, aten.constant_pad_nd.default}:
        return len(args) < 3 or args[2] == 0
    if target is aten.scatter_add.default:
        return args[3] in zero
    return target is aten.threshold_backward.default or target in MOVING


def _all_nodes(args: Any) -> bool:
    return bool(args) and all(isinstance(each, Node) for each in args)


def _shape(node: Any) -> list[Any]:
    return list(node.meta["val"].shape)


def _shape_words(node: Node) -> list[str]:
    """A shape to compare: comparing unknown sizes themselves would decide about them."""
    return [str(side) for side in _shape(node)]


def _alike(one: Node, other: Any) -> bool:
    """Whether one can stand for the other: of the same shape and type."""
    if not isinstance(other, Node):
        return False
    same_type: bool = one.meta["val"].dtype == other.meta["val"].dtype
    return same_type and _shape_words(one) == _shape_words(other)


def _is_first(node: Any) -> bool:
    """Whether a node only gave its input a leading dimension."""
    return isinstance(node, Node) and node.target is aten.unsqueeze.default and node.args[1:] == (0,)


def _is_all(index: Any, length: Any) -> bool:
    """Whether an index chooses everything, in order."""
    if not isinstance(length, int) or _shape_words(index) != [str(length)]:
        return False
    while isinstance(index, Node) and index.target in {operator.getitem, aten.split.Tensor}:
        index = index.args[0]
    counted = isinstance(index, Node) and index.target is aten.arange.default
    return counted and str(index.args[0]) == str(length)
