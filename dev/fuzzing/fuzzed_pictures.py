"""Readers of images: every format that is read, with what cameras, scanners and designers put into it."""

import io
import struct
import zlib
from functools import partial

import numpy as np
from fuzzed import Reader
from PIL import Image, ImageCms

from excite.images import read_image

__all__ = ["READERS"]

SIDE = 24


def _photo(mode="RGB"):
    values = np.random.default_rng(0).integers(0, 255, (SIDE, SIDE + 8, 3), dtype=np.uint8)
    return Image.fromarray(values).convert(mode)


def _saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _exif(orientation):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F], exif[0x8825] = orientation, "camera", {1: "N", 2: (1.0, 2.0, 3.0)}
    return exif.tobytes()


def _profile():
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def _frames():
    return [_photo().rotate(90 * k) for k in range(1, 3)]


def _png():
    grey = Image.fromarray(np.arange(SIDE * SIDE, dtype=np.uint16).reshape(SIDE, SIDE))
    return [
        _saved(_photo(), "PNG"),
        _saved(_photo("RGBA"), "PNG", exif=_exif(6), icc_profile=_profile()),
        _saved(_photo("P"), "PNG", transparency=3),
        _saved(_photo("1"), "PNG"),
        _saved(grey, "PNG"),
        _saved(_photo(), "PNG", save_all=True, append_images=_frames(), dpi=(72, 72)),
    ]


def _ink_profile():
    """The head of a profile for printing inks, with nothing behind it."""
    head = struct.pack(">I4sI4s4s4s", 132, b"lcms", 0x04300000, b"prtr", b"CMYK", b"Lab ").ljust(128, b"\0")
    return head[:36] + b"acsp" + head[40:] + struct.pack(">I", 0)


def _jpeg():
    return [
        _saved(_photo(), "JPEG", exif=_exif(6)),
        _saved(_photo(), "JPEG", progressive=True, icc_profile=_profile()),
        _saved(_photo("CMYK"), "JPEG"),
        _saved(_photo("L"), "JPEG", quality=5, comment=b"words"),
        _saved(_photo(), "MPO", save_all=True, append_images=_frames()),
    ]


def _gif():
    return [_saved(_photo("P"), "GIF"), _saved(_photo(), "GIF", save_all=True, append_images=_frames(), transparency=1)]


def _webp():
    return [
        _saved(_photo(), "WEBP", lossless=True, exif=_exif(3)),
        _saved(_photo("RGBA"), "WEBP", quality=30),
        _saved(_photo(), "WEBP", save_all=True, append_images=_frames()),
    ]


def _tiff():
    ways = ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits")
    deep = Image.fromarray(np.random.default_rng(0).random((SIDE, SIDE), dtype=np.float32))
    grey = Image.fromarray(np.arange(SIDE * SIDE, dtype=np.uint16).reshape(SIDE, SIDE))
    return [
        *(_saved(_photo(), "TIFF", compression=way) for way in ways),
        _saved(_photo("1"), "TIFF", compression="group4"),
        _saved(_photo(), "TIFF", compression="jpeg"),
        _saved(deep, "TIFF"),
        _saved(grey, "TIFF", compression="tiff_lzw"),
        _saved(_photo("CMYK"), "TIFF"),
        _saved(_photo("RGBA"), "TIFF", save_all=True, append_images=_frames(), exif=_exif(8)),
    ]


def _bmp():
    return [_saved(_photo(mode), "BMP") for mode in ("RGB", "P", "1", "L")]


def _ppm():
    return [
        _saved(_photo(), "PPM"),
        _saved(_photo("L"), "PPM"),
        _saved(_photo("1"), "PPM"),
        b"P2 # words\n3 2 255\n1 2 3 4 5 6\n",
        b"P6 2 2 65535\n" + b"\1\2" * 12,
        b"Pf 2 2 -1.0\n" + struct.pack("<4f", 0.1, 0.2, 0.3, 1),
        b"P1 2 2 1 0 0 1",
    ]


def _jpeg2000():
    return [_saved(_photo(mode), "JPEG2000") for mode in ("RGB", "RGBA", "L")]


def _avif():
    return [_saved(_photo(), "AVIF", quality=40, exif=_exif(6)), _saved(_photo("RGBA"), "AVIF")]


def _hostile(*words):
    """Files of the page's tests that go by these words, and what is no image at all."""
    from hostile_files import BOMBS, CUT, OTHERS  # which takes seconds

    files = {**BOMBS, **CUT}
    return [content for name, content in files.items() if name.startswith(words)] + list(OTHERS.values())


def _jpeg_bombs():
    return [_saved(_photo("CMYK"), "JPEG", icc_profile=_ink_profile()), *_hostile("JPEG")]


def _png_bombs():
    """As many pixels as just are read, with opacity, in a quarter of a megabyte."""
    head = struct.pack(">IIBBBBB", 9_400, 9_500, 8, 6, 0, 0, 0)
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(b"\0" * (1 + 4 * 9_400)) for _ in range(9_500)) + packer.flush()
    chunks = [(b"IHDR", head), (b"IDAT", data), (b"IEND", b"")]
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(one)) + kind + one + struct.pack(">I", zlib.crc32(kind + one)) for kind, one in chunks
    )
    return [whole, *_hostile("PNG", "a thousand")]


def _reader(kind, seeds, tokens, hostile, form="bytes"):
    return Reader(
        name=f"picture {kind}",
        entry="excite.images.read_image",
        file=f"picture.{kind}",
        read=lambda folder: read_image(folder / f"picture.{kind}"),
        seeds=seeds,
        form=form,
        tokens=tokens,
        hostile=hostile,
        prints=kind == "tif",  # libtiff
    )


PNG_CHUNKS = (
    b"IHDR",
    b"PLTE",
    b"IDAT",
    b"tRNS",
    b"acTL",
    b"fcTL",
    b"fdAT",
    b"eXIf",
    b"iCCP",
    b"zTXt",
    b"iTXt",
    b"pHYs",
)
JPEG_MARKS = (*(b"\xff" + bytes([mark]) for mark in (*range(0xC0, 0xE3), 0xEE, 0xFE)), b"Exif\0\0", b"Adobe")

READERS = (
    _reader("png", _png, PNG_CHUNKS, _png_bombs, "png"),
    _reader("jpg", _jpeg, JPEG_MARKS, _jpeg_bombs),
    _reader("gif", _gif, (b"GIF87a", b"!\xf9\x04", b"!\xff\x0bNETSCAPE2.0", b",", b";"), partial(_hostile, "GIF")),
    _reader("webp", _webp, (b"VP8X", b"VP8L", b"VP8 ", b"ANIM", b"ANMF", b"ALPH", b"EXIF"), partial(_hostile, "WEBP")),
    _reader("tif", _tiff, (b"II*\0", b"MM\0*", b"II+\0", b"\x00\x01\x04\x00"), partial(_hostile, "TIFF")),
    _reader("bmp", _bmp, (b"BM", b"(\0\0\0", b"\x01\0\x18\0"), partial(_hostile, "BMP")),
    _reader("ppm", _ppm, (b"P1", b"P4", b"P7\nWIDTH 2\nENDHDR\n", b"Pf", b"PF", b"#"), partial(_hostile, "PPM")),
    _reader(
        "jp2", _jpeg2000, (b"jP  ", b"ihdr", b"jp2c", b"\xff\x4f\xff\x51", b"\xff\x52"), partial(_hostile, "JPEG2000")
    ),
    _reader("avif", _avif, (b"ftypavif", b"meta", b"iloc", b"ispe", b"mdat", b"irot"), partial(_hostile, "AVIF")),
)
