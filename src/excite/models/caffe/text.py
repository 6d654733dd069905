"""A .prototxt as a message: strict about every layer that is supported, blind to what the others say."""

import re
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

from excite.models.caffe.blobs import BrokenFile
from excite.models.caffe.caffe_blobs import MOST_LAYERS
from excite.models.caffe.schema import PARAMETERS_OF, kind_of, messages

__all__ = ["parsed"]

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
