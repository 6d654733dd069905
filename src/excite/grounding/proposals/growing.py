"""A tree of segments: from thousands of small ones to the whole picture, weakest border first."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import ExciteError
from excite.grounding.proposals.edges import edge_strength

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Borders = dict[int, tuple[float, float]]

__all__ = ["SegmentTree", "grow_tree"]

SCALES = (1.5, 3.0, 6.0)
"""In pixels of the shrunk picture: the finest tells where borders are, all together tell how strong they are."""


@dataclass(frozen=True, eq=False)
class SegmentTree:
    """Segments of a picture, two of which make the next one, until the last is the whole picture.

    Attributes:
        labels: The leaf of each pixel [height, width].
        parents: The node that each node is part of [nodes]; the root is its own.
        heights: How strong the border was that fell when each node was made [nodes]; zero for leaves.
        area: Pixels of each node [nodes].
        boxes: The half-open box around each node [nodes, 4].
        edge_length: How long each node's border within the picture is [nodes].
        edge_sum: The strength of that border, summed along it [nodes].
        touching: How many pixels of each node lie at the picture's own border [nodes].
        neighbours: For each leaf, its neighbours with the length and the summed strength of the common border.
    """

    labels: NDArray[np.int32]
    parents: NDArray[np.int64]
    heights: NDArray[np.float64]
    area: NDArray[np.float64]
    boxes: NDArray[np.int64]
    edge_length: NDArray[np.float64]
    edge_sum: NDArray[np.float64]
    touching: NDArray[np.float64]
    neighbours: list[Borders]

    def leaves_of(self, nodes: Array) -> list[NDArray[np.int64]]:
        """The leaves of each union of nodes [unions, nodes of each], -1 where there are fewer."""
        leaves = len(self.neighbours)
        counts = np.ones(len(self.parents), np.int64)
        counts[leaves:] = 0
        parents = self.parents.tolist()
        for node, parent in enumerate(parents[:-1]):
            counts[parent] += counts[node]
        starts = np.zeros(len(parents), np.int64)  # where a node's leaves begin when those of each node lie together
        free = starts.copy()
        for node in range(len(parents) - 2, -1, -1):
            parent = parents[node]
            starts[node] = free[node] = free[parent]
            free[parent] += counts[node]
        order = np.argsort(starts[:leaves], kind="stable")
        ends = starts + counts
        return [np.concatenate([order[starts[node] : ends[node]] for node in row if node >= 0]) for row in nodes]


def grow_tree(picture: NDArray[np.uint8]) -> SegmentTree:
    """The tree of a picture [height, width, 3].

    Raises:
        ExciteError: higra is not installed.

    Example:
        >>> picture = np.zeros((20, 30, 3), np.uint8)
        >>> picture[5:15, 10:20] = 255
        >>> tree = grow_tree(picture)
        >>> tree.boxes[-1].tolist(), [10, 5, 20, 15] in tree.boxes.tolist()
        ([0, 0, 30, 20], True)
    """
    higra = _higra()
    shape = picture.shape[:2]
    if min(shape) < 2:
        return _one_segment(shape)
    graph = higra.get_4_adjacency_graph(shape)
    maps = edge_strength(picture, SCALES)
    weights = [_on_edges(higra, graph, strength) for strength, _ in maps]
    weights = [values for values in weights if higra.labelisation_watershed(graph, values).max() > 1]
    if not weights:  # higra takes no graph without borders
        return _one_segment(shape)
    twice = 2 * maps[1][1]  # a border seen from its other side is the same border: directions half a turn apart are one
    cosine, sine = _on_edges(higra, graph, np.cos(twice)), _on_edges(higra, graph, np.sin(twice))
    direction = np.remainder(np.arctan2(sine, cosine) / 2, np.pi)
    others = tuple(weights[1:]) or (weights[0],)  # higra asks for at least one
    tree, heights = higra.multiscale_mean_pb_hierarchy(graph, weights[0], others, shape, direction)
    if tree.num_leaves() == 1:
        return _one_segment(shape)
    return _measured(higra, tree, heights, np.mean(weights, axis=0), shape)


def _higra() -> Any:
    try:
        if "higra" not in sys.modules:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python finds fault with backslashes in its texts when it compiles it
                import higra
        import higra
    except ImportError:
        raise ExciteError("segments of a picture need higra: pip install 'excite[ground]'") from None
    return higra


def _on_edges(higra: Any, graph: Any, values: Array) -> Array:
    """From each pixel to the borders between two pixels."""
    return np.asarray(higra.weight_graph(graph, values.astype(np.float64), higra.WeightFunction.mean))


def _one_segment(shape: tuple[int, ...]) -> SegmentTree:
    """The tree of a picture in which there is nothing to tell apart."""
    height, width = shape
    none = np.zeros(1)
    box = np.array([[0, 0, width, height]], np.int64)
    labels, parents = np.zeros(shape, np.int32), np.zeros(1, np.int64)
    area = np.full(1, float(height * width))
    return SegmentTree(labels, parents, none, area, box, none, none, area, [{}])


def _measured(higra: Any, tree: Any, heights: Array, strength: Array, shape: tuple[int, ...]) -> SegmentTree:
    """What can be said of each node, from what can be said of the leaves and of the borders between them."""
    rag, count, leaves = tree.leaf_graph, tree.num_vertices(), tree.num_leaves()
    labels = np.asarray(higra.CptRegionAdjacencyGraph.get_vertex_map(rag)).reshape(shape).astype(np.int32)
    border = np.asarray(higra.CptRegionAdjacencyGraph.get_edge_map(rag)).astype(np.int64)
    between = border >= 0
    length = np.bincount(border[between], minlength=rag.num_edges()).astype(np.float64)
    total = np.bincount(border[between], strength[between], minlength=rag.num_edges())
    ends = tuple(np.asarray(nodes).astype(np.int64) for nodes in rag.edge_list())
    meeting = np.asarray(tree.lowest_common_ancestor(*ends)).astype(np.int64)

    def summed(values: Array) -> Array:
        return np.asarray(higra.accumulate_sequential(tree, values.astype(np.float64), higra.Accumulators.sum))

    def outside(amounts: Array) -> Array:
        """A border is one of both its leaves, of no node that has both of them inside."""
        at_leaves = sum(np.bincount(nodes, amounts, leaves) for nodes in ends)
        gone = np.bincount(meeting, amounts, count)
        within = higra.accumulate_and_add_sequential(tree, gone, np.zeros(leaves), higra.Accumulators.sum)
        return np.asarray(summed(np.asarray(at_leaves)) - 2 * np.asarray(within))

    return SegmentTree(
        labels=labels,
        parents=np.asarray(tree.parents()).astype(np.int64),
        heights=np.asarray(heights).astype(np.float64),
        area=summed(np.bincount(labels.ravel(), minlength=leaves)),
        boxes=_node_boxes(higra, tree, labels),
        edge_length=outside(length),
        edge_sum=outside(total),
        touching=summed(np.bincount(_rim(labels), minlength=leaves)),
        neighbours=_neighbours(leaves, ends, length, total),
    )


def _rim(labels: Array) -> Array:
    """The leaves of the pixels at the picture's border, each pixel once."""
    rim = np.ones(labels.shape, bool)
    rim[1:-1, 1:-1] = False
    return labels[rim]


def _node_boxes(higra: Any, tree: Any, labels: Array) -> NDArray[np.int64]:
    rows, columns = np.indices(labels.shape)
    flat, leaves = labels.ravel(), tree.num_leaves()
    sides = []
    for places, grows in ((columns, False), (rows, False), (columns + 1, True), (rows + 1, True)):
        at_leaves = np.full(leaves, 0 if grows else max(labels.shape), np.int64)
        (np.maximum if grows else np.minimum).at(at_leaves, flat, places.ravel())
        accumulator = higra.Accumulators.max if grows else higra.Accumulators.min
        sides.append(higra.accumulate_sequential(tree, at_leaves.astype(np.float64), accumulator))
    return np.stack(sides, axis=1).astype(np.int64)


def _neighbours(leaves: int, ends: tuple[Array, ...], length: Array, total: Array) -> list[Borders]:
    neighbours: list[Borders] = [{} for _ in range(leaves)]
    columns = (*ends, length, total)
    for first, second, long, strong in zip(*(column.tolist() for column in columns), strict=True):
        neighbours[first][second] = neighbours[second][first] = (long, strong)
    return neighbours
