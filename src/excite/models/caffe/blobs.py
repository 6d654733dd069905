"""The bytes of a protobuf message, field by field, without copying them and without believing them."""

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["BrokenFile", "Field", "fields", "signed", "varint_bytes", "varints"]

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
SIZES = {EIGHT_BYTES: 8, FOUR_BYTES: 4}
LARGEST_NUMBER = 2**29 - 1
MOST_FIELDS = 2**10  # in one message; more would only keep us busy


class BrokenFile(Exception):  # noqa: N818 -- never seen by users: it becomes a ModelError that names the file
    """The bytes are not what they should be; the message says how, without the name of the file."""


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: Which field it is.
        value: Its bytes, or its number where it is a varint.
        whole: Its bytes together with those that announce it.
    """

    number: int
    value: memoryview | int
    whole: memoryview

    def content(self) -> memoryview:
        """The bytes of a field that must have some.

        Raises:
            BrokenFile: It is a number.
        """
        if isinstance(self.value, int):
            raise BrokenFile(f"field {self.number} is a number where Caffe has bytes")
        return self.value

    def integer(self) -> int:
        """The number of a field that must be one, signed.

        Raises:
            BrokenFile: It holds bytes.
        """
        if not isinstance(self.value, int):
            raise BrokenFile(f"field {self.number} holds bytes where Caffe has a number")
        return signed(self.value)


def fields(message: memoryview, most: int = MOST_FIELDS) -> Iterator[Field]:
    """The fields of a message in their order; every length is checked against the bytes that are there.

    Raises:
        BrokenFile: The bytes end inside a field, or begin with none.
    """
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
    """The number that begins at a place, and the place behind it."""
    if at < len(view) and view[at] < 0x80:
        return view[at], at + 1  # nearly all are this short
    value = 0
    for shift, byte in zip(range(0, 70, 7), view[at : at + 10], strict=False):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**64:
                raise BrokenFile("a number has more than 64 bits")
            return value, at + shift // 7 + 1
    raise BrokenFile("a number has no end")
