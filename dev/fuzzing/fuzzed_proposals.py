"""Readers of proposals that others made."""

import io
import json
import zipfile
import zlib

import numpy as np
from fuzzed import Reader
from PIL import Image
from scipy.io import savemat

from excite.grounding.proposals.files import ProposalFiles

__all__ = ["READERS"]


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


NPY = (b"\x93NUMPY", b"'descr'", b"'<f8'", b"'|O'", b"'shape': (", b"'fortran_order': True", b"<U99999999")


ENTRY = "excite.grounding.proposals.files.ProposalFiles"


READERS = (
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
)
