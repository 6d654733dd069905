"""Regions of a tree of segments, alone and joined with their neighbours: what may be a thing.

A thing has often parts that look different, such as a shirt and trousers: no segment of the tree is the whole of it,
but two, three or four of them that touch are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from excite.grounding.proposals.growing import Borders, SegmentTree

    Union = tuple[tuple[int, ...], float, float]

__all__ = ["Regions", "join_neighbours"]

MOST_NEIGHBOURS = 5
"""With how many of its neighbours, those with the longest common border first, a segment is joined."""

SMALLEST = 0.001
"""Segments below this share of the picture are not looked at: there are thousands of them."""


@dataclass(frozen=True, eq=False)
class Regions:
    """Candidates for proposals.

    Attributes:
        nodes: One to four nodes of the tree each [candidates, 4]; -1 where there are fewer.
        inner_length: How long the borders between these nodes are [candidates].
        inner_sum: The strength of those borders, summed along them [candidates].
    """

    nodes: NDArray[np.int64]
    inner_length: NDArray[np.float64]
    inner_sum: NDArray[np.float64]


def join_neighbours(tree: SegmentTree) -> Regions:
    """All nodes that are large enough, and the unions of one with up to three that it touches.

    Two nodes are neighbours if some level of the tree has both of them side by side. Going up through the tree,
    each new node meets those that are there at that moment, so that each union is met exactly once.

    Example:
        >>> from excite.grounding.proposals.growing import grow_tree
        >>> join_neighbours(grow_tree(np.zeros((9, 9, 3), np.uint8))).nodes.tolist()
        [[0, -1, -1, -1]]
    """
    found = list(_unions(tree))
    nodes = np.full((len(found), 4), -1, np.int64)
    for row, (members, _, _) in enumerate(found):
        nodes[row, : len(members)] = members
    return Regions(nodes, np.array([entry[1] for entry in found]), np.array([entry[2] for entry in found]))


def _unions(tree: SegmentTree) -> Iterator[Union]:
    """For each node and union: its nodes, and the length and strength of the borders between them."""
    leaves = len(tree.neighbours)
    around = {leaf: dict(borders) for leaf, borders in enumerate(tree.neighbours)}
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents.tolist()):
        children.setdefault(parent, []).append(node)
    large = (tree.area >= SMALLEST * tree.labels.size).tolist()
    for node in range(len(tree.parents)):
        if node >= leaves:
            _merge(around, node, [child for child in children[node] if child != node])
        if large[node]:
            yield (node,), 0.0, 0.0
            yield from _joined(node, around, large)


def _merge(around: dict[int, Borders], node: int, children: list[int]) -> None:
    """A new node takes the place of its children, and has their neighbours."""
    mine: Borders = {}
    for child in children:
        for other, (length, strength) in around.pop(child).items():
            if other in children:
                continue
            before = mine.get(other, (0.0, 0.0))
            mine[other] = (before[0] + length, before[1] + strength)
            del around[other][child]
    for other, border in mine.items():
        around[other][node] = border
    around[node] = mine


def _joined(node: int, around: dict[int, Borders], large: list[bool]) -> Iterator[Union]:
    """The unions of a node with one to three of its neighbours that came before it."""
    mine = around[node]
    near = [other for other in mine if other < node and large[other]]
    near = sorted(near, key=lambda other: (-mine[other][0], other))[:MOST_NEIGHBOURS]
    for count in (1, 2, 3):
        for others in combinations(near, count):
            borders = [mine[other] for other in others]
            borders += [around[one][two] for one, two in combinations(others, 2) if two in around[one]]
            yield (node, *others), sum(length for length, _ in borders), sum(strength for _, strength in borders)
