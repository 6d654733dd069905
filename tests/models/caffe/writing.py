"""Caffe's files written by hand: tags, varints and floats byte by byte, with nothing of the reader's in it.

The numbers are those of Caffe's own format. A message is a list of fields, each made by one of these functions.
"""

import struct

LEGACY_AXES = 4


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
    return struct.pack(f"<{len(values)}{code}", *values)


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


def prototxt(fields, indent=""):
    """The text form of pairs (name, value): a list of pairs is a message, and a Word is written bare."""
    return "".join(_line(name, value, indent) for name, value in fields)


class Word(str):
    """A word of an enumeration."""

    __slots__ = ()


def _line(name, value, indent):
    if isinstance(value, list):
        return f"{indent}{name} {{\n{prototxt(value, indent + '  ')}{indent}}}\n"
    if isinstance(value, bool):
        value = Word(str(value).lower())
    if isinstance(value, str) and not isinstance(value, Word):
        value = f'"{value}"'
    return f"{indent}{name}: {value}\n"
