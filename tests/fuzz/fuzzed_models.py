"""Readers of networks and their weights, of labels, of saved maps, and of archives."""

import io
import json
import os
import pickle
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

import torch
from fuzzed import MARKER, Reader
from torch import nn

sys.path += [str(Path(__file__).parents[1] / "models/caffe")]
from writing import chunk, new_blob, new_layer, number, old_blob  # noqa: E402

from excite.attention import AttentionMap  # noqa: E402
from excite.datasets.unpacking import members, unpack  # noqa: E402
from excite.exporting.metadata import check_ours  # noqa: E402
from excite.models import load  # noqa: E402
from excite.models.caffe.reading import read_network_of_weights, read_weights  # noqa: E402
from excite.models.folder import read_saved  # noqa: E402
from excite.models.loading import find_card  # noqa: E402
from excite.models.weights import fill, fingerprint, read_tensors  # noqa: E402
from excite.vocabulary import Labels  # noqa: E402

__all__ = ["READERS"]

NEW = """name: "tiny" input: "data" input_shape { dim: 1 dim: 3 dim: 16 dim: 16 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 2 kernel_size: 3 pad: 1 group: 1 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param { negative_slope: 0.1 } }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 } }
layer { name: "pool" type: "Pooling" bottom: "norm" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "join" type: "Concat" bottom: "pool" bottom: "pool" top: "join" concat_param { axis: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "join" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" dropout_param { dropout_ratio: 0.5 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" include { phase: TEST } }
"""
OLD = """name: "old" input: "data" input_dim: 1 input_dim: 3 input_dim: 16 input_dim: 16
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" convolution_param { num_output: 2 kernel_size: 3 stride: 2 } }
layers { name: "pool" type: POOLING bottom: "conv" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layers { name: "ip" type: INNER_PRODUCT bottom: "pool" top: "ip" inner_product_param { num_output: 4 } }
"""
FIRST = 'layers { layer { name: "conv" type: "conv" num_output: 2 kernelsize: 3 } bottom: "data" top: "conv" }\n'
BATCHED = """layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 2 kernel_h: 3 kernel_w: 1 dilation: 2 } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" batch_norm_param { eps: 1e-5 } }
layer { name: "scale" type: "Scale" bottom: "bn" top: "bn" scale_param { bias_term: true } }
layer { name: "sum" type: "Eltwise" bottom: "bn" bottom: "conv" top: "sum" eltwise_param { operation: SUM coeff: 1 coeff: -1 } }
layer { name: "flat" type: "Flatten" bottom: "sum" top: "flat" } layer { name: "shape" type: "Reshape" bottom: "flat" top: "shape" reshape_param { shape { dim: 0 dim: -1 } } }
layer { name: "odd" type: "NoSuch" bottom: "shape" top: "odd" no_such_param { a: 1 } }
"""
WORDS = b"layer layers name type bottom top num_output kernel_size stride pad group dilation dim: shape {} convolution_param".split()
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


class Payload:
    """What a hostile pickle holds: a program that is run when it is read."""

    def __reduce__(self):
        return os.system, (f"touch {MARKER}",)


class Opening:
    def __reduce__(self):
        return open, (MARKER, "w")


def _caffemodel(pixels=4):
    convolution = chunk(106, number(1, 2) + number(4, 3))
    product = chunk(117, number(1, 4))
    layers = [
        new_layer("data", "Input", (), ("data",), rest=chunk(143, chunk(1, chunk(1, bytes([1, 3, pixels, pixels]))))),
        new_layer("conv", "Convolution", ("data",), ("conv",), blobs=[new_blob((2, 3, 3, 3), [0.5] * 54), new_blob((2,), [1, 2])], rest=convolution),
        new_layer("relu", "ReLU", ("conv",), ("conv",)),
        new_layer("ip", "InnerProduct", ("conv",), ("ip",), blobs=[old_blob((1, 1, 4, 8), [0.1] * 32), old_blob((1, 1, 1, 4), [0] * 4)], rest=product),
    ]
    return chunk(1, "tiny") + b"".join(layers)


def _caffemodels():
    return [_caffemodel(), chunk(1, "small") + new_layer("ip", "InnerProduct", ("data",), ("ip",), blobs=[new_blob((2,), [1, 2])])]


def _caffe_bombs():
    nested = b""
    for _ in range(3_000):
        nested = chunk(100, nested)
    many = b"".join(chunk(100, b"") for _ in range(60_000))
    shape = chunk(100, chunk(1, "a") + chunk(7, chunk(7, chunk(1, b"\xff\xff\xff\xff\xff\xff\xff\x7f" * 20))))
    return [nested, many, shape, b"\xff" * 5_000, chunk(100, b"\x0a" + b"\xff" * 9 + b"\x01")]


