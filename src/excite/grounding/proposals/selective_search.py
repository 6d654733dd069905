"""Selective search, as OpenCV has it: boxes around segments that grow together by colour, texture, size and fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from excite.grounding.proposals.base import Proposals
from excite.grounding.proposals.opencv import corners, opencv

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["SelectiveSearch"]


@dataclass(frozen=True)
class SelectiveSearch:
    """Proposes boxes by selective search.

    OpenCV gives the boxes in an order of chance, another one each time, and no scores. So the larger ones come
    first here, which is the order in which the segments were joined, turned round; a score is no more than that.

    Attributes:
        count: How many at most.
        quality: More colour spaces and finer segments: ten times as slow.
        most_alike: Two boxes have at most this in common (their IoU).
        longest: Pixels of the longer side of the picture that is searched.

    Example:
        >>> from PIL import Image
        >>> len(SelectiveSearch()(Image.new("RGB", (60, 40), "blue")))
        1
    """

    count: int = 500
    quality: bool = False
    most_alike: float = 0.8
    longest: int = 320

    name: ClassVar[str] = "selective-search"
    version: ClassVar[int] = 1

    def __call__(self, picture: Image.Image) -> Proposals:
        """The boxes, largest first.

        Raises:
            ExciteError: OpenCV with its extra modules is not installed.
        """
        from excite.grounding.proposals.checking import checked_scores
        from excite.grounding.proposals.ranking import differing
        from excite.grounding.proposals.resizing import enlarged_boxes, shrunk

        cv2 = opencv()
        small = shrunk(picture, self.longest)
        search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
        search.setBaseImage(np.ascontiguousarray(np.asarray(small)[..., ::-1]))
        (search.switchToSelectiveSearchQuality if self.quality else search.switchToSelectiveSearchFast)()
        found = np.unique(corners(search.process()), axis=0)
        area = (found[:, 2:] - found[:, :2]).prod(axis=1)
        kept = differing(found, area, self.count, self.most_alike)
        boxes = enlarged_boxes(found[kept], small.size, picture.size)
        return Proposals(picture.size, boxes, checked_scores(None, len(kept)))
