"""The weights and the definition in a .caffemodel, read from its bytes field by field: nothing is copied or trusted."""

from collections.abc import Iterator
from itertools import islice
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
SIZES = {EIGHT_BYTES: 8, FOUR_BYTES: 4}
LARGEST_NUMBER = 2**29 - 1
MOST_FIELDS = 2**10  # in one message; more would only keep us busy


class BrokenFile(Exception):  # noqa: N818 -- never seen by users: it becomes a ModelError that names the file
    """The bytes are not Caffe's; the message says why, without the name of the file."""


class Field(NamedTuple):
    """One field of a message."""

    number: int
    value: memoryview | int  # an int for a varint
    whole: memoryview  # with its tag and length

    def content(self) -> memoryview:
        """The bytes of the field; an error where it is a number."""
        if isinstance(self.value, int):
            raise BrokenFile(f"field {self.number} is a number where Caffe has bytes")
        return self.value

    def integer(self) -> int:
        """The number, signed; an error where the field holds bytes."""
        if not isinstance(self.value, int):
            raise BrokenFile(f"field {self.number} holds bytes where Caffe has a number")
        return signed(self.value)


def fields(message: memoryview, most: int = MOST_FIELDS) -> Iterator[Field]:
    """The fields of a message in their order; every length is checked against the bytes that are left."""
    at = count = 0
    while at < len(message):
        count += 1
        if count > most:
            raise BrokenFile(f"a message has more than {most} fields, which Caffe packs into one")
        start = at
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= LARGEST_NUMBER:
            raise BrokenFile(f"there is no field {number} in any message")
        if kind == VARINT:
            value, at = _varint(message, at)
            yield Field(number, value, message[start:at])
            continue
        if kind == LENGTH:
            size, at = _varint(message, at)
        elif kind in SIZES:
            size = SIZES[kind]
        else:
            raise BrokenFile(f"field {number} is of wire type {kind}, which Caffe does not write")
        if size > len(message) - at:
            raise BrokenFile(f"field {number} says {size} bytes where {len(message) - at} are left: it is cut short")
        yield Field(number, message[at : at + size], message[start : at + size])
        at += size


def varints(packed: memoryview) -> Iterator[int]:
    """The numbers of a packed field, signed."""
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield signed(value)


def signed(value: int) -> int:
    """The number that a varint of 64 bits stands for: negative ones come as their two's complement."""
    return value - 2**64 if value >= 2**63 else value


def varint_bytes(value: int) -> bytes:
    """A number >= 0 in as many bytes as it needs, seven bits each."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """The number that begins at a position, and the position behind it."""
    if at < len(view) and view[at] < 0x80:
        return view[at], at + 1  # most are this short
    value = 0
    for shift, byte in zip(range(0, 70, 7), view[at : at + 10], strict=False):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**64:
                raise BrokenFile("a number has more than 64 bits")
            return value, at + shift // 7 + 1
    raise BrokenFile("a number has no end")


# Limits far above any network. Together they bound the time to a few million fields, however large the file.
MOST_LAYERS = 2**12
MOST_BLOBS = 2**12
MOST_TOP_FIELDS = 2**13
MOST_AXES = 32  # Caffe's own limit
LARGEST_DEFINITION = 2**22
V0_LAYER, DATA, SHAPE, DOUBLES = 1, 5, 7, 8  # numbers of fields, the last three in a blob
LEGACY_SHAPE = (1, 2, 3, 4)  # num, channels, height, width


class Layout(NamedTuple):
    """Field numbers in a layer message."""

    name: int
    blobs: int


LAYOUTS = {2: Layout(name=4, blobs=6), 100: Layout(name=1, blobs=7)}  # by the field of the network: V1, and the new one


def weights_of(model: memoryview) -> dict[str, tuple[Tensor, ...]]:
    """The blobs of each layer that has some, by its name, as float32 in their own shapes."""
    found: dict[str, tuple[Tensor, ...]] = {}
    total = 0
    for layer, layout in _layers(model):
        name, blobs = _name_and_blobs(layer, layout)
        total += len(blobs)
        if total > MOST_BLOBS:
            raise BrokenFile(f"it has more than {MOST_BLOBS} blobs")
        if blobs and name in found:
            raise BrokenFile(f"two layers named '{name}' have weights")
        if blobs:
            found[name] = tuple(_tensor(blob, f"blob {index} of '{name}'") for index, blob in enumerate(blobs))
    return found


def definition_of(model: memoryview) -> bytes:
    """The same message without its blobs: small, whatever the model's size."""
    made, layers = bytearray(), 0
    for field in fields(model, MOST_TOP_FIELDS):
        if field.number in LAYOUTS:
            layers += 1
            kept = _without(LAYOUTS[field.number].blobs, field.content())
            made += varint_bytes(field.number << 3 | 2) + varint_bytes(len(kept)) + kept
        else:
            made += field.whole
        if len(made) > LARGEST_DEFINITION or layers > MOST_LAYERS:
            raise BrokenFile("it describes a network larger than any there is")
    return bytes(made)


