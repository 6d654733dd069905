"""PASCAL VOC in its own layout, and the reader of its XML format, which ImageNet and others use too."""

import re
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from excite.datasets import base
from excite.datasets.base import Dataset, Instance, Sample
from excite.errors import ConceptError, DataError
from excite.vocabulary import Concept, Labels

LISTS = "ImageSets/Main/{}.txt"
FIRST_PIXEL = 1  # VOC counts from 1
SIDES = ("xmin", "ymin", "xmax", "ymax")
SPELLED_APART = {"diningtable": "dining table", "pottedplant": "potted plant", "tvmonitor": "tv monitor"}
CLASS_LIST = re.compile(r".+_(train|val|trainval|test)")  # the images that show one class


class Voc(Dataset):
    """Several kinds of objects an image, each with a box and perhaps flagged as difficult."""

    name = "voc"
    layout = f"{LISTS.format('SPLIT')}, Annotations/*.xml, JPEGImages/*.jpg"
    _split_file = LISTS

    def _splits(self) -> list[str]:
        return [name for name in super()._splits() if not CLASS_LIST.fullmatch(name)]

    def _read(self) -> list[str]:
        return base.read_names(self._split_path(), 1, "the name of one image")

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether there are lists of images and annotations."""
        return (folder / LISTS).parent.is_dir() and (folder / "Annotations").is_dir()

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """The categories of this split, in alphabetical order (which is VOC's own)."""
        found = set()
        for name in self.names:
            try:
                found |= {target.concept for target in self.sample(name).targets}
            except DataError:  # which `sample` reports in its turn
                continue
        return tuple(sorted(found))

    def sample(self, name: str) -> Sample:
        """An image and its objects, from its XML file."""
        objects, size = read_objects(self._annotation(name), FIRST_PIXEL)
        objects.sort(key=lambda each: each.name)
        return Sample(name, self._picture(name), base.group_targets(each[:2] for each in objects), size)

    def _annotation(self, name: str) -> Path:
        return base.image_path(self.folder / "Annotations", f"{name}.xml", LISTS.format(self.split))

    def _picture(self, name: str) -> Path:
        return base.image_with_stem(self.folder / "JPEGImages", name, LISTS.format(self.split))

    def concept(self, category: str, labels: Labels) -> Concept:
        """The concept of this name; VOC writes some words together that others write apart."""
        try:
            return super().concept(category, labels)
        except ConceptError:
            if category not in SPELLED_APART:
                raise
            return super().concept(SPELLED_APART[category], labels)


# The XML format.


class AnnotatedObject(NamedTuple):
    """An object with its category and its place in the annotations, for errors."""

    name: str
    instance: Instance
    where: str


def read_objects(path: Path, first_pixel: int) -> tuple[list[AnnotatedObject], tuple[int, int] | None]:
    """The objects of an image in the order of the file, and its annotated size, if any; pixels count from 0 or 1."""
    root = parse_annotation(path)
    found = []
    for number, element in enumerate(root.iterfind("object"), 1):
        where = f"{path}, object {number}"
        found.append(AnnotatedObject(_text(element, "name", where), _instance(element, first_pixel, where), where))
    return found, annotated_size(root, str(path))


def parse_annotation(path: Path) -> ElementTree.Element:
    """The root of an XML file without a DOCTYPE: an entity declared there may grow without end when it is read."""
    text = base.read_text(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DataError(f"{path}: it declares a DOCTYPE or an ENTITY, which no annotation needs; it is not read")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - no entities, see above
    except ElementTree.ParseError as error:
        raise DataError(f"{path}: broken XML ({error})") from None
    if root.tag != "annotation":
        raise DataError(f"{path}: it begins with <{root.tag[:40]}>, not with <annotation>, so it is none of VOC's")
    return root


def annotated_size(root: ElementTree.Element, where: str) -> tuple[int, int] | None:
    """Width and height of the image; some programs leave them out, or write 0 for unknown."""
    width, height = (root.findtext(f"size/{side}", default="0").strip() for side in ("width", "height"))
    return None if {width, height} <= {"0", ""} else base.parse_size(width, height, where)


def _instance(element: ElementTree.Element, first_pixel: int, where: str) -> Instance:
    x0, y0, x1, y1 = (_number(element, f"bndbox/{side}", where) for side in SIDES)
    difficult = element.findtext("difficult", default="0").strip()
    if difficult not in {"0", "1"}:
        raise DataError(f"{where}: <difficult> must be 0 or 1, not {difficult!r}")
    behind = 1 - first_pixel  # from the number of the last pixel, which is included, to the end of the box
    corners = x0 - first_pixel, y0 - first_pixel, x1 + behind, y1 + behind
    return Instance(base.checked_box(*corners, where, inside=not first_pixel), difficult=difficult == "1")


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
