"""MS COCO's instance annotations: boxes and masks."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from excite.datasets.base import Dataset, image_path, parse_json, read_text
from excite.datasets.sample import FARTHEST, Instance, Mask, Sample, checked_box, checked_size, group_targets
from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PREFIX = "annotations/instances_"
Entry = dict[str, Any]


class Coco(Dataset):
    """Everyday scenes with many objects, some of them crowds annotated as one region."""

    name = "coco"
    layout = f"{PREFIX}SPLIT.json, SPLIT/*.jpg"

    def _splits(self) -> list[str]:
        return sorted(path.stem.removeprefix("instances_") for path in self.folder.glob(f"{PREFIX}*.json"))

    def _read(self) -> list[str]:
        self._path = self._annotations_of(self.split)
        content = parse_json(read_text(self._path), self._path, _with_outlines_as_text)
        if not isinstance(content, dict):
            raise DataError(f"{self._path}: it is no JSON object, so no instances file of COCO")
        self._categories = self._by_id(content, "categories", {"name": str})
        if len(set(self.categories)) < len(self._categories):
            raise DataError(f"{self._path}: several categories have the same name")
        self._images = self._by_id(content, "images", {"file_name": str})
        self._files = {self._images[number]["file_name"]: number for number in sorted(self._images)}
        if len(self._files) < len(self._images):
            raise DataError(f"{self._path}: several images have the same file_name")
        self._annotations = self._by_image(content)
        self._pictures = self._image_folder()
        return list(self._files)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are instance annotations."""
        return any(folder.glob(f"{PREFIX}*.json"))

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the categories in the order of their numbers."""
        return tuple(self._categories[number]["name"] for number in sorted(self._categories))

    @property
    def supercategories(self) -> dict[str, str]:
        """The supercategory of each category, in the order of the categories; blank where there is none."""
        entries = (self._categories[number] for number in sorted(self._categories))
        return {entry["name"]: str(entry.get("supercategory") or "") for entry in entries}

    def also_called(self, name: str) -> tuple[str, ...]:
        """Its name without the suffix, and its number."""
        return (*super().also_called(name), str(self._files[name]))

    def sample(self, name: str) -> Sample:
        """An image and its objects."""
        number = self._files[name]
        size = self._size(number)
        found = []
        for index, entry in self._annotations.get(number, ()):
            where = f"{self._path}, annotations[{index}]"
            found.append((self._category(entry, where), _instance(entry, size, where)))
        found.sort(key=lambda each: each[0])
        targets = group_targets((self._categories[category]["name"], instance) for category, instance in found)
        return Sample(name, self._picture(name), targets, size)

    def _annotations_of(self, split: str) -> Path:
        return self.folder / f"{PREFIX}{split}.json"

    def _image_folder(self) -> Path:
        images = self.folder / "images"
        folders = (self.folder / self.split, images / self.split, images)
        return next((folder for folder in folders if folder.is_dir()), folders[0])

    def _picture(self, name: str) -> Path:
        return image_path(self._pictures, name, str(self._path))

    def _size(self, number: int) -> tuple[int, int] | None:
        entry = self._images[number]
        if "width" not in entry and "height" not in entry:
            return None
        return checked_size(entry.get("width"), entry.get("height"), f"{self._path}, the image with id {number}")

    def _category(self, entry: Entry, where: str) -> int:
        number = entry.get("category_id")
        if not isinstance(number, int) or number not in self._categories:
            raise DataError(f"{where}: its category_id {str(number)[:40]} is missing or not in this file")
        return number

    def _by_image(self, content: Entry) -> dict[int, list[tuple[int, Entry]]]:
        """The annotations of each image, with their indices in the file."""
        found: dict[int, list[tuple[int, Entry]]] = defaultdict(list)
        for index, entry in enumerate(self._entries(content, "annotations", {"image_id": int})):
            if entry["image_id"] not in self._images:
                raise DataError(f"{self._path}, annotations[{index}]: its image is not in this file")
            found[entry["image_id"]].append((index, entry))
        return dict(found)

    def _by_id(self, content: Entry, part: str, fields: dict[str, type]) -> dict[int, Entry]:
        entries = self._entries(content, part, {"id": int, **fields})
        found = {entry["id"]: entry for entry in entries}
        if len(found) < len(entries):
            raise DataError(f"{self._path}: several {part} have the same id")
        return found

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
    return Instance(
        checked_box(x, y, x + width, y + height, where),
        crowd=bool(entry.get("iscrowd", 0)),
        mask=_mask(entry.get("segmentation"), size, where),
        annotated_area=_area(entry.get("area"), where),
    )


def _mask(stored: str | None, size: tuple[int, int] | None, where: str) -> Mask | None:
    """The annotated mask; None without one: the box stands for the object then."""
    if stored in {None, "null", "[]"}:
        return None
    mask = Mask(stored)
    try:
        mask.check(size)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    return mask


def _area(area: object, where: str) -> float | None:
    if area is None:
        return None
    if not isinstance(area, int | float) or not 0 <= area <= FARTHEST**2:
        raise DataError(f"{where}: the area must be a number of pixels, not {str(area)[:40]}")
    return float(area)


def _with_outlines_as_text(entry: Entry) -> Entry:
    """The entry with its outline as JSON text: as numbers, those of the official files fill gigabytes of memory."""
    if "segmentation" in entry:
        entry["segmentation"] = json.dumps(entry["segmentation"])
    return entry
