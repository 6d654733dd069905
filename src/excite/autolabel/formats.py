"""The formats in which boxes can be written. A new one is one file here and one line in `FORMATS`."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from excite import __version__
from excite.autolabel.files import Link
from excite.autolabel.inputs import place
from excite.errors import DataError
from excite.images import PICTURE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from excite.autolabel.files import Content
    from excite.autolabel.inputs import Picture

    Format = Callable[["Document"], dict[str, Content]]


# What was found in which images, in no format yet.

Box = tuple[int, int, int, int]
"""``(x0, y0, x1, y1)`` in pixels of the upright image, counted from 0; half-open, so ``x1 - x0`` is the width."""


@dataclass(frozen=True)
class Found:
    """A box, what is in it, and how probable it is that the image shows that at all."""

    concept: str
    probability: float
    box: Box


@dataclass(frozen=True)
class Boxed:
    """An image, its width and height as it was read, and its boxes: none where nothing was found."""

    picture: Picture
    size: tuple[int, int]
    boxes: tuple[Found, ...] = ()


@dataclass(frozen=True)
class Document:
    """All that goes into the files.

    Attributes:
        pictures: those that are done, in the order of their numbers.
        categories: what boxes may be called, in the order of their numbers, which begin with 1.
    """

    pictures: tuple[Boxed, ...]
    categories: tuple[str, ...]


# COCO's format: one JSON file for all images. A box is its left top corner, its width and its height.

Entry = dict[str, Any]


def coco_files(document: Document) -> dict[str, Content]:
    """The one file. Numbers of images are their places among all, also among those that are not done yet.

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
    about = {"description": "Boxes made from image-level labels", "version": __version__, "contributor": "excite"}
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


# A table: one line for each box, half-open in pixels counted from 0.

COLUMNS = "image,width,height,concept,probability,x0,y0,x1,y1"


def csv_files(document: Document) -> dict[str, Content]:
    r"""The one file. All text is in quotes, so that commas and line breaks in names do no harm.

    Raises:
        DataError: the name of an image is no Unicode text.

    Example:
        >>> from excite.autolabel import Document
        >>> files(Document((), ("dog",)))
        {'boxes.csv': b'image,width,height,concept,probability,x0,y0,x1,y1\n'}
    """
    table = io.StringIO()
    table.write(f"{COLUMNS}\n")
    rows = csv.writer(table, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    for one in document.pictures:
        name = _checked(one.picture.name)
        rows.writerows([name, *one.size, found.concept, found.probability, *found.box] for found in one.boxes)
    return {"boxes.csv": table.getvalue().encode()}


def _checked(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(f"the name {name!r} is no Unicode text, as CSV needs it: rename it, or use coco") from None
    return name


# PASCAL VOC's layout: an XML file for each image, and a list. Pixels are counted from 1, the last one included.

LIST = "ImageSets/Main/trainval.txt"

# No line says which encoding it is: XML without one is UTF-8, and some readers refuse text that says so.
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
    """The annotations and the images, and last the list, which names nothing that is not there.

    Example:
        >>> from excite.autolabel import Document
        >>> files(Document((), ("dog",)))
        {'ImageSets/Main/trainval.txt': b''}
    """
    answer: dict[str, Content] = {}
    for one in document.pictures:
        answer[f"Annotations/{one.picture.stem}.xml"] = _annotation(one).encode()
        answer[f"JPEGImages/{_file(one.picture)}"] = Link(place(one.picture.path))
    answer[LIST] = "".join(f"{one.picture.stem}\n" for one in document.pictures).encode()
    return answer


def _annotation(one: Boxed) -> str:
    width, height = one.size
    objects = "".join(map(_object, one.boxes))
    return ANNOTATION.format(file=_file(one.picture), width=width, height=height, objects=objects)


def _object(found: Found) -> str:
    x0, y0, x1, y1 = found.box
    return OBJECT.format(
        name=escape(found.concept), x0=x0 + 1, y0=y0 + 1, x1=x1, y1=y1, probability=repr(found.probability)
    )


def _file(picture: Picture) -> str:
    """The file name that a reader of VOC looks for; what has no suffix of images is one of its JPEGs to it."""
    suffix = PurePosixPath(picture.name).suffix.lower()
    return f"{picture.stem}{suffix if suffix in PICTURE_SUFFIXES else '.jpg'}"


# The formats in which boxes can be written. A new one is one file here and one line in `FORMATS`.

FORMATS: Mapping[str, Format] = {
    "coco": coco_files,
    "csv": csv_files,
    "voc": voc_files,
}
"""For each, what its files hold, by their names below the folder; files that name others come after them."""


def find_format(name: str) -> Format:
    """The format of this name.

    Example:
        >>> find_format("coco") is FORMATS["coco"]
        True
    """
    if name not in FORMATS:
        raise DataError(f"there is no format {name!r}: use one of {', '.join(FORMATS)}")
    return FORMATS[name]
