"""Changes of shape in a graph: which of them change nothing, and which are one change in several steps."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

__all__ = ["alike", "is_all", "is_first", "only_leading", "same", "shape_of", "shape_words", "shortened"]

aten = torch.ops.aten

VIEWS = {aten.view.default, aten._unsafe_view.default}  # noqa: SLF001 - torch's own name
# Where all sides are numbers these only give the same values another shape.
STEPS = {aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.select.int, operator.getitem}


def shape_of(node: Any) -> list[Any]:
    """The shape of what a node gives."""
    return list(node.meta["val"].shape)


def shape_words(node: Node) -> list[str]:
    """A shape to compare: comparing unknown sizes themselves would decide about them."""
    return [str(side) for side in shape_of(node)]


def alike(one: Node, other: Any) -> bool:
    """Whether one can stand for the other: of the same shape and type."""
    if not isinstance(other, Node):
        return False
    same_type: bool = one.meta["val"].dtype == other.meta["val"].dtype
    return same_type and shape_words(one) == shape_words(other)


def shortened(node: Node) -> None:
    """Make a change of shape one step from where the values were made; the node is changed in place.

    Example:
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> graph = make_fx(lambda x: x.reshape(6).unsqueeze(0).reshape(3, 2))(torch.ones(2, 3)).graph
        >>> for node in graph.nodes:
        ...     shortened(node)
        >>> [str(node.args[0]) for node in graph.nodes if node.op == "call_function"]
        ['x_1', 'x_1', 'x_1']
    """
    if node.target in VIEWS:  # without the copy before it, what is viewed may lie elsewhere in memory
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
    """What a node takes its values from; a part of something taken apart takes them from the whole."""
    given: Any = node.args[0] if node.args else None
    if node.target is operator.getitem:
        given = given.args[0] if isinstance(given, Node) and given.target is aten.unbind.int else None
    return given if isinstance(given, Node) else None


def _same_values(node: Node, source: Node) -> bool:
    """Whether both have the same values in the same order, known by their number: all or one of one."""
    sides = shape_of(node), shape_of(source)
    if not all(isinstance(side, int) for each in sides for side in each):
        return False
    return bool(node.meta["val"].numel() == source.meta["val"].numel())


def only_leading(node: Node) -> bool:
    """Whether a node only gives its input more or fewer leading dimensions of one place."""
    given: Any = node.args[0] if node.args else None
    steps = {aten.reshape.default, aten.unsqueeze.default, aten.squeeze.dim, aten.select.int}
    return node.target in steps and isinstance(given, Node) and same(node, given)


def same(node: Node, other: Node) -> bool:
    """Whether both have the same shape, but for leading dimensions of one place."""
    return _stripped(shape_words(node)) == _stripped(shape_words(other))


def _stripped(words: list[str]) -> list[str]:
    while words and words[0] == "1":
        words = words[1:]
    return words


def is_first(node: Any) -> bool:
    """Whether a node only gave its input a leading dimension."""
    return isinstance(node, Node) and node.target is aten.unsqueeze.default and node.args[1:] == (0,)


def is_all(index: Any, length: Any) -> bool:
    """Whether an index chooses everything, in order."""
    if not isinstance(length, int) or shape_words(index) != [str(length)]:
        return False
    while isinstance(index, Node) and index.target in {operator.getitem, aten.split.Tensor}:
        index = index.args[0]
    counted = isinstance(index, Node) and index.target is aten.arange.default
    return counted and str(index.args[0]) == str(length)
