"""Segments from a hierarchy of regions: the part of MCG that can be had as a library, and our own choice from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from excite.grounding.proposals.base import Proposals, Segments

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Hierarchy"]


@dataclass(frozen=True)
class Hierarchy:
    """Proposes the segments of a picture that look most like things, alone and joined with their neighbours.

    Attributes:
        count: How many at most; a plain picture has fewer.
        most_alike: The boxes of two proposals have at most this in common (their IoU). Lower finds more things with
            few proposals, higher fits them better with many.
        longest: Pixels of the longer side at which segments are found.

    Example:
        >>> from PIL import Image
        >>> picture = Image.new("RGB", (60, 40), "blue")
        >>> picture.paste("red", (10, 10, 30, 30))
        >>> [10, 10, 30, 30] in Hierarchy()(picture).boxes.tolist()
        True
    """

    count: int = 500
    most_alike: float = 0.7
    longest: int = 256

    name: ClassVar[str] = "hierarchy"
    version: ClassVar[int] = 1

    def __call__(self, picture: Image.Image) -> Proposals:
        """The segments, best first.

        Raises:
            ExciteError: higra is not installed.
        """
        from excite.grounding.proposals.growing import grow_tree
        from excite.grounding.proposals.parts import segments_of_pieces
        from excite.grounding.proposals.ranking import differing, region_boxes, region_scores
        from excite.grounding.proposals.regions import join_neighbours
        from excite.grounding.proposals.resizing import enlarged_boxes, enlarged_parts, shrunk

        small = shrunk(picture, self.longest)
        tree = grow_tree(np.asarray(small))
        regions = join_neighbours(tree)
        boxes = region_boxes(tree, regions)
        scores = region_scores(tree, regions, boxes)
        kept = differing(boxes, scores, self.count, self.most_alike)
        found = segments_of_pieces(tree.labels, tree.leaves_of(regions.nodes[kept]))
        segments = Segments(enlarged_parts(found.parts, picture.size), found.starts, found.members)
        places = enlarged_boxes(boxes[kept], small.size, picture.size)
        return Proposals(picture.size, places, scores[kept].astype(np.float32), segments)
