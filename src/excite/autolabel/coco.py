"""COCO's format: one JSON file for all pictures. A box is its left top corner, its width and its height."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from excite.autolabel.document import Document
    from excite.autolabel.files import Content

__all__ = ["files"]

Entry = dict[str, Any]


def files(document: Document) -> dict[str, Content]:
    """The one file. Numbers of pictures are their places among all, also among those that are not done yet.

    Example:
        >>> from excite.autolabel import Document
        >>> list(files(Document((), ("dog",))))
        ['boxes.json']
    """
    images = [
        {"id": one.picture.number, "file_name": one.picture.name, "width": one.size[0], "height": one.size[1]}
        for one in document.pictures
    ]
    categories = [{"id": k, "name": name, "supercategory": ""} for k, name in enumerate(document.categories, 1)]
    parts = {
        "licenses": [],
        "images": images,
        "annotations": list(_annotations(document)),
        "categories": categories,
    }
    about = {"description": "Boxes made from image-level labels", "version": version("excite"), "contributor": "excite"}
    lists = (f"{_json(name)}: [{_lines(entries)}]" for name, entries in parts.items())
    text = "{\n" + ",\n".join([f'"info": {_json(about)}', *lists]) + "\n}\n"
    return {"boxes.json": text.encode("utf-8", "backslashreplace")}  # bytes of odd file names stay JSON escapes


def _annotations(document: Document) -> Iterator[Entry]:
    numbers = {name: k for k, name in enumerate(document.categories, 1)}
    boxes = ((one.picture.number, found) for one in document.pictures for found in one.boxes)
    for k, (image, found) in enumerate(boxes, 1):
        x0, y0, x1, y1 = found.box
        yield {
            "id": k,
            "image_id": image,
            "category_id": numbers[found.concept],
            "bbox": [x0, y0, x1 - x0, y1 - y0],
            "area": (x1 - x0) * (y1 - y0),
            "iscrowd": 0,
            "segmentation": [],
            "score": found.probability,
        }


def _lines(entries: list[Entry]) -> str:
    """One line for each entry: it can be read, searched and compared."""
    return ",".join(f"\n  {_json(entry)}" for entry in entries) + ("\n" if entries else "")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