def _prototxt_bombs():
    wide = NEW.split("layer", 1)[0] + 'layer { name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 2147483647 kernel_size: 2147483647 } }'
    long = 'input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8\n' + "".join(
        f'layer {{ name: "r{k}" type: "ReLU" bottom: "{f"r{k - 1}" if k else "data"}" top: "r{k}" }}\n' for k in range(3_000)
    )
    doubled = 'input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8\n' + "".join(
        f'layer {{ name: "c{k}" type: "Concat" bottom: "{f"c{k - 1}" if k else "data"}" bottom: "{f"c{k - 1}" if k else "data"}" top: "c{k}" }}\n'
        for k in range(60)
    )
    return [text.encode() for text in ("layer {" * 50_000, "a" * 900_000, wide, long, doubled, '"' * 100_000, "#" * 100_000, 'name: "' + "\\" * 99_999)]


def _network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 4))


def _safetensors():
    from safetensors.torch import save

    state = _network().state_dict()
    eight = {"0.weight": torch.ones(2, 3, 3, 3, dtype=torch.int8), "0.weight.scale": torch.ones(2)}
    return [save(state, metadata={"made": "here"}), save(eight), save({"a": torch.ones(3, dtype=torch.bfloat16)})]


def _safetensors_bombs():
    def file(header, told=None, data=b""):
        return struct.pack("<Q", len(header) if told is None else told) + header + data

    tensor = '{"dtype": "F32", "shape": [%s], "data_offsets": [0, %s]}'
    huge = ('{"a": ' + tensor % ("4611686018427387904, 4", 0) + "}").encode()
    many = ("{" + ", ".join(f'"t{k}": ' + tensor % (0, 0) for k in range(4_000)) + "}").encode()
    return [file(b"{" * 9_000), file(b"{}", 2**63), file(b"{}", 2**40), file(huge), file(many), file(b'{"a":' * 50_000)]


def _torch(content, **options):
    file = io.BytesIO()
    torch.save(content, file, **options)
    return file.getvalue()


def _states():
    state = _network().state_dict()
    shared = torch.arange(12.0).reshape(3, 4)
    return [
        _torch(state),
        _torch({"state_dict": {f"module.{name}": one for name, one in state.items()}, "epoch": 3}),
        _torch({"a": shared.t(), "b": shared[1], "c": torch.ones(2, dtype=torch.float16), "d": nn.Parameter(torch.ones(2))}),
    ]


def _old_states():
    return [_torch(content, _use_new_zipfile_serialization=False) for content in (_network().state_dict(), {"model": {"a": torch.ones(3)}})]


def _payloads():
    """Pickles that would run a program, in all wrappings that a file of weights has."""
    found = []
    for evil in (Payload(), Opening(), {"a": torch.ones(2), "b": Payload()}, _network()):
        found += [_torch(evil), _torch(evil, _use_new_zipfile_serialization=False)]
        found += [pickle.dumps(evil, protocol) for protocol in (0, 2, 4)]
    deep = b"\x80\x02" + b"(" * 100_000 + b"l." + b"\x80\x02]" + b"a" * 10
    memo = b"\x80\x02]q\0" + b"h\0a" * 1_000 + b"."
    text = b"\x80\x02cposix\nsystem\nq\0X\x05\0\0\0touch\x85R."
    long = b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"\xff" * 10 + b"."
    huge = b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"."
    ones = b"\x80\x02]" + b"2" * 100_000 + b"."
    return [*found, deep, memo, text, long, huge, ones]


def _tensors(name):
    def read(folder):
        tensors = read_tensors(folder / name)
        fingerprint(folder / name)
        fill(_network(), tensors, str(folder / name))

    return read


def _built(folder):
    return find_card(str(folder / "net.prototxt")).build(None)


def _map():
    made = AttentionMap(torch.eye(3), "cat", "pool2", "mwp", 1.0, (30, 20), units=(3,), probability=0.5)
    file = Path(MARKER).with_suffix(".json")
    content = made.save(file).read_bytes()
    file.unlink()
    return [content]


