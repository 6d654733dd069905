"""Tiny data sets in the formats that excite reads, coloured squares on black, and a classifier that knows them."""

import json

import torch
from PIL import Image
from torch import nn

from excite.models import wrap
from excite.models.classifier import Preprocess

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
SIDE = 48


def colour_classifier():
    """Sees how red and how green each place is (layer "1"), then each quarter of the image (layer "2")."""
    net = nn.Sequential(
        nn.Conv2d(3, 2, 1, bias=False),
        nn.ReLU(),
        nn.AvgPool2d(SIDE // 4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2, 2),
    )
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(3)[:2, :, None, None])
        net[5].weight.copy_(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
        net[5].bias.zero_()
    preprocess = Preprocess(shorter_side=SIDE // 2, mean=0, scale=1 / 255, interpolation="bilinear")
    return wrap(net.eval(), labels=["red", "green"], preprocess=preprocess, name="colours")


def picture(path, squares):
    """Draw squares, each a colour and a half-open box, and save them without loss whatever the name ends in."""
    drawn = Image.new("RGB", (SIDE, SIDE))
    for colour, box in squares:
        drawn.paste(COLOURS[colour], box)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.save(path, format="PNG")


def scenes(count):
    """Names and squares: a red or green one each, small and off the centres of quarters; some with both."""
    for k in range(count):
        x, y = 4 * (k % 3), 4 * (k % 4)
        squares = [("red" if k % 2 else "green", (x, y, x + 8, y + 8))]
        if k % 3 == 0:
            squares.append(("green" if k % 2 else "red", (36, 36, 44, 44)))
        yield f"{k:06}", squares


def annotate(folder, name, *objects):
    """Give an image of VOC's layout other objects."""
    (folder / f"Annotations/{name}.xml").write_text(f"<annotation>{''.join(objects)}</annotation>")


def voc_object(name, box, difficult=0):
    """An object in VOC's XML: its pixels are counted from 1, the last one included."""
    sides = zip(("xmin", "ymin", "xmax", "ymax"), (box[0] + 1, box[1] + 1, box[2], box[3]), strict=True)
    corners = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
    return f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{corners}</bndbox></object>"


def make_voc(folder, pictures, split="val"):
    """VOC's layout; images are names with squares."""
    (folder / "Annotations").mkdir(parents=True)
    (folder / "ImageSets/Main").mkdir(parents=True)
    names = []
    for name, squares in pictures:
        names.append(name)
        picture(folder / "JPEGImages" / f"{name}.jpg", squares)
        objects = "".join(voc_object(colour, box) for colour, box in squares)
        (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{objects}</annotation>")
    (folder / "ImageSets/Main" / f"{split}.txt").write_text("".join(f"{name}\n" for name in names))
    return folder


def make_imagenet(folder, pictures, words):
    """The challenge's layout; images are names with squares, of which the first says the class."""
    numbers = {word: f"n{k:08}" for k, word in enumerate(words)}
    lines = ["ImageId,PredictionString"]
    for name, squares in pictures:
        picture(folder / "val" / f"{name}.JPEG", squares)
        colour, box = squares[0]
        lines.append(f"{name},{numbers[colour]} {box[0]} {box[1]} {box[2] - 1} {box[3] - 1} ")
    (folder / "LOC_val_solution.csv").write_text("\n".join(lines) + "\n")
    (folder / "LOC_synset_mapping.txt").write_text("".join(f"{wnid} {word}\n" for word, wnid in numbers.items()))
    return folder


def imagenet_xml(objects, size=(SIDE, SIDE)):
    """A file of ImageNet's XML: its pixels are counted from 0, the last one included."""
    text = f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size><segmented>0</segmented>"
    for wnid, (x0, y0, x1, y1) in objects:
        sides = zip(("xmin", "ymin", "xmax", "ymax"), (x0, y0, x1 - 1, y1 - 1), strict=True)
        corners = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
        text += f"<object><name>{wnid}</name><difficult>0</difficult><bndbox>{corners}</bndbox></object>"
    source = "<folder>val</folder><filename>%s</filename><source><database>ILSVRC_2012</database></source>"
    return f"<annotation>{source}{text}</annotation>"


def write_imagenet_xml(folder, pictures, wnids):
    """ImageNet's XML files without its images; squares of a colour are objects of its class."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, squares in pictures:
        objects = [(wnids[colour], box) for colour, box in squares]
        (folder / f"{name}.xml").write_text(imagenet_xml(objects))
    return folder


def coco_content(pictures, categories):
    """What an instances file holds, for images of names and squares."""
    numbers = {name: 10 * k for k, name in enumerate(categories, 1)}
    images, annotations = [], []
    for k, (name, squares) in enumerate(pictures, 1):
        images.append({"id": 100 - k, "file_name": f"{name}.jpg", "width": SIDE, "height": SIDE})
        for colour, (x0, y0, x1, y1) in squares:
            box = [x0, y0, x1 - x0, y1 - y0]
            annotations.append({"image_id": 100 - k, "category_id": numbers[colour], "bbox": box, "iscrowd": 0})
    return {
        "categories": [{"id": number, "name": name} for name, number in reversed(numbers.items())],
        "images": images,
        "annotations": annotations,
    }


def write_coco(folder, content, split="val2017"):
    """COCO's layout without its images."""
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    return folder


WSOL_ONE, WSOL_TWO, WSOL_SECOND = (
    "val/ILSVRC2012_val_00000001.JPEG",
    "val/ILSVRC2012_val_00000002.JPEG",
    "val2/0/0.jpeg",
)


def write_wsol(folder, **changed):
    """The lists of MaxBoxAcc, without their images; changed are the lines of a list."""
    lists = {
        "test/image_ids": f"{WSOL_ONE}\n{WSOL_TWO}",
        "test/class_labels": f"{WSOL_ONE},65\n{WSOL_TWO},970",
        "test/localization": f"{WSOL_ONE},0,8,47,19\n{WSOL_TWO},5,9,9,12\n{WSOL_TWO},2,9,37,20",
        "test/image_sizes": f"{WSOL_ONE},48,48\n{WSOL_TWO},48,48",
        "val/image_ids": WSOL_SECOND,
        "val/class_labels": f"{WSOL_SECOND},0",
        "val/localization": f"{WSOL_SECOND},1,2,3,4",
    }
    for name, lines in (lists | {f"test/{name}": lines for name, lines in changed.items()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.txt").write_text(f"{lines}\n")
    return folder
