"""The XML files in which VOC, and ImageNet after it, tell what is in a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from excite.datasets.base import read_text
from excite.datasets.sample import Instance, checked_box, size_of
from excite.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Found", "parsed_annotation", "read_objects", "size_in"]

SIDES = ("xmin", "ymin", "xmax", "ymax")


class Found(NamedTuple):
    """An annotated object, what it is called, and where that is written."""

    name: str
    instance: Instance
    where: str


def read_objects(path: Path, first_pixel: int) -> tuple[list[Found], tuple[int, int] | None]:
    """The objects of a picture in the order of the file, and the size of the picture where that is written.

    Args:
        path: the XML file.
        first_pixel: the number of a row's first pixel, 0 or 1; the last pixel of a box is always included.

    Raises:
        DataError: the file cannot be read or is broken; the message names the file and the object.

    Example:
        >>> read_objects(Path("Annotations/000005.xml"), first_pixel=1)[1]  # doctest: +SKIP
        (500, 375)
    """
    root = parsed_annotation(path)
    found = []
    for number, element in enumerate(root.iterfind("object"), 1):
        where = f"{path}, object {number}"
        found.append(Found(_text(element, "name", where), _instance(element, first_pixel, where), where))
    return found, size_in(root, str(path))


def parsed_annotation(path: Path) -> ElementTree.Element:
    """The root of an XML file without a DOCTYPE: an entity declared there may grow without end when it is read.

    Raises:
        DataError: the file cannot be read, is broken, or no annotation.

    Example:
        >>> parsed_annotation(Path("Annotations/000005.xml")).tag  # doctest: +SKIP
        'annotation'
    """
    text = read_text(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DataError(f"{path}: it declares a DOCTYPE or an ENTITY, which no annotation needs; it is not read")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - no entities, see above
    except ElementTree.ParseError as error:
        raise DataError(f"{path}: broken XML ({error})") from None
    if root.tag != "annotation":
        raise DataError(f"{path}: it begins with <{root.tag[:40]}>, not with <annotation>, so it is none of VOC's")
    return root


def _instance(element: ElementTree.Element, first_pixel: int, where: str) -> Instance:
    x0, y0, x1, y1 = (_number(element, f"bndbox/{side}", where) for side in SIDES)
    difficult = element.findtext("difficult", default="0").strip()
    if difficult not in {"0", "1"}:
        raise DataError(f"{where}: <difficult> must be 0 or 1, not {difficult!r}")
    behind = 1 - first_pixel  # from the number of the last pixel to where the box ends
    box = checked_box(x0 - first_pixel, y0 - first_pixel, x1 + behind, y1 + behind, where)
    return Instance(box, difficult=difficult == "1")


def size_in(root: ElementTree.Element, where: str) -> tuple[int, int] | None:
    """Width and height of the picture; some programs leave them out, or write 0 when they do not know.

    Example:
        >>> size_in(ElementTree.fromstring("<annotation><size/></annotation>"), "a.xml") is None
        True
    """
    width, height = (root.findtext(f"size/{side}", default="0").strip() for side in ("width", "height"))
    return None if {width, height} <= {"0", ""} else size_of(width, height, where)


def _number(element: ElementTree.Element, tag: str, where: str) -> float:
    text = _text(element, tag, where)
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{where}: <{tag}> must be a number, not {text[:40]!r}") from None


def _text(element: ElementTree.Element, tag: str, where: str) -> str:
    text = (element.findtext(tag) or "").strip()
    if not text:
        raise DataError(f"{where}: <{tag}> is missing or empty")
    return text
