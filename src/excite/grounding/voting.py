"""Votes of overlapping regions: the boxes that agree with most of the evidence, and the point that most of it holds.

The best single score often belongs to a part of an object, or to more than the object. So every region votes with its
score for all boxes like its own. A box is right if it overlaps the object by a half, and the votes for it estimate how
likely that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.metrics.boxes import box_iou

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.floating[Any]]

SAME = 0.7  # the IoU above which a box repeats another (the paper's), and has its full vote
UNLIKE = 0.4  # the IoU at which it has none: a box is right from a half on
SHARPNESS = 4.0  # votes are scores to this power: the best count most, and hundreds of bad ones do not outvote them
CELLS = 64  # along each side, for the point: finer than any map


@dataclass(frozen=True, eq=False)
class Ballot:
    """Boxes that vote.

    Attributes:
        boxes: half-open [n, 4] in pixels.
        overlaps: the IoU of all pairs [n, n].
    """

    boxes: NDArray[np.float32]
    overlaps: NDArray[np.float32]

    @classmethod
    def of(cls, boxes: NDArray[np.float32]) -> Ballot:
        """The ballot of these boxes."""
        return cls(boxes, box_iou(boxes, boxes).astype(np.float32))

    def elect(self, scores: Numbers, most: int | None = None) -> tuple[NDArray[np.intp], Numbers]:
        """The elected boxes, best first, and their shares of all votes, which fall.

        A vote counts for the first elected box that it is for, so that the next one stands for another object or
        another extent. None repeats a better one (`SAME`), and none is without votes.
        """
        agree = ((self.overlaps - UNLIKE) / (SAME - UNLIKE)).clip(0, 1)
        left = votes_of(scores)
        free = left > 0
        elected: list[int] = []
        shares: list[float] = []
        while free.any() and (most is None or len(elected) < most):
            gains = np.where(free, agree @ left, 0)
            best = int(gains.argmax())
            if gains[best] <= 0:
                break
            elected.append(best)
            shares.append(float(gains[best]))
            left = left * (1 - agree[best])
            free &= self.overlaps[best] <= SAME
            free[best] = False
        return np.array(elected, np.intp), np.array(shares)

    def point(self, scores: Numbers, size: tuple[int, int]) -> tuple[int, int] | None:
        """The pixel (x, y) of an image of this width and height that lies in boxes with most votes; None without."""
        votes = votes_of(scores)
        if not votes.any():
            return None
        edges = np.rint(self.boxes / (size * 2) * CELLS).astype(np.intp).clip(0, CELLS)
        held = np.zeros((CELLS + 1, CELLS + 1))
        for x, y, sign in ((0, 1, 1), (2, 3, 1), (0, 3, -1), (2, 1, -1)):  # corners, so that sums fill the boxes
            np.add.at(held, (edges[:, y], edges[:, x]), sign * votes)
        held = held.cumsum(0).cumsum(1)
        rows, columns = np.nonzero(held >= held.max() * (1 - 1e-9))  # all cells of the same boxes: their middle
        x, y = (int((at.mean() + 0.5) / CELLS * side) for at, side in zip((columns, rows), size, strict=True))
        return x, y


def votes_of(scores: Numbers) -> Numbers:
    """The votes of regions with these scores, with the sum 1; all 0 without a positive score."""
    best = scores.max(initial=0)
    if best <= 0:
        return np.zeros(len(scores))
    votes = (scores.clip(min=0) / best) ** SHARPNESS
    return np.asarray(votes / votes.sum())
