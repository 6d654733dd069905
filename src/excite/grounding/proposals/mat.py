"""Proposals of MCG and of EdgeBoxes in MATLAB files, in the conventions of their authors' programs.

MATLAB counts from 1, and the last row and column belong to a box. The variables, also within one struct:

* MCG (``im2mcg_all.m``): ``superpixels`` [height, width], ``labels``, a cell with the superpixels of each proposal, and
  ``scores``. ``bboxes`` are boxes without near-duplicates, not those of ``labels``: segments come first.
* MCG's boxes alone: ``bboxes`` and ``bboxes_scores``, or ``boxes`` and ``scores``; rows are up, left, down, right.
* EdgeBoxes (``edgeBoxes.m``): ``bbs``, each row being x, y, width, height and score.
"""

import struct
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from excite.errors import DataError
from excite.grounding.proposals.base import Proposals, Segments, check_count, checked_proposals, segments_of_pieces

Array = NDArray[Any]

KNOWN = ("labels", "bboxes", "boxes", "bbs")
HEAD = 128  # bytes of the header: a text, version, byte order
LARGEST = 2**28  # bytes in memory, unpacked and converted: no image's proposals take so many
ELEMENT = 512  # bytes that the record of an element takes at most
MATRIX, PACKED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CELL, STRUCT = 1, 2
NUMBERS = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
COMPLEX = 0x0800


def read_mat(path: Path, size: tuple[int, int]) -> Proposals:
    """The proposals in a MATLAB file, of an image of this width and height."""
    variables = _arrays(read_variables(path))
    if "labels" in variables and "superpixels" in variables:
        segments = _segments(variables["superpixels"], variables["labels"], size)
        return checked_proposals(size, segments, variables.get("scores"))
    if "bbs" in variables:
        if variables["bbs"].dtype == object:
            raise DataError("'bbs' is a cell of many images: save one file for each image")
        wanted = "'bbs' of EdgeBoxes must be [n, 5] (x, y, width, height, score)"
        rows = _rows(variables["bbs"], (4, 5), wanted)
        x, y, width, height = rows[:, :4].T
        boxes = np.stack([x - 1, y - 1, x - 1 + width, y - 1 + height], axis=1)
        return checked_proposals(size, boxes, rows[:, 4] if rows.shape[1] == 5 else None)
    for name, scores in (("bboxes", "bboxes_scores"), ("boxes", "scores")):
        if name in variables:
            rows = _rows(variables[name], (4,), "boxes of MCG must be [n, 4] (up, left, down, right)")
            up, left, down, right = rows.T
            boxes = np.stack([left - 1, up - 1, right, down], axis=1)
            return checked_proposals(size, boxes, variables.get(scores) if len(rows) else None)
    there = ", ".join(sorted(variables))[:100] or "nothing"
    raise DataError(f"there are no 'superpixels' with 'labels', no 'bboxes', 'boxes' or 'bbs', but {there}")


