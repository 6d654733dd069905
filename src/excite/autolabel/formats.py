"""The formats of boxes: COCO, CSV, VOC, YOLO, Label Studio. A new one is a function here and a line in `FORMATS`."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from excite import __version__
from excite.autolabel.files import Content, resolved_parent
from excite.errors import DataError, ExciteError
from excite.images import PICTURE_SUFFIXES

if TYPE_CHECKING:
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
        file, objects = _file_name(one.picture), ""
        for found in one.boxes:
            x0, y0, x1, y1 = found.box
            named = {"name": escape(found.concept), "probability": repr(found.probability)}
            objects += OBJECT.format(**named, x0=x0 + 1, y0=y0 + 1, x1=x1, y1=y1)
        annotation = ANNOTATION.format(file=file, width=one.size[0], height=one.size[1], objects=objects)
        files[f"Annotations/{one.picture.stem}.xml"] = annotation.encode()
        files[f"JPEGImages/{file}"] = resolved_parent(one.picture.path)
    files["ImageSets/Main/trainval.txt"] = "".join(f"{one.picture.stem}\n" for one in document.pictures).encode()
    return files


def _file_name(picture: InputImage) -> str:
    """The name of the link to an image: readers expect .jpg where an image has no own suffix."""
    suffix = PurePosixPath(picture.name).suffix.lower()
    return f"{picture.stem}{suffix if suffix in PICTURE_SUFFIXES else '.jpg'}"


def yolo_files(document: Document) -> dict[str, Content]:
    """YOLO: for each image a line ``class x y width height`` a box, in shares of its sides, and last ``data.yaml``.

    A box is given by its centre, classes count from 0, and an image without a box has an empty file.
    """
    numbers = {name: k for k, name in enumerate(document.categories)}
    files: dict[str, Content] = {}
    for one in document.pictures:
        (width, height), lines = one.size, ""
        for found in one.boxes:
            x0, y0, x1, y1 = found.box
            sides = ((x0 + x1) / 2 / width, (y0 + y1) / 2 / height, (x1 - x0) / width, (y1 - y0) / height)
            lines += f"{numbers[found.concept]} {' '.join(f'{side:.6f}' for side in sides)}\n"
        files[f"labels/{one.picture.stem}.txt"] = lines.encode()
        files[f"images/{_file_name(one.picture)}"] = resolved_parent(one.picture.path)
    names = "".join(f"  {k}: {_yaml(name)}\n" for name, k in numbers.items())
    about = "# made by excite from image-level labels; the same images for val, which training programs demand\n"
    files["data.yaml"] = f"{about}train: images\nval: images\nnames:\n{names or '  {}'}".encode()
    return files


def _yaml(text: str) -> str:
    """The text in double quotes, with escapes for what YAML does not allow there."""
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in _json(text))


LABELS = """\
<View>
  <Image name="image" value="$image"/>
  <RectangleLabels name="label" toName="image">
{labels}  </RectangleLabels>
</View>
"""


def label_studio_files(document: Document) -> dict[str, Content]:
    """Label Studio: tasks with predictions, boxes in per cent of the image's sides, and the configuration of labels.

    The address of an image is that of a local file below the folder that holds the folder of all images.
    """
    tasks = []
    for one in document.pictures:
        names = PurePosixPath(one.picture.name).parts
        root = resolved_parent(one.picture.path).parents[len(names) - 1]
        address = quote(os.fsencode("/".join(filter(None, (root.name, *names)))))
        found = [_rectangle(found, one.size, f"{one.picture.stem}-{k}") for k, found in enumerate(one.boxes, 1)]
        prediction = {"model_version": f"excite {__version__}", "result": found}
        score = {"score": max((each.probability for each in one.boxes), default=0.0)}
        data = {"image": f"/data/local-files/?d={address}"}
        tasks.append({"data": data, "predictions": [{**prediction, **score}] if found else []})
    rows = ",".join(f"\n  {_json(task)}" for task in tasks)
    labels = "".join(f"    <Label value={quoteattr(name)}/>\n" for name in document.categories)
    return {"label-config.txt": LABELS.format(labels=labels).encode(), "tasks.json": f"[{rows}\n]\n".encode()}


def _rectangle(found: Detection, size: tuple[int, int], key: str) -> dict[str, Any]:
    """A box as a region of Label Studio."""
    (x0, y0, x1, y1), (width, height) = found.box, size
    sides = {"x": x0 / width, "y": y0 / height, "width": (x1 - x0) / width, "height": (y1 - y0) / height}
    return {
        "id": key,
        "type": "rectanglelabels",
        "from_name": "label",
        "to_name": "image",
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        "score": found.probability,
        "value": {**{side: 100 * share for side, share in sides.items()}, "rotation": 0}
        | {"rectanglelabels": [found.concept]},
    }


FORMATS: Mapping[str, Format] = {
    "coco": coco_files,
    "csv": csv_files,
    "voc": voc_files,
    "yolo": yolo_files,
    "label-studio": label_studio_files,
}
"""For each format the content of its files, by their names in the folder; files that name others come after them."""


def find_format(name: str) -> Format:
    """The format of this name."""
    if name not in FORMATS:
        raise DataError(f"there is no format {name!r}: use one of {', '.join(FORMATS)}")
    return FORMATS[name]


# The same for programs.


def to_supervision(found: Any, categories: Sequence[str] = ()) -> Any:
    """Boxes as ``supervision.Detections``, for its annotators, trackers and metrics; needs that package.

    Args:
        found: what `excite.locate` or `excite.ground` gives, one or all of it, or an `ImageDetections`. The confidence
            is the probability of the concept, or the score of the region.
        categories: their numbers are the ``class_id``; others follow in the order in which they appear. Names are in
            ``data["class_name"]``.

    Example:
        >>> to_supervision(excite.locate(classifier, "photo.jpg", ["dog", "cat"])).xyxy    # doctest: +SKIP
        array([[12., 30., 200., 180.]], dtype=float32)
    """
    try:
        detections = import_module("supervision").Detections
    except ImportError:
        raise ExciteError("supervision is not installed: pip install supervision") from None
    rows = list(_named_boxes(found))
    numbers = {name: k for k, name in enumerate(dict.fromkeys((*categories, *(name for name, _, _ in rows))))}
    return detections(
        xyxy=np.array([box for _, _, box in rows], np.float32).reshape(-1, 4),
        confidence=np.array([score for _, score, _ in rows], np.float32),
        class_id=np.array([numbers[name] for name, _, _ in rows], np.int64),
        data={"class_name": np.array([name for name, _, _ in rows], np.str_)},
    )


def _named_boxes(found: Any) -> Iterator[tuple[str, float, Sequence[float]]]:
    """The name, the confidence and the box of all that has one."""
    if isinstance(found, Iterable):
        for one in found:
            yield from _named_boxes(one)
    elif isinstance(found, ImageDetections):
        yield from _named_boxes(found.boxes)
    elif hasattr(found, "regions"):  # a phrase
        yield from ((found.phrase, region.score, region.box) for region in found.regions)
    elif found.box is not None:
        yield found.concept, found.probability, found.box
