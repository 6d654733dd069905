"""Readers of tensors in files: safetensors, and pickles, which must never be run."""

import io
import os
import pickle
import struct

import torch
from fuzzed import MARKER, Reader
from safetensors.torch import save
from torch import nn

from excite.models.weights import fill, fingerprint, other_classes, read_tensors

__all__ = ["READERS"]


class Payload:
    """What a hostile pickle holds: a program that is run when it is read."""

    def __reduce__(self):
        return os.system, (f"touch {MARKER}",)


class Opening:
    def __reduce__(self):
        return open, (MARKER, "w")


def _network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 4))


def _safetensors():
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
        _torch(
            {"a": shared.t(), "b": shared[1], "c": torch.ones(2, dtype=torch.float16), "d": nn.Parameter(torch.ones(2))}
        ),
    ]


def _old_states():
    return [
        _torch(content, _use_new_zipfile_serialization=False)
        for content in (_network().state_dict(), {"model": {"a": torch.ones(3)}})
    ]


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
        network = _network()
        other_classes(tensors, network)
        if tensors.keys() == network.state_dict().keys():
            fill(network, tensors, str(folder / name))

    return read


WEIGHTS = "excite.models.weights: read_tensors, fingerprint, fill"


PICKLE = (
    b"cos\nsystem\n",
    b"cbuiltins\neval\n",
    b"R",
    b".",
    b"(",
    b"\x81",
    b"c__builtin__\ngetattr\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
)


READERS = (
    Reader(
        "safetensors",
        WEIGHTS,
        "w.safetensors",
        _tensors("w.safetensors"),
        _safetensors,
        "safetensors",
        (b"F32", b"I8", b"data_offsets", b"shape"),
        hostile=_safetensors_bombs,
    ),
    Reader("state dict", WEIGHTS, "w.pth", _tensors("w.pth"), _states, "zip", PICKLE, hostile=_payloads),
    Reader(
        "state dict before 2020", WEIGHTS, "w.pt", _tensors("w.pt"), _old_states, "bytes", PICKLE, hostile=_payloads
    ),
)
