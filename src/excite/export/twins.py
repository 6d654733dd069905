"""Work that a graph does twice: the first one serves for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Twins"]


class Twins:
    """Knows the nodes of a graph that were met, in its order.

    Example:
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> graph, twins = make_fx(lambda x: x.relu() + x.relu())(torch.ones(2)).graph, Twins()
        >>> [twins.first(node) is node for node in graph.nodes]
        [True, True, False, True, True]
    """

    def __init__(self) -> None:
        self._met: dict[Hashable, Node] = {}
        self._instead: dict[Node, Node] = {}

    def first(self, node: Node) -> Node:
        """The first node that gives the same values: an earlier one, or this."""
        if not _is_pure(node):
            return node
        first = self._met.setdefault(_key(node), node)
        return self._instead.get(first, first)

    def replace(self, node: Node, kept: Node) -> None:
        """Another node stands for this one from now on, and so for its twins."""
        self._instead[node] = kept


def _is_pure(node: Node) -> bool:
    """Whether it gives the same whenever it is asked the same."""
    if node.op == "get_attr":
        return True
    tags = getattr(node.target, "tags", ())
    return node.op == "call_function" and torch.Tag.nondeterministic_seeded not in tags


def _key(node: Node) -> Hashable:
    if node.target is torch.ops.aten.sym_size.int:  # whoever is asked: the same unknown size is the same number
        return node.target, str(node.meta["val"])
    return node.op, node.target, _hashed(node.args), _hashed(node.kwargs)


def _hashed(value: Any) -> Hashable:
    """Arguments to compare: numbers with their type, because 1 and 1.0 are equal and make different tensors."""
    if isinstance(value, (tuple, list)):
        return tuple(_hashed(each) for each in value)
    if isinstance(value, dict):
        return tuple((key, _hashed(each)) for key, each in value.items())
    return value if isinstance(value, Node) else (type(value).__name__, str(value))
