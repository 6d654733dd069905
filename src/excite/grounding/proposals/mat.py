"""Proposals of MCG and of EdgeBoxes in MATLAB files, in the conventions of their authors' programs.

MATLAB counts from 1. The variables:

* MCG (``im2mcg_all.m``): ``superpixels`` [height, width] numbers the superpixels from 1, ``labels`` is a cell with the
  superpixels of each proposal, ``scores`` has one number for each proposal, best first. ``bboxes`` are boxes without
  near-duplicates, so they are not those of ``labels`` one by one; where there are segments, the segments count.
* MCG's boxes alone: ``bboxes`` (scores: ``bboxes_scores``) or ``boxes`` (scores: ``scores``), each row being up, left,
  down, right: rows before columns, the last row and column belonging to the box.
* EdgeBoxes (``edgeBoxes.m``): ``bbs``, each row being x, y, width, height and score.

The same variables within one struct, such as ``proposals`` or ``candidates``, are found too.
"""

from __future__ import annotations

import struct
import zlib
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.grounding.proposals.base import (
    Proposals,
    check_count,
    check_pixels,
    checked_boxes,
    checked_scores,
    segment_boxes,
    segments_of_pieces,
    sorted_proposals,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

KNOWN = ("labels", "bboxes", "boxes", "bbs")

HEAD = 128  # bytes of the header: a text, version, byte order
LARGEST = 2**28  # bytes, unpacked: no image's proposals take so many
MOST_NUMBERS = 2**25  # of all variables: a byte of the file may be eight in memory
DEEPEST = 8  # cells within cells
MOST_AXES = 8
MATRIX, PACKED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CELL, STRUCT = 1, 2
NUMBERS = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
COMPLEX = 0x0800

Value = Any
"""An array (of objects for a cell), a dictionary for a struct of one element, or None for anything else."""


def read_mat(path: Path, size: tuple[int, int]) -> Proposals:
    """The proposals in a MATLAB file, of an image of this width and height.

    Raises:
        DataError: It cannot be read, or its proposals are not of this image.
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
    """The arrays and cells of a file, or those of the first struct with proposals."""
    found = read_variables(path)
    for values in (found, *(value for value in found.values() if isinstance(value, dict))):
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        if any(name in arrays for name in KNOWN):
            return arrays
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


def _segments(variables: dict[str, Array], size: tuple[int, int]) -> Proposals:
    superpixels, cells = variables["superpixels"], variables["labels"]
    if superpixels.shape != size[::-1] or superpixels.dtype.kind not in "iuf":
        raise DataError(f"'superpixels' must be [{size[1]}, {size[0]}] for this image, not {list(superpixels.shape)}")
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
    return sorted_proposals(
        size, segment_boxes(segments), checked_scores(variables.get("scores"), len(regions)), segments
    )


def _pieces(cell: Any, place: int) -> NDArray[np.int64]:
    values = np.asarray(cell)
    if values.dtype.kind not in "iuf" or values.size == 0:
        raise DataError(f"'labels' of proposal {place} must be numbers of superpixels")
    return _from_0(values.ravel())


def _from_0(numbers: Array) -> NDArray[np.int64]:
    """Indices of superpixels, which MATLAB counts from 1; those that are no numbers become -1."""
    usable = np.isfinite(numbers) & (np.abs(numbers) < 2**53)  # larger ones are not exact, and beyond any image
    return np.where(usable, numbers, 0).astype(np.int64) - 1


def _mcg_boxes(rows: Array, scores: Array | None, size: tuple[int, int]) -> Proposals:
    """From up, left, down, right, counted from 1 and inclusive."""
    if rows.size == 0:
        return _without_boxes(size)
    if rows.ndim != 2 or rows.shape[1] != 4 or rows.dtype.kind not in "iuf":
        raise DataError(f"boxes of MCG must be [n, 4] (up, left, down, right), not {list(rows.shape)}")
    up, left, down, right = rows.astype(np.float64).T
    boxes = checked_boxes(np.stack([left - 1, up - 1, right, down], axis=1), size)
    return sorted_proposals(size, boxes, checked_scores(scores, len(boxes)))


def _edge_boxes(rows: Array, size: tuple[int, int]) -> Proposals:
    """From x, y, width, height, score, x and y counted from 1."""
    if rows.size == 0:
        return _without_boxes(size)
    if rows.dtype == object:
        raise DataError("'bbs' is a cell of many images: save one file for each image")
    if rows.ndim != 2 or rows.shape[1] not in (4, 5) or rows.dtype.kind not in "iuf":
        raise DataError(f"'bbs' of EdgeBoxes must be [n, 5] (x, y, width, height, score), not {list(rows.shape)}")
    x, y, width, height = rows[:, :4].astype(np.float64).T
    boxes = checked_boxes(np.stack([x - 1, y - 1, x - 1 + width, y - 1 + height], axis=1), size)
    return sorted_proposals(size, boxes, checked_scores(rows[:, 4] if rows.shape[1] == 5 else None, len(boxes)))


def _without_boxes(size: tuple[int, int]) -> Proposals:
    return Proposals(size, np.zeros((0, 4), np.float32), np.zeros(0, np.float32))


# MATLAB files of the versions 5 to 7: numbers, cells and structs.
#
# Not by scipy.io.loadmat: its compiled reader (1.17) ended the process on 13 of 400 files with a few wrong bytes. Here
# every length is checked against the available bytes before it is used, and all that is decompressed has a limit.


def read_variables(path: Path) -> dict[str, Value]:
    """The variables of a file by name; text, functions, sparse matrices and the like are None.

    Raises:
        DataError: It is no such file, or damaged.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"it cannot be read: {error.strerror or error}") from None
    mark = content[HEAD - 2 : HEAD]
    order = {b"IM": "<", b"MI": ">"}.get(mark)
    if content.startswith(b"MATLAB 7.3") or content[HEAD - 4 : HEAD - 2] in {b"\0\2", b"\2\0"}:
        raise DataError("it is a MATLAB file of version 7.3: save it in MATLAB with the option -v7")
    if order is None:
        raise DataError("it is no MATLAB file of the versions 5 to 7: save it in MATLAB with the option -v7")
    return dict(_MatReader(order).variables(memoryview(content)[HEAD:]))


