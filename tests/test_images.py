"""Every kind of image a user may bring, made here, and every way in which one can be broken."""

import io
import os
import struct
import tempfile
import threading
import time
import warnings
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms

from excite.errors import ImageError
from excite.images import ORIENTATION_TAG, find_images, read_image, read_reduced

RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)


def photograph(width=48, height=32):
    """An image with detail everywhere, so that a missing part shows."""
    numbers = np.random.default_rng(0).integers(0, 256, (height // 4, width // 4, 3), dtype=np.uint8)
    return Image.fromarray(numbers).resize((width, height), Image.Resampling.BICUBIC)


def pixels(image):
    return np.asarray(image).tolist()


def refusal(source):
    """The one line that a user gets to see."""
    with pytest.raises(ImageError) as caught:
        read_image(source)
    message = str(caught.value)
    assert "\n" not in message
    return message


def pixels_or_refusal(source):
    try:
        return pixels(read_image(source))
    except ImageError as error:
        return str(error)


@contextmanager
def nobody():
    """Be a user without rights for a while: root may read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public():
    """A folder that anyone may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


NO_PICTURES = {
    "missing": (lambda path: None, "there is no file '"),
    "folder": (lambda path: path.mkdir(), "is a folder: name an image in it, or use find_images"),
    "empty": (lambda path: path.touch(), "is empty (0 bytes)"),
    "text": (lambda path: path.write_text("<html>404 not found</html>"), "is not an image"),
    "pipe": (os.mkfifo, "a pipe or a device"),
    "it starts a program": (lambda path: photograph().save(path, "EPS"), "is not an image"),
}


@pytest.mark.parametrize(("make", "reason"), NO_PICTURES.values(), ids=NO_PICTURES)
def test_files_that_are_no_pictures(tmp_path, make, reason):
    make(tmp_path / "a.jpg")
    assert reason in refusal(tmp_path / "a.jpg")
    (tmp_path / "a.txt").write_text("words")
    assert "cannot be reached: Not a directory" in refusal(tmp_path / "a.txt" / "b.png")
    assert "cannot be reached" in refusal("a\0b.png")
    assert "two\\nlines" in refusal(tmp_path / "two\nlines.png")
    assert "bytes is not an image" in refusal(b"\x89PNG")


def test_without_permission(public):
    (public / "in").mkdir(mode=0o755)
    photograph().save(public / "in" / "a.png")
    (public / "in" / "a.png").chmod(0)
    with nobody():
        assert "cannot be opened: Permission denied; check its permissions" in refusal(public / "in" / "a.png")
    (public / "in").chmod(0o600)
    with nobody():
        assert "cannot be reached: Permission denied" in refusal(public / "in" / "a.png")
    (public / "in").chmod(0)
    with nobody(), pytest.raises(ImageError, match="in' cannot be read: Permission denied"):
        find_images([str(public)])
    (public / "in").chmod(0o700)


OPTIONS = [("JPEG", {"quality": 90}), ("JPEG", {"progressive": True}), ("TIFF", {"compression": "tiff_lzw"})]


@pytest.mark.parametrize(("form", "options"), [*OPTIONS, *((form, {}) for form in "PNG GIF WEBP TIFF BMP PPM".split())])
def test_a_file_cut_anywhere_is_refused_or_still_whole(tmp_path, form, options):
    buffer = io.BytesIO()
    photograph().save(buffer, form, **options)
    content, path = buffer.getvalue(), tmp_path / "cut"
    path.write_bytes(content)
    whole = pixels(read_image(path))
    for length in [*range(1, len(content), len(content) // 40), *range(len(content) - 20, len(content))]:
        path.write_bytes(content[:length])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # Pillow also warns of a cut TIFF
            found = pixels_or_refusal(path)
        assert found == whole or "cut off" in found, f"{form} cut at {length} gave half an image"
    if form == "PNG":  # it has checksums
        path.write_bytes(content[:-40] + bytes([content[-40] ^ 0xFF]) + content[-39:])
        assert "damaged or cut off" in refusal(path)


@pytest.mark.parametrize(
    ("sides", "most"),
    [((11, 10), 100), ((40, 10), 100), ((60_000, 60_000), None)],  # Pillow itself only warns of the first
)
def test_bombs_are_refused_by_their_headers_alone(tmp_path, monkeypatch, sides, most):
    buffer = io.BytesIO()
    Image.new("L", (1, 1)).save(buffer, "PNG")
    content = bytearray(buffer.getvalue())
    content[16:24] = struct.pack(">II", *sides)
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    (tmp_path / "a.png").write_bytes(content)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most or Image.MAX_IMAGE_PIXELS)
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # as outside of these tests, where a warning is no error
        message = refusal(tmp_path / "a.png")
    assert f"limit of {most or 89_478_485:,} (" in message
    assert "MAX_IMAGE_PIXELS" in message


def test_threads_take_turns_with_the_warning_filters(tmp_path, monkeypatch):
    """The filters belong to the whole process: two threads inside at once could leave them changed."""
    photograph().save(tmp_path / "a.png")
    inside, most, original = [], [], Image.open

    def slow_open(*args, **options):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return original(*args, **options)

    monkeypatch.setattr(Image, "open", slow_open)
    before = list(warnings.filters)
    threads = [threading.Thread(target=read_image, args=(tmp_path / "a.png",)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5
    assert warnings.filters == before


@pytest.mark.parametrize(("form", "options"), [("GIF", {}), ("PNG", {}), ("WEBP", {"lossless": True}), ("TIFF", {})])
def test_the_first_frame_or_page_or_that_of_an_opened_picture(tmp_path, form, options):
    frames = [Image.new("RGB", (6, 4), colour) for colour in (RED, GREEN, BLUE)]
    frames[0].save(tmp_path / "a", form, save_all=True, append_images=frames[1:], **options)
    assert pixels(read_image(tmp_path / "a")) == [[list(RED)] * 6] * 4
    with Image.open(tmp_path / "a") as opened:
        opened.seek(1)
        assert pixels(read_image(opened)) == [[list(GREEN)] * 6] * 4


def ink_profile():
    """A small ICC profile for inks after our own taste: no ink is green, any ink is black."""
    tables = bytes(range(256))
    green, black = bytes([200, 40, 200]), bytes([0, 128, 128])  # L*, a*, b* in eight bits
    identity = struct.pack(">9i", *(65536 if i % 4 == 0 else 0 for i in range(9)))
    lut = b"mft1" + bytes(4) + bytes([4, 3, 2, 0]) + identity + tables * 4 + green + black * 15 + tables * 3
    lut += bytes(-len(lut) % 4)
    white = b"XYZ " + bytes(4) + struct.pack(">3i", 63190, 65536, 54061)
    start = 128 + 4 + 2 * 12
    tags = struct.pack(">I", 2)
    tags += b"A2B0" + struct.pack(">II", start, len(lut)) + b"wtpt" + struct.pack(">II", start + len(lut), len(white))
    size = start + len(lut) + len(white)
    header = struct.pack(">I4sI4s4s4s", size, bytes(4), 0x02400000, b"prtr", b"CMYK", b"Lab ") + bytes(12) + b"acsp"
    header += bytes(28) + struct.pack(">3i", 63190, 65536, 54061)
    return header.ljust(128, b"\0") + tags + lut + white


def test_inks_and_their_profile(tmp_path):
    """Magenta and yellow make red, unless a profile says otherwise: for inks, not for another kind of image."""
    inks, jpeg, tiff = Image.new("CMYK", (16, 16), (0, 255, 255, 0)), tmp_path / "a.jpg", tmp_path / "a.tif"
    inks.save(jpeg, quality=95)
    with Image.open(jpeg) as opened:
        assert opened.mode == "CMYK"
        assert opened.info.get("adobe") is not None  # Pillow writes and reads it with Adobe's inversion
    assert np.abs(np.asarray(read_image(jpeg)).astype(int) - RED).max() <= 4
    for profile in (None, ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()):
        inks.save(tiff, icc_profile=profile)
        assert pixels(read_image(tiff))[0][0] == list(RED)
    inks.save(tiff, icc_profile=b"no profile at all")
    assert "damaged" in refusal(tiff)
    Image.new("CMYK", (16, 16)).save(jpeg, icc_profile=ink_profile())
    red, green, blue = pixels(read_image(jpeg))[8][8]
    assert (red < 100, green > 180, blue < 100) == (True, True, True)


SIXTEEN = np.array([[0, 128, 257], [32896, 65407, 65535]], dtype=np.uint16)
EIGHT = [[0, 0, 1], [128, 255, 255]]  # 128 / 257 = 0.498 and 65407 / 257 = 254.502


DEEP_GREY = [
    ("a.png", SIXTEEN, {}, EIGHT),
    ("a.tif", SIXTEEN, {}, EIGHT),
    ("a.tif", SIXTEEN.astype(np.int32), {}, EIGHT),
    ("a.png", SIXTEEN, {"transparency": 257}, [[0, 0, 255], [128, 255, 255]]),
    ("a.tif", np.array([[257, 25700]], np.uint16), {}, [[1, 100]]),  # a dim image stays dim
    ("a.tif", np.array([[257, 25700]], np.int32), {}, [[1, 100]]),
    ("a.tif", np.array([[-100000, 0, 100000]], np.int32), {}, [[0, 128, 255]]),
    ("a.tif", np.array([[0.2, 0.4, 0.6]], np.float32), {}, [[51, 102, 153]]),
    ("a.tif", np.array([[-10, 0, 40]], np.float32), {}, [[0, 51, 255]]),
    ("a.tif", np.full((1, 2), 7, np.float32), {}, [[0, 0]]),
]


@pytest.mark.parametrize(("name", "values", "options", "grey"), DEEP_GREY)
def test_grey_of_more_than_eight_bits(tmp_path, name, values, options, grey):
    Image.fromarray(values).save(tmp_path / name, **options)
    assert pixels(read_image(tmp_path / name)) == np.stack([grey] * 3, axis=2).tolist()


def test_grey_the_other_way_round_and_grey_that_is_no_number(tmp_path):
    Image.frombytes("I;16B", (3, 2), SIXTEEN.astype(">u2").tobytes()).save(tmp_path / "a.tif")
    assert np.asarray(read_image(tmp_path / "a.tif"))[:, :, 0].tolist() == EIGHT
    for wrong in (np.nan, np.inf):
        Image.fromarray(np.array([[0, wrong]], dtype=np.float32)).save(tmp_path / "a.tif")
        assert "NaN or infinity" in refusal(tmp_path / "a.tif")


def test_sixteen_bit_colour(tmp_path):
    """A PNG of 16 bits a channel, written by hand: Pillow cannot."""
    row = b"\0" + struct.pack(">3H", 65535, 32768, 0)
    head = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", head), (b"IDAT", zlib.compress(row)), (b"IEND", b"")):
        png += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    (tmp_path / "a.png").write_bytes(png)
    assert pixels(read_image(tmp_path / "a.png")) == [[[255, 128, 0]]]


def palette(*colours):
    image = Image.fromarray(np.arange(len(colours), dtype=np.uint8)[None], "P")
    image.putpalette([side for colour in colours for side in colour])
    return image


def of(values, mode=None):
    return Image.fromarray(np.array([values], dtype=np.uint8), mode)


TRANSPARENT = [  # white shows through, half of red on white is pink
    (of([[255, 0, 0, 255], [255, 0, 0, 51], [9, 9, 9, 0]]), "a.png", {}, [RED, (255, 204, 204), WHITE]),
    (of([[0, 255], [0, 51], [0, 0]], "LA"), "a.png", {}, [BLACK, (204, 204, 204), WHITE]),
    (palette(RED, GREEN, BLUE), "a.png", {"transparency": b"\xff\x00\x33"}, [RED, WHITE, (204, 204, 255)]),
    (palette(RED, GREEN), "a.gif", {"transparency": 1}, [RED, WHITE]),
    (of([RED, GREEN]), "a.png", {"transparency": GREEN}, [RED, WHITE]),
    (palette(RED, BLUE), "a.png", {}, [RED, BLUE]),
    *((Image.fromarray(np.array([[True, False]])), f"a.{kind}", {}, [WHITE, BLACK]) for kind in ("png", "tif", "bmp")),
]


@pytest.mark.parametrize(("image", "name", "options", "row"), TRANSPARENT)
def test_transparency_and_palettes(tmp_path, image, name, options, row):
    image.save(tmp_path / name, **options)
    assert pixels(read_image(tmp_path / name)) == [[list(colour) for colour in row]]


ROWS = "123 456, 321 654, 654 321, 456 123, 14 25 36, 36 25 14, 63 52 41, 41 52 63"  # of 123 456 as cameras store it
STORED = {n: [list(map(int, row)) for row in rows.split()] for n, rows in enumerate(ROWS.split(","), start=1)}


class TestOrientation:
    UPRIGHT = (np.array(STORED[1]) * 40).tolist()

    @pytest.mark.parametrize("name", ["a.png", "a.tif", "a.webp", "a.jpg"])
    @pytest.mark.parametrize("orientation", STORED)
    def test_all_eight(self, tmp_path, orientation, name):
        exif = Image.Exif()
        exif[ORIENTATION_TAG] = orientation
        stored = Image.fromarray((np.array(STORED[orientation]) * 40).astype(np.uint8))
        stored = stored.resize((stored.width * 16, stored.height * 16), Image.Resampling.NEAREST).convert("RGB")
        options = {"a.webp": {"lossless": True}, "a.jpg": {"quality": 95, "subsampling": 0}}.get(name, {})
        stored.save(tmp_path / name, exif=exif, **options)
        result = read_image(tmp_path / name)
        assert result.size == (48, 32)
        middles = np.asarray(result)[8::16, 8::16, 0].astype(int)
        assert np.abs(middles - self.UPRIGHT).max() <= 2

    def test_is_applied_once_and_broken_metadata_warns(self, tmp_path):
        exif = Image.Exif()
        exif[ORIENTATION_TAG] = 6
        photograph().save(tmp_path / "a.png", exif=exif)
        once = read_image(tmp_path / "a.png")
        assert once.size == (32, 48)
        assert pixels(read_image(once)) == pixels(once)
        photograph().save(tmp_path / "a.png", exif=b"Exif\0\0not metadata at all")
        with pytest.warns(UserWarning, match=r"a\.png' has broken EXIF data .* taken to be upright"):
            assert pixels(read_image(tmp_path / "a.png")) == pixels(photograph())


def test_opened_pictures(tmp_path):
    """The result is a copy in mode RGB without metadata."""
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB", "I", "F", "I;16"):
        result = read_image(Image.new(mode, (3, 2)))
        assert (result.mode, result.size) == ("RGB", (3, 2))
    source = Image.new("RGB", (2, 2), RED)
    read_image(source).putpixel((0, 0), BLUE)
    assert source.getpixel((0, 0)) == RED
    photograph().save(tmp_path / "a.jpg", dpi=(72, 72), comment=b"hello")
    assert read_image(str(tmp_path / "a.jpg")).info == {}
    assert "has no pixels (0 x 5)" in refusal(Image.new("RGB", (0, 5)))
    opened = Image.open(tmp_path / "a.jpg")
    opened.close()
    assert "the image is damaged" in refusal(opened)


PINK = np.array([[[255, 0, 0, 51]]], dtype=np.uint8)
ARRAYS = [  # or tensors, and the first row of their pixels
    (np.array([[0, 100]], np.uint8), [(0,) * 3, (100,) * 3]),
    (np.array([[[0], [100]]], np.uint8), [(0,) * 3, (100,) * 3]),
    (np.array([[RED, BLUE]], np.uint8), [RED, BLUE]),
    *((array, [(255, 204, 204)]) for array in (PINK, PINK / 255, PINK.astype(np.uint16) * 257)),
    *((SIXTEEN[1:].astype(kind), [(128,) * 3, WHITE, WHITE]) for kind in ("<u2", ">u2")),
    *((np.array([[0, 0.2, 1]], kind), [BLACK, (51,) * 3, WHITE]) for kind in (np.float16, np.float32, np.float64)),
    (np.array([[True, False]]), [WHITE, BLACK]),
    (np.array([[0, 9, 100, 9]], np.uint8)[:, ::-2], [(9,) * 3, (9,) * 3]),
    (torch.tensor([[[1.0, 0.0]], [[0.0, 0.0]], [[0.0, 1.0]]]), [RED, BLUE]),
    *((torch.tensor([0, 51], dtype=torch.uint8).reshape(shape), [BLACK, (51,) * 3]) for shape in ((1, 2), (1, 1, 2))),
    *((torch.ones(3, 1, 1, dtype=kind), [WHITE]) for kind in (torch.float16, torch.bfloat16, torch.float64)),
    (torch.full((1, 1, 1), 32896, dtype=torch.uint16), [(128,) * 3]),
    (torch.ones(3, 1, 1, requires_grad=True), [WHITE]),
]
NO_ARRAYS = [
    *(
        (np.array([[low, high]]), f"holds floats in {low:.4g}..{high:.4g}: bring them to 0..1")
        for low, high in ((0, 255.0), (-1.0, 1), (0, 1.001), (-2.1, 2.6))
    ),
    *((np.array([[0.5, wrong]]), "NaN or infinity") for wrong in (np.nan, np.inf, -np.inf)),
    *((np.zeros((2, 2), kind), "convert it to uint8") for kind in (np.int64, np.int8, np.uint32, np.complex64, object)),
    *(
        (np.zeros(shape, np.uint8), "is not an image: pass [H, W]")
        for shape in ((), (4,), (3, 4, 5), (4, 4, 2), (1, 4, 4, 3))
    ),
    *((np.zeros(shape, np.uint8), "has no pixels") for shape in ((0, 5), (5, 0, 3))),
    (torch.zeros(1, 3, 4, 4), "is a batch: pass one image at a time"),
    *((torch.zeros(shape), "pass [3, H, W] or [1, H, W]") for shape in ((4,), (2, 5, 5), (5, 5, 3))),
    (torch.tensor([[[-2.0, 2.0]]]), "undoing any normalisation"),
    (torch.zeros(3, 0, 4), "has no pixels"),
    (torch.full((3, 2, 2), torch.nan), "NaN"),
]


@pytest.mark.parametrize(("array", "row"), ARRAYS)
def test_arrays_and_tensors(array, row):
    assert pixels(read_image(array))[0] == [list(colour) for colour in row]


@pytest.mark.parametrize(("array", "reason"), NO_ARRAYS)
def test_arrays_and_tensors_that_are_no_pictures(array, reason):
    assert reason in refusal(array)


def test_sixteen_bits_are_scaled_to_the_nearest():
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    result = np.asarray(read_image(values))[:, :, 0].astype(int)
    assert np.abs(result * 257 - values.astype(int)).max() <= 128


class TestFindImages:
    @pytest.fixture
    def album(self, tmp_path, monkeypatch):
        for name in "b.JPG a.png cat[1].png notes.txt .hidden.png in/c.tiff in/deep/d.webp .cache/e.png".split():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (tmp_path / "z.png").symlink_to(tmp_path / "a.png")
        (tmp_path / "in" / "again").symlink_to(tmp_path)
        (tmp_path / "none").mkdir()
        monkeypatch.chdir(tmp_path)
        return tmp_path

    @pytest.mark.parametrize(
        ("patterns", "found"),
        [
            (["."], "a.png b.JPG cat[1].png in/c.tiff in/deep/d.webp"),
            (["notes.txt", ".hidden.png"], "notes.txt .hidden.png"),  # by name, whatever it is
            ("a.png", "a.png"),
            (Path("a.png"), "a.png"),
            (["a*.png"], "a.png"),
            (["in/d*/*.webp"], "in/deep/d.webp"),
            (["*[!e]"], "a.png b.JPG cat[1].png in/c.tiff in/deep/d.webp"),  # other files and folders match too
            (["cat[1].png"], "cat[1].png"),
            (["in", "./a.png", "a.png", "z.png"], "in/c.tiff in/deep/d.webp a.png"),  # each once, links not followed
        ],
    )
    def test_patterns(self, album, patterns, found):
        assert find_images(patterns) == [Path(name) for name in found.split()]
        if isinstance(patterns, list):
            assert find_images([str(album / one) for one in patterns]) == [album / name for name in found.split()]

    @pytest.mark.parametrize("pattern", ["*.bmp", "missing.png", "none"])
    def test_nothing_found_names_the_pattern(self, album, pattern):
        with pytest.raises(ImageError, match="no images found for '" + pattern.replace("*", r"\*")):
            find_images(["a.png", pattern])
        with pytest.raises(ImageError, match="no images were named"):
            find_images([])


class TestReduced:
    @pytest.mark.parametrize("form", ["JPEG", "MPO"])
    def test_a_large_jpeg_is_decoded_smaller_and_looks_the_same(self, tmp_path, form):
        smooth = photograph(64, 48).resize((640, 480), Image.Resampling.BICUBIC)
        for orientation in (1, 6, 8, 3):
            exif = Image.Exif()
            exif[ORIENTATION_TAG] = orientation
            smooth.save(tmp_path / "a.jpg", form, quality=95, exif=exif)
            whole, (small, size) = read_image(tmp_path / "a.jpg"), read_reduced(tmp_path / "a.jpg", (150, 100))
            assert (size, small.size) == (whole.size, (whole.width // 4, whole.height // 4))
            same = np.asarray(whole.resize((32, 32)), float) - np.asarray(small.resize((32, 32)), float)
            assert abs(same).mean() < 1

    @pytest.mark.parametrize(
        ("size", "name", "least"),
        [((640, 480), "a.png", (10, 10)), ((641, 480), "a.jpg", (10, 10)), ((640, 480), "a.jpg", (330, 1)),
         ((640, 480), "a.jpg", (1, 250)), ((640, 480), "a.jpg", None)],
    )  # fmt: skip
    def test_others_are_decoded_whole(self, tmp_path, size, name, least):
        photograph(64, 48).resize(size).save(tmp_path / name)
        image, whole = read_reduced(tmp_path / name, least)
        assert image.size == whole == size
