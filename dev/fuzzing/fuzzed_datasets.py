"""Readers of annotated images: objects and their boxes, lists of images, tables, masks."""

import json

from annotated import (
    SIDE,
    coco_content,
    imagenet_xml,
    make_imagenet,
    make_voc,
    picture,
    scenes,
    voc_object,
    write_coco,
    write_imagenet_xml,
)
from fuzzed import Reader

from excite.datasets import open_dataset
from excite.datasets.difficult import read_difficult_list
from excite.training.examples import read_examples

__all__ = ["READERS", "whole"]

SCENES = list(scenes(4))
WNIDS = {"red": "n01440764", "green": "n01443537"}
COLOURS = ["red", "green"]
ONE, TWO = "val/ILSVRC2012_val_00000001.JPEG", "val/ILSVRC2012_val_00000002.JPEG"
LISTS = {
    "image_ids": f"{ONE}\n{TWO}\n",
    "class_labels": f"{ONE},65\n{TWO},970\n",
    "localization": f"{ONE},0,8,47,19\n{TWO},5,9,9,12\n{TWO},2,9,37,20\n",
    "image_sizes": f"{ONE},48,48\n{TWO},48,48\n",
}
ENTITIES = "".join(f'<!ENTITY e{k} "{f"&e{k - 1};" * 10}">' for k in range(1, 12))
XML_TOKENS = (
    *b"<object> </object> <bndbox> <xmin>".split(),
    b"<!DOCTYPE a>",
    *b"<!ENTITY &#0; &lt; <![CDATA[ ]]>".split(),
)
JSON_TOKENS = tuple(b'"segmentation" "counts" "size" "bbox" null true [[ ]] { } "\\ud800"'.split())


def whole(dataset):
    """Everything that is known about every image; the areas decode the masks."""
    for sample in dataset:
        size = sample.size or (SIDE, SIDE)
        for target in sample.targets:
            target.area(size)
            for instance in target.instances:
                if instance.mask is not None and sample.size:
                    instance.mask.pixels(size)
    return dataset.categories


def _voc(folder):
    make_voc(folder / "set", SCENES)


def _voc_xml():
    parts = "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox></part>"
    size = f"<size><width>{SIDE}</width><height>{SIDE}</height><depth>3</depth></size>"
    objects = voc_object("red", (1, 2, 30, 40)) + voc_object("green", (0, 0, 4, 4), 1)
    return [
        f"<annotation><filename>a.jpg</filename>{size}{objects}{parts}</annotation>".encode(),
        f"<annotation>{voc_object('red', (1.5, 2.5, 30, 40))}</annotation>".encode(),
    ]


def _xml_bombs():
    laughs = f'<!DOCTYPE annotation [<!ENTITY e0 "ha">{ENTITIES}]><annotation>&e11;</annotation>'
    quadratic = f'<!DOCTYPE a [<!ENTITY e "{"x" * 50_000}">]><annotation>{"&e;" * 50_000}</annotation>'
    outside = '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><annotation><object><name>&e;</name></object></annotation>'
    deep = "<annotation>" + "<object>" * 90_000
    wide = "<annotation>" + "<object/>" * 90_000 + "</annotation>"
    attributes = "<annotation " + " ".join(f'a{k}="1"' for k in range(20_000)) + "/>"
    return [text.encode(code) for text in (laughs, quadratic, outside) for code in ("utf-8", "utf-16")] + [
        text.encode() for text in (deep, wide, attributes)
    ]


def _masked():
    content = coco_content(SCENES, COLOURS)
    runs = {"size": [SIDE, SIDE], "counts": [10, 20, SIDE * SIDE - 30]}
    packed = {"size": [SIDE, SIDE], "counts": "S66Z100000000000000000000000000000mY1"}
    polygon = [[1, 1, 30, 1, 30, 30, 1, 30], [2.5, 2.5, 9, 2, 9, 9]]
    for entry, mask in zip(content["annotations"], (runs, polygon, packed, [], polygon, runs), strict=False):
        entry["segmentation"], entry["area"] = mask, 12.5
    return content


