"""Nothing is lost between what was found and what readers of each format see, however odd the names are."""

import json
import sys
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from boxfiles import READERS, SIZES, read_coco, read_csv, read_label_studio, read_voc, read_yolo
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image
from pycocotools.coco import COCO

from excite import AttentionMap, Grounded, Located, Region, __version__
from excite.autolabel import FORMATS, Detection, Document, ImageDetections, find_format, to_supervision
from excite.autolabel.files import OutputFolder
from excite.autolabel.run import category_name, find_inputs
from excite.datasets.coco import Coco
from excite.datasets.own import CsvFolder, JsonFolder, XmlFolder
from excite.datasets.voc import Voc
from excite.errors import ConceptError, DataError, ExciteError
from excite.grounding import PhraseMap
from excite.vocabulary import Labels, read_phrase

SIDE = 4000


ODD = "äß中é e\u0301\u200c😀&<>\"'`;,|%\\\n\r\t#=-. Aa/"


def is_file_name(name):
    return not name.startswith(".") and "/" not in name and "\0" not in name and len(name.encode("utf-8")) < 200


def can_be_named(word):
    try:
        category_name(word)
    except ConceptError:
        return False
    return True


letters = st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=["Cs"]))
file_names = st.builds("{}{}".format, st.text(letters, max_size=8), st.sampled_from([".png", ".JPG", ".jpeg"]))
folder_names = st.text(letters, min_size=1, max_size=6).filter(is_file_name)
folders = st.lists(folder_names, max_size=2).map(lambda parts: Path(*parts))
paths = st.builds(Path, folders, file_names.filter(is_file_name))
words = st.text(letters, min_size=1, max_size=12).filter(can_be_named).map(category_name)


@st.composite
def boxes(draw, categories):
    width, height = draw(st.integers(1, SIDE)), draw(st.integers(1, SIDE))
    found = []
    for _ in range(draw(st.integers(0, 3))):
        x0, y0 = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        box = x0, y0, draw(st.integers(x0 + 1, width)), draw(st.integers(y0 + 1, height))
        found.append(Detection(draw(st.sampled_from(categories)), draw(st.floats(0, 1)), box))
    return (width, height), tuple(found)


def placed(photos, names):
    """Pictures of those names, as far as the disk takes them."""
    for name in names:
        path = photos / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (2, 2)).save(path, format="PNG")
        except OSError:  # a name that is a file in one path and a folder in another
            assume(False)


def expected(document, key):
    return {
        key(one): (one.size, sorted((found.concept, found.probability, found.box) for found in one.boxes))
        for one in document.pictures
    }


def by_name(one):
    return one.picture.name


def by_file(one):
    return one.picture.path.resolve()


def seen_by(dataset):
    """What our own readers tell: sizes, and boxes by their names."""
    return {
        sample.path.resolve(): (sample.size, sorted((t.concept, box) for t in sample.targets for box in t.boxes))
        for sample in dataset
    }


def without_scores(read):
    return {key: (size, sorted((concept, box) for concept, _, box in found)) for key, (size, found) in read.items()}


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_round_trip(data):
    names = data.draw(st.lists(paths, min_size=1, max_size=4, unique=True))
    categories = tuple(data.draw(st.lists(words, min_size=1, max_size=4, unique=True)))
    with tempfile.TemporaryDirectory() as folder:
        photos, out = Path(folder).resolve() / "photos", Path(folder).resolve() / "out"
        placed(photos, names)
        root, pictures = find_inputs([str(photos)], OutputFolder(out, "none"))
        assert {root / picture.name for picture in pictures} == {photos / name for name in names}
        document = Document(tuple(ImageDetections(one, *data.draw(boxes(categories))) for one in pictures), categories)
        for kind, content in FORMATS.items():
            OutputFolder(out, kind).write(content(document))

        told = expected(document, by_name)
        assert read_coco(out) == told
        assert read_csv(out) == {name: (size, found) for name, (size, found) in told.items() if found}
        assert read_voc(out) == expected(document, by_file)
        SIZES.update({by_file(one): one.size for one in document.pictures})
        assert read_yolo(out) == without_scores(expected(document, by_file))
        corrected = read_label_studio(out)
        assert {path: found for path, (_, found) in corrected.items()} == {
            path: found for path, (_, found) in expected(document, by_file).items()
        }
        assert all(size is None or size == SIZES[path] for path, (size, _) in corrected.items())
        check_our_own_readers(document, photos, out)
        check_results_of_coco(out)


