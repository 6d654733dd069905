"""MS COCO's instance annotations: boxes and masks."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excite.datasets import base
from excite.datasets.base import FARTHEST, Dataset, Instance, Sample
from excite.errors import DataError, ExciteError

INSTANCES = "annotations/instances_{}.json"
Entry = dict[str, Any]


class Coco(Dataset):
    """Everyday scenes with many objects, some of them crowds annotated as one region."""

    name = "coco"
    layout = f"{INSTANCES.format('SPLIT')}, SPLIT/*.jpg"
    _split_file = INSTANCES

    def _read(self) -> list[str]:
        self._path = self._split_path()
        content = base.parse_json(base.read_text(self._path), self._path, _with_outlines_as_text)
        if not isinstance(content, dict):
            raise DataError(f"{self._path}: it is no JSON object, so no instances file of COCO")
        self._categories = self._by_id(content, "categories", "name")
        self._images = self._by_id(content, "images", "file_name")
        self._files = {entry["file_name"]: number for number, entry in self._images.items()}
        self._annotations: dict[int, list[tuple[int, Entry]]] = defaultdict(list)  # with their indices in the file
        for index, entry in enumerate(self._entries(content, "annotations", {"image_id": int})):
            if entry["image_id"] not in self._images:
                raise DataError(f"{self._path}, annotations[{index}]: its image is not in this file")
            self._annotations[entry["image_id"]].append((index, entry))
        self._pictures = self._image_folder()
        return list(self._files)

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the categories in the order of their numbers."""
        return tuple(entry["name"] for entry in self._categories.values())

    @property
    def supercategories(self) -> dict[str, str]:
        """The supercategory of each category, in the order of the categories; blank where there is none."""
        return {entry["name"]: str(entry.get("supercategory") or "") for entry in self._categories.values()}

    def also_called(self, name: str) -> tuple[str, ...]:
        """Its name without the suffix, and its number."""
        return (*super().also_called(name), str(self._files[name]))

    def sample(self, name: str) -> Sample:
        """An image and its objects."""
        number = self._files[name]
        image, size, found = self._images[number], None, []
        if "width" in image or "height" in image:
            where = f"{self._path}, the image with id {number}"
            size = base.checked_size(image.get("width"), image.get("height"), where)
        for index, entry in self._annotations.get(number, ()):
            where, category = f"{self._path}, annotations[{index}]", entry.get("category_id")
            if not isinstance(category, int) or category not in self._categories:
                raise DataError(f"{where}: its category_id {str(category)[:40]} is missing or not in this file")
            found.append((category, _instance(entry, size, where)))
        found.sort(key=lambda each: each[0])
        targets = base.group_targets((self._categories[category]["name"], instance) for category, instance in found)
        return Sample(name, self._picture(name), targets, size)

    def _image_folder(self) -> Path:
        images = self.folder / "images"
        folders = (self.folder / self.split, images / self.split, images)
        return next((folder for folder in folders if folder.is_dir()), folders[0])

    def _picture(self, name: str) -> Path:
        return base.image_path(self._pictures, name, str(self._path))

    def _by_id(self, content: Entry, part: str, name: str) -> dict[int, Entry]:
        """The entries of a list by their numbers, in that order; neither these nor their names are repeated."""
        entries = self._entries(content, part, {"id": int, name: str})
        for field in ("id", name):
            if len({entry[field] for entry in entries}) < len(entries):
                raise DataError(f"{self._path}: several {part} have the same {field}")
        return {entry["id"]: entry for entry in sorted(entries, key=lambda entry: int(entry["id"]))}

    def _entries(self, content: Entry, part: str, fields: dict[str, type]) -> Sequence[Entry]:
        """A list of the file whose entries all have those fields."""
        entries = content.get(part)
        if not isinstance(entries, list):
            raise DataError(f"{self._path}: it has no list {part!r}, so it is no instances file of COCO")
        for index, entry in enumerate(entries):
            for field, kind in fields.items():
                if not isinstance(entry, dict) or not isinstance(entry.get(field), kind):
                    raise DataError(f"{self._path}, {part}[{index}]: {field!r} is missing or no {kind.__name__}")
        return entries


