"""Broken annotations in all formats: the error is one line that names the file and the place."""

from math import inf, nan

import pytest
from annotated import (
    SIDE,
    WSOL_ONE,
    coco_content,
    imagenet_xml,
    make_imagenet,
    make_voc,
    picture,
    scenes,
    voc_object,
    write_coco,
    write_imagenet_xml,
    write_wsol,
)

from excite.datasets import open_dataset
from excite.errors import DataError

COLUMNS = "image,width,height,concept,probability,x0,y0,x1,y1"
RUNS = {"size": [SIDE, SIDE], "counts": [10, 20, SIDE * SIDE - 30]}
BOMB = '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><annotation>&b;</annotation>'


def voc(folder, text):
    """The file of one image; text that is no annotation is put into one."""
    make_voc(folder, scenes(1))
    content = text if isinstance(text, bytes) else f"<annotation>{text}</annotation>".encode()
    (folder / "Annotations/000000.xml").write_bytes(content)


def table(folder, lines):
    make_imagenet(folder, [], ["red", "green"])
    (folder / "LOC_val_solution.csv").write_text(f"ImageId,PredictionString\n{lines}\n")


def xml(folder, text):
    write_imagenet_xml(folder / "val", [("ILSVRC2012_val_00000001", [])], {})
    (folder / "val/ILSVRC2012_val_00000001.xml").write_text(text)


def wsol(folder, lists):
    write_wsol(folder, **lists)


def csv(folder, lines, columns=COLUMNS):
    picture(folder / "a.png", [])
    (folder / "boxes.csv").write_text(f"{columns}\n{lines}\n")


def coco(folder, change):
    part, place, fields = change
    content = coco_content(scenes(3), ["red", "green"])
    content[part][place] |= fields
    write_coco(folder, content)


def files(folder, changed):
    """Files of data sets side by side, which are not broken otherwise."""
    make_voc(folder / "voc", scenes(1))
    make_imagenet(folder / "imagenet", scenes(1), ["red", "green"])
    write_coco(folder / "coco", {})
    picture(folder / "own/a.png", [])
    ((name, text),) = changed.items()
    (folder / name).write_text(text)


