"""Segments of a hierarchy: what is plainly there is proposed, and the pieces fit together."""

import numpy as np
import pytest
from PIL import Image

from excite.grounding.proposals import Hierarchy
from excite.grounding.proposals.base import segment_boxes
from excite.grounding.proposals.hierarchy import build_tree, join_neighbours
from excite.metrics.boxes import box_iou


def masks_of(proposals):
    """Each region as a mask of its own, made the slow way."""
    segments = proposals.segments
    return [
        np.isin(segments.parts, segments.members[segments.starts[k] : segments.starts[k + 1]])
        for k in range(len(segments))
    ]


def best_overlap(proposals, wanted):
    return max((mask & wanted).sum() / (mask | wanted).sum() for mask in masks_of(proposals))


@pytest.fixture(scope="module")
def scene():
    """A red square and a green disc that touches a yellow bar, on blue; with noise."""
    picture = Image.new("RGB", (120, 90), (40, 60, 160))
    picture.paste((200, 40, 30), (10, 10, 40, 40))
    picture.paste((220, 210, 60), (85, 50, 115, 60))
    rows, columns = np.indices((90, 120))
    pixels = np.asarray(picture).copy()
    disc = (rows - 55) ** 2 + (columns - 70) ** 2 < 15**2
    pixels[disc] = (40, 170, 60)
    noise = np.random.default_rng(0).normal(0, 8, pixels.shape)
    return Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8)), disc


@pytest.fixture(scope="module")
def found(scene):
    return Hierarchy()(scene[0])


def test_what_is_there_is_proposed(scene, found):
    """The disc and the bar beside it have nothing in common but a border: only a union has both and nothing else."""
    square = np.zeros((90, 120), bool)
    square[10:40, 10:40] = True
    both = scene[1].copy()
    both[50:60, 85:115] = True
    for wanted, least in ((square, 0.9), (scene[1], 0.9), (both, 0.85)):
        assert best_overlap(found, wanted) > least


def test_pieces_fit_together(scene, found):
    assert found.size == (120, 90)
    assert found.boxes.dtype == np.float32
    assert found.scores.dtype == np.float32
    assert (np.diff(found.scores) <= 0).all()
    assert found.segments.parts.shape == (90, 120)
    assert np.array_equal(segment_boxes(found.segments), found.boxes)
    fewer = Hierarchy(count=5)(scene[0])
    assert np.array_equal(fewer.boxes, found.boxes[:5])
    assert len(fewer) == 5 < len(found) <= 500
    assert (box_iou(found.boxes, found.boxes) - np.eye(len(found)) <= Hierarchy().most_alike).all()
    for mask, box in zip(masks_of(found), found.boxes, strict=True):
        rows, columns = np.nonzero(mask)
        assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_a_tree_measures_its_nodes(scene):
    """Against the slow way: each node as a mask."""
    picture = scene[0].resize((40, 30))
    tree = build_tree(np.asarray(picture))
    leaves = len(tree.neighbours)
    assert len(tree.parents) == 2 * leaves - 1
    for node in [*range(0, len(tree.parents), 7), len(tree.parents) - 1]:
        (pieces,) = tree.leaves_of(np.array([[node, -1]]))
        mask = np.isin(tree.labels, pieces)
        rows, columns = np.nonzero(mask)
        assert tree.area[node] == mask.sum()
        assert tree.boxes[node].tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        length = (mask[1:] != mask[:-1]).sum() + (mask[:, 1:] != mask[:, :-1]).sum()
        assert tree.edge_length[node] == pytest.approx(length)
        inner = mask[1:-1, 1:-1].sum()
        assert tree.touching[node] == mask.sum() - inner
    assert tree.edge_sum[-1] == pytest.approx(0, abs=1e-6)


def test_unions_hang_together_and_come_once(scene):
    tree = build_tree(np.asarray(scene[0].resize((40, 30))))
    regions = join_neighbours(tree)
    sets = [tuple(sorted(node for node in row if node >= 0)) for row in regions.nodes.tolist()]
    assert len(set(sets)) == len(sets)
    assert np.array_equal(join_neighbours(tree).nodes, regions.nodes), "the tree stays as it was"
    assert {len(nodes) for nodes in sets} == {1, 2, 3, 4}
    pieces = tree.leaves_of(regions.nodes)
    for row, leaves in zip(regions.nodes, pieces, strict=True):
        assert len(set(leaves.tolist())) == len(leaves), "no node of a union is part of another"
        assert len(leaves) == sum(len(tree.leaves_of(np.array([[node]]))[0]) for node in row if node >= 0)
    for place in range(0, len(sets), 97):
        masks = [np.isin(tree.labels, tree.leaves_of(np.array([[node]]))[0]) for node in sets[place]]
        owner = np.zeros(tree.labels.shape, int)
        for number, mask in enumerate(masks, start=1):
            owner[mask] = number
        pairs = ((owner[1:], owner[:-1]), (owner[:, 1:], owner[:, :-1]))
        between = sum(((one != two) & (one > 0) & (two > 0)).sum() for one, two in pairs)
        assert regions.inner_length[place] == pytest.approx(between)


def test_three_plain_fields():
    """Where there are hardly any segments, also those that are not split further are joined."""
    picture = Image.new("RGB", (90, 60), "black")
    picture.paste("red", (20, 20, 40, 40))
    picture.paste("blue", (40, 20, 60, 40))
    boxes = Hierarchy(most_alike=0.99)(picture).boxes.tolist()
    for wanted in ([20, 20, 40, 40], [40, 20, 60, 40], [20, 20, 60, 40], [0, 0, 90, 60]):
        assert wanted in boxes