def _instances():
    lean = {**_masked(), "info": {"year": 2017}}
    return [json.dumps(lean).encode(), json.dumps(coco_content(SCENES[:2], COLOURS)).encode()]


def _one_mask():
    """Files that are hardly more than a mask: it is met more often."""
    content = {
        "categories": [{"id": 1, "name": "red"}],
        "images": [{"id": 1, "file_name": "a.jpg", "width": 6, "height": 5}],
    }
    masks = (
        {"size": [5, 6], "counts": ";230004"},
        {"size": [5, 6], "counts": [3, 4, 23]},
        [[1, 1, 4, 1, 4, 4]],
        [[1, 1, 4, 1, 4, 4], [0, 0, 5.5, 0, 5.5, 3, 1, 2]],
    )
    box = [0, 0, 3, 3]
    return [
        json.dumps(
            {**content, "annotations": [{"image_id": 1, "category_id": 1, "bbox": box, "segmentation": mask}]}
        ).encode()
        for mask in masks
    ]


def _json_bombs():
    image = {"id": 1, "file_name": "a.jpg", "width": 31_000, "height": 31_000}
    content = {"categories": [{"id": 1, "name": "red"}], "images": [image]}
    entry = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 3, 3]}
    masks = (
        {"size": [31_000, 31_000], "counts": [0, 31_000**2]},
        [[0, 0, 31_000, 0, 31_000, 31_000]],
        [[0, 0, 1e6, 1e6, -1e6, 1e6]],
    )
    large = [{**content, "annotations": [{**entry, "segmentation": mask}]} for mask in masks]
    return [
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"images": ' + b"9" * 200_000 + b"}",
        b'"' + b"\\ud800" * 10_000 + b'"',
    ] + [json.dumps(one).encode() for one in large]


def _coco(folder):
    write_coco(folder / "set", coco_content(SCENES, COLOURS))
    for name, squares in SCENES:
        picture(folder / "set/val2017" / f"{name}.jpg", squares)


def _imagenet(folder):
    make_imagenet(folder / "set", [(f"ILSVRC2012_val_{name}", squares) for name, squares in SCENES], COLOURS)


def _imagenet_table():
    rows = ("000000,n00000000 1 2 9 9 n00000001 0 0 4 4", "000001,n00000001 3 3 5 7")
    return ["\n".join(["ImageId,PredictionString", *(f"ILSVRC2012_val_{row}" for row in rows), ""]).encode()]


def _imagenet_of_xml(folder):
    named = [(f"ILSVRC2012_val_{name}", squares) for name, squares in SCENES]
    write_imagenet_xml(folder / "set/ILSVRC/Annotations/CLS-LOC/val", named, WNIDS)
    lists = folder / "set/ILSVRC/ImageSets/CLS-LOC"
    lists.mkdir(parents=True, exist_ok=True)
    (lists / "val.txt").write_text("".join(f"{name} {k}\n" for k, (name, _) in enumerate(named, 1)))


def _wsol(folder):
    lists = folder / "set/test"
    lists.mkdir(parents=True, exist_ok=True)
    for name, text in LISTS.items():
        (lists / f"{name}.txt").write_text(text)
    for name in (ONE, TWO):
        picture(folder / "set" / name, [])


def _own(folder):
    for name, squares in SCENES:
        picture(folder / "set/photos" / f"{name}.jpg", squares)


def _own_table():
    return [
        b"image,concept,x0,y0,x1,y1\n000000.jpg,red,1,2,9,9\n000001.jpg,green,0,0,4,4.5\n000002.jpg,,,,,\n",
        b'width,height,image,concept,x0,y0,x1,y1\n48,48,000000.jpg,"a, b",1,2,9,9\n48,48,000001.jpg,green,0,0,4,4\n',
    ]


