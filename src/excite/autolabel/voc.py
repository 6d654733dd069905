"""PASCAL VOC's layout: an XML file for each picture, and a list. Pixels are counted from 1, the last one included."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from excite.autolabel.files import Link
from excite.autolabel.inputs import place
from excite.images import PICTURE_SUFFIXES

if TYPE_CHECKING:
    from excite.autolabel.document import Boxed, Document, Found
    from excite.autolabel.files import Content
    from excite.autolabel.inputs import Picture

__all__ = ["files"]

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


def files(document: Document) -> dict[str, Content]:
    """The annotations and the pictures, and last the list, which names nothing that is not there.

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
    """The file name that a reader of VOC looks for; what has no suffix of pictures is one of its JPEGs to it."""
    suffix = PurePosixPath(picture.name).suffix.lower()
    return f"{picture.stem}{suffix if suffix in PICTURE_SUFFIXES else '.jpg'}"
