"""Reading Caffe's files: the network that a .prototxt or a .caffemodel describes, and the weights in a .caffemodel.

A .caffemodel is walked field by field where it lies in the file: every length is checked, and only blobs are copied.
"""

import mmap
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from itertools import islice
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from excite.errors import ModelError
from excite.models.caffe.definition import OUTDATED, PARAMETERS_OF, BrokenFile, Network, kind_of, network_of
from excite.models.weights import check_download, check_file

LARGEST_TEXT = 2**22  # the largest networks have a tenth of that
LONGEST_LINE = 2**20  # protobuf takes 140 bytes of memory for each blank of a line
HEAD = 4096
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")  # in every binary model near its beginning, in no text


def read_network(path: str | PathLike[str]) -> Network:
    """The network of a .prototxt, of the new or the old (V1) format, in its test phase; data layers become inputs."""
    with _opened(path, "a Caffe network") as model:
        return network_of(parsed(_text_in(model, path)))


def read_weights(path: str | PathLike[str]) -> dict[str, tuple[Tensor, ...]]:
    """The blobs of each layer of a .caffemodel that has some, by its name; needs no protobuf.

    Each is float32 in the shape of the file; old files have four axes for all. A file cut off exactly between two
    layers looks like a smaller network; the missing ones show later.
    """
    found: dict[str, tuple[Tensor, ...]] = {}
    with _opened(path, "a Caffe model") as model:
        _check_binary(model, path)
        for layer in split(model)[1]:
            if layer.blobs and layer.name in found:
                raise BrokenFile(f"two layers named '{layer.name}' have weights")
            if layer.blobs:
                named = ((f"blob {index} of '{layer.name}'", blob) for index, blob in enumerate(layer.blobs))
                found[layer.name] = tuple(_tensor(blob, what) for what, blob in named)
    return found


def read_network_of_weights(path: str | PathLike[str]) -> Network:
    """The network that a .caffemodel describes, as it was trained, so mostly without input sizes; not its weights."""
    net = net_parameter()()
    from google.protobuf.message import DecodeError

    with _opened(path, "a Caffe model") as model:
        _check_binary(model, path)
        common, layers = split(model)
        try:
            net.MergeFromString(common)
            for layer in layers:
                getattr(net, layer.layout.field).add().MergeFromString(layer.definition)
        except DecodeError as error:
            raise BrokenFile(f"its layers are damaged ({error})") from error
        return network_of(net, filtered=True)


@contextmanager
def _opened(path: str | PathLike[str], what: str) -> Iterator[memoryview]:
    """The bytes of a file, memory-mapped; an error inside names the file."""
    check_file(path)
    try:
        with Path(path).open("rb") as stream:
            mapped = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be opened: {error}.") from error
    check_download(bytes(mapped[:HEAD]), path)
    try:
        yield mapped
    except BrokenFile as error:
        raise ModelError(f"{path} cannot be read as {what}: {error}.") from error


def _check_binary(model: memoryview, path: str | PathLike[str]) -> None:
    if not CONTROL.search(model[:HEAD]):
        raise ModelError(f"{path} is text, as a .prototxt is: the weights are in the binary .caffemodel beside it.")


def _text_in(mapped: memoryview, path: str | PathLike[str]) -> str:
    content = bytes(mapped[: LARGEST_TEXT + 1])
    control = CONTROL.search(content)
    if control:
        raise ModelError(
            f"{path} is binary (byte {control.start()} is {control.group()[0]:#04x}), as a .caffemodel is: "
            "the network is described by the .prototxt beside it."
        )
    if len(content) > LARGEST_TEXT:
        raise ModelError(f"{path} is larger than {LARGEST_TEXT} bytes: no .prototxt is.")
    if max(map(len, content.split(b"\n"))) > LONGEST_LINE:
        raise ModelError(f"{path} has a line of more than {LONGEST_LINE} bytes: no .prototxt has.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 at byte {error.start}: save it as UTF-8.") from error


# A .caffemodel. Its limits are far above any network; together they bound the time to a few million fields.

VARINT, LENGTH, SIZES = 0, 2, {1: 8, 5: 4}  # wire types; of the last two the bytes
LARGEST_NUMBER = 2**29 - 1
MOST_FIELDS, MOST_TOP_FIELDS = 2**10, 2**13  # in one message, and in that of the network
MOST_LAYERS = MOST_BLOBS = 2**12
MOST_AXES = 32  # Caffe's own limit
LARGEST_DEFINITION = 2**22
V0_LAYER, DATA, SHAPE, DOUBLES = 1, 5, 7, 8  # numbers of fields, the last three in a blob
LEGACY_SHAPE = (1, 2, 3, 4)  # num, channels, height, width


