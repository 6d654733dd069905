"""Segments from a hierarchical segmentation (the part of MCG that higra has), ranked by our own score.

A tree of segments is built by merging across the weakest borders (`build_tree`). The candidates are its nodes, and
unions of two to four neighbours: an object often has parts that look different, such as a shirt and trousers, of which
no single node is the whole. The score has four terms, whose weights are those of a linear model, fitted on images of
PASCAL VOC, of how well a region's box fits an annotated one, rounded; twenty further terms, and boosted trees, were no
better on other images.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from excite.errors import ExciteError
from excite.grounding.proposals import base
from excite.grounding.proposals.base import Proposals, Segments
from excite.metrics.boxes import shared_areas

Array = NDArray[Any]
Union = tuple[tuple[int, ...], float, float]
Borders = dict[int, tuple[float, float]]

SIZE, CONTRAST, INNER, TOUCHING = 0.1, 0.5, 0.5, -0.15  # weights: twice the box is worth 14 % of the strongest border
MOST_NEIGHBOURS = 5  # a segment is joined with so many of its neighbours, those with the longest common border first
SMALLEST = 0.001  # the least share of the image that a segment covers: there are thousands of smaller ones
SCALES = (1.5, 3.0, 6.0)  # in pixels: the finest locates the borders, the mean of all gives their strength
FAINTEST = 1e-4  # a change of one grey level is ten times as strong; below is rounding, which must not make regions


@dataclass(frozen=True)
class Hierarchy:
    """Proposes the segments of an image that look most like objects, single and joined with their neighbours."""

    count: int = 500  # at most; a plain image has fewer
    most_alike: float = 0.7  # the largest IoU of two boxes: lower finds more objects with few, higher fits them better
    longest: int = 256  # the longer side of the image that is segmented, in pixels

    name: ClassVar[str] = "hierarchy"
    version: ClassVar[int] = 1

    def __call__(self, picture: Image.Image) -> Proposals:
        """The segments, best first."""
        small = base.shrink(picture, self.longest)
        tree = build_tree(np.asarray(small))
        regions = join_neighbours(tree)
        there = (regions.nodes >= 0)[..., None]
        low = np.where(there, tree.boxes[regions.nodes, :2], np.iinfo(np.int64).max).min(axis=1)
        high = np.where(there, tree.boxes[regions.nodes, 2:], -1).max(axis=1)
        boxes = np.concatenate([low, high], axis=1)
        scores = region_scores(tree, regions, boxes)
        kept = suppress_overlapping(boxes, scores, self.count, self.most_alike)
        found = base.segments_of_pieces(tree.labels, tree.leaves_of(regions.nodes[kept]))
        segments = Segments(base.enlarge_parts(found.parts, picture.size), found.starts, found.members)
        enlarged = base.enlarge_boxes(boxes[kept], small.size, picture.size)
        return Proposals(picture.size, enlarged, scores[kept].astype(np.float32), segments)


def region_scores(tree: SegmentTree, regions: Regions, boxes: Array) -> NDArray[np.float64]:
    """How much each region looks like an object: large, with a strong border, not along the image's own border."""
    nodes = regions.nodes
    there = nodes >= 0

    def summed(values: Array) -> Array:
        return np.asarray(np.where(there, values[nodes], 0).sum(axis=1))

    height, width = tree.labels.shape
    size = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) / (height * width)
    strongest = max(float(tree.heights.max()), float(np.finfo(np.float32).tiny))  # a plain image has no border at all
    length = np.maximum(summed(tree.edge_length) - 2 * regions.inner_length, 1)
    contrast = (summed(tree.edge_sum) - 2 * regions.inner_sum) / length / strongest
    inner = np.where(there, tree.heights[nodes], 0).max(axis=1) / strongest
    touching = np.sqrt(summed(tree.touching) / (2 * (height + width)))
    return np.asarray(SIZE * np.log(size) + CONTRAST * contrast + INNER * inner + TOUCHING * touching)