WHERE = {
    voc: r"000000\.xml",
    table: r"LOC_val_solution\.csv, line 2",
    xml: r"ILSVRC2012_val_00000001\.xml",
    csv: r"boxes\.csv, line 2",
    coco: r"instances_val2017\.json",
}
WITH_BOX = {
    voc: lambda *box: voc_object("cat", box),
    table: lambda x0, y0, x1, y1: f"a,n00000000 {x0} {y0} {x1} {y1}",
    xml: lambda *box: imagenet_xml([("n01440764", box)]),
    wsol: lambda *box: {"localization": ",".join(map(str, (WSOL_ONE, *box)))},
    csv: lambda *box: ",".join(map(str, ("a.png,48,48,cat,0.5", *box))),
    coco: lambda x0, y0, x1, y1: ("annotations", 1, {"bbox": [x0, y0, x1 - x0, y1 - y0]}),
}
BOXES = [
    (write, told(*box), said)
    for write, told in WITH_BOX.items()
    for box, said in (
        ((9, 2, 3, 4), "is no box"),
        ((nan, 2, 3, 4), "is no box"),
        ((1, 2, inf, 4), "is no box"),
        ((-1, 2, 3, 4), "begins outside of the image"),
    )
    if box[0] != -1 or write not in {voc, coco}
]
ONE_IMAGE = [
    *BOXES,
    (voc, "<object></object>", "object 1: <name> is missing"),
    (voc, voc_object("a", (0, 0, 4, 4)) + "<object><name>b</name></object>", "object 2: <bndbox/xmin> is missing"),
    (voc, voc_object("cat", (4, 4, 4, 4)).replace("<xmin>5", "<xmin>five"), "must be a number, not 'five'"),
    (voc, voc_object("cat", (0, 0, 4, 4), "maybe"), "<difficult> must be 0 or 1, not 'maybe'"),
    (voc, "<object>", "broken XML .*line 1"),
    (voc, "</annotation><svg/><annotation>", "broken XML"),
    (voc, b"<svg/>", "it begins with <svg>"),
    (voc, BOMB.encode(), "it declares a DOCTYPE"),
    (voc, BOMB.encode("utf-8-sig"), "it declares a DOCTYPE"),
    (voc, f'<?xml version="1.0" encoding="utf-16"?>{BOMB}'.encode("utf-16"), "no UTF-8 text"),
    *(
        (voc, f"<size><width>{width}</width><height>{height}</height></size>", "is no size of an image")
        for width, height in ((500, 0), ("wide", 375), (-5, 375), (10**6, 10**6))
    ),
    (table, "a,n00000000 1 2 3", "a class and four numbers"),
    (table, "a,", "a class and four numbers"),
    (table, "a,n00000000 1 2 3 four", "the corners of a box must be numbers"),
    (table, "a,n09999999 1 2 3 4", "'n09999999' is no class"),
    (xml, "", "broken XML"),
    (xml, imagenet_xml([("Scottish_deerhound", (0, 0, 4, 4))]), "object 1: 'Scottish_deerhound' is no class of Image"),
    (xml, imagenet_xml([], size=("9" * 5000, 375)), "'99999999999999999999' x 375 is no size"),
    (wsol, {"localization": f"{WSOL_ONE},a,8,9,14"}, r"localization\.txt, line 1: the corners of a box must be num"),
    (wsol, {"class_labels": f"{WSOL_ONE},1000"}, r"class_labels\.txt, line 1: .* must be 0 to 999, not '1000'"),
    (wsol, {"class_labels": f"{WSOL_ONE},snake"}, r"class_labels\.txt, line 1: .* must be 0 to 999, not 'snake'"),
    (wsol, {"class_labels": "val2/0/0.jpeg,1"}, r"class_labels\.txt: one line about 'val/.*1\.JPEG' .* there are 0"),
    (wsol, {"image_sizes": f"{WSOL_ONE},48,tall"}, r"image_sizes\.txt, line 1: 48 x 'tall' is no size"),
    (csv, "a.png,48,48,cat,0.5,1,2,,4", "the corners of a box must be numbers"),
    (csv, "a.png,48,48,cat,0.5,left,2,3,4", "the corners of a box must be numbers, not 'left 2 3 4'"),
    (csv, "a.png,48,48,,0.5,1,2,3,4", "the concept is missing"),
    (csv, "a.png,48,,cat,0.5,1,2,3,4", "48 x '' is no size of an image"),
    (csv, "a.png,0,48,cat,0.5,1,2,3,4", "'0' x 48 is no size of an image"),
    (coco, ("annotations", 1, {"bbox": [1, 2, 3]}), r"annotations\[1\]: the bbox must be four numbers"),
    (coco, ("annotations", 1, {"bbox": [1, 2, 3, "4"]}), r"annotations\[1\]: the bbox must be four numbers"),
    (coco, ("annotations", 0, {"bbox": None}), r"annotations\[0\]: the bbox must be four numbers, not None"),
    (coco, ("annotations", 1, {"bbox": [1, 2, 10**400, 4]}), r"annotations\[1\]: .* is no box"),
    (coco, ("annotations", 0, {"category_id": 7}), r"annotations\[0\]: its category_id 7 is missing or not in"),
    (coco, ("annotations", 0, {"category_id": None}), "its category_id None is missing or not in"),
    (coco, ("annotations", 0, {"segmentation": [[1, 1, 2, 2]]}), r"annotations\[0\]: .*three corners"),
    (coco, ("annotations", 0, {"segmentation": {**RUNS, "size": [SIDE, 49]}, "iscrowd": 1}), "for an image of"),
    (coco, ("annotations", 0, {"segmentation": {**RUNS, "counts": [1]}}), "cover 1 pixels"),
    (coco, ("annotations", 0, {"segmentation": "a cat"}), "must be polygons"),
    *((coco, ("annotations", 0, {"area": area}), "the area must be a number") for area in ("big", -1, nan, 10**400)),
    *(
        (coco, ("images", 0, {"width": side}), "the image with id 99: .* is no size of an image")
        for side in (None, 0, -3, "48", 48.5, 10**9)
    ),
]
WHOLE_FILE = [
    (table, "a", "two columns"),
    (table, "a,n00000000 1 2 3 4\na,n00000000 1 2 3 4", "line 3: two columns and a new image"),
    (files, {"imagenet/LOC_val_solution.csv": "a,n00000000 1 2 3 4"}, r"csv, line 1: the columns must be"),
    (files, {"imagenet/LOC_synset_mapping.txt": "n00000000 red\ngreen"}, r"mapping\.txt, line 2: a WordNet number"),
    (files, {"voc/ImageSets/Main/val.txt": "000001\n000002 1\n"}, r"val\.txt, line 2: the name of one image"),
    (wsol, {"localization": f"{WSOL_ONE},1,2,3"}, r"localization\.txt, line 1: 5 columns were expected, not 4"),
    (wsol, {"class_labels": WSOL_ONE}, r"class_labels\.txt, line 1: 2 columns were expected, not 1"),
    (wsol, {"image_ids": "001.Albatross/1.jpg"}, r"image_ids\.txt, line 1: '001.* is no image of ImageNet"),
    (wsol, {"localization": "val/0bt_c3/1.jpg,a.png,b.png"}, "line 1: .* is no image of ImageNet"),
    (wsol, {"image_ids": "../val/ILSVRC2012_val_00000001.JPEG"}, "is no image of ImageNet"),
    (csv, "a.png,cat,1,2,3,4", "6 columns, but the first line names 9"),
    (csv, ",48,48,cat,0.5,1,2,3,4", "the name of an image is missing"),
    (files, {"own/boxes.csv": COLUMNS}, "lists no images"),
    (files, {"own/boxes.csv": f'{COLUMNS}\n"{"x" * 200_000}'}, r"line \d: field larger"),
    (files, {"own/boxes.csv": "image,concept,x0,y0,x1"}, "line 1: the columns image,concept,x0,y0,x1,y1 .* and y1 is"),
    (files, {"own/boxes.csv": ""}, "line 1: .* and image,concept,x0,y0,x1,y1 is not there"),
    (files, {"own/boxes.csv": f"{COLUMNS},x0"}, "line 1: the column 'x0' is there twice"),
    (
        files,
        {"own/package.json": '{"name": "x"}'},
        r"package\.json: it has no list 'categories', so it is no instances",
    ),
    *(
        (files, {"coco/annotations/instances_val2017.json": text}, r"instances_val2017\.json: (broken JSON|it )")
        for text in ("{", "[1]", '{"images": 3}', "[" * 100_000, f'{{"images": [{"1" * 5000}]}}')
    ),
    (coco, ("annotations", 0, {"image_id": 7}), r"annotations\[0\]: its image is not in this file"),
    (coco, ("annotations", 0, {"image_id": None}), r"annotations\[0\]: 'image_id' is missing or no int"),
    (coco, ("categories", 0, {"name": "red"}), "several categories have the same name"),
    (coco, ("categories", 0, {"name": None}), r"categories\[0\]: 'name'"),
    (coco, ("images", 2, {"file_name": 3}), r"images\[2\]: 'file_name' is missing or no str"),
    (coco, ("images", 2, {"file_name": "000000.jpg"}), "several images have the same file_name"),
    (coco, ("images", 2, {"id": 99}), "several images have the same id"),
]


