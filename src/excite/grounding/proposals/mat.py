"""Proposals of MCG and of EdgeBoxes as MATLAB files, in the conventions of their authors' programs.

MATLAB counts from 1. What the variables hold:

* MCG (``im2mcg_all.m``): ``superpixels`` [height, width] numbers the superpixels from 1, ``labels`` is a cell with the
  superpixels of each proposal, ``scores`` has one number for each proposal, best first. ``bboxes`` are boxes without
  near-duplicates, so they are not those of ``labels`` one by one; where there are segments, the segments count.
* MCG's boxes alone: ``bboxes`` (scores: ``bboxes_scores``) or ``boxes`` (scores: ``scores``), each row being up, left,
  down, right: rows before columns, the last row and column belonging to the box.
* EdgeBoxes (``edgeBoxes.m``): ``bbs``, each row being x, y, width, height and score.

The same variables within one struct, such as ``proposals`` or ``candidates``, are found too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.grounding.proposals.checking import (
    best_first,
    check_count,
    check_pixels,
    checked_boxes,
    checked_scores,
)
from excite.grounding.proposals.mat5 import read_variables
from excite.grounding.proposals.parts import segment_boxes, segments_of_pieces

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.grounding.proposals.base import Proposals

    Array = NDArray[Any]

__all__ = ["read_mat"]

KNOWN = ("labels", "bboxes", "boxes", "bbs")


def read_mat(path: Path, size: tuple[int, int]) -> Proposals:
    """The proposals in a MATLAB file, of a picture of this width and height.

    Raises:
        DataError: It cannot be read, or its proposals are not of this picture.

    Example:
        >>> read_mat(Path("mcg/2007_000027.mat"), (486, 500))  # doctest: +SKIP
    """
    variables = _variables(path)
    if "labels" in variables and "superpixels" in variables:
        return _segments(variables, size)
    if "bbs" in variables:
        return _edge_boxes(variables["bbs"], size)
    for name, scores in (("bboxes", "bboxes_scores"), ("boxes", "scores")):
        if name in variables:
            return _mcg_boxes(variables[name], variables.get(scores), size)
    there = ", ".join(sorted(variables))[:100] or "nothing"
    raise DataError(f"there are no 'superpixels' with 'labels', no 'bboxes', 'boxes' or 'bbs', but {there}")


def _variables(path: Path) -> dict[str, Array]:
    """The variables of a file that hold numbers or cells, or those of the first struct that has what is wanted."""
    found = read_variables(path)
    for values in (found, *(value for value in found.values() if isinstance(value, dict))):
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        if any(name in arrays for name in KNOWN):
            return arrays
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


def _segments(variables: dict[str, Array], size: tuple[int, int]) -> Proposals:
    superpixels, cells = variables["superpixels"], variables["labels"]
    if superpixels.shape != size[::-1] or superpixels.dtype.kind not in "iuf":
        raise DataError(f"'superpixels' must be [{size[1]}, {size[0]}] for this picture, not {list(superpixels.shape)}")
    if cells.dtype != object:
        raise DataError("'labels' must be a cell with the superpixels of each proposal")
    numbers = _from_0(superpixels)
    if numbers.min() < 0 or numbers.max() >= numbers.size:
        raise DataError("'superpixels' must be numbered from 1")
    check_count(cells.size)
    check_pixels(sum(np.size(cell) for cell in cells.ravel()))
    regions = [_pieces(cell, place) for place, cell in enumerate(cells.ravel(), start=1)]
    there = np.unique(numbers)
    for place, pieces in enumerate(regions, start=1):
        if not np.isin(pieces, there).all():
            raise DataError(f"'labels' of proposal {place} names superpixels that are not there")
    segments = segments_of_pieces(numbers, regions)
    return best_first(size, segment_boxes(segments), checked_scores(variables.get("scores"), len(regions)), segments)


def _pieces(cell: Any, place: int) -> NDArray[np.int64]:
    values = np.asarray(cell)
    if values.dtype.kind not in "iuf" or values.size == 0:
        raise DataError(f"'labels' of proposal {place} must be numbers of superpixels")
    return _from_0(values.ravel())


def _from_0(numbers: Array) -> NDArray[np.int64]:
    """Numbers of superpixels, which MATLAB counts from 1; what is no number at all becomes -1, which none has."""
    usable = np.isfinite(numbers) & (np.abs(numbers) < 2**53)  # larger ones are not exact, and beyond any picture
    return np.where(usable, numbers, 0).astype(np.int64) - 1


def _mcg_boxes(rows: Array, scores: Array | None, size: tuple[int, int]) -> Proposals:
    """From up, left, down, right, counted from 1 and inclusive."""
    if rows.size == 0:
        return best_first(size, checked_boxes(rows, size), checked_scores(None, 0))
    if rows.ndim != 2 or rows.shape[1] != 4 or rows.dtype.kind not in "iuf":
        raise DataError(f"boxes of MCG must be [n, 4] (up, left, down, right), not {list(rows.shape)}")
    up, left, down, right = rows.astype(np.float64).T
    boxes = checked_boxes(np.stack([left - 1, up - 1, right, down], axis=1), size)
    return best_first(size, boxes, checked_scores(scores, len(boxes)))


def _edge_boxes(rows: Array, size: tuple[int, int]) -> Proposals:
    """From x, y, width, height, score, x and y counted from 1."""
    if rows.size == 0:
        return best_first(size, checked_boxes(rows, size), checked_scores(None, 0))
    if rows.dtype == object:
        raise DataError("'bbs' is a cell of many pictures: save one file for each picture")
    if rows.ndim != 2 or rows.shape[1] not in (4, 5) or rows.dtype.kind not in "iuf":
        raise DataError(f"'bbs' of EdgeBoxes must be [n, 5] (x, y, width, height, score), not {list(rows.shape)}")
    x, y, width, height = rows[:, :4].astype(np.float64).T
    boxes = checked_boxes(np.stack([x - 1, y - 1, x - 1 + width, y - 1 + height], axis=1), size)
    return best_first(size, boxes, checked_scores(rows[:, 4] if rows.shape[1] == 5 else None, len(boxes)))
