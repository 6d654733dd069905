"""Readers of phrases and their boxes, of proposals, of results of others, and of what people type."""

import io
import json
import zipfile
import zlib

import numpy as np
from annotated import SIDE, coco_content, picture, scenes, write_coco
from fuzzed import Reader
from PIL import Image
from scipy.io import savemat

from excite.benchmarks.grounding_others import read_results
from excite.datasets.noun_phrases import noun_phrases
from excite.datasets.phrase_formats import open_phrases
from excite.proposals.files import ProposalFiles
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


def _pictures():
    """Of such a picture no more than its head is read; by whichever of Pillow's formats."""
    kinds = ("PNG", "JPEG", "TIFF", "EPS", "ICO", "TGA", "PCX", "SGI", "DDS", "IM", "MSP")
    pictures = []
    for kind in kinds:
        file = io.BytesIO()
        Image.new("1" if kind == "MSP" else "RGB", (32, 24)).save(file, kind)
        pictures.append(file.getvalue())
    return pictures


def _phrases(split):
    return lambda folder: [described.phrases for described in open_phrases(folder / "set", split)]


def _proposals(name):
    return lambda folder: ProposalFiles(folder / name).of(Image.new("RGB", (12, 8)), "a.jpg")


def _mat(content, **options):
    file = io.BytesIO()
    savemat(file, content, **options)
    return b"MATLAB 5.0 MAT-file, made here".ljust(116) + file.getvalue()[116:]  # without the time of day


def _mats():
    cells = np.empty(2, object)
    cells[:] = [np.array([[1, 2]]), np.array([[3]])]
    pixels = np.repeat(np.arange(1, 5), 24).reshape(8, 12).astype(np.uint16)
    segments = {"superpixels": pixels, "labels": cells, "scores": np.array([0.5, 0.25])}
    boxes = {"bboxes": np.array([[1, 1, 4, 5], [2, 2, 8, 12.0]]), "bboxes_scores": np.array([1, 2.0])}
    edges = {"bbs": np.array([[1, 1, 5, 5, 0.5], [2, 2, 3, 3, 0.1]])}
    return [
        _mat(one, do_compression=packed)
        for one in (segments, boxes, edges, {"proposals": boxes})
        for packed in (False, True)
    ]


def _mat_bombs():
    head = _mat({"bbs": np.zeros((1, 5))})[:128]
    zeros = zlib.compressobj(9)
    packed = b"".join(zeros.compress(b"\0" * 2**24) for _ in range(100)) + zeros.flush()
    matrix = _mat({"bbs": np.zeros((2000, 5000))}, do_compression=True)  # 80 MB in a few kilobytes
    version_73 = b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM" + b"\x89HDF\r\n\x1a\n"
    return [head + (15).to_bytes(4, "little") + len(packed).to_bytes(4, "little") + packed, matrix, version_73]


def _npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _npzs():
    parts = np.repeat(np.arange(4, dtype=np.int16), 24).reshape(8, 12)
    whole = {
        "parts": parts,
        "starts": np.array([0, 1, 3]),
        "members": np.array([0, 1, 2], np.int16),
        "size": np.array([12, 8]),
    }
    return [
        _npz(**whole, scores=np.array([1, 0.5], np.float32)),
        _npz(boxes=np.array([[0, 0, 3, 4], [1, 1, 12, 8.0]]), scores=np.array([0.1, 0.2])),
        _npz(masks=np.eye(8, 12, dtype=bool)[None]),
    ]


def _npz_bombs():
    def zipped(header, data=b"", size=0):
        file = io.BytesIO()
        npy = b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("boxes.npy", "w") as member:
            member.write(npy + data)
            for _ in range(size):
                member.write(b"\0" * 2**24)
        return file.getvalue()

    def head(kind, shape):
        return f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(118) + b"\n"

    return [
        zipped(head("<f8", (2**40, 4))),
        zipped(head("|O", (1,)), b"cposix\nsystem\n(S'touch /tmp/excite-fuzz-a-payload-has-run'\ntR."),
        zipped(head("<f8", (2**23, 4)), size=16),  # a quarter of a gigabyte of boxes, in 256 kB
        zipped(head("<f8", (2**25, 4)), size=64),
        zipped(b"(" * 60_000),
        zipped(b"{'descr': [('" + b"a" * 9_000 + b"', '<f8')]}"),
    ]


def _result_lists():
    box = {"image_id": "a.jpg", "bbox": [1, 1, 5, 5], "score": 0.5}
    runs = {"size": [8, 12], "counts": [3, 4, 89]}
    masks = [{"image_id": "a", "score": 1, "segmentation": one} for one in (runs, [[1, 1, 9, 1, 9, 7]])]
    named = {"images": [{"id": 3, "file_name": "a.jpg"}], "annotations": [{"image_id": 3, "bbox": [0, 0, 2, 2]}]}
    return [json.dumps(one).encode() for one in ([box, {**box, "bbox": [0, 0, 3, 3]}], masks, named)]


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
NPY = (b"\x93NUMPY", b"'descr'", b"'<f8'", b"'|O'", b"'shape': (", b"'fortran_order': True", b"<U99999999")
ENTRY = "excite.proposals.files.ProposalFiles"
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
    ),
    Reader(
        "proposals MAT",
        ENTRY,
        "a.mat",
        _proposals("a.mat"),
        _mats,
        hostile=_mat_bombs,
        tokens=(b"\x0f\0\0\0", b"\x0e\0\0\0", b"bbs", b"labels"),
    ),
    Reader("proposals NPZ", ENTRY, "a.npz", _proposals("a.npz"), _npzs, "zip", NPY, hostile=_npz_bombs),
    Reader("proposals JSON", ENTRY, "a.json", _proposals("a.json"), _result_lists, "json"),
    Reader(
        "results of others",
        "excite.benchmarks.grounding_others.read_results",
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
