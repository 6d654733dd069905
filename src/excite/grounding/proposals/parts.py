"""Regions that overlap, as sets of parts that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excite.grounding.proposals.base import Segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["segment_boxes", "segments_of_pieces", "segments_of_pixels"]


def segments_of_pieces(labels: Array, regions: Sequence[Array]) -> Segments:
    """Regions that consist of small pieces: pieces that are always together become one part.

    Args:
        labels: The piece of each pixel [height, width], from 0.
        regions: The pieces of each region.

    Example:
        >>> found = segments_of_pieces(np.array([[0, 1, 2, 3]]), [np.array([0, 1]), np.array([0, 1, 2])])
        >>> found.parts.tolist(), found.starts.tolist(), found.members.tolist()
        ([[0, 0, 1, -1]], [0, 1, 3], [0, 0, 1])
    """
    part_of = _numbered(_signed(int(labels.max()) + 1, regions))
    return _packed(part_of[labels].astype(np.int32), [np.unique(part_of[pieces]) for pieces in regions])


def segments_of_pixels(shape: tuple[int, int], regions: Sequence[Array]) -> Segments:
    """Regions from any masks of a picture of this height and width, given as numbers of pixels, row after row.

    Example:
        >>> found = segments_of_pixels((1, 3), [np.array([0, 1]), np.array([1, 2])])
        >>> found.parts.tolist(), found.members.tolist()
        ([[0, 1, 2]], [0, 1, 1, 2])
    """
    return segments_of_pieces(np.arange(shape[0] * shape[1]).reshape(shape), regions)


def segment_boxes(segments: Segments) -> NDArray[np.float32]:
    """The half-open box around each region [regions, 4].

    Example:
        >>> segment_boxes(segments_of_pixels((2, 3), [np.array([1]), np.array([0, 5])])).tolist()
        [[1.0, 0.0, 2.0, 1.0], [0.0, 0.0, 3.0, 2.0]]
    """
    count = int(segments.parts.max(initial=-1)) + 1
    rows, columns = np.nonzero(segments.parts >= 0)
    inside = segments.parts[rows, columns]
    sides = []
    for places, grow in ((columns, np.minimum), (rows, np.minimum), (columns + 1, np.maximum), (rows + 1, np.maximum)):
        of_parts = np.full(count, max(segments.parts.shape) if grow is np.minimum else 0, np.int64)
        grow.at(of_parts, inside, places)
        sides.append(grow.reduceat(of_parts[segments.members], segments.starts[:-1]) if len(segments) else of_parts[:0])
    return np.stack(sides, axis=1).astype(np.float32)


def _signed(count: int, regions: Sequence[Array]) -> NDArray[np.uint64]:
    """For each piece a number that tells which regions it is in.

    It is the sum of a large random number for each of them: two different sets having the same sum is as likely as
    guessing 64 bits.
    """
    signs = np.random.default_rng(7).integers(1, 2**64 - 1, len(regions), np.uint64)
    sums = np.zeros(count, np.uint64)
    for pieces, sign in zip(regions, signs, strict=True):
        sums[pieces] += sign  # beyond 64 bits it begins again, which is as good
    return sums


def _numbered(sums: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Equal sums get equal numbers, in the order in which they first come; no region at all is -1."""
    known, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
    number = np.full(len(known), -1, np.int64)
    some = np.flatnonzero(known)
    number[some[np.argsort(first[some], kind="stable")]] = np.arange(len(some))
    return number[inverse]


def _packed(parts: NDArray[np.int32], sets: Sequence[Array]) -> Segments:
    starts = np.concatenate([[0], np.cumsum([len(members) for members in sets])]).astype(np.int64)
    members = np.concatenate([np.empty(0, np.int32), *sets]).astype(np.int32)
    return Segments(parts, starts, members)