def check_our_own_readers(document, photos, out):
    told = without_scores(expected(document, by_file))
    assert seen_by(Voc(out, "trainval")) == told
    assert seen_by(XmlFolder(out)) == told
    content = (out / "boxes.json").read_bytes()
    (photos / "boxes.json").write_bytes(content)
    assert seen_by(JsonFolder(photos)) == told
    assert JsonFolder(photos).categories == document.categories
    if any(one.boxes for one in document.pictures):
        (photos / "boxes.csv").write_bytes((out / "boxes.csv").read_bytes())
        assert seen_by(CsvFolder(photos)) == {path: found for path, found in told.items() if found[1]}
    (photos.parent / "annotations").mkdir()
    (photos.parent / "annotations/instances_photos.json").write_bytes(content)
    assert seen_by(Coco(photos.parent, "photos")) == told


def check_results_of_coco(out):
    """The annotations are also what COCO takes as results, with their scores."""
    with redirect_stdout(StringIO()):
        truth = COCO(str(out / "boxes.json"))
        results = [dict(entry) for entry in truth.dataset["annotations"]]
        if results:
            loaded = truth.loadRes(results)
            assert [entry["score"] for entry in loaded.dataset["annotations"]] == [one["score"] for one in results]


def document_of(folder, name, size, box, categories):
    """A document of one image."""
    placed(folder / "photos", [name])
    _, (picture,) = find_inputs([str(folder / "photos")], OutputFolder(folder, "none"))
    return Document((ImageDetections(picture, size, (box,)),), categories)


def test_names_that_are_no_text(tmp_path):
    """Disks take any bytes as a name; a table cannot hold them."""
    document = document_of(tmp_path, "caf\udce9.png", (2, 2), Detection("dog", 0.5, (0, 0, 1, 1)), ("dog",))
    for kind, key in (("coco", by_name), ("voc", by_file)):
        OutputFolder(tmp_path / "out", kind).write(find_format(kind)(document))
        assert READERS[kind](tmp_path / "out") == expected(document, key)
    with pytest.raises(DataError, match=r"caf\\udce9.png.*rename it, or use coco"):
        find_format("csv")(document)
    for kind in ("yolo", "label-studio"):
        OutputFolder(tmp_path / "out", kind).write(find_format(kind)(document))
    (path,) = (by_file(one) for one in document.pictures)
    assert list(read_yolo(tmp_path / "out")) == list(read_label_studio(tmp_path / "out")) == [path]
    with pytest.raises(DataError, match="no format 'xyz': use one of coco, csv, voc, yolo, label-studio"):
        find_format("xyz")