def _arrays(found: dict[str, Any]) -> dict[str, Array]:
    """The arrays and cells of a file, or those of the first struct with proposals."""
    candidates = [
        {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        for values in (found, *found.values())
        if isinstance(values, dict)
    ]
    return next((arrays for arrays in candidates if not arrays.keys().isdisjoint(KNOWN)), candidates[0])


def _rows(rows: Array, columns: tuple[int, ...], wanted: str) -> NDArray[np.float64]:
    if rows.size == 0:  # nothing found, in whichever shape
        return np.zeros((0, columns[-1]))
    if rows.ndim != 2 or rows.shape[1] not in columns or rows.dtype.kind not in "iuf":
        raise DataError(f"{wanted}, not {list(rows.shape)}")
    return rows.astype(np.float64)


def _segments(superpixels: Array, cells: Array, size: tuple[int, int]) -> Segments:
    if superpixels.shape != size[::-1] or superpixels.dtype.kind not in "iuf":
        raise DataError(f"'superpixels' must be [{size[1]}, {size[0]}] for this image, not {list(superpixels.shape)}")
    if cells.dtype != object:
        raise DataError("'labels' must be a cell with the superpixels of each proposal")
    numbers = _from_0(superpixels)
    if numbers.min() < 0 or numbers.max() >= numbers.size:
        raise DataError("'superpixels' must be numbered from 1")
    check_count(cells.size, pixels=sum(np.size(cell) for cell in cells.ravel()))
    there = np.unique(numbers)
    regions = []
    for place, cell in enumerate(map(np.asarray, cells.ravel()), start=1):
        if cell.dtype.kind not in "iuf" or cell.size == 0:
            raise DataError(f"'labels' of proposal {place} must be numbers of superpixels")
        regions.append(_from_0(cell.ravel()))
        if not np.isin(regions[-1], there).all():
            raise DataError(f"'labels' of proposal {place} names superpixels that are not there")
    return segments_of_pieces(numbers, regions)


def _from_0(numbers: Array) -> NDArray[np.int64]:
    """Indices of superpixels, which MATLAB counts from 1; those that are no numbers become -1."""
    usable = np.isfinite(numbers) & (np.abs(numbers) < 2**53)  # larger ones are not exact, and beyond any image
    return np.where(usable, numbers, 0).astype(np.int64) - 1


# MATLAB files of the versions 5 to 7: numbers, cells and structs.
#
# Not by scipy.io.loadmat: its compiled reader (1.17) ended the process on 13 of 400 files with a few wrong bytes. Here
# every length is checked against the available bytes before it is used, and the memory has a limit.


def read_variables(path: Path) -> dict[str, Any]:
    """The variables by name: arrays (of objects for a cell), dictionaries for structs, None for text and the like."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"it cannot be read: {error.strerror or error}") from None
    order = {b"IM": "<", b"MI": ">"}.get(content[HEAD - 2 : HEAD])
    if content.startswith(b"MATLAB 7.3") or content[HEAD - 4 : HEAD - 2] in {b"\0\2", b"\2\0"}:
        raise DataError("it is a MATLAB file of version 7.3: save it in MATLAB with the option -v7")
    if order is None:
        raise DataError("it is no MATLAB file of the versions 5 to 7: save it in MATLAB with the option -v7")
    try:
        return _MatReader(order).variables(memoryview(content)[HEAD:])
    except (struct.error, zlib.error, ValueError, LookupError, RecursionError) as error:
        raise DataError(f"it is a damaged MATLAB file: {error}") from None


class _MatReader:
    """Reads elements: a kind, a length, and so many bytes. Python's own errors tell what is damaged."""

    def __init__(self, order: str) -> None:
        self.order, self.room = order, LARGEST

    def variables(self, content: memoryview) -> dict[str, Any]:
        found = {}
        for kind, element in self._elements(content, padded=False):
            if kind == PACKED:
                unpacked = zlib.decompressobj().decompress(element, self.room + 1)
                self._take(len(unpacked))
                kind, element = self._elements(memoryview(unpacked))[0]  # noqa: PLW2901 - what was packed
            if kind == MATRIX and element:
                name, found[name] = self._matrix(element)
        return found

    def _take(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise DataError(f"unpacked it has more than {LARGEST >> 20} MB, which no image's proposals have")

    def _elements(self, content: memoryview, *, padded: bool = True) -> list[tuple[int, memoryview]]:
        found, at = [], 0
        while at < len(content):
            kind, size = struct.unpack_from(f"{self.order}II", content, at)
            start, most, step = at + 8, len(content) - at - 8, size + (-size % 8 if padded else 0)
            if kind > 0xFFFF:  # a small element: up to four bytes instead of the length
                kind, size, start, most, step = kind & 0xFFFF, kind >> 16, at + 4, 4, 0
            if size > most:
                raise ValueError(f"{size} bytes where {most} are left")
            found.append((kind, content[start : start + size]))
            self._take(ELEMENT)
            at += 8 + step
        return found

    def _matrix(self, content: memoryview) -> tuple[str, Any]:
        """The name and the value of a variable, or of an entry of a cell or struct."""
        (_, flags), (_, sizes), (_, name), *entries = self._elements(content)
        (flag,) = struct.unpack_from(f"{self.order}I", flags)
        kind, value = flag & 0xFF, cast("Any", None)
        shape = np.frombuffer(sizes, f"{self.order}i4").tolist() if kind in {CELL, STRUCT, *NUMBERS} else [0]
        if min(shape) < 0:
            raise ValueError("a matrix of a negative size")
        if kind in NUMBERS and not flag & COMPLEX:
            stored, data = entries[0]
            numbers = np.frombuffer(data, self.order + STORED[stored]).reshape(shape, order="F")
            self._take(numbers.size * np.dtype(NUMBERS[kind]).itemsize)
            with np.errstate(all="ignore"):
                value = numbers.astype(NUMBERS[kind])
        elif kind == CELL:
            value = np.empty(len(entries), object)
            for place, entry in enumerate(entries):
                value[place] = self._inner(*entry)
            value = value.reshape(shape, order="F")
        elif kind == STRUCT and set(shape) == {1}:
            (_, length), (_, text), *values = entries
            (size,) = struct.unpack(f"{self.order}i", length)
            fields = (bytes(text[start : start + size]).split(b"\0")[0] for start in range(0, len(text), size))
            value = {field.decode("latin-1"): self._inner(*one) for field, one in zip(fields, values, strict=True)}
        return bytes(name).decode("latin-1"), value

    def _inner(self, kind: int, element: memoryview) -> Any:
        if kind != MATRIX:
            raise ValueError("no matrix where one has to be")
        return self._matrix(element)[1] if element else np.zeros((0, 0))