class Layout(NamedTuple):
    """The field of the network that holds a layer, and field numbers in its message."""

    field: str
    name: int
    blobs: int


LAYOUTS = {2: Layout("layers", name=4, blobs=6), 100: Layout("layer", name=1, blobs=7)}  # V1, and the new one


class Field(NamedTuple):
    """One field of a message; its value is an int for a varint, the whole is with its tag and length."""

    number: int
    value: memoryview | int
    whole: memoryview

    def content(self) -> memoryview:
        """The bytes of the field; an error where it is a number."""
        if isinstance(self.value, int):
            raise BrokenFile(f"field {self.number} is a number where Caffe has bytes")
        return self.value


class RawLayer(NamedTuple):
    """A layer of a .caffemodel: its message without the blobs, and the bytes of each blob."""

    layout: Layout
    name: str
    definition: bytes
    blobs: list[memoryview]


def fields(message: memoryview, most: int | None = None) -> Iterator[Field]:
    """The fields of a message in their order; every length is checked against the bytes that are left."""
    at = count = 0
    most = most or MOST_FIELDS
    while at < len(message):
        count += 1
        if count > most:
            raise BrokenFile(f"a message has more than {most} fields, which Caffe packs into one")
        start = at
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= LARGEST_NUMBER:
            raise BrokenFile(f"there is no field {number} in any message")
        if kind not in {VARINT, LENGTH, *SIZES}:
            raise BrokenFile(f"field {number} is of wire type {kind}, which Caffe does not write")
        size, at = (SIZES[kind], at) if kind in SIZES else _varint(message, at)
        if kind == VARINT:
            yield Field(number, size, message[start:at])
            continue
        if size > len(message) - at:
            raise BrokenFile(f"{len(message) - at} of {size} bytes are left in a field: it is cut short, get it again")
        yield Field(number, message[at : at + size], message[start : at + size])
        at += size


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """The number that begins at a position, and the position behind it."""
    value = 0
    for shift, byte in zip(range(0, 70, 7), view[at : at + 10], strict=False):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**64:
                raise BrokenFile("a number has more than 64 bits")
            return value, at + shift // 7 + 1
    raise BrokenFile("a number has no end")


def split(model: memoryview) -> tuple[bytes, list[RawLayer]]:
    """The message of a network without its layers, and these; small but for the blobs, which stay in the file."""
    common, layers = bytearray(), []
    size = blobs = 0
    for field in fields(model, MOST_TOP_FIELDS):
        if field.number in LAYOUTS:
            layers.append(_raw_layer(field.content(), LAYOUTS[field.number]))
            size += len(layers[-1].definition)
            blobs += len(layers[-1].blobs)
        else:
            common += field.whole
        if len(layers) > MOST_LAYERS or blobs > MOST_BLOBS:
            raise BrokenFile(f"it has more than {MOST_LAYERS} layers or {MOST_BLOBS} blobs")
        if size + len(common) > LARGEST_DEFINITION:
            raise BrokenFile("it describes a network larger than any there is")
    if not layers:
        raise BrokenFile("it has no layers")
    return bytes(common), layers


def _raw_layer(message: memoryview, layout: Layout) -> RawLayer:
    name, blobs, definition = "", [], bytearray()
    for field in fields(message):
        if field.number == layout.blobs:
            blobs.append(field.content())
            continue
        definition += field.whole
        if field.number == layout.name:
            try:
                name = str(field.content(), "utf-8")
            except UnicodeDecodeError as error:
                raise BrokenFile("the name of a layer is not UTF-8") from error
        elif field.number == V0_LAYER and layout.field == "layers":
            raise BrokenFile(OUTDATED.format("binary"))
    return RawLayer(layout, name, bytes(definition), blobs)