def _difficult(folder):
    return read_difficult_list(folder / "difficult.txt", open_dataset(folder / "set", "val"))


def _of(split, opener=open_dataset):
    return lambda folder: whole(opener(folder / "set", split))


def _set(name, file, read, seeds, around, form, **more):
    entry = more.pop("entry", "excite.datasets.open_dataset")
    tokens = more.pop("tokens", {"xml": XML_TOKENS, "json": JSON_TOKENS, "json lines": JSON_TOKENS}.get(form, ()))
    return Reader(name, entry, file, read, seeds, form, tokens, around, **more)


def _texts(*texts):
    return lambda: [text.encode() for text in texts]


XML_OF_IMAGENET = imagenet_xml([("n01440764", (1, 2, 30, 40)), ("n01443537", (0, 0, 9, 9))])
LABELS_ONLY = '{"file": "a.jpg", "labels": ["cat"]}\n{"file": "b/c.jpg", "labels": ["dog", "cat"]}\n'
ANNOTATED_XML = "set/ILSVRC/Annotations/CLS-LOC/val/ILSVRC2012_val_000001.xml"
WORDS = "n00000000 tench, Tinca tinca\nn00000001 goldfish\n"
FLAGS = ("000000 1 0\n000001 0 1\n", "000000,red\n000001\tgreen\n", '{"red": ["000000"], "green": [1]}')

READERS = (
    _set("VOC XML", "set/Annotations/000001.xml", _of("val"), _voc_xml, _voc, "xml", hostile=_xml_bombs),
    _set("VOC list", "set/ImageSets/Main/val.txt", _of("val"), _texts("000000\n000001\n\n000002\n"), _voc, "words"),
    _set(
        "COCO instances",
        "set/annotations/instances_val2017.json",
        _of("val2017"),
        _instances,
        _coco,
        "json",
        hostile=_json_bombs,
    ),
    _set("COCO masks", "set/annotations/instances_val2017.json", _of("val2017"), _one_mask, _coco, "json"),
    _set("ImageNet table", "set/LOC_val_solution.csv", _of("val"), _imagenet_table, _imagenet, "csv"),
    _set("ImageNet words", "set/LOC_synset_mapping.txt", _of("val"), _texts(WORDS), _imagenet, "words"),
    _set(
        "ImageNet XML", ANNOTATED_XML, _of("val"), _texts(XML_OF_IMAGENET), _imagenet_of_xml, "xml", hostile=_xml_bombs
    ),
    _set(
        "ImageNet list",
        "set/ILSVRC/ImageSets/CLS-LOC/val.txt",
        _of("val"),
        _texts("ILSVRC2012_val_000000 1\nn01440764/ILSVRC2012_val_000001 2\n"),
        _imagenet_of_xml,
        "words",
    ),
    *(
        _set(f"WSOL {name}", f"set/test/{name}.txt", _of("test"), _texts(LISTS[name]), _wsol, "csv")
        for name in ("image_ids", "class_labels", "localization", "image_sizes")
    ),
    _set("own CSV", "set/boxes.csv", _of("all"), _own_table, _own, "csv"),
    _set("own JSON", "set/mine.json", _of("mine"), _instances, _own, "json", hostile=_json_bombs),
    _set("own XML", "set/000001.xml", _of("all"), _voc_xml, _own, "xml", hostile=_xml_bombs),
    _set(
        "difficult list",
        "difficult.txt",
        _difficult,
        _texts(*FLAGS),
        _voc,
        "words",
        entry="excite.datasets.difficult.read_difficult_list",
    ),
    _set(
        "labels only",
        "set/annotations/labels_train.jsonl",
        lambda folder: read_examples(folder / "set", "train"),
        _texts(LABELS_ONLY),
        lambda folder: None,
        "json lines",
        entry="excite.training.examples.read_examples",
    ),
)
