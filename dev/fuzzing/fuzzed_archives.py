"""Readers of archives, of labels, and of what excite has saved for its users."""

import io
import json
import tarfile
import tempfile
import zipfile
from pathlib import Path

import torch
from fuzzed import Reader

from excite.attention import AttentionMap
from excite.export.formats import check_overwrite
from excite.io.archives import members, unpack
from excite.models.loading import find_card, read_saved
from excite.vocabulary import Labels

__all__ = ["READERS"]

SAVED = {
    "format": 1,
    "base": "efficientnet-lite0",
    "labels": [["cat", "puss"], ["dog"]],
    "multilabel": False,
    "layers": ["blocks.14"],
    "size": 224,
    "fully_convolutional": False,
    "weights": "0" * 64,
    "training": {"epochs": 3},
}


def _map():
    made = AttentionMap(torch.eye(3), "cat", "pool2", "mwp", 1.0, (30, 20), units=(3,), probability=0.5)
    with tempfile.TemporaryDirectory() as folder:
        return [made.save(Path(folder, "map.json")).read_bytes()]


def _zip(*entries, method=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content, attributes in entries:
            about = zipfile.ZipInfo(name)
            about.external_attr = attributes << 16
            archive.writestr(about, content, method)
    return file.getvalue()


def _zips():
    return [
        _zip(("a/b.txt", b"words" * 9, 0o100644), ("c.xml", b"<a/>", 0)),
        _zip(("a", b"x" * 50, 0), method=zipfile.ZIP_STORED),
        _zip(("b", b"y" * 500, 0), method=zipfile.ZIP_LZMA),
    ]


def _zip_bombs():
    evil = [
        ("../out", b"x", 0),
        ("/etc/out", b"x", 0),
        ("a/../../out", b"x", 0),
        ("c:\\out", b"x", 0),
        ("link", b"/etc/passwd", 0o120777),
        ("pipe", b"", 0o010644),
    ]
    inner = _zip(("zeros", b"\0" * 30_000_000, 0))
    twice = _zip(("a", b"x", 0), ("a/b", b"y", 0))
    return [
        *(_zip(one) for one in evil),
        inner,
        _zip(("again.zip", inner, 0)),
        twice,
        _zip(("n" * 300, b"x", 0)),
        _zip(("a" * 200 + "/" + "b" * 200, b"x", 0)),
    ]


def _tar(*entries, mode="w"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content, kind in entries:
            about = tarfile.TarInfo(name)
            about.type, about.size = kind, len(content) if kind == tarfile.REGTYPE else 0
            about.linkname = "" if kind == tarfile.REGTYPE else "../../etc/passwd"
            archive.addfile(about, io.BytesIO(content))
    return file.getvalue()


def _tars():
    entries = (
        ("a/b.txt", b"words" * 200, tarfile.REGTYPE),
        ("c.xml", b"<a/>", tarfile.REGTYPE),
        ("long/" * 30 + "name", b"x", tarfile.REGTYPE),
    )
    return [_tar(*entries), _tar(*entries, mode="w:gz"), _tar(*entries, mode="w:bz2"), _tar(*entries, mode="w:xz")]


def _tar_bombs():
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, b"S", b"x")
    names = ("../out", "/etc/out", "a/../../out", "x" * 400)
    return (
        [_tar(("a", b"", kind)) for kind in kinds]
        + [_tar((name, b"x", tarfile.REGTYPE)) for name in names]
        + [_tar(("zeros", b"\0" * 30_000_000, tarfile.REGTYPE), mode="w:gz")]
    )


def _unpacked(name):
    def read(folder):
        with members(folder / name) as found:
            return list(unpack(found, folder / "made"))

    return read


def _texts(*texts):
    return lambda: [text.encode() for text in texts]


READERS = (
    Reader(
        "classifier.json",
        "excite.models.loading.read_saved",
        "mine/classifier.json",
        lambda folder: read_saved(folder / "mine").card(find_card("efficientnet-lite0"), folder / "mine"),
        _texts(json.dumps(SAVED)),
        "json",
    ),
    Reader(
        "labels",
        "excite.vocabulary.Labels.read",
        "labels.txt",
        lambda folder: Labels.read(folder / "labels.txt"),
        _texts("cat, puss\ndog\n", '["cat", ["dog", "hound"]]', "n01440764 tench, Tinca\nn01443537 goldfish\n"),
        "words",
    ),
    Reader(
        "labels JSON",
        "excite.vocabulary.Labels.read",
        "labels.json",
        lambda folder: Labels.read(folder / "labels.json"),
        _texts('["cat", ["dog", "hound"]]'),
        "json",
    ),
    Reader(
        "saved map",
        "excite.AttentionMap.load",
        "map.json",
        lambda folder: AttentionMap.load(folder / "map.json"),
        _map,
        "json",
    ),
    Reader(
        "exported file",
        "excite.export.formats.check_overwrite",
        "map.pt2",
        lambda folder: check_overwrite(folder / "map.pt2"),
        lambda: [_zip(("map/excite.json", b"{}", 0)), b'onnx "made by excite export"'],
        "zip",
    ),
    Reader("zip archive", "excite.io.archives", "data.zip", _unpacked("data.zip"), _zips, "zip", hostile=_zip_bombs),
    Reader("tar archive", "excite.io.archives", "data.tar", _unpacked("data.tar"), _tars, "tar", hostile=_tar_bombs),
)
