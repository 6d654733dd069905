"""Readers of boxes that share no code with their writers, and a run that can be killed."""

import csv
import json
import os
import signal
import sys
from contextlib import redirect_stdout
from io import StringIO
from itertools import count
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from xml.dom import minidom

import yaml
from annotated import colour_classifier
from PIL import Image
from processes import results
from pycocotools.coco import COCO

from excite.autolabel import AutoLabeler, BoxQuery, files
from excite.io.files import atomic_write

COLUMNS = "image width height concept probability x0 y0 x1 y1".split()


def make(photos, out, kind, concepts, killed_at=None):
    """A whole run; perhaps in a process that is killed at its n-th step on the disk."""
    if killed_at is not None:
        kill_at(killed_at)
    question = BoxQuery(tuple(concepts))
    return AutoLabeler(colour_classifier(), [str(photos)], Path(out), question, kind).write()


def kill_at(number):
    """Kill this process before its n-th change of anything on the disk, or when the n-th change is half done."""
    changes = {"os.mkdir", "os.remove", "os.rename", "os.symlink"}
    steps = count(1)

    def step():
        if next(steps) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def progress(event, arguments):
        if event in changes or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            step()

    def save_in_halves(content, path):
        def write(file):
            half = len(content) // 2
            file.write(content[:half])
            file.flush()
            step()
            file.write(content[half:])

        return atomic_write(path, write)

    files.save_bytes = save_in_halves
    sys.addaudithook(progress)


def read_coco(out):
    """For each image its size and boxes, as COCO's own program sees them."""
    with redirect_stdout(StringIO()):
        coco = COCO(str(out / "boxes.json"))
    assert len(set(coco.getAnnIds())) == len(coco.dataset["annotations"])
    read = {}
    for image in coco.loadImgs(coco.getImgIds()):
        boxes = []
        for entry in coco.loadAnns(coco.getAnnIds(image["id"])):
            (category,) = coco.loadCats(entry["category_id"])
            x, y, width, height = entry["bbox"]
            assert all(isinstance(side, int) for side in entry["bbox"])
            assert entry["area"] == width * height
            boxes.append((category["name"], entry["score"], (x, y, x + width, y + height)))
        read[image["file_name"]] = ((image["width"], image["height"]), sorted(boxes))
    return read


def read_csv(out):
    """The same from the table; an image without a box is not in it."""
    read = {}
    with (out / "boxes.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        assert next(rows) == COLUMNS
        for row in rows:
            image, width, height, concept, probability, *box = row
            _, boxes = read.setdefault(image, ((int(width), int(height)), []))
            boxes.append((concept, float(probability), tuple(map(int, box))))
    return {image: (size, sorted(boxes)) for image, (size, boxes) in read.items()}


def read_voc(out):
    """The same from XML files, by the images behind the links."""
    read = {}
    for name in (out / "ImageSets/Main/trainval.txt").read_text(encoding="utf-8").split():
        root = minidom.parse(str(out / "Annotations" / f"{name}.xml")).documentElement  # noqa: S318 - our own
        size = tuple(int(_text(root, side)) for side in ("width", "height"))
        path = out / _text(root, "folder") / _text(root, "filename")
        boxes = []
        for entry in root.getElementsByTagName("object"):
            x0, y0, x1, y1 = (int(_text(entry, side)) for side in ("xmin", "ymin", "xmax", "ymax"))
            boxes.append((_text(entry, "name"), float(_text(entry, "probability")), (x0 - 1, y0 - 1, x1, y1)))
        with Image.open(path) as picture:
            picture.verify()
        read[path.resolve()] = (size, sorted(boxes))
    return read


def read_yolo(out):
    """The same from lines of numbers, by the images behind the links; the probability is not in them."""
    about = yaml.safe_load((out / "data.yaml").read_text(encoding="utf-8"))
    assert about["train"] == about["val"] == "images"
    read = {}
    for path in sorted((out / about["train"]).glob("[!.]*")):  # none before the first image is done
        with Image.open(path) as picture:
            width, height = SIZES.get(path.resolve(), picture.size)
        boxes = []
        for line in (out / "labels" / f"{path.stem}.txt").read_text().splitlines():
            number, *shares = line.split()
            x, y, wide, high = map(float, shares)
            assert all(0 <= share <= 1 for share in (x, y, wide, high))
            sides = ((x - wide / 2) * width, (y - high / 2) * height, (x + wide / 2) * width, (y + high / 2) * height)
            boxes.append((about["names"][int(number)], tuple(map(round, sides))))
        read[path.resolve()] = ((width, height), sorted(boxes))
    return read


SIZES = {}  # of images whose documents say otherwise than their files


def read_label_studio(out):
    """The same from tasks, by the files that a server of the folder above gives; names are those it configures."""
    config = minidom.parse(str(out / "label-config.txt")).documentElement  # noqa: S318 - our own
    (control,) = config.getElementsByTagName("RectangleLabels")
    (shown,) = config.getElementsByTagName("Image")
    known = {label.getAttribute("value") for label in control.getElementsByTagName("Label")}
    read, keys = {}, []
    for task in json.loads((out / "tasks.json").read_text(encoding="utf-8")):
        address = urlsplit(task["data"][shown.getAttribute("value").removeprefix("$")])
        assert address.path == "/data/local-files/"
        (name,) = parse_qs(address.query, strict_parsing=True, errors="surrogateescape")["d"]
        size, boxes = None, []
        for region in (region for one in task["predictions"] for region in one["result"]):
            assert (region["from_name"], region["to_name"]) == (
                control.getAttribute("name"),
                shown.getAttribute("name"),
            )
            assert region["type"] == "rectanglelabels"
            size, value = (region["original_width"], region["original_height"]), region["value"]
            x, y, wide, high = (value[side] / 100 for side in ("x", "y", "width", "height"))
            sides = (x * size[0], y * size[1], (x + wide) * size[0], (y + high) * size[1])
            (label,) = value["rectanglelabels"]
            assert label in known
            boxes.append((label, region["score"], tuple(map(round, sides))))
            keys.append(region["id"])
        read[(out.absolute().parent / name).resolve()] = (size, sorted(boxes))
    assert len(set(keys)) == len(keys)
    return read


READERS = {
    "coco": read_coco,
    "csv": read_csv,
    "voc": read_voc,
    "yolo": read_yolo,
    "label-studio": read_label_studio,
}


def tree(folder, without=("records.jsonl", "written.jsonl")):
    """All files of a folder: what is in them, or where they lead."""
    return {
        path.relative_to(folder).as_posix(): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() and path.name not in without
    }


def records(out):
    """The records, also of a run that was killed."""
    return results(out / "records.jsonl")


def _text(element, tag):
    return "".join(node.data for node in element.getElementsByTagName(tag)[0].childNodes)
