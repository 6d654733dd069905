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
from excite.models.caffe.schema import PARAMETERS_OF, Network, kind_of, messages
from excite.models.caffe.upgrade import network_of
from excite.models.weights import check_download, check_file

# Opening a file that should be one of Caffe's, and saying what it is where it is something else.

LARGEST_TEXT = 2**22  # the largest networks have a tenth of that
LONGEST_LINE = 2**20  # protobuf takes 140 bytes of memory for each blank of a line
HEAD = 4096
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")  # in every binary model near its beginning, in no text


def mapped(path: str | PathLike[str]) -> memoryview:
    """The bytes of a .caffemodel, read from the disk when they are looked at.

    Raises:
        ModelError: There is no such file, or it is plainly something else.
    """
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
    """The text of a .prototxt.

    Raises:
        ModelError: There is no such file, or it is plainly something else.
    """
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


# A .prototxt as a message: strict about every layer that is supported, blind to what the others say.

TOKEN = re.compile(  # what can hide or open a block; a string that does not end is ended here, to stay linear in time
    r"""(?P<hidden> \#[^\n]*+ | "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'?)
      | (?P<word> [A-Za-z_][A-Za-z0-9_]*+) | (?P<opens> [{<\[]) | (?P<closes> [}>\]])""",
    re.VERBOSE,
)
DEEPEST = 16  # Caffe's own files nest four deep


def parsed(text: str) -> Any:
    """The NetParameter that the text is.

    Raises:
        BrokenFile: It is none; the message has the line.
    """
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


def _parse(text: str, *, blind: bool = False) -> Any:
    network = messages()["NetParameter"]()
    from google.protobuf import text_format

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python's, about escapes that a damaged text may hold
            return text_format.Parse(text, network, allow_unknown_field=blind)
    except (text_format.ParseError, RecursionError) as error:
        place, _, reason = str(error).replace("excite.caffe.", "").partition(" : ")
        raise BrokenFile(f"line {place.partition(':')[0]}: {reason[-300:]}") from error


def _layer_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each ``layer { ... }`` and ``layers { ... }`` begins and ends; the rest is left to the strict reading."""
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
    """The text with each layer of an unsupported kind cut down to the fields that all layers have.

    The number of lines stays, so that an error still names the right one.
    """
    behind = 0
    for start, end in spans:
        yield text[behind:start]
        yield _cut_down(text[start:end])
        behind = end
    yield text[behind:]


def _cut_down(block: str) -> str:
    from google.protobuf import text_format

    try:
        network = _parse(block, blind=True)
    except BrokenFile:
        return block  # more is wrong with it than a field: the strict reading says what
    layers = [*network.layer, *network.layers]
    if any(kind_of(layer) in PARAMETERS_OF for layer in layers):
        return block
    return text_format.MessageToString(network, as_one_line=True) + "\n" * block.count("\n")


# Reading Caffe's files: the network that a .prototxt describes, and the weights in a .caffemodel.


def read_network(path: str | PathLike[str]) -> Network:
    """The network that a .prototxt describes, of the new or the old (V1) format, made for use or for training.

    Of a file for training it is the network in its test phase: the data layers become inputs of any shape, losses
    and accuracies are gone. Fillers, with which training begins, are left out of the options of the layers. A layer
    that excite does not support is there with its kind alone.

    Raises:
        ModelError: There is no such file, it is no network, or it says something that is not Caffe's.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from pathlib import Path
        >>> text = '''
        ... input: "data" input_dim: 1 input_dim: 3 input_dim: 224 input_dim: 224
        ... layers { name: "conv1" type: CONVOLUTION bottom: "data" top: "conv1"
        ...          convolution_param { num_output: 96 kernel_size: 7 stride: 2 } }
        ... '''
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "deploy.prototxt")
        ...     _ = path.write_text(text)
        ...     network = read_network(path)
        >>> network.inputs
        {'data': (1, 3, 224, 224)}
        >>> network.layers[0].kind, network.layers[0].options
        ('Convolution', {'num_output': 96, 'kernel_size': (7,), 'stride': (2,)})
    """
    text = text_in(path)
    with _named(path, "a Caffe network"):
        return network_of(parsed(text))


def read_weights(path: str | PathLike[str]) -> dict[str, tuple[Tensor, ...]]:
    """The weights in a .caffemodel: the blobs of each layer that has some, by its name.

    Each is float32 in the shape the file gives it; old files have four axes for all: 1 x 1 x outputs x inputs for
    an inner product, 1 x 1 x 1 x outputs for its bias. The file is mapped, and its numbers are copied once, straight
    into the tensors: the memory in use is theirs (and twice that of a blob of doubles while it is at hand).

    A file that was cut off exactly between two layers cannot be told from a smaller network; whoever builds the
    network sees that weights are missing.

    Raises:
        ModelError: There is no such file, it is no Caffe model, or it is damaged.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from pathlib import Path
        >>> blob = "2a 08 0000803f 00000040 3a 03 0a 01 02"  # data: 1.0, 2.0; shape: 2
        >>> layer = f"0a 02 6970 3a 0f {blob}"  # name: "ip"; blobs
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "tiny.caffemodel")
        ...     _ = path.write_bytes(bytes.fromhex(f"a206 15 {layer}"))
        ...     read_weights(path)
        {'ip': (tensor([1., 2.]),)}
    """
    model = mapped(path)
    with _named(path, "a Caffe model"):
        return weights_of(model)


def read_network_of_weights(path: str | PathLike[str]) -> Network:
    """The network that a .caffemodel describes itself: the one it was trained as, so mostly without input sizes.

    Only the description is read; the weights stay on the disk.

    Raises:
        ModelError: There is no such file, it is no Caffe model, or it says something that is not Caffe's.
    """
    model = mapped(path)
    net = messages()["NetParameter"]
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
