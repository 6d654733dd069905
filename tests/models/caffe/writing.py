"""Caffe's files: written by hand, tags, varints and floats byte by byte, with nothing of the reader's in it; and by
protobuf, for whole networks, which OpenCV reads too.

The numbers are those of Caffe's own format. A message is a list of fields, each made by one of these functions.
"""

import struct

import numpy as np
from google.protobuf.json_format import ParseDict
from google.protobuf.text_format import MessageToString

from excite.models.caffe.definition import PARAMETERS_OF, Layer
from excite.models.caffe.reading import net_parameter

LEGACY_AXES = 4
OLD_KINDS = {word.replace("_", ""): number for word, number in net_parameter()().layers.add().LayerType.items()}


def varint(value):
    value &= 2**64 - 1  # a negative number is its two's complement
    made = b""
    while value >= 128:
        made += bytes([value % 128 + 128])
        value //= 128
    return made + bytes([value])


def number(field, value):
    return varint(field * 8) + varint(value)


def chunk(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field * 8 + 2) + varint(len(content)) + content


def single(field, value):
    return varint(field * 8 + 5) + struct.pack("<f", value)


def double(field, value):
    return varint(field * 8 + 1) + struct.pack("<d", value)


def packed(values, code="f"):
    return np.asarray(values, f"<{code}").tobytes()


def new_blob(shape, values):
    """As Caffe has written it since 2014: a shape of any number of axes."""
    dims = chunk(1, b"".join(varint(size) for size in shape))
    return chunk(5, packed(values)) + chunk(7, dims)


def old_blob(shape, values):
    """With num, channels, height and width."""
    assert len(shape) == LEGACY_AXES
    return b"".join(number(field, size) for field, size in enumerate(shape, 1)) + chunk(5, packed(values))


def new_layer(name, kind, bottoms=(), tops=(), *, blobs=(), rest=b""):
    """A field 100 of the network."""
    parts = [chunk(1, name), chunk(2, kind)]
    parts += [chunk(3, bottom) for bottom in bottoms] + [chunk(4, top) for top in tops]
    return chunk(100, b"".join([*parts, *(chunk(7, blob) for blob in blobs), rest]))


def old_layer(name, kind, bottoms=(), tops=(), *, blobs=(), rest=b""):
    """A field 2 of the network; the kind is a number."""
    parts = [chunk(2, bottom) for bottom in bottoms] + [chunk(3, top) for top in tops]
    parts += [chunk(4, name), number(5, kind)]
    return chunk(2, b"".join([*parts, *(chunk(6, blob) for blob in blobs), rest]))


def message(definition, *, old=False):
    """A network without weights as a NetParameter; ``old``: in the format of 2014."""
    net = net_parameter()(name=definition.name)
    for name, shape in definition.inputs.items():
        net.input.append(name)
        net.input_dim.extend(shape)
    for layer in definition.layers:
        made = net.layers.add() if old else net.layer.add()
        made.name = layer.name
        made.type = OLD_KINDS[layer.kind.upper()] if old else layer.kind
        made.bottom.extend(layer.bottoms)
        made.top.extend(layer.tops)
        if layer.options:
            shape = {"shape": {"dim": layer.options["shape"]}} if "shape" in layer.options else {}
            ParseDict({**layer.options, **shape}, getattr(made, PARAMETERS_OF[layer.kind.lower()]))
    return net


def pieces(net, blobs=(), *, old_shapes=None):
    """The bytes of a .caffemodel, layer by layer, with the blobs of each layer by its name.

    ``old_shapes``: blobs have four axes, as by default in the old format; files of both have been seen in the new one.
    """
    old = bool(net.layers)
    layers = [(layer.name, layer.SerializeToString()) for layer in (net.layers or net.layer)]
    common = type(net).FromString(net.SerializeToString())
    common.ClearField("layers" if old else "layer")
    yield common.SerializeToString()
    for name, content in layers:
        made = [blob_of(blob, old=old if old_shapes is None else old_shapes) for blob in dict(blobs).get(name, ())]
        yield chunk(2 if old else 100, b"".join([content, *(chunk(6 if old else 7, blob) for blob in made)]))


def blob_of(tensor, *, old):
    """A tensor as a blob; in old ones missing axes are leading ones of size 1."""
    values = tensor.detach().numpy()
    return (
        old_blob([1] * (LEGACY_AXES - values.ndim) + list(values.shape), values)
        if old
        else new_blob(values.shape, values)
    )


def files(definition, blobs=(), *, old=False):
    """The text of its deploy.prototxt, and the bytes of its .caffemodel."""
    net = message(definition, old=old)
    return MessageToString(net).encode(), b"".join(pieces(net, blobs))


def row(text, **options):
    """A layer from "name kind bottom ... -> top ...", the top being the name when it is left out."""
    left, arrow, tops = text.partition("->")
    name, kind, *bottoms = left.split()
    return Layer(name, kind, tuple(bottoms), tuple(tops.split()) if arrow else (name,), options)