def test_what_else_detectors_look_for(tmp_path):
    """The fields of COCO's and VOC's own files that no box needs."""
    box = Detection("a & b", 0.25, (2, 3, 5, 10))
    document = document_of(tmp_path, "1.png", (20, 10), box, ("cat", "a & b"))
    content = json.loads(find_format("coco")(document)["boxes.json"])
    assert list(content) == ["info", "licenses", "images", "annotations", "categories"]
    assert content["images"] == [{"id": 1, "file_name": "1.png", "width": 20, "height": 10}]
    sizes = {"bbox": [2, 3, 3, 7], "area": 21, "iscrowd": 0, "segmentation": [], "score": 0.25}
    assert content["annotations"] == [{"id": 1, "image_id": 1, "category_id": 2, **sizes}]
    assert content["categories"][0] == {"id": 1, "name": "cat", "supercategory": ""}
    xml = find_format("voc")(document)["Annotations/1.xml"].decode()
    parts = "<name>a &amp; b</name> <pose>Unspecified</pose> <truncated>0</truncated> <difficult>0</difficult>"
    assert parts in " ".join(xml.split())
    assert "<bndbox><xmin>3</xmin><ymin>4</ymin><xmax>5</xmax><ymax>10</ymax></bndbox>" in xml
    assert "<size><width>20</width><height>10</height><depth>3</depth></size>" in xml
    table = find_format("csv")(document)["boxes.csv"].decode().splitlines()
    assert table == ["image,width,height,concept,probability,x0,y0,x1,y1", '"1.png",20,10,"a & b",0.25,2,3,5,10']
    lines = find_format("yolo")(document)
    assert lines["labels/1.txt"] == b"1 0.175000 0.650000 0.150000 0.700000\n"
    (task,) = json.loads(find_format("label-studio")(document)["tasks.json"])
    assert task["data"] == {"image": "/data/local-files/?d=photos/1.png"}
    (prediction,) = task["predictions"]
    (region,) = prediction.pop("result")
    assert prediction == {"model_version": f"excite {__version__}", "score": 0.25}
    assert region["value"].pop("rectanglelabels") == ["a & b"]
    assert region["value"] == pytest.approx({"x": 10, "y": 30, "width": 15, "height": 70, "rotation": 0})


class Recorded:
    """In the place of `supervision.Detections`."""

    def __init__(self, **fields):
        self.fields = fields


def grounded():
    values = torch.eye(4)
    phrase = read_phrase("a dog", Labels(["dog"]))
    found = AttentionMap(values, "dog", "1", "excite", 1.0, (8, 8), probability=0.5)
    return Grounded(
        "a dog", (Region((1, 2, 3, 4), 0.75), Region((0, 0, 8, 8), 0.5)), PhraseMap(phrase, (found,), values)
    )


def test_boxes_for_supervision(monkeypatch):
    pair = [Located("cat", 0.9, (1, 2, 30, 40)), Located("dog", 0.1, None), Located("bird", 0.5, (0, 0, 2, 2))]
    inside = ImageDetections(
        None, (50, 50), (Detection("cat", 0.9, (1, 2, 30, 40)), Detection("bird", 0.5, (0, 0, 2, 2)))
    )
    monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=Recorded))
    for found in (pair, inside):
        fields = to_supervision(found, ["dog", "bird"]).fields
        assert fields["xyxy"].tolist() == [[1, 2, 30, 40], [0, 0, 2, 2]]
        assert fields["confidence"].tolist() == pytest.approx([0.9, 0.5])
        assert fields["class_id"].tolist() == [2, 1]
        assert fields["data"]["class_name"].tolist() == ["cat", "bird"]
    for found in (grounded(), [grounded()]):
        fields = to_supervision(found).fields
        assert (fields["xyxy"].tolist(), fields["class_id"].tolist()) == ([[1, 2, 3, 4], [0, 0, 8, 8]], [0, 0])
        assert fields["data"]["class_name"].tolist() == ["a dog", "a dog"]
    assert to_supervision(pair[1]).fields["xyxy"].shape == (0, 4)
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(ExciteError, match="pip install supervision"):
        to_supervision(pair)


def test_supervision_takes_them():
    supervision = pytest.importorskip("supervision", reason="converts to what this package has")
    found = to_supervision([Located("cat", 0.9, (1, 2, 30, 40)), Located("dog", 0.8, (0, 0, 2, 2))])
    assert isinstance(found, supervision.Detections)
    assert (len(found), found.area.tolist()) == (2, [29 * 38, 4])
    assert found[found.data["class_name"] == "dog"].xyxy.tolist() == [[0, 0, 2, 2]]
    assert len(supervision.Detections.merge([found, to_supervision([])])) == 2