def suppress_overlapping(boxes: Array, scores: Array, count: int, most: float) -> NDArray[np.int64]:
    """Greedy non-maximum suppression: the best ``count``, best first, no two boxes with an IoU above ``most``."""
    order = np.argsort(-scores, kind="stable")
    first = np.unique(boxes[order], axis=0, return_index=True)[1]  # equal boxes are many, and quick to remove
    left = order[np.sort(first)]
    sides = np.ascontiguousarray(boxes[left].T, np.float32)  # by columns, which is quicker
    kept: list[int] = []
    while len(left) and len(kept) < count:
        kept.append(int(left[0]))
        inside, union = shared_areas(sides[:, :1].T, sides[:, 1:].T)
        others = 1 + np.flatnonzero(inside[0] <= most * union[0])
        left, sides = left[others], sides.take(others, axis=1)
    return np.array(kept, np.int64)


class Regions(NamedTuple):
    """Candidates for proposals: one to four nodes each [candidates, 4], padded with -1, and borders between them."""

    nodes: NDArray[np.int64]
    inner_length: NDArray[np.float64]
    inner_sum: NDArray[np.float64]  # the strength, summed along the borders


def join_neighbours(tree: SegmentTree) -> Regions:
    """All nodes that are large enough, and the unions of one with up to three neighbours.

    Two nodes are neighbours if some level of the tree has both of them side by side. Each new node, from the leaves to
    the root, is joined with the nodes of its own level, so that each union occurs exactly once.
    """
    around = {leaf: dict(borders) for leaf, borders in enumerate(tree.neighbours)}
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents.tolist()):
        children.setdefault(parent, []).append(node)
    large = (tree.area >= SMALLEST * tree.labels.size).tolist()
    found: list[Union] = []
    for node in range(len(tree.parents)):
        if node >= len(tree.neighbours):
            _merge(around, node, [child for child in children[node] if child != node])
        if large[node]:
            found += [((node,), 0.0, 0.0), *_joined(node, around, large)]
    members, lengths, sums = zip(*found, strict=True)
    nodes = np.array([(*each, -1, -1, -1)[:4] for each in members], np.int64)
    return Regions(nodes, np.array(lengths), np.array(sums))


def _merge(around: dict[int, Borders], node: int, children: list[int]) -> None:
    """Replace children by their parent, which inherits their neighbours."""
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
    """The unions of a node with one to three of its earlier neighbours."""
    mine = around[node]
    near = [other for other in mine if other < node and large[other]]
    near = sorted(near, key=lambda other: (-mine[other][0], other))[:MOST_NEIGHBOURS]
    for count in (1, 2, 3):
        for others in combinations(near, count):
            borders = [mine[other] for other in others]
            borders += [around[one][two] for one, two in combinations(others, 2) if two in around[one]]
            yield (node, *others), sum(length for length, _ in borders), sum(strength for _, strength in borders)


@dataclass(frozen=True, eq=False)
class SegmentTree:
    """A binary tree of segments, from thousands of small ones to the whole image, weakest border first."""

    labels: NDArray[np.int32]  # the leaf of each pixel [height, width]
    parents: NDArray[np.int64]  # of each node [nodes], as all below; the root is its own
    heights: NDArray[np.float64]  # the strength of the border between a node's children; zero for leaves
    area: NDArray[np.float64]  # in pixels
    boxes: NDArray[np.int64]  # half-open [nodes, 4]
    edge_length: NDArray[np.float64]  # of a node's border within the image
    edge_sum: NDArray[np.float64]  # the strength of that border, summed along it
    touching: NDArray[np.float64]  # the pixels at the image's own border
    neighbours: list[Borders]  # of each leaf, with the length and the summed strength of the common border

    def leaves_of(self, nodes: Array) -> list[NDArray[np.int64]]:
        """The leaves of each union of nodes [unions, nodes of each], padded with -1."""
        inside = np.zeros((len(self.parents), len(nodes)), bool)
        for row, members in enumerate(nodes):
            inside[members[members >= 0], row] = True
        parents = self.parents.tolist()
        for node in range(len(parents) - 2, -1, -1):  # parents come after their children
            inside[node] |= inside[parents[node]]
        return [np.flatnonzero(leaves) for leaves in inside[: len(self.neighbours)].T]


