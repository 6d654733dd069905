"""Reading Caffe's files: the network that a .prototxt describes, and the weights in a .caffemodel."""

import mmap
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from excite.errors import ModelError
from excite.models.caffe.blobs import MOST_LAYERS, BrokenFile, definition_of, weights_of
from excite.models.caffe.definition import Network, is_supported, messages, network_of
from excite.models.weights import check_download, check_file

LARGEST_TEXT = 2**22  # the largest networks have a tenth of that
LONGEST_LINE = 2**20  # protobuf takes 140 bytes of memory for each blank of a line
HEAD = 4096
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")  # in every binary model near its beginning, in no text


def mapped(path: str | PathLike[str]) -> memoryview:
    """The bytes of a .caffemodel, memory-mapped; an error for files that are plainly something else."""
    check_file(path)
    try:
        with Path(path).open("rb") as stream:
            bytes_ = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be opened: {error}.") from error
    head = bytes(bytes_[:HEAD])
    check_download(head, path)
    if not CONTROL.search(head):
        raise ModelError(f"{path} is text, as a .prototxt is: the weights are in the binary .caffemodel beside it.")
    return bytes_


def text_in(path: str | PathLike[str]) -> str:
    """The text of a .prototxt; an error for files that are plainly something else."""
    check_file(path)
    try:
        with Path(path).open("rb") as stream:
            bytes_ = stream.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise ModelError(f"{path} cannot be opened: {error}.") from error
    check_download(bytes_[:HEAD], path)
    control = CONTROL.search(bytes_)
    if control:
        raise ModelError(
            f"{path} is binary (byte {control.start()} is {control.group()[0]:#04x}), as a .caffemodel is: "
            "the network is described by the .prototxt beside it."
        )
    if len(bytes_) > LARGEST_TEXT:
        raise ModelError(f"{path} is larger than {LARGEST_TEXT} bytes: no .prototxt is.")
    if max(map(len, bytes_.split(b"\n"))) > LONGEST_LINE:
        raise ModelError(f"{path} has a line of more than {LONGEST_LINE} bytes: no .prototxt has.")
    try:
        return bytes_.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 at byte {error.start}: save it as UTF-8.") from error


# A .prototxt as a message: strict about every supported layer, without the options of the others.

TOKEN = re.compile(  # comments, strings and braces; an unterminated string is ended here, to stay linear in time
    r"""(?P<hidden> \#[^\n]*+ | "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'?)
      | (?P<word> [A-Za-z_][A-Za-z0-9_]*+) | (?P<opens> [{<\[]) | (?P<closes> [}>\]])""",
    re.VERBOSE,
)
DEEPEST = 16  # Caffe's own files nest four deep


def parsed(text: str) -> Any:
    """The text as a NetParameter; a `BrokenFile` error has the line."""
    spans = list(islice(_layer_spans(text), MOST_LAYERS + 1))
    if len(spans) > MOST_LAYERS:
        raise BrokenFile(f"it has more than {MOST_LAYERS} layers")
    try:
        return _parse(text)
    except BrokenFile:
        known = "".join(_without_unknown_layers(text, spans))
        if known == text:
            raise
        return _parse(known)


def _parse(text: str, *, lenient: bool = False) -> Any:
    network = messages().NetParameter()
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


def _without_unknown_layers(text: str, spans: list[tuple[int, int]]) -> Iterator[str]:
    """The text with each unsupported layer reduced to the common fields; line numbers stay, for errors."""
    behind = 0
    for start, end in spans:
        yield text[behind:start]
        yield _reduced(text[start:end])
        behind = end
    yield text[behind:]


def _reduced(block: str) -> str:
    from google.protobuf import text_format

    try:
        network = _parse(block, lenient=True)
    except BrokenFile:
        return block  # the strict reading gives the error
    layers = [*network.layer, *network.layers]
    if any(map(is_supported, layers)):
        return block
    return text_format.MessageToString(network, as_one_line=True) + "\n" * block.count("\n")


def read_network(path: str | PathLike[str]) -> Network:
    """The network of a .prototxt, of the new or the old (V1) format, for deployment or for training.

    Of a file for training it is the network in its test phase: the data layers become inputs of any shape, losses and
    accuracies are dropped, and so are fillers. A layer that excite does not support has its kind alone.

    Raises:
        ModelError: There is no such file, it is no network, or it holds something that is not Caffe's.

    Example:
        >>> read_network("deploy.prototxt").layers[0].options                               # doctest: +SKIP
        {'num_output': 96, 'kernel_size': (7,), 'stride': (2,)}
    """
    text = text_in(path)
    with _named(path, "a Caffe network"):
        return network_of(parsed(text))


def read_weights(path: str | PathLike[str]) -> dict[str, tuple[Tensor, ...]]:
    """The blobs of each layer of a .caffemodel that has some, by its name.

    Each is float32 in the shape of the file; old files have four axes for all: 1 x 1 x outputs x inputs for
    an inner product, 1 x 1 x 1 x outputs for its bias. The numbers are copied once, from the mapped file into the
    tensors. (A file cut off exactly between two layers looks like a smaller network; the missing weights show later.)

    Raises:
        ModelError: There is no such file, it is no Caffe model, or it is damaged.

    Example:
        >>> read_weights("tiny.caffemodel")                                                 # doctest: +SKIP
        {'ip': (tensor([1., 2.]),)}
    """
    model = mapped(path)
    with _named(path, "a Caffe model"):
        return weights_of(model)


def read_network_of_weights(path: str | PathLike[str]) -> Network:
    """The network that a .caffemodel describes, as it was trained, so mostly without input sizes; not its weights."""
    model = mapped(path)
    net = messages().NetParameter
    from google.protobuf.message import DecodeError

    with _named(path, "a Caffe model"):
        try:
            message = net.FromString(definition_of(model))
        except DecodeError as error:
            raise BrokenFile(f"its layers are damaged ({error})") from error
        return network_of(message, filtered=True)


@contextmanager
def _named(path: str | PathLike[str], what: str) -> Iterator[None]:
    try:
        yield
    except BrokenFile as error:
        raise ModelError(f"{path} cannot be read as {what}: {error}.") from error
