"""Files with checksums, lengths or packed parts, broken inside and closed again: the outer checks let them through."""

import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random

from breaking_trees import json_file
from hostile_values import NUMBERS

__all__ = ["gzip_file", "png_file", "protobuf_file", "safetensors_file", "tar_file", "zip_file"]

Form = Callable[..., bytes]
Field = tuple[int, int, int | bytes]
BLOCK = 512
PNG_HEAD = b"\x89PNG\r\n\x1a\n"
LONG_AGO = (1980, 1, 1, 0, 0, 0)


def png_file(inner: Form) -> Form:
    """Chunks broken, repeated, left out, with lengths and checksums that fit."""

    def broken(content: bytes, random: Random, tokens: tuple[bytes, ...] = ()) -> bytes:
        chunks, at = [], len(PNG_HEAD)
        while at < len(content):
            size, kind = struct.unpack(">I4s", content[at : at + 8])
            chunks.append((kind, content[at + 8 : at + 8 + size]))
            at += 12 + size
        place = random.randrange(len(chunks))
        kind, data = chunks[place]
        match random.randrange(5):
            case 0:
                chunks[place:place] = [random.choice(chunks)] * random.choice((1, 30))
            case 1:
                del chunks[place]
            case 2 if kind == b"IDAT":
                chunks[place] = kind, zlib.compress(inner(zlib.decompress(data), random))
            case _:
                chunks[place] = random.choice((kind, kind, *tokens)), inner(data, random)
        return PNG_HEAD + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )

    return broken


def zip_file(inner: Form) -> Form:
    """Members broken, renamed, repeated; packed again with checksums that fit, some of them huge."""

    def broken(content: bytes, random: Random, tokens: tuple[bytes, ...] = ()) -> bytes:
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                members = [(name, archive.read(name)) for name in archive.namelist()]
        except zipfile.BadZipFile as error:
            raise ValueError(str(error)) from error
        for _ in range(random.choice((1, 1, 2))):
            place = random.randrange(len(members))
            name, data = members[place]
            match random.randrange(8):
                case 0:
                    names = ["../out", "/etc/out", "a\\b", "c:d", "", "a/", "é" * 200, *(one for one, _ in members)]
                    members[place] = random.choice(names), data
                case 1 if len(members) > 1:
                    del members[place]
                case 2:
                    members.append((f"more{len(members)}", data))
                case _:
                    members[place] = name, inner(data, random, tokens)
        file = io.BytesIO()
        method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        with zipfile.ZipFile(file, "w") as archive:
            for place, (name, data) in enumerate(members):
                about = zipfile.ZipInfo(
                    name if all(name != one for one, _ in members[:place]) else f"{name}~", LONG_AGO
                )
                archive.writestr(about, data, method)
        return file.getvalue()

    return broken


def gzip_file(inner: Form) -> Form:
    """What is packed is broken, and packed again."""

    def broken(content: bytes, random: Random, tokens: tuple[bytes, ...] = ()) -> bytes:
        try:
            plain = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(str(error)) from error
        return gzip.compress(inner(plain, random, tokens), 1, mtime=0)

    return broken


def tar_file(inner: Form) -> Form:
    """A header block broken, its checksum made to fit again."""

    def broken(content: bytes, random: Random, tokens: tuple[bytes, ...] = ()) -> bytes:
        blocks = [content[at : at + BLOCK] for at in range(0, len(content), BLOCK)]
        heads = [place for place, block in enumerate(blocks) if block[257:262] == b"ustar"]
        place = random.choice(heads)
        head = bytearray(blocks[place].ljust(BLOCK, b"\0"))
        match random.randrange(4):
            case 0:
                head[156] = random.choice(b"0123456789xgLKSDVNX\0\xff")
            case 1:
                size = random.choice(
                    (b"0" * 11, b"7" * 11, b"-0000000001", b"\x80" + b"\xff" * 10, b"\xff" * 11, b"x" * 11)
                )
                head[124:135] = size
            case 2:
                name = random.choice((b"../../out", b"/etc/out", b"a\\b", b"", b"\xff\xfe", b"a" * 100, *tokens))[:100]
                head[0:100] = name.ljust(100, b"\0")
            case 3:
                head[:] = inner(bytes(head), random, tokens)[:BLOCK].ljust(BLOCK, b"\0")
        head[148:156] = b" " * 8
        head[148:156] = f"{sum(head) % 8**6:06o}\0 ".encode()
        blocks[place] = bytes(head)
        if random.random() < 0.2:
            blocks[place:place] = [random.choice(blocks)] * random.choice((1, 20))
        return b"".join(blocks)

    return broken


def safetensors_file(content: bytes, random: Random, tokens: tuple[bytes, ...] = ()) -> bytes:
    """The JSON of the header changed, its length told rightly or not."""
    (size,) = struct.unpack("<Q", content[:8])
    head, tensors = content[8 : 8 + size], content[8 + size :]
    json.loads(head)
    head = json_file(head, random, tokens)
    told = len(head) if random.random() < 0.8 else random.choice(NUMBERS) % 2**64
    return struct.pack("<Q", told) + head + tensors


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _fields(content: bytes) -> list[Field]:
    """Number, wire type and value of each field; an IndexError or ValueError if it is no message."""
    found, at = [], 0
    while at < len(content):
        tag, at = _read_varint(content, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read_varint(content, at)
        elif kind in {1, 2, 5}:
            size, at = _read_varint(content, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = content[at : at + size], at + size
            if len(value) < size:
                raise ValueError("cut off")
        else:
            raise ValueError("no message")
        found.append((tag >> 3, kind, value))
    return found


def _message(fields: list[Field]) -> bytes:
    made = bytearray()
    for number, kind, value in fields:
        made += _varint(number << 3 | kind)
        if isinstance(value, int):
            made += _varint(value)
        else:
            made += (_varint(len(value)) if kind == 2 else b"") + value
    return bytes(made)


def protobuf_file(inner: Form) -> Form:
    """A field changed, moved, repeated or nested somewhere in the tree of messages, all lengths fitting."""

    def broken(content: bytes, random: Random, tokens: tuple[bytes, ...] = ()) -> bytes:
        fields = _fields(content)
        if not fields:
            raise ValueError("an empty message")
        place = random.randrange(len(fields))
        number, kind, value = fields[place]
        if kind == 2 and random.random() < 0.75:
            try:
                fields[place] = number, kind, broken(value, random, tokens)
                return _message(fields)
            except (ValueError, IndexError):
                pass  # it is no message but a text, or packed numbers
        _change(fields, place, random, lambda plain: inner(plain, random, tokens))
        return _message(fields)

    return broken


def _change(fields: list[Field], place: int, random: Random, break_it: Callable[[bytes], bytes]) -> None:
    number, kind, value = fields[place]
    match random.randrange(6):
        case 0:
            del fields[place]
        case 1:
            fields[place:place] = [fields[place]] * random.choice((1, 2, 30, 3_000))
        case 2:
            fields[place] = random.choice((1, 2, 3, 4, 5, 6, 7, 8, 100, 2**29 - 1)), kind, value
        case 3:
            fields[place] = number, 0, random.choice(NUMBERS) % 2**64
        case 4:
            nested = _message([fields[place]])
            for _ in range(random.choice((1, 200))):
                nested = _message([(number, 2, nested)])
            fields.append((number, 2, nested))
        case 5:
            fields[place] = number, 2, break_it(value if isinstance(value, bytes) else _varint(value))
