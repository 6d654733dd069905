"""Whether boxes and scores from a file can be those of a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.grounding.proposals.base import Proposals, Segments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["MOST", "MOST_PIXELS", "best_first", "check_count", "check_pixels", "checked_boxes", "checked_scores"]

MOST = 10_000
"""EdgeBoxes' authors write so many. All are compared with all, which more would not have memory for."""

MOST_PIXELS = 2**25
"""Of all proposals of a picture together: a few bytes of a file can stand for a mask of any size."""

BEYOND = 1.0
"""Boxes may be rounded beyond the picture by so many pixels; more, and they are of another picture."""


def check_count(count: int) -> None:
    """Raise a `DataError` if one picture has more proposals than anybody needs, before anything is made of them.

    Example:
        >>> check_count(2_000)
    """
    if count > MOST:
        raise DataError(f"there are {count} proposals for one picture: keep its best {MOST} at most")


def check_pixels(pixels: int) -> None:
    """Raise a `DataError` if the masks of a picture's proposals cover more than there is memory and time for.

    Example:
        >>> check_pixels(640 * 480)
    """
    if pixels > MOST_PIXELS:
        raise DataError(f"the masks of its proposals cover more than {MOST_PIXELS} pixels: keep its best ones")


def checked_boxes(boxes: Array, size: tuple[int, int]) -> NDArray[np.float32]:
    """Half-open boxes [n, 4] within a picture of this width and height.

    Raises:
        DataError: They are no boxes, or not of this picture.

    Example:
        >>> checked_boxes(np.array([[0, 0, 10.4, 5]]), (10, 8)).tolist()
        [[0.0, 0.0, 10.0, 5.0]]
        >>> checked_boxes(np.array([]), (10, 8)).shape
        (0, 4)
    """
    if boxes.size == 0:  # nothing found, in whichever shape that was saved: MATLAB's [] is [0, 0], NumPy's [0]
        return np.zeros((0, 4), np.float32)
    if boxes.ndim != 2 or boxes.shape[1] != 4 or boxes.dtype.kind not in "iuf":
        raise DataError(f"boxes must be four numbers each, [n, 4], not {boxes.dtype.kind} {list(boxes.shape)}")
    check_count(len(boxes))
    boxes = boxes.astype(np.float64)
    if not np.isfinite(boxes).all():
        raise DataError("some corners of boxes are no finite numbers")
    width, height = size
    outside = (boxes < -BEYOND).any(axis=1) | (boxes > np.array([width, height] * 2) + BEYOND).any(axis=1)
    if outside.any():
        first = boxes[outside][0].tolist()
        raise DataError(f"box {first} is not within the picture of {width} x {height} pixels: is it of another size?")
    boxes = np.clip(boxes, 0, [width, height] * 2)
    empty = (boxes[:, 2:] <= boxes[:, :2]).any(axis=1)
    if empty.any():
        raise DataError(f"box {boxes[empty][0].tolist()} has no pixels")
    return boxes.astype(np.float32)


def checked_scores(scores: Array | None, count: int) -> NDArray[np.float32]:
    """The scores of so many proposals; where there are none, the first is the best.

    Raises:
        DataError: They are no numbers, or not so many.

    Example:
        >>> checked_scores(None, 4).tolist()
        [1.0, 0.75, 0.5, 0.25]
    """
    if scores is None:
        return np.linspace(1, 0, count, endpoint=False, dtype=np.float32)
    scores = np.asarray(scores)
    if scores.dtype.kind not in "iuf" or scores.size != count or scores.ndim > 2:
        raise DataError(
            f"there must be one score for each of {count} proposals, not {scores.dtype.kind} {list(scores.shape)}"
        )
    with np.errstate(over="ignore"):  # what is beyond float32 is found below
        scores = scores.reshape(-1).astype(np.float32)
    if not np.isfinite(scores).all():
        raise DataError("some scores are no finite numbers")
    return scores


def best_first(
    size: tuple[int, int], boxes: NDArray[np.float32], scores: NDArray[np.float32], segments: Segments | None = None
) -> Proposals:
    """Proposals by their scores; of equals, the earlier one is the better one.

    Example:
        >>> boxes = np.array([[0, 0, 1, 1], [0, 0, 2, 2]], np.float32)
        >>> best_first((2, 2), boxes, np.array([1, 2], np.float32)).boxes.tolist()
        [[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 1.0, 1.0]]
    """
    order = np.argsort(-scores, kind="stable")
    if segments is not None:
        sets = [segments.members[segments.starts[k] : segments.starts[k + 1]] for k in order]
        starts = np.concatenate([[0], np.cumsum(np.diff(segments.starts)[order])]).astype(np.int64)
        segments = Segments(segments.parts, starts, np.concatenate([segments.members[:0], *sets]))
    return Proposals(size, boxes[order], scores[order], segments)