def build_tree(picture: NDArray[np.uint8]) -> SegmentTree:
    """The tree of an image [height, width, 3]."""
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
    twice = 2 * maps[1][1]  # directions half a turn apart are the same border
    cosine, sine = _on_edges(higra, graph, np.cos(twice)), _on_edges(higra, graph, np.sin(twice))
    direction = np.remainder(np.arctan2(sine, cosine) / 2, np.pi)
    others = tuple(weights[1:]) or (weights[0],)  # higra needs at least one
    tree, heights = higra.multiscale_mean_pb_hierarchy(graph, weights[0], others, shape, direction)
    if tree.num_leaves() == 1:
        return _one_segment(shape)
    return _measured(higra, tree, heights, np.mean(weights, axis=0), shape)


def _higra() -> Any:
    try:
        if "higra" not in sys.modules:
            with warnings.catch_warnings(action="ignore"):  # invalid escapes, when Python compiles it
                import higra
        import higra
    except ImportError:
        raise ExciteError("segments of an image need higra: pip install 'excite[ground]'") from None
    return higra


def _on_edges(higra: Any, graph: Any, values: Array) -> Array:
    """The mean of the two pixels of each edge."""
    return np.asarray(higra.weight_graph(graph, values.astype(np.float64), higra.WeightFunction.mean))


def _one_segment(shape: tuple[int, ...]) -> SegmentTree:
    """The tree of an image without borders."""
    none, area = np.zeros(1), np.full(1, float(shape[0] * shape[1]))
    box = np.array([[0, 0, shape[1], shape[0]]], np.int64)
    return SegmentTree(np.zeros(shape, np.int32), np.zeros(1, np.int64), none, area, box, none, none, area, [{}])


def _measured(higra: Any, tree: Any, heights: Array, strength: Array, shape: tuple[int, ...]) -> SegmentTree:
    """The tree with the measurements of its nodes, summed from those of the leaves and of the borders between them."""
    rag, count, leaves = tree.leaf_graph, tree.num_vertices(), tree.num_leaves()
    labels = np.asarray(higra.CptRegionAdjacencyGraph.get_vertex_map(rag)).reshape(shape).astype(np.int32)
    border = np.asarray(higra.CptRegionAdjacencyGraph.get_edge_map(rag)).astype(np.int64)
    between = border >= 0
    length = np.bincount(border[between], minlength=rag.num_edges()).astype(np.float64)
    total = np.bincount(border[between], strength[between], minlength=rag.num_edges())
    ends = tuple(np.asarray(nodes).astype(np.int64) for nodes in rag.edge_list())
    meeting = np.asarray(tree.lowest_common_ancestor(*ends)).astype(np.int64)

    rim = np.ones(shape, bool)
    rim[1:-1, 1:-1] = False

    def over_nodes(values: Array, kind: Any = higra.Accumulators.sum) -> Array:
        return np.asarray(higra.accumulate_sequential(tree, values.astype(np.float64), kind))

    def outside(amounts: Array) -> Array:
        """Sums of the borders of each node: a border counts for both its leaves, and for no node that has both."""
        at_leaves = sum(np.bincount(nodes, amounts, leaves) for nodes in ends)
        gone = np.bincount(meeting, amounts, count)
        within = higra.accumulate_and_add_sequential(tree, gone, np.zeros(leaves), higra.Accumulators.sum)
        return np.asarray(over_nodes(np.asarray(at_leaves)) - 2 * np.asarray(within))

    neighbours: list[Borders] = [{} for _ in range(leaves)]
    for one, other, long, strong in zip(*(column.tolist() for column in (*ends, length, total)), strict=True):
        neighbours[one][other] = neighbours[other][one] = (long, strong)
    kinds = [higra.Accumulators.min] * 2 + [higra.Accumulators.max] * 2
    sides = zip(base.part_boxes(labels).T, kinds, strict=True)
    return SegmentTree(
        labels=labels,
        parents=np.asarray(tree.parents()).astype(np.int64),
        heights=np.asarray(heights).astype(np.float64),
        area=over_nodes(np.bincount(labels.ravel(), minlength=leaves)),
        boxes=np.stack([over_nodes(side, kind) for side, kind in sides], axis=1).astype(np.int64),
        edge_length=outside(length),
        edge_sum=outside(total),
        touching=over_nodes(np.bincount(labels[rim], minlength=leaves)),
        neighbours=neighbours,
    )


# Edge strength at each pixel, from colours and texture.
#
# The finest scale measures the change of the colours; the coarser ones that of local histograms of colours and edge
# directions: a striped shirt has strong edges inside, but the same mixture of stripes on both sides of each.