def _without(number: int, message: memoryview) -> bytearray:
    """The message without one of its fields."""
    kept = bytearray()
    for field in fields(message):
        if field.number != number:
            kept += field.whole
        if len(kept) > LARGEST_DEFINITION:
            raise BrokenFile("it has a layer with more to say than any there is")
    return kept


def _layers(model: memoryview) -> Iterator[tuple[memoryview, Layout]]:
    layers = 0
    for field in fields(model, MOST_TOP_FIELDS):
        if field.number in LAYOUTS:
            layers += 1
            if layers > MOST_LAYERS:
                raise BrokenFile(f"it has more than {MOST_LAYERS} layers")
            yield field.content(), LAYOUTS[field.number]
    if not layers:
        raise BrokenFile("it has no layers")


def _name_and_blobs(layer: memoryview, layout: Layout) -> tuple[str, list[memoryview]]:
    name = ""
    blobs: list[memoryview] = []
    for field in fields(layer):
        if field.number == layout.name:
            try:
                name = str(field.content(), "utf-8")
            except UnicodeDecodeError as error:
                raise BrokenFile("the name of a layer is not UTF-8") from error
        elif field.number == layout.blobs:
            if len(blobs) == MOST_BLOBS:
                raise BrokenFile(f"it has more than {MOST_BLOBS} blobs")
            blobs.append(field.content())
        elif field.number == V0_LAYER and layout is LAYOUTS[2]:
            raise BrokenFile(
                "it is in Caffe's format of 2013 (V0); Caffe's upgrade_net_proto_binary makes a newer file of it"
            )
    return name, blobs


def _tensor(blob: memoryview, what: str) -> Tensor:
    """The numbers of a blob in its shape, copied from the file once."""
    singles, doubles = bytearray(), bytearray()
    axes: list[int] = []
    legacy: dict[int, int] = {}
    for field in fields(blob):
        if field.number == DATA:
            singles += field.content()  # packed or single, in one or more pieces
        elif field.number == DOUBLES:
            doubles += field.content()
        elif field.number == SHAPE:
            axes += _axes(field.content())
        elif field.number in LEGACY_SHAPE:
            legacy[field.number] = field.integer()
        if len(axes) > MOST_AXES:
            raise BrokenFile(f"{what} has more than {MOST_AXES} axes")
    if singles and doubles:
        raise BrokenFile(f"{what} has its numbers twice, in float and in double")
    shape = [legacy.get(number, 0) for number in LEGACY_SHAPE] if legacy else axes  # in this order in Caffe, too
    numbers = _numbers(singles, doubles, what)
    if min(shape, default=1) < 1 or prod(shape) != len(numbers):
        text = " x ".join(map(str, shape))[:100] or "a single number"
        raise BrokenFile(f"{what} has {len(numbers)} numbers where its shape says {text}")
    return numbers.reshape(shape)


def _axes(shape: memoryview) -> list[int]:
    sizes: list[int] = []
    for field in fields(shape):
        if field.number == 1:
            sizes += [field.integer()] if isinstance(field.value, int) else islice(varints(field.value), MOST_AXES + 1)
        if len(sizes) > MOST_AXES:
            raise BrokenFile(f"a blob has more than {MOST_AXES} axes")
    return sizes


def _numbers(singles: bytearray, doubles: bytearray, what: str) -> Tensor:
    if len(singles) % 4 or len(doubles) % 8:
        raise BrokenFile(f"{what} ends inside a number")
    if doubles:
        return torch.from_numpy(np.frombuffer(doubles, "<f8").astype(np.float64, copy=False)).float()
    return torch.from_numpy(np.frombuffer(singles, "<f4").astype(np.float32, copy=False))
