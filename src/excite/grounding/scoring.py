"""How much of a map lies in each proposal, and which proposals are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.metrics.boxes import box_iou

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from excite.grounding.proposals import Proposals, Segments

    Numbers = NDArray[np.floating[Any]]

__all__ = ["SAME", "TRUST", "Scorer", "checked_trust", "kept", "scored"]

SAME = 0.7
"""Boxes that overlap by more than this are told once (the paper's)."""

TRUST = 0.8
"""How much the last proposal counts less than the first, for the same evidence: the maker of proposals saw the image
too, and puts what looks like a thing first. The paper has 0."""


class Scorer:
    """Scores the proposals of one image with any number of maps; what does not depend on the map is done once.

    Args:
        proposals: of the image.
        trust: how much their maker's own order counts, 0 to 1; 0 for the paper's scores.

    Attributes:
        areas: how many pixels each covers.

    Raises:
        DataError: the trust is no number from 0 to 1.

    Example:
        >>> from excite.grounding.proposals import Proposals
        >>> boxes = np.array([[0, 0, 2, 2], [0, 0, 4, 2]], np.float32)
        >>> scorer = Scorer(Proposals((4, 2), boxes, np.ones(2, np.float32)), trust=0)
        >>> plane = np.array([[1.0, 1, 0, 0], [1, 1, 0, 0]])
        >>> scorer.scores(plane, gamma=0).tolist(), scorer.scores(plane, gamma=1).tolist()
        ([4.0, 4.0], [1.0, 0.5])
    """

    def __init__(self, proposals: Proposals, trust: float = TRUST) -> None:
        self.proposals = proposals
        self.weights = 1 - checked_trust(trust) * np.arange(len(proposals)) / max(len(proposals), 1)
        self.areas = self.sums(np.ones(proposals.size[::-1]))
        self._repeated: dict[int, NDArray[np.bool_]] = {}

    def sums(self, plane: Numbers) -> Numbers:
        """The sum of a map [height, width] over each proposal."""
        segments = self.proposals.segments
        if segments is None:
            return _box_sums(self.proposals.boxes, plane)
        return _segment_sums(segments, plane)

    def scores(self, plane: Numbers, gamma: float) -> Numbers:
        """f(R) = S_R / A_R ** gamma (paper, 4.3), times the trust: with gamma 0 large regions win, with 1 dense."""
        return self.scores_of(self.sums(plane), gamma)

    def scores_of(self, sums: Numbers, gamma: float) -> Numbers:
        """The same from the sums of a map, for those who try several gammas."""
        return scored(sums, self.areas, gamma) * self.weights

    def ranked(self, scores: Numbers, most: int | None = None) -> NDArray[np.intp]:
        """The proposals, best first, without those that nearly repeat a better one."""
        return kept(self._repeating, scores, most)

    def told(self, scores: Numbers, most: int | None = None) -> NDArray[np.intp]:
        """Those of the ranked proposals that hold any evidence."""
        order = self.ranked(scores, most)
        return order[scores[order] > 0]

    def _repeating(self, k: int) -> NDArray[np.bool_]:
        """Which boxes nearly repeat this one; found when first asked, for of thousands few are."""
        if k not in self._repeated:
            boxes = self.proposals.boxes
            self._repeated[k] = box_iou(boxes[k : k + 1], boxes)[0] > SAME
        return self._repeated[k]


def checked_trust(trust: float) -> float:
    """A trust that leaves no proposal a weight below 0.

    Example:
        >>> checked_trust(0.8)
        0.8
    """
    if not 0 <= trust <= 1:
        raise DataError(f"the trust in the proposals' order is a number from 0 to 1, not {trust}")
    return trust


def scored(sums: Numbers, areas: Numbers, gamma: float) -> Numbers:
    """The scores of proposals from the sums of a map over them; a proposal without a pixel has no evidence.

    Example:
        >>> scored(np.array([3.0, 3.0, 0.0]), np.array([1.0, 9.0, 0.0]), 0.5).tolist()
        [3.0, 1.0, 0.0]
    """
    scores: Numbers = np.divide(sums, areas**gamma, out=np.zeros_like(sums), where=areas > 0)
    return scores


def kept(repeating: Callable[[int], NDArray[np.bool_]], scores: Numbers, most: int | None = None) -> NDArray[np.intp]:
    """Non-maximum suppression: from the best down, all that repeat no better one.

    Of equal scores the earlier proposal comes first, so the order is always the same.

    Args:
        repeating: for a box, which of all boxes [n] nearly repeat it.
        scores: of the boxes [n].
        most: stop after so many.

    Example:
        >>> alike = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool)
        >>> kept(alike.__getitem__, np.array([1.0, 3.0, 2.0])).tolist()
        [1, 2]
    """
    told: list[int] = []
    open_ = np.ones(len(scores), bool)
    for k in np.argsort(-scores, kind="stable").tolist():
        if open_[k]:
            told.append(k)
            if len(told) == most:
                break
            open_ &= ~repeating(k)
    return np.array(told, np.intp)


def _box_sums(boxes: NDArray[np.float32], plane: Numbers) -> Numbers:
    """The sums over boxes, through an integral image; a box takes the pixels whose centres lie in it."""
    height, width = plane.shape
    integral = np.zeros((height + 1, width + 1))
    np.cumsum(np.cumsum(plane, 0, dtype=float), 1, out=integral[1:, 1:])
    edges = np.ceil(boxes - 0.5).astype(np.int64)
    x0, x1 = edges[:, [0, 2]].clip(0, width).T
    y0, y1 = edges[:, [1, 3]].clip(0, height).T
    sums: Numbers = integral[y1, x1] - integral[y0, x1] - integral[y1, x0] + integral[y0, x0]
    return sums


def _segment_sums(segments: Segments, plane: Numbers) -> Numbers:
    """The sums over sets of parts: the pixels of each part are added once, however many sets it is in."""
    numbers = segments.parts.ravel() + 1  # nobody's pixels have the number -1
    most = int(segments.members.max(initial=-1)) + 2  # a part may have no pixel
    of_parts = np.bincount(numbers, plane.ravel(), most)[1:]
    members = np.append(of_parts[segments.members], 0.0)  # so that the last start is a place of the array
    sums = np.add.reduceat(members, segments.starts[:-1]) if len(segments) else np.zeros(0)
    return np.where(segments.starts[1:] > segments.starts[:-1], sums, 0.0)
