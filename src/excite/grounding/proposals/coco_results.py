"""Proposals of many pictures in one file, in the form in which detectors tell COCO their results."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.datasets.masks import Mask
from excite.errors import DataError
from excite.grounding.proposals.checking import (
    best_first,
    check_count,
    check_pixels,
    checked_boxes,
    checked_scores,
)
from excite.grounding.proposals.parts import segment_boxes, segments_of_pixels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.grounding.proposals.base import Proposals

__all__ = ["CocoResults"]


class CocoResults:
    """A list of ``{"image_id", "bbox": [x, y, width, height], "score", "segmentation"}``, of all pictures.

    Pictures are known by the number in their names (``000000123456.jpg`` and ``COCO_val2014_000000123456.jpg`` are
    123456), or by their names if these are the ids. A dictionary with ``images`` (``id`` and ``file_name``) and
    ``annotations`` says itself which is which. Boxes are counted from 0 and half-open, as COCO's are. Score and
    segmentation (polygons, or runs of pixels) may be left out; with segmentations, boxes may.

    Raises:
        DataError: The file is not of this form.

    Example:
        >>> CocoResults(Path("results.json")).proposals("000000123456.jpg", (640, 480))  # doctest: +SKIP
    """

    def __init__(self, path: Path) -> None:
        content = _read(path)
        entries = content.get("annotations") if isinstance(content, dict) else content
        if not isinstance(entries, list):
            raise DataError(f"{str(path)!r} must be a list of results, or a dictionary with 'images' and 'annotations'")
        self._ids = _ids(content.get("images", []), path) if isinstance(content, dict) else {}
        self._entries: dict[int | str, list[dict[str, Any]]] = defaultdict(list)
        for number, entry in enumerate(entries):
            if not isinstance(entry, dict) or not isinstance(entry.get("image_id"), int | str):
                raise DataError(f"{str(path)!r}: result {number} has no 'image_id'")
            self._entries[entry["image_id"]].append(entry)

    def proposals(self, name: str, size: tuple[int, int], file_name: str = "") -> Proposals | None:
        """The proposals of a picture of this name, width and height; None if the file has none for it.

        Args:
            name: What it is called in its data set.
            size: Its width and height.
            file_name: What its file is called, where that is another name: 36979.jpg of Flickr30k's picture 36979.

        Raises:
            DataError: They are broken, or not of this picture.
        """
        names = dict.fromkeys(filter(None, (name, file_name)))
        known = [each for each in names if self._is_named(each)]
        keys = [key for each in known or names for key in self._keys(each)]
        found = next((self._entries[key] for key in keys if key in self._entries), None)
        return None if found is None else _proposals(found, size)

    def _is_named(self, name: str) -> bool:
        return name in self._ids or PurePosixPath(name).name in self._ids

    def _keys(self, name: str) -> list[int | str]:
        """What the picture's id may be, most certain first."""
        file = PurePosixPath(name)
        if self._is_named(name):
            return [self._ids.get(name, self._ids.get(file.name, name))]
        digits = re.search(r"\d+$", file.stem)
        return [name, file.name, file.stem, *([int(digits.group())] if digits else [])]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {str(path)!r} as JSON: {' '.join(str(error).split())}") from None


def _ids(images: Any, path: Path) -> dict[str, int | str]:
    known = isinstance(images, list) and all(
        isinstance(image, dict) and isinstance(image.get("file_name"), str) and isinstance(image.get("id"), int | str)
        for image in images
    )
    if not known:
        raise DataError(f"{str(path)!r}: 'images' must be a list of pictures, each with 'id' and 'file_name'")
    return {image["file_name"]: image["id"] for image in images}


def _proposals(entries: list[dict[str, Any]], size: tuple[int, int]) -> Proposals:
    check_count(len(entries))
    scores = _numbers([entry["score"] for entry in entries if "score" in entry], "scores")
    if len(scores) not in (0, len(entries)):
        raise DataError("some proposals have a score and others have none")
    ranks = checked_scores(scores if len(scores) else None, len(entries))
    masked = sum("segmentation" in entry for entry in entries)
    if masked not in (0, len(entries)):
        raise DataError("some proposals have a segmentation and others have none")
    if masked:
        segments = segments_of_pixels(size[::-1], list(_masks(entries, size)))
        return best_first(size, segment_boxes(segments), ranks, segments)
    rows = _numbers([entry.get("bbox") for entry in entries], "boxes")
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise DataError("each proposal needs a 'bbox' of four numbers: x, y, width, height")
    rows[:, 2:] += rows[:, :2]
    return best_first(size, checked_boxes(rows, size), ranks)


def _numbers(values: list[Any], what: str) -> NDArray[np.float64]:
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"some {what} are no numbers") from None


def _masks(entries: list[dict[str, Any]], size: tuple[int, int]) -> Iterator[NDArray[np.int32]]:
    """The pixels of each, as long as they are not too many together."""
    total = 0
    for entry in entries:
        pixels = _pixels(entry["segmentation"], size)
        total += len(pixels)
        check_pixels(total)
        yield pixels


def _pixels(segmentation: Any, size: tuple[int, int]) -> NDArray[np.int32]:
    mask = np.zeros(0) if segmentation == [] else Mask(json.dumps(segmentation)).pixels(size)  # no polygons: no pixels
    pixels = np.flatnonzero(mask).astype(np.int32)
    if len(pixels) == 0:
        raise DataError("the segmentation of a proposal has no pixels")
    return pixels