def _lab(picture: Array) -> Tensor:
    """The colours of an sRGB image [height, width, 3] as CIE Lab [3, height, width], roughly within -1..1."""
    linear = torch.from_numpy(picture.astype(np.float32) / 255)
    linear = torch.where(linear > 0.04045, ((linear + 0.055) / 1.055) ** 2.4, linear / 12.92)
    to_xyz = torch.tensor(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], dtype=torch.float32
    ) / torch.tensor([[0.9505], [1.0], [1.089]])
    xyz = torch.einsum("oc,hwc->ohw", to_xyz, linear)
    cube = torch.where(xyz > 0.008856, xyz.clamp_min(1e-6) ** (1 / 3), 7.787 * xyz + 16 / 116)
    light = 1.16 * cube[1] - 0.16
    return torch.stack([light, 5 * (cube[0] - cube[1]), 2 * (cube[1] - cube[2])])


def edge_strength(picture: Array, scales: tuple[float, ...]) -> list[tuple[Array, Array]]:
    """Strength of change [height, width] and its direction in radians (0 to pi), at each of the scales (in pixels)."""
    colours = _lab(picture)
    mixture = torch.cat([_shares(colours), _texture(colours[0])])
    return [_change(mixture if index else colours, sigma) for index, sigma in enumerate(scales)]


def _shares(colours: Tensor, bins: int = 8) -> Tensor:
    """The soft assignment of each pixel to a few bins of each channel."""
    shares = []
    for channel, (low, high) in zip(colours, ((0, 1), (-0.4, 0.4), (-0.4, 0.4)), strict=True):
        at = (channel.clamp(low, high) - low) / (high - low) * (bins - 1)
        shares.append((1 - (at - torch.arange(bins).view(-1, 1, 1)).abs()).clamp_min(0))
    return torch.cat(shares)


def _texture(light: Tensor) -> Tensor:
    """The strength of fine stripes of four directions at each pixel."""
    dx, dy = _derivatives(light[None], 1.0)
    strength = torch.sqrt(dx**2 + dy**2)
    angle = torch.atan2(dy, dx) * 2
    turns = torch.arange(4).view(-1, 1, 1) * (torch.pi / 2)
    return (torch.cos(angle - turns).clamp_min(0) * strength * 3).clamp_max(1)


def _change(channels: Tensor, sigma: float) -> tuple[Array, Array]:
    """The largest eigenvalue of the structure tensor, as a strength, and its direction (0 to pi)."""
    dx, dy = _derivatives(channels, sigma)
    xx, yy, xy = (dx * dx).sum(0), (dy * dy).sum(0), (dx * dy).sum(0)
    root = torch.sqrt((xx - yy) ** 2 + 4 * xy**2)
    strength = torch.sqrt(((xx + yy + root) / 2).clamp_min(0)) * sigma
    strength = torch.where(strength < FAINTEST, 0, strength)
    angle = torch.remainder(torch.atan2(2 * xy, xx - yy) / 2, torch.pi)
    return strength.numpy(), angle.numpy()


def _derivatives(channels: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """Gaussian derivatives to the right and downwards of each channel: quicker than convolutions of small images."""
    (smooth_rows, slope_rows), (smooth_columns, slope_columns) = (_filters(side, sigma) for side in channels.shape[1:])
    return smooth_rows @ (channels @ slope_columns.T), slope_rows @ (channels @ smooth_columns.T)


def _filters(length: int, sigma: float) -> tuple[Tensor, Tensor]:
    """Matrices [length, length] of the Gaussian and its derivative; beyond its ends, a line is constant."""
    reach = max(1, round(3 * sigma))
    at = torch.arange(-reach, reach + 1, dtype=torch.float32)
    smooth = torch.exp(-(at**2) / (2 * sigma**2))
    smooth /= smooth.sum()
    slope = at * smooth / (at**2 * smooth).sum()
    rows = torch.arange(length).repeat_interleave(len(at))
    columns = (rows + at.long().repeat(length)).clamp(0, length - 1)
    smoothing, slopes = (
        torch.zeros(length, length).index_put_((rows, columns), kernel.repeat(length), accumulate=True)
        for kernel in (smooth, slope)
    )
    return smoothing, slopes