def _instance(entry: Entry, size: tuple[int, int] | None, where: str) -> Instance:
    box = entry.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(isinstance(side, int | float) for side in box):
        raise DataError(f"{where}: the bbox must be four numbers, not {str(box)[:80]}")
    x, y, width, height = box
    found = base.checked_box(x, y, x + width, y + height, where)
    stored, mask = entry.get("segmentation"), None
    if stored not in {None, "null", "[]"}:  # without a mask, the box stands for the object
        mask = Mask(str(stored))
        try:
            mask.check(size)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
    area = entry.get("area")
    if area is not None and not (isinstance(area, int | float) and 0 <= area <= FARTHEST**2):
        raise DataError(f"{where}: the area must be a number of pixels, not {str(area)[:40]}")
    return Instance(found, False, bool(entry.get("iscrowd", 0)), mask, None if area is None else float(area))


def _with_outlines_as_text(entry: Entry) -> Entry:
    """The entry with its outline as JSON text: as numbers, those of the official files fill gigabytes of memory."""
    if "segmentation" in entry:
        entry["segmentation"] = json.dumps(entry["segmentation"])
    return entry


# Masks: polygons, or run lengths.


@dataclass(frozen=True)
class Mask:
    """The pixels of an object, decoded on demand."""

    stored: str  # the annotation as JSON text: small, quick to compare, to hash and to send to other processes

    def pixels(self, size: tuple[int, int]) -> NDArray[np.bool_]:
        """The mask ``[height, width]`` for an image of this width and height; polygons are cut off at its sides."""
        content = self._content()
        return _from_polygons(content, size) if isinstance(content, list) else _from_runs(_runs(content, size), size)

    def check(self, size: tuple[int, int] | None) -> None:
        """Raise a `DataError` if it cannot be decoded, for an image of that size where that is known."""
        content = self._content()
        if isinstance(content, list):
            _check_polygons(content)
        elif size is not None:
            _runs(content, size)

    def _content(self) -> Any:
        content = json.loads(self.stored)
        if not isinstance(content, list) and not (isinstance(content, dict) and {"size", "counts"} <= content.keys()):
            raise DataError("the segmentation must be polygons, or runs of pixels with 'size' and 'counts'")
        return content


def _from_polygons(polygons: list[Any], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Rasterised by pycocotools, so that every pixel agrees with other evaluations."""
    try:
        from pycocotools import mask
    except ImportError:
        raise ExciteError("masks of COCO that are polygons need pycocotools: pip install 'excite[coco]'") from None
    _check_polygons(polygons)
    width, height = size
    runs = mask.merge(mask.frPyObjects(polygons, height, width))
    return _from_runs(list(_unpacked(runs["counts"].decode("ascii"))), size)


def _check_polygons(polygons: list[Any]) -> None:
    """Checks that pycocotools leaves out: it takes a list of four numbers, for instance, for a box."""
    for polygon in polygons:
        if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2:
            raise DataError("a polygon of the segmentation must be x and y of three corners or more")
        if not all(map(base.is_coordinate, polygon)):
            raise DataError("the corners of the segmentation must be numbers of pixels")


def _from_runs(runs: Sequence[int], size: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask of alternating runs, outside of the object first, column by column."""
    width, height = size
    inside = np.arange(len(runs)) % 2 == 1
    return np.repeat(inside, runs).reshape(width, height).T


def _runs(content: dict[str, Any], size: tuple[int, int]) -> list[int]:
    """The run lengths, checked: pycocotools leaves pixels that no run covers undefined."""
    width, height = size
    if content["size"] != [height, width]:
        raise DataError(
            f"the segmentation is for an image of [height, width] {str(content['size'])[:40]}, not {height, width}"
        )
    counts = content["counts"]
    runs = list(_unpacked(counts)) if isinstance(counts, str) else counts
    if not isinstance(runs, list) or not all(isinstance(run, int) and run >= 0 for run in runs):
        raise DataError("the counts of the segmentation must be lengths of runs of pixels")
    if sum(runs) != width * height:
        raise DataError(f"the counts of the segmentation cover {sum(runs)} pixels, but the image has {width * height}")
    return runs


def _unpacked(text: str) -> Iterator[int]:
    """The run lengths in COCO's compressed text.

    A character holds five bits, and a sixth that is set if more follow; from the fourth number on, the difference to
    the one two before is stored.
    """
    seen: list[int] = []
    value = shift = 0
    for character in text:
        code = ord(character) - 48
        if not 0 <= code < 64 or shift > 60:  # no run is that long
            raise DataError(
                f"the counts of the segmentation are no runs of pixels in COCO's compressed text ({text[:20]!r})"
            )
        value |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        if code & 16:  # negative
            value -= 1 << shift
        seen.append(value + (seen[-2] if len(seen) > 2 else 0))
        yield seen[-1]
        value = shift = 0
    if shift:
        raise DataError("the counts of the segmentation are cut off")
