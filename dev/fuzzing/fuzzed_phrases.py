"""Readers of phrases and their boxes, of proposals, of results of others, and of what people type."""

import io
import json

from annotated import SIDE, coco_content, picture, scenes, write_coco
from fuzzed import Reader
from PIL import Image

from excite.datasets.captions import noun_phrases
from excite.datasets.phrase_formats import open_phrases
from excite.experiments.grounding.run import read_results
from excite.vocabulary import Labels, imagenet_labels
from excite.vocabulary.phrases import read_phrase

__all__ = ["READERS"]

SCENES = list(scenes(3))
SENTENCES = """[/EN#1/people Two young men] with [/EN#2/clothing hats] look at [/EN#0/notvisual each other] .
[/EN#1/people/other Some guys] in [/EN#3/scene the yard] have [/EN#4/bodyparts hands] .
"""
SIZE = f"<size><width>{SIDE}</width><height>{SIDE}</height><depth>3</depth></size>"
CORNERS = "<xmin>1</xmin><ymin>1</ymin><xmax>10</xmax><ymax>20</ymax>"
OBJECTS = (
    f"<object><name>1</name><bndbox>{CORNERS}</bndbox></object>"
    f"<object><name>1</name><name>2</name><bndbox>{CORNERS}</bndbox></object>"
    "<object><name>3</name><scene>1</scene><nobndbox>0</nobndbox></object>"
    "<object><name>4</name><scene>0</scene><nobndbox>1</nobndbox></object>"
)
ENTITIES = f"<annotation><filename>36979.jpg</filename>{SIZE}{OBJECTS}</annotation>"
CAPTIONS = {
    "annotations": [
        {"image_id": 99, "caption": "A red on a table."},
        {"image_id": 98, "caption": "the green"},
    ]
}
REFERRING = "".join(
    json.dumps({"file": f"{name}.png", "phrase": "the red one", key: [1, 2, 9, 9]}) + "\n"
    for (name, _), key in zip(SCENES, ("box", "bbox_xywh", "xyxy"), strict=True)
)
RESULTS = json.dumps({"image": "a.jpg", "phrase": "a dog", "boxes": [[1, 2, 3, 4], [0, 0, 9, 9]], "scores": [0.5, 1]})
ASKED = ("Dog", "3", "traffic lights")
TYPED = (
    "the left kid in a red hat by two traffic lights",
    "A bunch of bananas, a black and white cat and 3 men's coffee mugs - isn't it?",
    "the man to the far right of the woman's 2nd dog",
)


def _flickr(folder):
    for name, text in (
        ("Sentences/36979.txt", SENTENCES),
        ("Annotations/36979.xml", ENTITIES),
        ("test.txt", "36979\n"),
    ):
        place = folder / "set" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    picture(folder / "set/flickr30k-images/36979.jpg", [])


def _captions(folder):
    write_coco(folder / "set", coco_content(SCENES, ["red", "green"]))
    for name, squares in SCENES:
        picture(folder / "set/val2017" / f"{name}.jpg", squares)


def _referring(folder):
    for name, squares in SCENES:
        picture(folder / "set/images" / f"{name}.png", squares)


def _one_referring(folder):
    (folder / "set").mkdir(parents=True)
    (folder / "set/val.jsonl").write_text(json.dumps({"file": "a.png", "phrase": "the red one", "box": [1, 2, 9, 9]}))


def _saved_as(*kinds):
    pictures = []
    for kind in kinds:
        file = io.BytesIO()
        Image.new("RGB", (32, 24)).save(file, kind)
        pictures.append(file.getvalue())
    return pictures


def _pictures():
    """Of such an image no more than its head is read."""
    return _saved_as("PNG", "JPEG", "TIFF", "GIF", "BMP", "PPM", "WEBP")


def _other_pictures():
    """Pillow knows them, but some are read by other programs: they count as broken."""
    return _saved_as("EPS", "PDF", "ICO", "TGA", "PCX", "DDS", "IM")


def _phrases(split):
    return lambda folder: [described.phrases for described in open_phrases(folder / "set", split)]


def _typed(folder):
    text = (folder / "typed.txt").read_bytes().decode(errors="surrogateescape")
    return noun_phrases(text, {"dog": "dog", "man": "person", "banana": "banana"}), read_phrase(text, WORDS)


def _asked(folder):
    text = (folder / "typed.txt").read_bytes().decode(errors="surrogateescape")
    return WORDS.find(text), imagenet_labels().search(text)


def _texts(*texts):
    return lambda: [text.encode() for text in texts]


def _phrased(name, file, split, text, around, form, tokens=()):
    entry = "excite.datasets.phrase_formats.open_phrases"
    return Reader(name, entry, f"set/{file}", _phrases(split), _texts(text), form, tokens, around)


MARKS = (b"[/EN#", b"/people", b"]", b"[", b"/", b"#", b"[/EN#1/people ")
WORDS = Labels(["person", "traffic light", ["dog", "hound"], "cat"])

READERS = (
    _phrased("Flickr30k sentences", "Sentences/36979.txt", "test", SENTENCES, _flickr, "words", MARKS),
    _phrased("Flickr30k XML", "Annotations/36979.xml", "test", ENTITIES, _flickr, "xml"),
    _phrased("Flickr30k list", "test.txt", "test", "36979\n36979.jpg\n", _flickr, "words"),
    _phrased("COCO captions", "annotations/captions_val2017.json", "val2017", json.dumps(CAPTIONS), _captions, "json"),
    _phrased("RefCOCO lines", "val.jsonl", "val", REFERRING, _referring, "json lines"),
    Reader(
        "RefCOCO picture",
        "excite.datasets.phrase_formats.open_phrases",
        "set/images/a.png",
        _phrases("val"),
        _pictures,
        around=_one_referring,
        hostile=_other_pictures,
    ),
    Reader(
        "results of others",
        "excite.experiments.grounding.run.read_results",
        "others.jsonl",
        lambda folder: read_results("others", folder / "others.jsonl"),
        _texts(RESULTS + "\n" + RESULTS + "\n", f"[{RESULTS}]"),
        "json lines",
    ),
    Reader(
        "typed phrase",
        "excite.vocabulary.phrases.read_phrase",
        "typed.txt",
        _typed,
        _texts(*TYPED),
        "words",
        named=False,
    ),
    Reader("typed concept", "excite.vocabulary.Labels.find", "typed.txt", _asked, _texts(*ASKED), "words", named=False),
)
