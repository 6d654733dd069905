"""MS COCO's instance annotations. Boxes only, so far: an `Instance` has room for its mask."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from excite.datasets.dataset import Dataset, picture_in, read_text
from excite.datasets.sample import Instance, Sample, Target, checked_box
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
        return _splits(self.folder)

    def _read(self) -> list[str]:
        self._path = self.folder / f"{PREFIX}{self.split}.json"
        content = _content(self._path)
        self._categories = self._by_id(content, "categories", {"name": str})
        pictures = sorted(self._by_id(content, "images", {"file_name": str}).items())
        self._files = {picture["file_name"]: identity for identity, picture in pictures}
        if len(self._files) < len(pictures):
            raise DataError(f"{self._path}: several images have the same file_name")
        self._annotations = self._of_pictures(content, set(self._files.values()))
        images = self.folder / "images"
        places = (self.folder / self.split, images / self.split, images)
        self._pictures = next((place for place in places if place.is_dir()), places[0])
        return list(self._files)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether instance annotations are there."""
        return bool(_splits(folder))

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the categories in the order of their numbers."""
        return tuple(self._categories[number]["name"] for number in sorted(self._categories))

    def sample(self, name: str) -> Sample:
        """A picture and its objects."""
        targets: dict[int, list[Instance]] = defaultdict(list)
        for place, entry in self._annotations[self._files[name]]:
            targets[entry["category_id"]].append(self._instance(place, entry))
        found = (Target(self._categories[number]["name"], tuple(targets[number])) for number in sorted(targets))
        return Sample(name, picture_in(self._pictures, name, str(self._path)), tuple(found))

    def _instance(self, place: int, entry: Entry) -> Instance:
        where = f"{self._path}, annotations[{place}]"
        box = entry["bbox"]
        if len(box) != 4 or not all(isinstance(side, int | float) for side in box):
            raise DataError(f"{where}: the bbox must be four numbers, not {str(box)[:80]}")
        x, y, width, height = box
        return Instance(checked_box(x, y, x + width, y + height, where), crowd=bool(entry.get("iscrowd", 0)))

    def _of_pictures(self, content: Entry, pictures: set[int]) -> dict[int, list[tuple[int, Entry]]]:
        """The annotations of each picture, with their places in the file."""
        answer: dict[int, list[tuple[int, Entry]]] = defaultdict(list)
        fields = {"image_id": int, "category_id": int, "bbox": list}
        for place, entry in enumerate(self._entries(content, "annotations", fields)):
            if entry["category_id"] not in self._categories or entry["image_id"] not in pictures:
                raise DataError(f"{self._path}, annotations[{place}]: its category or its image is not in this file")
            answer[entry["image_id"]].append((place, entry))
        return answer

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


def _splits(folder: Path) -> list[str]:
    return sorted(path.stem.removeprefix("instances_") for path in folder.glob(f"{PREFIX}*.json"))


def _content(path: Path) -> Entry:
    try:
        content = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path}: broken JSON ({error})") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: it is no JSON object, so no instances file of COCO")
    return content