@pytest.mark.parametrize(("write", "damage", "said"), ONE_IMAGE)
def test_one_image(tmp_path, write, damage, said):
    """The data set opens, so that only this image is left out."""
    write(tmp_path, damage)
    dataset = open_dataset(tmp_path, "test" if write is wsol else None)
    with pytest.raises(DataError, match=f"{WHERE.get(write, '')}.*{said}") as raised:
        list(dataset)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("write", "damage", "said"), WHOLE_FILE)
def test_the_whole_file(tmp_path, write, damage, said):
    write(tmp_path, damage)
    place = next(iter(damage)).split("/")[0] if write is files else ""
    with pytest.raises(DataError, match=said) as raised:
        open_dataset(tmp_path / place, "test" if write is wsol else None)
    assert len(str(raised.value)) < 1000


def test_two_sizes_of_an_image_and_another_image(tmp_path):
    picture(tmp_path / "b.png", [])
    csv(tmp_path, "a.png,48,48,cat,,1,2,3,4\na.png,48,49,cat,,1,2,3,4\nb.png,,,cat,,1,2,3,4")
    dataset = open_dataset(tmp_path)
    assert dataset.sample("b.png").targets
    with pytest.raises(DataError, match=r"boxes\.csv, line 3: .*another size"):
        dataset.sample("a.png")


def test_missing_annotations(tmp_path):
    make_voc(tmp_path, scenes(2))
    (tmp_path / "Annotations/000001.xml").unlink()
    with pytest.raises(DataError, match=r"cannot read .*000001\.xml"):
        list(open_dataset(tmp_path))