def _zip(*entries, method=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content, attributes in entries:
            about = zipfile.ZipInfo(name)
            about.external_attr = attributes << 16
            archive.writestr(about, content, method)
    return file.getvalue()


def _zips():
    return [_zip(("a/b.txt", b"words" * 9, 0o100644), ("c.xml", b"<a/>", 0)), _zip(("a", b"x" * 50, 0), method=zipfile.ZIP_STORED), _zip(("b", b"y" * 500, 0), method=zipfile.ZIP_LZMA)]


def _zip_bombs():
    evil = [("../out", b"x", 0), ("/etc/out", b"x", 0), ("a/../../out", b"x", 0), ("c:\\out", b"x", 0), ("link", b"/etc/passwd", 0o120777), ("pipe", b"", 0o010644)]
    inner = _zip(("zeros", b"\0" * 30_000_000, 0))
    twice = _zip(("a", b"x", 0), ("a/b", b"y", 0))
    return [*(_zip(one) for one in evil), inner, _zip(("again.zip", inner, 0)), twice, _zip(("n" * 300, b"x", 0)), _zip(("a" * 200 + "/" + "b" * 200, b"x", 0))]


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
    entries = (("a/b.txt", b"words" * 200, tarfile.REGTYPE), ("c.xml", b"<a/>", tarfile.REGTYPE), ("long/" * 30 + "name", b"x", tarfile.REGTYPE))
    return [_tar(*entries), _tar(*entries, mode="w:gz"), _tar(*entries, mode="w:bz2"), _tar(*entries, mode="w:xz")]


def _tar_bombs():
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, b"S", b"x")
    names = ("../out", "/etc/out", "a/../../out", "x" * 400)
    return [_tar(("a", b"", kind)) for kind in kinds] + [_tar((name, b"x", tarfile.REGTYPE)) for name in names] + [_tar(("zeros", b"\0" * 30_000_000, tarfile.REGTYPE), mode="w:gz")]


def _unpacked(name):
    def read(folder):
        with members(folder / name) as found:
            return list(unpack(found, folder / "made"))

    return read


def _texts(*texts):
    return lambda: [text.encode() for text in texts]


WEIGHTS = "excite.models.weights: read_tensors, fingerprint, fill"
PICKLE = (b"cos\nsystem\n", b"cbuiltins\neval\n", b"R", b".", b"(", b"\x81", b"c__builtin__\ngetattr\n", b"ctorch._utils\n_rebuild_tensor_v2\n")

READERS = (
    Reader("prototxt", "excite.models.loading.find_card, Card.build", "net.prototxt", _built, _texts(NEW, OLD, BATCHED), "words", tuple(WORDS), hostile=_prototxt_bombs),
    Reader("caffemodel weights", "excite.models.caffe.reading.read_weights", "net.caffemodel", lambda folder: read_weights(folder / "net.caffemodel"), _caffemodels, "protobuf", hostile=_caffe_bombs),
    Reader("caffemodel network", "excite.models.caffe.reading.read_network_of_weights", "net.caffemodel", lambda folder: read_network_of_weights(folder / "net.caffemodel"), _caffemodels, "protobuf", hostile=_caffe_bombs),
    Reader("caffemodel", "excite.load", "net.caffemodel", lambda folder: load(folder / "net.caffemodel"), lambda: _caffemodels()[:1], "protobuf", hostile=_caffe_bombs),
    Reader("safetensors", WEIGHTS, "w.safetensors", _tensors("w.safetensors"), _safetensors, "safetensors", (b"F32", b"I8", b"data_offsets", b"shape"), hostile=_safetensors_bombs),
    Reader("state dict", WEIGHTS, "w.pth", _tensors("w.pth"), _states, "zip", PICKLE, hostile=_payloads),
    Reader("state dict before 2020", WEIGHTS, "w.pt", _tensors("w.pt"), _old_states, "bytes", PICKLE, hostile=_payloads),
    Reader("classifier.json", "excite.models.folder.read_saved", "mine/classifier.json", lambda folder: read_saved(folder / "mine").card(find_card("efficientnet-lite0"), folder / "mine"), _texts(json.dumps(SAVED)), "json"),
    Reader("labels", "excite.vocabulary.Labels.read", "labels.txt", lambda folder: Labels.read(folder / "labels.txt"), _texts("cat, puss\ndog\n", '["cat", ["dog", "hound"]]', "n01440764 tench, Tinca\nn01443537 goldfish\n"), "words"),
    Reader("labels JSON", "excite.vocabulary.Labels.read", "labels.json", lambda folder: Labels.read(folder / "labels.json"), _texts('["cat", ["dog", "hound"]]'), "json"),
    Reader("saved map", "excite.AttentionMap.load", "map.json", lambda folder: AttentionMap.load(folder / "map.json"), _map, "json"),
    Reader("exported file", "excite.exporting.metadata.check_ours", "map.pt2", lambda folder: check_ours(folder / "map.pt2"), lambda: [_zip(("map/excite.json", b"{}", 0)), b'onnx "made by excite export"'], "zip"),
    Reader("zip archive", "excite.datasets.unpacking", "data.zip", _unpacked("data.zip"), _zips, "zip", hostile=_zip_bombs),
    Reader("tar archive", "excite.datasets.unpacking", "data.tar", _unpacked("data.tar"), _tars, "tar", hostile=_tar_bombs),
)
