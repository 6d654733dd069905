"""MS COCO's instance annotations: boxes and masks."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from excite.datasets.base import Dataset, picture_in, read_text
from excite.datasets.sample import FARTHEST, Instance, Mask, Sample, Target, checked_box, checked_size
from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Coco"]

PREFIX = "annotations/instances_"
Entry = dict[str, Any]


class Coco(Dataset):
    """Everyday scenes with many objects, some of them crowds that nobody took apart."""

    name = "coco"
    layout = f"{PREFIX}SPLIT.json, SPLIT/*.jpg"

    def _splits(self) -> list[str]:
        return sorted(path.stem.removeprefix("instances_") for path in self.folder.glob(f"{PREFIX}*.json"))

    def _read(self) -> list[str]:
        self._path = self._annotations_of(self.split)
        content = _content(self._path)
        self._categories = self._by_id(content, "categories", {"name": str})
        if len(set(self.categories)) < len(self._categories):
            raise DataError(f"{self._path}: several categories have the same name")
        self._images = self._by_id(content, "images", {"file_name": str})
        self._files = {self._images[number]["file_name"]: number for number in sorted(self._images)}
        if len(self._files) < len(self._images):
            raise DataError(f"{self._path}: several images have the same file_name")
        self._annotations = self._of_pictures(content)
        self._pictures = self._folder_of_pictures()
        return list(self._files)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether instance annotations are there."""
        return any(folder.glob(f"{PREFIX}*.json"))

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the categories in the order of their numbers."""
        return tuple(self._categories[number]["name"] for number in sorted(self._categories))

    @property
    def supercategories(self) -> dict[str, str]:
        """The kind of thing that each category is, in the order of the categories; blank where that is not written."""
        entries = (self._categories[number] for number in sorted(self._categories))
        return {entry["name"]: str(entry.get("supercategory") or "") for entry in entries}

    def also_called(self, name: str) -> tuple[str, ...]:
        """Its name without the suffix, and its number."""
        return (*super().also_called(name), str(self._files[name]))

    def sample(self, name: str) -> Sample:
        """An image and its objects."""
        number = self._files[name]
        size = self._size(number)
        targets: dict[int, list[Instance]] = defaultdict(list)
        for place, entry in self._annotations.get(number, ()):
            where = f"{self._path}, annotations[{place}]"
            targets[self._category(entry, where)].append(_instance(entry, size, where))
        found = (Target(self._categories[number]["name"], tuple(targets[number])) for number in sorted(targets))
        return Sample(name, self._picture(name), tuple(found), size)

    def _annotations_of(self, split: str) -> Path:
        return self.folder / f"{PREFIX}{split}.json"

    def _folder_of_pictures(self) -> Path:
        images = self.folder / "images"
        places = (self.folder / self.split, images / self.split, images)
        return next((place for place in places if place.is_dir()), places[0])

    def _picture(self, name: str) -> Path:
        return picture_in(self._pictures, name, str(self._path))

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

    def _of_pictures(self, content: Entry) -> dict[int, list[tuple[int, Entry]]]:
        """The annotations of each image, with their places in the file."""
        answer: dict[int, list[tuple[int, Entry]]] = defaultdict(list)
        for place, entry in enumerate(self._entries(content, "annotations", {"image_id": int})):
            if entry["image_id"] not in self._images:
                raise DataError(f"{self._path}, annotations[{place}]: its image is not in this file")
            answer[entry["image_id"]].append((place, entry))
        return dict(answer)

    def _by_id(self, content: Entry, part: str, fields: dict[str, type]) -> dict[int, Entry]:
        entries = self._entries(content, part, {"id": int, **fields})
        answer = {entry["id"]: entry for entry in entries}
        if len(answer) < len(entries):
            raise DataError(f"{self._path}: several {part} have the same id")
        return answer

    def _entries(self, content: Entry, part: str, fields: dict[str, type]) -> Sequence[Entry]:
        """A list of the file whose entries all have those fields."""
        entries = content.get(part)
        if not isinstance(entries, list):
            raise DataError(f"{self._path}: it has no list {part!r}, so it is no instances file of COCO")
        for place, entry in enumerate(entries):
            for field, kind in fields.items():
                if not isinstance(entry, dict) or not isinstance(entry.get(field), kind):
                    raise DataError(f"{self._path}, {part}[{place}]: {field!r} is missing or no {kind.__name__}")
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
    """None where nobody drew one: the box stands for the object then."""
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


def _content(path: Path) -> Entry:
    try:
        content = json.loads(read_text(path), object_hook=_lean)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: broken JSON ({error})") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: it is no JSON object, so no instances file of COCO")
    return content


def _lean(entry: Entry) -> Entry:
    """An entry whose outline is text again: as numbers, those of the official files fill gigabytes of memory."""
    if "segmentation" in entry:
        entry["segmentation"] = json.dumps(entry["segmentation"])
    return entry
