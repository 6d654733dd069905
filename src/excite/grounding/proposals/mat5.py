"""Numbers, cells and structs in MATLAB files of the versions 5 to 7, read without believing anything they say.

Compiled readers of this format crash at damaged files. Here every length is held against the bytes that are there,
before anything is made of it, and all that is unpacked together has a limit.
"""

from __future__ import annotations

import struct
import zlib
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Value", "read_variables"]

HEAD = 128  # bytes of a file's beginning: words for people, version, order of bytes
LARGEST = 2**28  # bytes, unpacked: no picture's proposals take so many
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


def read_variables(path: Path) -> dict[str, Value]:
    """The variables of a file by name; text, functions, sparse matrices and the like are None.

    Raises:
        DataError: it is no such file, or damaged.

    Example:
        >>> read_variables(Path("mcg/2007_000027.mat"))["scores"].shape  # doctest: +SKIP
        (1, 2148)
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
    return dict(_Reader(order).variables(memoryview(content)[HEAD:]))


class _Reader:
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
            raise DataError(f"it is a damaged MATLAB file: {error}") from None
        self.room -= len(content)
        if self.room < 0:
            raise DataError(f"unpacked it has more than {LARGEST >> 20} MB, which no picture's proposals have")
        return memoryview(content)

    def _element(self, content: memoryview, at: int, *, padded: bool = True) -> tuple[int, memoryview, int]:
        """The kind and the bytes of the element at a place, and the place behind it."""
        if len(content) - at < 8:
            raise DataError("it is a damaged MATLAB file: it is cut off")
        kind, size = struct.unpack_from(f"{self.order}II", content, at)
        if kind > 0xFFFF:  # up to four bytes stand in the place of the length
            kind, size = kind & 0xFFFF, kind >> 16
            if size > 4:
                raise DataError("it is a damaged MATLAB file: a small element is too long")
            return kind, content[at + 4 : at + 4 + size], at + 8
        start = at + 8
        if size > len(content) - start:
            raise DataError(f"it is a damaged MATLAB file: {size} bytes where {len(content) - start} are left")
        return kind, content[start : start + size], start + size + (-size % 8 if padded else 0)

    def _matrix(self, content: memoryview, depth: int) -> tuple[str, Value]:
        """The name and the value of a variable, or of what is in a cell."""
        _, flags, at = self._element(content, 0)
        if len(flags) < 4 or depth == 0:
            raise DataError("it is a damaged MATLAB file: a matrix without a kind, or too deep within others")
        (flag,) = struct.unpack_from(f"{self.order}I", flags)
        _, sizes, at = self._element(content, at)
        shape = [int(size) for size in np.frombuffer(sizes[: len(sizes) // 4 * 4], f"{self.order}i4")]
        if not 1 <= len(shape) <= MOST_AXES or min(shape) < 0 or prod(filter(None, shape)) > LARGEST:
            raise DataError("it is a damaged MATLAB file: a matrix without sizes")
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
            raise DataError(f"it is a damaged MATLAB file: numbers of the kind {stored}")
        numbers = np.dtype(self.order + STORED[stored])
        if len(data) != prod(shape) * numbers.itemsize:
            raise DataError("it is a damaged MATLAB file: a matrix with more or fewer numbers than it says")
        self.numbers_left -= prod(shape)
        if self.numbers_left < 0:
            raise DataError(f"it has more than {MOST_NUMBERS} numbers, which no picture's proposals have")
        with np.errstate(all="ignore"):
            values: NDArray[Any] = np.frombuffer(data, numbers).astype(NUMBERS[kind])
        return None if is_complex else values.reshape(shape, order="F")

    def _cell(self, content: memoryview, at: int, shape: list[int], depth: int) -> Value:
        if prod(shape) > len(content) // 8:  # each takes that much at least
            raise DataError("it is a damaged MATLAB file: a cell with more in it than there are bytes")
        values = np.empty(prod(shape), object)
        for place in range(len(values)):
            values[place], at = self._inner(content, at, depth)
        return values.reshape(shape, order="F")

    def _struct(self, content: memoryview, at: int, depth: int) -> dict[str, Value]:
        _, length, at = self._element(content, at)
        _, names, at = self._element(content, at)
        (size,) = struct.unpack(f"{self.order}i", length) if len(length) == 4 else (0,)
        if size < 1 or len(names) // size > len(content) // 8:
            raise DataError("it is a damaged MATLAB file: a struct without names")
        fields = [bytes(names[start : start + size]).split(b"\0")[0] for start in range(0, len(names), size)]
        found = {}
        for field in fields:
            found[field.decode("latin-1")], at = self._inner(content, at, depth)
        return found

    def _inner(self, content: memoryview, at: int, depth: int) -> tuple[Value, int]:
        kind, element, at = self._element(content, at)
        if kind != MATRIX:
            raise DataError("it is a damaged MATLAB file: no matrix where one has to be")
        return (self._matrix(element, depth - 1)[1] if element else np.zeros((0, 0))), at
