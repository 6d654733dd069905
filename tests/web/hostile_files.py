"""Files that are no images, or worse: small on the wire and huge in memory, cut off, two things at once."""

import io
import struct
import tomllib
import zipfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image
from servers import encoded

TABLE = tomllib.loads(Path(__file__).with_name("hostile.toml").read_text())


def noise():
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))


def cut(kind, share=0.6, **options):
    whole = encoded(noise(), kind, **options)
    return whole[: int(len(whole) * share)]


def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width, height, *chunks, data=b""):
    """A PNG that says that it is so large, whatever it holds."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    data = data or zlib.compress(b"\0" * 64)
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def enlarged(kind, marker, offset, form, *sides, **options):
    """An image whose head says that it is larger: at so many bytes behind a marker."""
    whole = bytearray(encoded(noise(), kind, **options))
    struct.pack_into(form, whole, whole.index(marker) + offset, *sides)
    return bytes(whole)


def tiff(width, height):
    """One strip that says that it is everything."""
    tags = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1)]
    tags += [(278, 4, height), (279, 4, 2**31 - 1)]
    directory = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + directory + b"\0\0\0\0"


def zipped(**files):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def long_exif():
    """A JPEG whose metadata points to itself and far outside."""
    entry = struct.pack("<HHII", 0x8769, 4, 1, 8) + struct.pack("<HHII", 0x0112, 3, 2**31 - 1, 2**32 - 1)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + entry + struct.pack("<I", 8)
    whole = encoded(noise(), "JPEG")
    return whole[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + whole[2 : len(whole) // 2]


KINDS = {"JPEG": {}, "PNG": {}, "GIF": {}, "WEBP": {"lossless": True}, "TIFF": {}, "BMP": {}, "PPM": {}}
CUT = {f"{kind} cut off": cut(kind, **options) for kind, options in KINDS.items()} | {
    "JPEG2000 cut to its head": cut("JPEG2000", 0.02),
    "PNG cut in its head": cut("PNG", 0.002),
    "JPEG of its first two bytes": b"\xff\xd8",
    "PNG with a wrong checksum": png(8, 8)[:20] + b"\xff" + png(8, 8)[21:],
    "PNG with broken data": png(8, 8, data=b"\x78\x9c" + b"\xff" * 40),
    "JPEG with metadata in a circle, cut off": long_exif(),
    "TIFF with a directory that is its own next": b"II*\0\x08\0\0\0\0\0\x08\0\0\0",
}
BOMBS = {
    "PNG of two thousand million squared": png(2**31 - 1, 2**31 - 1),
    "PNG of 30,000 squared": png(30_000, 30_000),
    "PNG that really has all its pixels": encoded(Image.new("1", (8000, 8000)), "PNG"),
    "PNG with a text of 40 megabytes": png(
        8, 8, chunk(b"zTXt", b"c\0\0" + zlib.compress(b"\0" * 40_000_000, 1)), data=zlib.compress(b"\0" * 200)
    ),
    "GIF of 65,535 squared": enlarged("GIF", b"GIF", 6, "<HH", 65_535, 65_535),
    "WEBP of 16,384 squared": enlarged("WEBP", b"VP8L", 9, "<I", 2**28 - 1, lossless=True),
    "TIFF of a million squared": tiff(1_000_000, 1_000_000),
    "TIFF of 5,000 squared without data": tiff(5_000, 5_000),
    "BMP of two thousand million squared": enlarged("BMP", b"BM", 18, "<ii", 2**31 - 1, 2**31 - 1),
    "BMP of a negative height": enlarged("BMP", b"BM", 18, "<ii", 30_000, -(2**31)),
    "JPEG of 65,500 squared": enlarged("JPEG", b"\xff\xc0", 5, ">HH", 65_500, 65_500),
    "PPM of a thousand million squared": b"P6 999999999 999999999 255\n",
    "PPM with a number of a thousand digits": b"P6 " + b"9" * 1000 + b" 1 255\n",
    "a thousand million pixels in a row": png(1_000_000_000, 1),
    "PNG that is a strip of one pixel by many": encoded(Image.new("1", (1, 900_000)), "PNG"),
    "PNG without any pixels": png(0, 0),
}
LAUGHS = "".join(f'<!ENTITY l{k} "{f"&l{k - 1};" * 10}">' for k in range(1, 12))
OTHERS = {name: text.encode() for name, text in TABLE["files"].items()} | {
    "nothing": b"",
    "one byte": b"\x89",
    "zeros": b"\0" * 5000,
    "a zip archive": zipped(a="x" * 100),
    "a zip bomb": zipped(a=b"\0" * 5_000_000),
    "a program of Windows": b"MZ\x90\0" + b"\0" * 200 + b"PE\0\0",
    "a program of Linux": b"\x7fELF\x02\x01\x01" + b"\0" * 200,
    "XML that expands for ever": f'<!DOCTYPE s [<!ENTITY l0 "ha">{LAUGHS}]><s>&l11;</s>'.encode(),
    "a film": b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + b"\0" * 100,
    "FLIF, ICO, PSD": b"8BPS\0\x01" + b"\0" * 100,
    "GIF and script in one": b"GIF89a/*" + b"\0" * 20 + b"*/=1;alert(1)//",
    "PDF that ends as an image": b"%PDF-1.4\n" + encoded(noise(), "JPEG"),
    "random bytes": np.random.default_rng(1).bytes(3000),
}
