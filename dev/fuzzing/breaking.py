"""Files broken at random, in ways that a reader may fall for. Whatever is done depends on the random numbers alone."""

import re
import struct
from collections.abc import Callable
from random import Random

from breaking_containers import gzip_file, png_file, protobuf_file, safetensors_file, tar_file, zip_file
from breaking_trees import csv_file, json_file, json_lines_file, xml_file
from hostile_values import NUMBERS, TEXTS, WIDTHS

__all__ = ["FORMS", "broken_bytes", "spliced"]

Tokens = tuple[bytes, ...]
LONGEST = 300_000  # bytes; what is longer only takes longer


def _flipped(content: bytearray, random: Random, tokens: Tokens) -> None:
    for _ in range(random.choice((1, 1, 2, 8))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _replaced(content: bytearray, random: Random, tokens: Tokens) -> None:
    content[random.randrange(len(content))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))


def _removed(content: bytearray, random: Random, tokens: Tokens) -> None:
    start, end = _range(content, random)
    del content[start:end]


def _repeated(content: bytearray, random: Random, tokens: Tokens) -> None:
    start, end = _range(content, random)
    content[end:end] = content[start:end] * random.choice((1, 1, 2, 50))


def _moved(content: bytearray, random: Random, tokens: Tokens) -> None:
    start, end = _range(content, random)
    piece = content[start:end]
    del content[start:end]
    place = random.randrange(len(content) + 1)
    content[place:place] = piece


def _cut(content: bytearray, random: Random, tokens: Tokens) -> None:
    del content[random.randrange(len(content)) :]


def _number(content: bytearray, random: Random, tokens: Tokens) -> None:
    """A length or a count of the header, as likely as not."""
    code, size = random.choice(WIDTHS)
    order = random.choice("<>")
    value = random.choice(NUMBERS) % (1 << 8 * size)
    place = random.randrange(min(len(content), random.choice((64, 512, LONGEST))))
    content[place : place + size] = struct.pack(order + code, value)


def _token(content: bytearray, random: Random, tokens: Tokens) -> None:
    place = random.randrange(len(content) + 1)
    word = random.choice([*tokens, *TEXTS])
    content[place : place + (len(word) if random.random() < 0.5 else 0)] = word


def _digits(content: bytearray, random: Random, tokens: Tokens) -> None:
    """A number that is written out."""
    found = list(re.finditer(rb"\d+", content[:LONGEST]))
    if found:
        place = random.choice(found)
        content[place.start() : place.end()] = random.choice(
            [b"0", b"-1", b"1e999", b"nan", b"9" * 400, *(str(number).encode() for number in NUMBERS)]
        )


def _long(content: bytearray, random: Random, tokens: Tokens) -> None:
    """One thing very often."""
    place = random.randrange(len(content) + 1)
    content[place:place] = random.choice([*tokens, b"\0", b"[", b"(", b"<a>", b" ", b"A"]) * random.choice((100, 9_000))


STEPS: tuple[Callable[[bytearray, Random, Tokens], None], ...] = (
    _flipped,
    _flipped,
    _replaced,
    _removed,
    _repeated,
    _moved,
    _cut,
    _number,
    _number,
    _token,
    _digits,
    _long,
)


def _range(content: bytearray, random: Random) -> tuple[int, int]:
    start = random.randrange(len(content))
    return start, min(len(content), start + random.choice((1, 2, 4, 8, 16, 64, 512)))


def broken_bytes(content: bytes, random: Random, tokens: Tokens = ()) -> bytes:
    """A few of the steps, one after the other, without any idea of what the bytes mean."""
    broken = bytearray(content or b"\0")
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        random.choice(STEPS)(broken, random, tokens)
        if not broken:
            break
    return bytes(broken[:LONGEST])


def spliced(first: bytes, second: bytes, random: Random) -> bytes:
    """The beginning of one file and the end of another."""
    return first[: random.randrange(len(first) + 1)] + second[random.randrange(len(second) + 1) :]


def words_file(content: bytes, random: Random, tokens: Tokens = ()) -> bytes:
    """Text whose words, numbers and signs are exchanged, repeated and left out."""
    pieces = re.findall(rb'"[^"\n]*"|\w+|\s+|.', content)
    if not pieces:
        return broken_bytes(content, random, tokens)
    for _ in range(random.choice((1, 1, 2, 4))):
        place = random.randrange(len(pieces))
        end = place + random.choice((1, 1, 4, 20))
        new = random.choice(
            (
                [random.choice([*tokens, *TEXTS, *(str(number).encode() for number in NUMBERS)])],
                pieces[place:end] * random.choice((2, 2, 20, 2_000)),
                [],
                [random.choice(pieces)],
                [b"{"] * 200,
            )
        )
        pieces[place:end] = new
        pieces = pieces or [b" "]
    return b"".join(pieces)[:LONGEST]


def _or_bytes(form: Callable[..., bytes], share: float = 0.3) -> Callable[[bytes, Random, Tokens], bytes]:
    """A form that now and then does not care what the bytes mean, or breaks them after all."""

    def broken(content: bytes, random: Random, tokens: Tokens = ()) -> bytes:
        if random.random() < share:
            return broken_bytes(content, random, tokens)
        try:
            made = form(content, random, tokens)
        except Exception:  # noqa: BLE001 - of any kind: two files were made one, and it is none of its form any more
            return broken_bytes(content, random, tokens)
        return broken_bytes(made, random, tokens) if random.random() < 0.1 else made

    return broken


FORMS: dict[str, Callable[[bytes, Random, Tokens], bytes]] = {
    "bytes": broken_bytes,
    "words": _or_bytes(words_file),
    "json": _or_bytes(json_file),
    "json lines": _or_bytes(json_lines_file),
    "xml": _or_bytes(xml_file),
    "csv": _or_bytes(csv_file),
    "png": _or_bytes(png_file(broken_bytes)),
    "zip": _or_bytes(zip_file(broken_bytes)),
    "gzip": _or_bytes(gzip_file(_or_bytes(csv_file))),
    "tar": _or_bytes(tar_file(broken_bytes)),
    "safetensors": _or_bytes(safetensors_file),
    "protobuf": _or_bytes(protobuf_file(broken_bytes)),
}
"""How files of a kind are broken: some so that they are still good files of that kind, and the deep checks are met."""