def _tensor(blob: memoryview, what: str) -> Tensor:
    """The numbers of a blob in its shape, copied from the file once."""
    numbers = {DATA: bytearray(), DOUBLES: bytearray()}
    axes: list[int] = []
    legacy: dict[int, int] = {}
    for field in fields(blob):
        if field.number in numbers:
            numbers[field.number] += field.content()  # packed or single, in one or more pieces
        elif field.number == SHAPE:
            axes += islice(_axes(field.content()), MOST_AXES + 1)
        elif field.number in LEGACY_SHAPE:
            if not isinstance(field.value, int):
                raise BrokenFile(f"field {field.number} holds bytes where Caffe has a number")
            legacy[field.number] = field.value
        if len(axes) > MOST_AXES:
            raise BrokenFile(f"{what} has more than {MOST_AXES} axes")
    singles, doubles = numbers.values()
    if singles and doubles:
        raise BrokenFile(f"{what} has its numbers twice, in float and in double")
    if len(singles) % 4 or len(doubles) % 8:
        raise BrokenFile(f"{what} ends inside a number")
    flat = torch.from_numpy(np.frombuffer(doubles, "<f8") if doubles else np.frombuffer(singles, "<f4")).float()
    unsigned = [legacy.get(number, 0) for number in LEGACY_SHAPE] if legacy else axes  # in this order in Caffe, too
    shape = [size - 2**64 if size >= 2**63 else size for size in unsigned]  # a varint is the two's complement
    if min(shape, default=1) < 1 or prod(shape) != len(flat):
        text = " x ".join(map(str, shape))[:100] or "a single number"
        raise BrokenFile(f"{what} has {len(flat)} numbers where its shape says {text}")
    return flat.reshape(shape)


def _axes(shape: memoryview) -> Iterator[int]:
    """The sizes in a shape, each a field or packed."""
    for field in fields(shape):
        if field.number == 1 and isinstance(field.value, int):
            yield field.value
        elif field.number == 1:
            at = 0
            while at < len(field.content()):
                size, at = _varint(field.content(), at)
                yield size


# A .prototxt as a message: strict about every supported layer, without the options of the others.

TOKEN = re.compile(  # comments, strings and braces; an unterminated string is ended here, to stay linear in time
    r"""(?P<hidden> \#[^\n]*+ | "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'?)
      | (?P<word> [A-Za-z_][A-Za-z0-9_]*+) | (?P<opens> [{<\[]) | (?P<closes> [}>\]])""",
    re.VERBOSE,
)
DEEPEST = 16  # Caffe's own files nest four deep


@cache
def net_parameter() -> Any:
    """The class of Caffe's message for a network, by caffe.proto; a ModelError where protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise ModelError("Reading Caffe's files needs protobuf: pip install 'excite[caffe]'.") from error
    compiled = files("excite.models.caffe").joinpath("caffe.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorSet.FromString(compiled).file[0])
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("excite.caffe.NetParameter"))


def parsed(text: str) -> Any:
    """The text as a NetParameter; a `BrokenFile` error has the line."""
    spans = list(islice(_layer_spans(text), MOST_LAYERS + 1))
    if len(spans) > MOST_LAYERS:
        raise BrokenFile(f"it has more than {MOST_LAYERS} layers")
    try:
        return _parse(text)
    except BrokenFile:
        ends = [0, *(end for _, end in spans)]
        pieces = (text[last:start] + _reduced(text[start:end]) for last, (start, end) in zip(ends, spans, strict=False))
        known = "".join(pieces) + text[ends[-1] :]
        if known == text:
            raise
        return _parse(known)


def _parse(text: str, *, lenient: bool = False) -> Any:
    network = net_parameter()()
    from google.protobuf import text_format

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about escapes in a damaged text
            return text_format.Parse(text, network, allow_unknown_field=lenient)
    except (text_format.ParseError, RecursionError) as error:
        place, _, reason = str(error).replace("excite.caffe.", "").partition(" : ")
        raise BrokenFile(f"line {place.partition(':')[0]}: {reason[-300:]}") from error


def _layer_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each ``layer { ... }`` and ``layers { ... }`` begins and ends."""
    depth, start, word = 0, 0, ""
    for token in TOKEN.finditer(text):
        if token["opens"]:
            depth += 1
            if depth > DEEPEST:
                raise BrokenFile(f"line {text.count(chr(10), 0, token.start()) + 1}: nested more than {DEEPEST} deep")
        elif token["closes"]:
            depth -= 1
            if depth < 0:
                return
            if not depth and word in {"layer", "layers"}:
                yield start, token.end()
        elif token["word"] and not depth:
            start, word = token.start(), token["word"]


def _reduced(block: str) -> str:
    """An unsupported layer with the common fields alone, on as many lines: line numbers stay, for errors."""
    from google.protobuf import text_format

    try:
        network = _parse(block, lenient=True)
    except BrokenFile:
        return block  # the strict reading gives the error
    if any(kind_of(layer).lower() in PARAMETERS_OF for layer in (*network.layer, *network.layers)):
        return block
    return text_format.MessageToString(network, as_one_line=True) + "\n" * block.count("\n")
