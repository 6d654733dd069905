"""The formats of boxes: COCO, CSV and PASCAL VOC. A new format is one function here and one line in `FORMATS`."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from excite import __version__
from excite.autolabel.files import resolved_parent
from excite.errors import DataError
from excite.images import PICTURE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from excite.autolabel.files import Content
    from excite.autolabel.run import InputImage

    Format = Callable[["Document"], dict[str, Content]]

Box = tuple[int, int, int, int]
"""``(x0, y0, x1, y1)`` in pixels of the upright image, counted from 0; half-open, so ``x1 - x0`` is the width."""


@dataclass(frozen=True)
class Detection:
    """A box, its concept, and the probability that the image shows the concept at all."""

    concept: str
    probability: float
    box: Box


@dataclass(frozen=True)
class ImageDetections:
    """An image, its width and height as it was read, and its boxes, if any."""

    picture: InputImage
    size: tuple[int, int]
    boxes: tuple[Detection, ...] = ()


@dataclass(frozen=True)
class Document:
    """The content of the files, in no format yet."""

    pictures: tuple[ImageDetections, ...]  # those that are done, in the order of their numbers
    categories: tuple[str, ...]  # the names of boxes, in the order of their numbers, which begin with 1


def coco_files(document: Document) -> dict[str, Content]:
    """COCO: one JSON file for all images; a box is its left top corner, width and height."""
    images = [
        {"id": one.picture.number, "file_name": one.picture.name, "width": one.size[0], "height": one.size[1]}
        for one in document.pictures
    ]
    numbers = {name: k for k, name in enumerate(document.categories, 1)}
    annotations: list[dict[str, Any]] = []
    for image, found in ((one.picture.number, found) for one in document.pictures for found in one.boxes):
        x0, y0, x1, y1 = found.box
        annotation = {"id": len(annotations) + 1, "image_id": image, "category_id": numbers[found.concept]}
        size = {"bbox": [x0, y0, x1 - x0, y1 - y0], "area": (x1 - x0) * (y1 - y0)}
        annotations.append({**annotation, **size, "iscrowd": 0, "segmentation": [], "score": found.probability})
    categories = [{"id": k, "name": name, "supercategory": ""} for name, k in numbers.items()]
    about = {"description": "Boxes made from image-level labels", "version": __version__, "contributor": "excite"}
    parts = {"licenses": [], "images": images, "annotations": annotations, "categories": categories}
    lines = [f'"info": {_json(about)}']
    for name, entries in parts.items():  # one line for each entry, to be read, searched and compared
        rows = ",".join(f"\n  {_json(entry)}" for entry in entries)
        lines.append(f'"{name}": [{rows}\n]' if entries else f'"{name}": []')
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    return {"boxes.json": text.encode("utf-8", "backslashreplace")}  # bytes of odd file names stay JSON escapes


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


COLUMNS = "image,width,height,concept,probability,x0,y0,x1,y1"


def csv_files(document: Document) -> dict[str, Content]:
    """CSV: one line for each box, with all text in quotes; a `DataError` for names that are no Unicode text."""
    table = io.StringIO()
    table.write(f"{COLUMNS}\n")
    rows = csv.writer(table, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    for one in document.pictures:
        name = one.picture.name
        try:
            name.encode()
        except UnicodeEncodeError:
            raise DataError(f"the name {name!r} is no Unicode text, as CSV needs it: rename it, or use coco") from None
        rows.writerows([name, *one.size, found.concept, found.probability, *found.box] for found in one.boxes)
    return {"boxes.csv": table.getvalue().encode()}


# without a declaration of the encoding: XML without one is UTF-8, and some readers refuse text that has one
ANNOTATION = """\
<annotation>
  <folder>JPEGImages</folder>
  <filename>{file}</filename>
  <source><database>excite</database><annotation>excite</annotation><image>unknown</image></source>
  <size><width>{width}</width><height>{height}</height><depth>3</depth></size>
  <segmented>0</segmented>
{objects}</annotation>
"""
OBJECT = """\
  <object>
    <name>{name}</name>
    <pose>Unspecified</pose>
    <truncated>0</truncated>
    <difficult>0</difficult>
    <bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox>
    <probability>{probability}</probability>
  </object>
"""


def voc_files(document: Document) -> dict[str, Content]:
    """PASCAL VOC: an XML file for each image, the images, and last their list; pixels count from 1, inclusively."""
    files: dict[str, Content] = {}
    for one in document.pictures:
        suffix = PurePosixPath(one.picture.name).suffix.lower()  # readers expect .jpg where an image has no own suffix
        file = f"{one.picture.stem}{suffix if suffix in PICTURE_SUFFIXES else '.jpg'}"
        objects = ""
        for found in one.boxes:
            x0, y0, x1, y1 = found.box
            named = {"name": escape(found.concept), "probability": repr(found.probability)}
            objects += OBJECT.format(**named, x0=x0 + 1, y0=y0 + 1, x1=x1, y1=y1)
        annotation = ANNOTATION.format(file=file, width=one.size[0], height=one.size[1], objects=objects)
        files[f"Annotations/{one.picture.stem}.xml"] = annotation.encode()
        files[f"JPEGImages/{file}"] = resolved_parent(one.picture.path)
    files["ImageSets/Main/trainval.txt"] = "".join(f"{one.picture.stem}\n" for one in document.pictures).encode()
    return files


FORMATS: Mapping[str, Format] = {"coco": coco_files, "csv": csv_files, "voc": voc_files}
"""For each format the content of its files, by their names in the folder; files that name others come after them."""


def find_format(name: str) -> Format:
    """The format of this name."""
    if name not in FORMATS:
        raise DataError(f"there is no format {name!r}: use one of {', '.join(FORMATS)}")
    return FORMATS[name]