def _damaged(reason: object) -> DataError:
    return DataError(f"it is a damaged MATLAB file: {reason}")


class _MatReader:
    """Reads elements: a kind, a length, and so many bytes."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.room, self.numbers_left = LARGEST, MOST_NUMBERS

    def variables(self, content: memoryview) -> Iterator[tuple[str, Value]]:
        at = 0
        while at < len(content):
            kind, element, at = self._element(content, at, padded=False)
            if kind == PACKED:
                kind, element, _ = self._element(self._unpacked(element), 0)
            if kind == MATRIX and element:
                yield self._matrix(element, DEEPEST)

    def _unpacked(self, packed: memoryview) -> memoryview:
        unpacker = zlib.decompressobj()
        try:
            content = unpacker.decompress(packed, self.room + 1)
        except zlib.error as error:
            raise _damaged(error) from None
        self.room -= len(content)
        if self.room < 0:
            raise DataError(f"unpacked it has more than {LARGEST >> 20} MB, which no image's proposals have")
        return memoryview(content)

    def _element(self, content: memoryview, at: int, *, padded: bool = True) -> tuple[int, memoryview, int]:
        """The kind and the bytes of the element at an offset, and the offset behind it."""
        if len(content) - at < 8:
            raise _damaged("it is cut off")
        kind, size = struct.unpack_from(f"{self.order}II", content, at)
        if kind > 0xFFFF:  # a small element: up to four bytes instead of the length
            kind, size = kind & 0xFFFF, kind >> 16
            if size > 4:
                raise _damaged("a small element is too long")
            return kind, content[at + 4 : at + 4 + size], at + 8
        start = at + 8
        if size > len(content) - start:
            raise _damaged(f"{size} bytes where {len(content) - start} are left")
        return kind, content[start : start + size], start + size + (-size % 8 if padded else 0)

    def _matrix(self, content: memoryview, depth: int) -> tuple[str, Value]:
        """The name and the value of a variable, or of an entry of a cell."""
        _, flags, at = self._element(content, 0)
        if len(flags) < 4 or depth == 0:
            raise _damaged("a matrix without a kind, or too deep within others")
        (flag,) = struct.unpack_from(f"{self.order}I", flags)
        _, sizes, at = self._element(content, at)
        shape = [int(size) for size in np.frombuffer(sizes[: len(sizes) // 4 * 4], f"{self.order}i4")]
        if not 1 <= len(shape) <= MOST_AXES or min(shape) < 0 or prod(filter(None, shape)) > LARGEST:
            raise _damaged("a matrix without sizes")
        _, name, at = self._element(content, at)
        words = bytes(name).decode("latin-1")
        kind = flag & 0xFF
        if kind in NUMBERS:
            return words, self._numbers(content, at, shape, kind, is_complex=bool(flag & COMPLEX))
        if kind == CELL:
            return words, self._cell(content, at, shape, depth)
        if kind == STRUCT and prod(shape) == 1:
            return words, self._struct(content, at, depth)
        return words, None

    def _numbers(self, content: memoryview, at: int, shape: list[int], kind: int, *, is_complex: bool) -> Value:
        stored, data, _ = self._element(content, at)
        if stored not in STORED:
            raise _damaged(f"numbers of the kind {stored}")
        numbers = np.dtype(self.order + STORED[stored])
        if len(data) != prod(shape) * numbers.itemsize:
            raise _damaged("a matrix with more or fewer numbers than it says")
        self.numbers_left -= prod(shape)
        if self.numbers_left < 0:
            raise DataError(f"it has more than {MOST_NUMBERS} numbers, which no image's proposals have")
        with np.errstate(all="ignore"):
            values: NDArray[Any] = np.frombuffer(data, numbers).astype(NUMBERS[kind])
        return None if is_complex else values.reshape(shape, order="F")

    def _cell(self, content: memoryview, at: int, shape: list[int], depth: int) -> Value:
        if prod(shape) > len(content) // 8:  # each takes that much at least
            raise _damaged("a cell with more in it than there are bytes")
        values = np.empty(prod(shape), object)
        for index in range(len(values)):
            values[index], at = self._inner(content, at, depth)
        return values.reshape(shape, order="F")

    def _struct(self, content: memoryview, at: int, depth: int) -> dict[str, Value]:
        _, length, at = self._element(content, at)
        _, names, at = self._element(content, at)
        (size,) = struct.unpack(f"{self.order}i", length) if len(length) == 4 else (0,)
        if size < 1 or len(names) // size > len(content) // 8:
            raise _damaged("a struct without names")
        fields = [bytes(names[start : start + size]).split(b"\0")[0] for start in range(0, len(names), size)]
        found = {}
        for field in fields:
            found[field.decode("latin-1")], at = self._inner(content, at, depth)
        return found

    def _inner(self, content: memoryview, at: int, depth: int) -> tuple[Value, int]:
        kind, element, at = self._element(content, at)
        if kind != MATRIX:
            raise _damaged("no matrix where one has to be")
        return (self._matrix(element, depth - 1)[1] if element else np.zeros((0, 0))), at
