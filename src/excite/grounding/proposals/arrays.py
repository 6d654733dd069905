"""Proposals as named arrays in NPZ files: our own form, and the plain ones that others may write."""

from __future__ import annotations

import warnings
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.grounding.proposals.base import Proposals, Segments
from excite.grounding.proposals.checking import (
    best_first,
    check_count,
    check_pixels,
    checked_boxes,
    checked_scores,
)
from excite.grounding.proposals.parts import segment_boxes, segments_of_pixels
from excite.grounding.proposals.resizing import enlarged_parts

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["from_arrays", "read_npz"]

LARGEST = 2**28
"""No picture's proposals take so many bytes: a small file that says so would fill all memory when it is unpacked."""


def read_npz(path: Path) -> dict[str, Array]:
    """All arrays of a file; every byte is checked before it is believed.

    Raises:
        DataError: The file is not there, damaged, or holds more than numbers.

    Example:
        >>> sorted(read_npz(Path("a.npz")))  # doctest: +SKIP
        ['boxes', 'scores']
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_room(archive)
            return {name.removesuffix(".npy"): _array(archive, name) for name in archive.namelist()}
    except Exception as error:  # noqa: BLE001 - zipfile and numpy raise errors of all kinds for a damaged file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"cannot read {str(path)!r} as NPZ: {reason}") from None


def _check_room(archive: zipfile.ZipFile) -> None:
    if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
        raise DataError(f"unpacked it has more than {LARGEST >> 20} MB, which no picture's proposals have")


def _array(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(name) as file, warnings.catch_warnings(action="ignore"):  # NumPy's, about an impossible shape
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
        if file.read(1):  # its end is where its checksum is looked at
            raise DataError(f"{name[:40]!r} holds more than its array")
    return array


def from_arrays(arrays: dict[str, Array], size: tuple[int, int]) -> Proposals:
    """Proposals of a picture of this width and height.

    The arrays are those of `Proposals.arrays` (where parts of a shrunk picture are enlarged), or ``boxes`` [n, 4]
    half-open (x0, y0, x1, y1), or ``masks`` [n, height, width]; the last two with ``scores`` [n] or without.

    Raises:
        DataError: They do not fit together, or not to the picture.

    Example:
        >>> from_arrays({"masks": np.array([[[1, 1, 0]], [[0, 1, 0]]], bool)}, (3, 1)).boxes.tolist()
        [[0.0, 0.0, 2.0, 1.0], [1.0, 0.0, 2.0, 1.0]]
    """
    if "size" in arrays and (arrays["size"].shape != (2,) or arrays["size"].tolist() != list(size)):
        raise DataError(f"they are of a picture of {arrays['size'].ravel()[:2].tolist()} pixels, not {list(size)}")
    if "parts" in arrays:
        segments = _segments(arrays, size)
    elif "masks" in arrays:
        segments = _of_masks(arrays["masks"], size)
    elif "boxes" in arrays:
        boxes = checked_boxes(arrays["boxes"], size)
        return best_first(size, boxes, checked_scores(arrays.get("scores"), len(boxes)))
    else:
        raise DataError(
            f"there are no arrays 'boxes', 'masks' or 'parts', but {', '.join(sorted(arrays))[:100] or 'none'}"
        )
    scores = checked_scores(arrays.get("scores"), len(segments))
    return best_first(size, segment_boxes(segments), scores, segments)


def _segments(arrays: dict[str, Array], size: tuple[int, int]) -> Segments:
    missing = {"starts", "members"} - arrays.keys()
    if missing:
        raise DataError(f"'parts' are there, but not {' and '.join(sorted(missing))!r}")
    parts, starts, members = arrays["parts"], arrays["starts"], arrays["members"]
    whole = all(array.dtype.kind in "iu" for array in (parts, starts, members))
    if not whole or parts.ndim != 2 or starts.ndim != 1 or members.ndim != 1 or parts.size == 0:
        raise DataError("'parts' must be whole numbers [height, width], 'starts' and 'members' lists of them")
    check_count(len(starts) - 1)
    check_pixels(len(members))
    if parts.shape[0] > size[1] or parts.shape[1] > size[0]:
        raise DataError(f"'parts' are {list(parts.shape)}, more than the {size[1]} x {size[0]} pixels of this picture")
    if parts.max() >= parts.size:  # the largest number is how much room sums over them take
        raise DataError("'parts' must be numbered from 0, without large gaps")
    starts = starts.astype(np.int64)  # differences of numbers without a sign would never be below 0
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(members) or (np.diff(starts) <= 0).any():
        raise DataError("'starts' must go up from 0 to the number of members, each region having some")
    there = np.unique(parts)
    if not np.isin(members, there[there >= 0]).all():
        raise DataError("'members' names parts that no pixel has")
    return Segments(enlarged_parts(parts, size), starts, members.astype(np.int32))


def _of_masks(masks: Array, size: tuple[int, int]) -> Segments:
    if masks.size == 0 and len(masks) == 0:
        return segments_of_pixels(size[::-1], [])
    if masks.ndim != 3 or masks.shape[1:] != size[::-1]:
        raise DataError(f"'masks' must be [n, {size[1]}, {size[0]}] for this picture, not {list(masks.shape)}")
    if masks.dtype.kind not in "biu":
        raise DataError("'masks' must be true or false for each pixel")
    check_count(len(masks))
    check_pixels(int(np.count_nonzero(masks)))
    regions = [np.flatnonzero(mask).astype(np.int32) for mask in masks]
    empty = next((number for number, pixels in enumerate(regions) if len(pixels) == 0), None)
    if empty is not None:
        raise DataError(f"mask {empty} is empty")
    return segments_of_pixels(size[::-1], regions)
