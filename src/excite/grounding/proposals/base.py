"""Regions of a picture that may be something: what a phrase is matched with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Proposals", "Segments"]


@dataclass(frozen=True, eq=False)
class Segments:
    """Regions as sets of small parts that do not overlap: sums over thousands of regions are then one small product.

    Attributes:
        parts: For each pixel [height, width] the number of its part, from 0; -1 where no region is.
        starts: Where the parts of each region begin in ``members`` [regions + 1]; the last is their number.
        members: The parts of all regions, one region after the other.
    """

    parts: NDArray[np.int32]
    starts: NDArray[np.int64]
    members: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True, eq=False)
class Proposals:
    """Candidate regions of one picture, best first by their maker's own opinion.

    Attributes:
        size: Width and height of the picture.
        boxes: Half-open (x0, y0, x1, y1) in pixels of the picture [n, 4], float32.
        scores: How good each is by its maker's own opinion, higher is better [n], float32.
        segments: The regions themselves; None where the boxes are the regions.
    """

    size: tuple[int, int]
    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    segments: Segments | None = None

    def __post_init__(self) -> None:
        count = len(self.boxes)
        whole = self.boxes.shape == (count, 4) and self.scores.shape == (count,)
        if not whole or (self.segments is not None and len(self.segments) != count):
            raise DataError(
                f"proposals do not fit together: {self.boxes.shape} boxes, {self.scores.shape} scores"
                + ("" if self.segments is None else f", {len(self.segments)} segments")
            )

    def __len__(self) -> int:
        return len(self.boxes)

    def best(self, count: int) -> Proposals:
        """The first so many.

        Example:
            >>> boxes = np.array([[0, 0, 2, 2], [1, 1, 3, 3]], np.float32)
            >>> len(Proposals((4, 4), boxes, np.array([0.9, 0.1], np.float32)).best(1))
            1
        """
        if len(self) <= count:
            return self
        segments = self.segments
        if segments is not None:
            starts = segments.starts[: count + 1]
            segments = Segments(segments.parts, starts, segments.members[: starts[-1]])
        return Proposals(self.size, self.boxes[:count], self.scores[:count], segments)

    @property
    def nbytes(self) -> int:
        """How many bytes it holds."""
        return sum(each.nbytes for each in self.arrays().values())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it as named arrays, for a file."""
        kept: dict[str, NDArray[Any]] = {"size": np.array(self.size), "boxes": self.boxes, "scores": self.scores}
        if self.segments is not None:
            kept |= {"parts": self.segments.parts, "starts": self.segments.starts, "members": self.segments.members}
        return kept
