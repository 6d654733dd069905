"""The scores of proposals by a map, f(R) = S_R / A_R ** gamma (paper, 4.3), and the regions that they choose."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.grounding.voting import SAME, Ballot
from excite.metrics.boxes import box_iou

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from excite.grounding.proposals import Proposals, Segments

    Numbers = NDArray[np.floating[Any]]

TRUST = 0.8
"""The weight of the proposals falls linearly from 1 for the first to 1 - TRUST for the last: proposers put what looks
like an object first. The paper has 0."""
VOTERS = 500  # so many regions vote, those with the best scores: as many as the proposers give


class Scorer:
    """Scores the proposals of one image by any number of maps; with ``trust`` 0 as in the paper."""

    def __init__(self, proposals: Proposals, trust: float = TRUST) -> None:
        self.proposals, self.trust = proposals, checked_trust(trust)
        self.weights = 1 - trust * np.arange(len(proposals)) / max(len(proposals), 1)
        self.areas = self.sums(np.ones(proposals.size[::-1]))
        self._repeated: dict[int, NDArray[np.bool_]] = {}

    def sums(self, plane: Numbers) -> Numbers:
        """S_R, the sum of a map [height, width] over each proposal."""
        segments = self.proposals.segments
        return _box_sums(self.proposals.boxes, plane) if segments is None else _segment_sums(segments, plane)

    def scores(self, plane: Numbers, gamma: float) -> Numbers:
        """f(R) = S_R / A_R ** gamma, times the trust: gamma 0 prefers large regions, 1 dense ones."""
        sums = self.sums(plane)
        dense = np.divide(sums, self.areas**gamma, out=np.zeros_like(sums), where=self.areas > 0)
        return np.asarray(dense * self.weights)

    def ranked(self, scores: Numbers, most: int | None = None) -> NDArray[np.intp]:
        """The indices of the proposals, best first, without those that repeat a better one; of equals, the earlier."""
        kept: list[int] = []
        left = np.ones(len(scores), bool)
        for k in np.argsort(-scores, kind="stable").tolist():
            if left[k]:
                kept.append(k)
                if len(kept) == most:
                    break
                if k not in self._repeated:  # on demand: few of thousands are needed
                    self._repeated[k] = box_iou(self.proposals.boxes[k : k + 1], self.proposals.boxes)[0] > SAME
                left &= ~self._repeated[k]
        return np.array(kept, np.intp)

    def chosen(self, scores: Numbers, most: int | None = None) -> tuple[NDArray[np.intp], Numbers]:
        """The regions with evidence, best first, and how good they are: their shares of the votes (`Ballot.elect`).

        Without trust as in the paper: their scores, after non-maximum suppression.
        """
        if self.trust == 0:
            order = self.ranked(scores, most)
            order = order[scores[order] > 0]
            return order, scores[order]
        voters, ballot = self._voters(scores)
        elected, shares = ballot.elect(scores[voters], most)
        return voters[elected], shares

    def point(self, scores: Numbers) -> tuple[int, int] | None:
        """The pixel (x, y) that most votes are for; None without evidence."""
        voters, ballot = self._voters(scores)
        return ballot.point(scores[voters], self.proposals.size)

    def _voters(self, scores: Numbers) -> tuple[NDArray[np.intp], Ballot]:
        if len(scores) > VOTERS:
            voters = np.argsort(-scores, kind="stable")[:VOTERS]
            return voters, Ballot.of(self.proposals.boxes[voters])
        return np.arange(len(scores)), self._ballot

    @cached_property
    def _ballot(self) -> Ballot:
        return Ballot.of(self.proposals.boxes)


def checked_trust(trust: float) -> float:
    """The trust, or an error if it is not within 0 to 1."""
    if not 0 <= trust <= 1:
        raise DataError(f"the trust in the proposals' order is a number from 0 to 1, not {trust}")
    return trust


def _box_sums(boxes: NDArray[np.float32], plane: Numbers) -> Numbers:
    """The sums over boxes by an integral image; a box has the pixels whose centres lie in it."""
    height, width = plane.shape
    integral = np.zeros((height + 1, width + 1))
    np.cumsum(np.cumsum(plane, 0, dtype=float), 1, out=integral[1:, 1:])
    edges = np.ceil(boxes - 0.5).astype(np.int64)
    x0, x1 = edges[:, [0, 2]].clip(0, width).T
    y0, y1 = edges[:, [1, 3]].clip(0, height).T
    sums: Numbers = integral[y1, x1] - integral[y0, x1] - integral[y1, x0] + integral[y0, x0]
    return sums


def _segment_sums(segments: Segments, plane: Numbers) -> Numbers:
    """The sums over sets of parts: the pixels of each part are summed once for all sets."""
    numbers = segments.parts.ravel() + 1  # pixels of no region have the number -1
    most = int(segments.members.max(initial=-1)) + 2  # a part may have no pixel
    part_sums = np.bincount(numbers, plane.ravel(), most)[1:]
    members = np.append(part_sums[segments.members], 0.0)  # so that the last start is a valid index
    sums = np.add.reduceat(members, segments.starts[:-1]) if len(segments) else np.zeros(0)
    return np.where(segments.starts[1:] > segments.starts[:-1], sums, 0.0)
