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
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from excite.errors import ImageError
from excite.images import find_images, read_image, reading

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


class TestFilesThatAreNoPictures:
    def test_missing(self, tmp_path):
        assert refusal(tmp_path / "cat.jpg").startswith(f"there is no file '{tmp_path / 'cat.jpg'}'")

    def test_name_as_text(self, tmp_path):
        photograph().save(tmp_path / "a.png")
        assert pixels(read_image(str(tmp_path / "a.png"))) == pixels(photograph())

    def test_folder(self, tmp_path):
        assert "is a folder" in refusal(tmp_path)
        assert "find_images" in refusal(tmp_path)

    def test_below_a_file(self, tmp_path):
        (tmp_path / "a.txt").write_text("words")
        assert "cannot be reached: Not a directory" in refusal(tmp_path / "a.txt" / "b.png")

    def test_name_with_a_null(self):
        assert "cannot be reached" in refusal("a\0b.png")

    def test_empty(self, tmp_path):
        (tmp_path / "a.jpg").touch()
        assert "is empty (0 bytes)" in refusal(tmp_path / "a.jpg")

    def test_text(self, tmp_path):
        (tmp_path / "a.jpg").write_text("<html>404 not found</html>")
        assert "is not an image" in refusal(tmp_path / "a.jpg")

    def test_pipe(self, tmp_path):
        os.mkfifo(tmp_path / "a.png")
        assert "a pipe or a device" in refusal(tmp_path / "a.png")

    def test_formats_that_start_programs_are_not_read(self, tmp_path):
        photograph().save(tmp_path / "a.eps")
        with Image.open(tmp_path / "a.eps") as opened:
            assert opened.format == "EPS"
        assert "is not an image" in refusal(tmp_path / "a.eps")

    def test_without_permission(self, public):
        photograph().save(public / "a.png")
        (public / "a.png").chmod(0)
        with nobody():
            assert "cannot be opened: Permission denied; check its permissions" in refusal(public / "a.png")

    def test_in_a_folder_without_permission(self, public):
        (public / "in").mkdir(mode=0o700)
        photograph().save(public / "in" / "a.png")
        if os.geteuid() != 0:
            (public / "in").chmod(0)
        with nobody():
            assert "cannot be reached: Permission denied" in refusal(public / "in" / "a.png")
        (public / "in").chmod(0o700)

    def test_other_objects(self):
        assert "bytes is not an image" in refusal(b"\x89PNG")
        assert "NoneType is not an image" in refusal(None)

    def test_a_name_on_two_lines_gives_one_line(self, tmp_path):
        assert "two\\nlines" in refusal(tmp_path / "two\nlines.png")


ENCODINGS = [
    ("JPEG", {"quality": 90}),
    ("JPEG", {"progressive": True}),
    ("PNG", {}),
    ("GIF", {}),
    ("WEBP", {}),
    ("TIFF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("BMP", {}),
    ("PPM", {}),
]


@pytest.mark.parametrize(("form", "options"), ENCODINGS)
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


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_half_a_file_is_refused(tmp_path, form):
    buffer = io.BytesIO()
    photograph().save(buffer, form)
    (tmp_path / "a").write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    assert "damaged or cut off" in refusal(tmp_path / "a")


def test_damaged_checksum_is_refused(tmp_path):
    buffer = io.BytesIO()
    photograph().save(buffer, "PNG")
    content = bytearray(buffer.getvalue())
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "a.png").write_bytes(content)
    assert "damaged or cut off" in refusal(tmp_path / "a.png")


class TestDecompressionBombs:
    @pytest.mark.parametrize("side", [11, 40])  # Pillow itself only warns of the first, and refuses the second
    def test_too_many_pixels(self, tmp_path, monkeypatch, side):
        Image.new("RGB", (side, 10)).save(tmp_path / "a.png")
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
        with warnings.catch_warnings():
            warnings.simplefilter("always")  # as outside of these tests, where a warning is no error
            message = refusal(tmp_path / "a.png")
        assert "limit of 100 (" in message
        assert "MAX_IMAGE_PIXELS" in message

    def test_at_the_limit(self, tmp_path, monkeypatch):
        Image.new("RGB", (10, 10)).save(tmp_path / "a.png")
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
        assert read_image(tmp_path / "a.png").size == (10, 10)

    def test_the_guard_is_on(self):
        assert Image.MAX_IMAGE_PIXELS == 89478485

    def test_a_real_bomb(self, tmp_path):
        """A small file that claims 60,000 x 60,000 pixels is refused by its header alone."""
        buffer = io.BytesIO()
        Image.new("L", (1, 1)).save(buffer, "PNG")
        content = bytearray(buffer.getvalue())
        content[16:24] = struct.pack(">II", 60000, 60000)
        content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
        (tmp_path / "a.png").write_bytes(content)
        assert "limit of 89,478,485" in refusal(tmp_path / "a.png")

    def test_threads_take_turns_with_the_warning_filters(self, tmp_path, monkeypatch):
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


class TestAnimations:
    @pytest.mark.parametrize(("form", "options"), [("GIF", {}), ("PNG", {}), ("WEBP", {"lossless": True})])
    def test_first_frame(self, tmp_path, form, options):
        frames = [Image.new("RGB", (6, 4), colour) for colour in (RED, GREEN, BLUE)]
        frames[0].save(tmp_path / "a", form, save_all=True, append_images=frames[1:], **options)
        with Image.open(tmp_path / "a") as opened:
            assert opened.n_frames == 3
        assert pixels(read_image(tmp_path / "a")) == [[list(RED)] * 6] * 4

    def test_first_page_of_a_document(self, tmp_path):
        Image.new("RGB", (6, 4), RED).save(
            tmp_path / "a.tif", save_all=True, append_images=[Image.new("RGB", (9, 9), BLUE)]
        )
        assert pixels(read_image(tmp_path / "a.tif")) == [[list(RED)] * 6] * 4

    def test_the_frame_an_opened_picture_is_at(self, tmp_path):
        Image.new("RGB", (2, 1), RED).save(
            tmp_path / "a.gif", save_all=True, append_images=[Image.new("RGB", (2, 1), BLUE)]
        )
        with Image.open(tmp_path / "a.gif") as opened:
            opened.seek(1)
            assert pixels(read_image(opened)) == [[list(BLUE)] * 2]


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


class TestInks:
    INKS = Image.merge("CMYK", [Image.new("L", (16, 16), ink) for ink in (0, 255, 255, 0)])

    def test_cmyk_jpeg(self, tmp_path):
        """Magenta and yellow ink make red; Pillow writes and reads it with Adobe's inversion."""
        self.INKS.save(tmp_path / "a.jpg", quality=95)
        with Image.open(tmp_path / "a.jpg") as opened:
            assert opened.mode == "CMYK"
            assert opened.info.get("adobe") is not None
        assert np.abs(np.asarray(read_image(tmp_path / "a.jpg")).astype(int) - RED).max() <= 4

    def test_cmyk_tiff(self, tmp_path):
        self.INKS.save(tmp_path / "a.tif")
        assert pixels(read_image(tmp_path / "a.tif"))[0][0] == list(RED)

    def test_the_ink_profile_is_used(self, tmp_path):
        Image.new("CMYK", (16, 16)).save(tmp_path / "a.jpg", icc_profile=ink_profile())
        red, green, blue = pixels(read_image(tmp_path / "a.jpg"))[8][8]
        assert green > 180
        assert red < 100
        assert blue < 100

    def test_a_profile_for_another_kind_of_picture_is_not(self, tmp_path):
        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        self.INKS.save(tmp_path / "a.tif", icc_profile=profile)
        assert pixels(read_image(tmp_path / "a.tif"))[0][0] == list(RED)

    def test_a_broken_profile_is_refused(self, tmp_path):
        self.INKS.save(tmp_path / "a.tif", icc_profile=b"no profile at all")
        assert "damaged" in refusal(tmp_path / "a.tif")


class TestDeepGrey:
    VALUES = np.array([[0, 128, 257], [32896, 65407, 65535]], dtype=np.uint16)
    EIGHT = ([0, 0, 1], [128, 255, 255])  # 128 / 257 = 0.498 and 65407 / 257 = 254.502

    def grey(self, image):
        assert np.ptp(np.asarray(image), axis=2).max() == 0
        return np.asarray(image)[:, :, 0].tolist()

    @pytest.mark.parametrize("name", ["a.png", "a.tif"])
    def test_sixteen_bits(self, tmp_path, name):
        Image.fromarray(self.VALUES).save(tmp_path / name)
        assert self.grey(read_image(tmp_path / name)) == list(self.EIGHT)

    @pytest.mark.parametrize("kind", [np.uint16, np.int32])
    def test_a_dim_picture_stays_dim(self, tmp_path, kind):
        Image.fromarray(np.array([[257, 25700]], dtype=kind)).save(tmp_path / "a.tif")
        assert self.grey(read_image(tmp_path / "a.tif")) == [[1, 100]]

    def test_sixteen_bits_the_other_way_round(self, tmp_path):
        big = Image.frombytes("I;16B", (3, 2), self.VALUES.astype(">u2").tobytes())
        big.save(tmp_path / "a.tif")
        with Image.open(tmp_path / "a.tif") as opened:
            assert opened.mode == "I;16B"
        assert self.grey(read_image(tmp_path / "a.tif")) == list(self.EIGHT)

    def test_sixteen_bits_in_thirty_two(self, tmp_path):
        Image.fromarray(self.VALUES.astype(np.int32)).save(tmp_path / "a.tif")
        with Image.open(tmp_path / "a.tif") as opened:
            assert opened.mode == "I"
        assert self.grey(read_image(tmp_path / "a.tif")) == list(self.EIGHT)

    def test_more_than_sixteen_bits(self, tmp_path):
        Image.fromarray(np.array([[-100000, 0, 100000]], dtype=np.int32)).save(tmp_path / "a.tif")
        assert self.grey(read_image(tmp_path / "a.tif")) == [[0, 128, 255]]

    def test_sixteen_bits_with_a_transparent_value(self, tmp_path):
        Image.fromarray(self.VALUES).save(tmp_path / "a.png", transparency=257)
        assert self.grey(read_image(tmp_path / "a.png")) == [[0, 0, 255], [128, 255, 255]]

    def test_floats_within_one(self, tmp_path):
        Image.fromarray(np.array([[0.2, 0.4, 0.6]], dtype=np.float32)).save(tmp_path / "a.tif")
        assert self.grey(read_image(tmp_path / "a.tif")) == [[51, 102, 153]]

    def test_floats_beyond(self, tmp_path):
        Image.fromarray(np.array([[-10, 0, 40]], dtype=np.float32)).save(tmp_path / "a.tif")
        assert self.grey(read_image(tmp_path / "a.tif")) == [[0, 51, 255]]

    def test_one_value_beyond(self, tmp_path):
        Image.fromarray(np.full((1, 2), 7, dtype=np.float32)).save(tmp_path / "a.tif")
        assert self.grey(read_image(tmp_path / "a.tif")) == [[0, 0]]

    @pytest.mark.parametrize("wrong", [np.nan, np.inf])
    def test_floats_that_are_no_numbers(self, tmp_path, wrong):
        Image.fromarray(np.array([[0, wrong]], dtype=np.float32)).save(tmp_path / "a.tif")
        assert "NaN or infinity" in refusal(tmp_path / "a.tif")

    def test_sixteen_bit_colour(self, tmp_path):
        """A PNG of 16 bits a channel, written by hand: Pillow cannot."""
        row = b"\0" + struct.pack(">3H", 65535, 32768, 0)
        png = b"\x89PNG\r\n\x1a\n"
        for kind, body in [
            (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)),
            (b"IDAT", zlib.compress(row)),
            (b"IEND", b""),
        ]:
            png += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        (tmp_path / "a.png").write_bytes(png)
        assert pixels(read_image(tmp_path / "a.png")) == [[[255, 128, 0]]]


class TestTransparency:
    """Transparent places are white, half of red on white is pink."""

    def test_rgba(self, tmp_path):
        half = np.array([[[255, 0, 0, 255], [255, 0, 0, 51], [9, 9, 9, 0]]], dtype=np.uint8)
        Image.fromarray(half).save(tmp_path / "a.png")
        assert pixels(read_image(tmp_path / "a.png")) == [[[255, 0, 0], [255, 204, 204], [255, 255, 255]]]

    def test_grey(self, tmp_path):
        Image.fromarray(np.array([[[0, 255], [0, 51], [0, 0]]], dtype=np.uint8), "LA").save(tmp_path / "a.png")
        assert pixels(read_image(tmp_path / "a.png")) == [[[0] * 3, [204] * 3, [255] * 3]]

    def test_palette(self, tmp_path):
        image = Image.fromarray(np.array([[0, 1, 2]], dtype=np.uint8), "P")
        image.putpalette([*RED, *GREEN, *BLUE])
        image.save(tmp_path / "a.png", transparency=b"\xff\x00\x33")
        assert pixels(read_image(tmp_path / "a.png")) == [[[255, 0, 0], [255, 255, 255], [204, 204, 255]]]

    def test_transparent_place_of_a_gif(self, tmp_path):
        image = Image.fromarray(np.array([[0, 1]], dtype=np.uint8), "P")
        image.putpalette([*RED, *GREEN])
        image.save(tmp_path / "a.gif", transparency=1)
        assert pixels(read_image(tmp_path / "a.gif")) == [[list(RED), list(WHITE)]]

    def test_transparent_colour(self, tmp_path):
        Image.fromarray(np.array([[RED, GREEN]], dtype=np.uint8)).save(tmp_path / "a.png", transparency=GREEN)
        assert pixels(read_image(tmp_path / "a.png")) == [[list(RED), list(WHITE)]]


def test_palette_without_transparency(tmp_path):
    image = Image.fromarray(np.array([[0, 1]], dtype=np.uint8), "P")
    image.putpalette([*RED, *BLUE])
    image.save(tmp_path / "a.png")
    assert pixels(read_image(tmp_path / "a.png")) == [[list(RED), list(BLUE)]]


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.bmp"])
def test_one_bit(tmp_path, name):
    Image.fromarray(np.array([[True, False], [False, True]])).save(tmp_path / name)
    assert pixels(read_image(tmp_path / name)) == [[list(WHITE), list(BLACK)], [list(BLACK), list(WHITE)]]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB", "I", "F", "I;16"])
def test_every_mode_becomes_rgb(mode):
    result = read_image(Image.new(mode, (3, 2)))
    assert (result.mode, result.size) == ("RGB", (3, 2))


STORED = {  # how each camera position stores the upright image [[1, 2, 3], [4, 5, 6]]
    1: [[1, 2, 3], [4, 5, 6]],
    2: [[3, 2, 1], [6, 5, 4]],
    3: [[6, 5, 4], [3, 2, 1]],
    4: [[4, 5, 6], [1, 2, 3]],
    5: [[1, 4], [2, 5], [3, 6]],
    6: [[3, 6], [2, 5], [1, 4]],
    7: [[6, 3], [5, 2], [4, 1]],
    8: [[4, 1], [5, 2], [6, 3]],
}


class TestOrientation:
    UPRIGHT = (np.array(STORED[1]) * 40).tolist()

    @pytest.mark.parametrize("name", ["a.png", "a.tif", "a.webp", "a.jpg"])
    @pytest.mark.parametrize("orientation", STORED)
    def test_all_eight(self, tmp_path, orientation, name):
        exif = Image.Exif()
        exif[reading.ORIENTATION_TAG] = orientation
        stored = Image.fromarray((np.array(STORED[orientation]) * 40).astype(np.uint8))
        stored = stored.resize((stored.width * 16, stored.height * 16), Image.Resampling.NEAREST).convert("RGB")
        options = {"a.webp": {"lossless": True}, "a.jpg": {"quality": 95, "subsampling": 0}}.get(name, {})
        stored.save(tmp_path / name, exif=exif, **options)
        result = read_image(tmp_path / name)
        assert result.size == (48, 32)
        middles = np.asarray(result)[8::16, 8::16, 0].astype(int)
        assert np.abs(middles - self.UPRIGHT).max() <= 2

    def test_is_applied_once(self, tmp_path):
        exif = Image.Exif()
        exif[reading.ORIENTATION_TAG] = 6
        photograph().save(tmp_path / "a.png", exif=exif)
        once = read_image(tmp_path / "a.png")
        assert once.size == (32, 48)
        assert pixels(read_image(once)) == pixels(once)
        once.save(tmp_path / "b.png")
        assert pixels(read_image(tmp_path / "b.png")) == pixels(once)

    @pytest.mark.parametrize("orientation", [0, 9, 65535])
    def test_without_meaning(self, tmp_path, orientation):
        exif = Image.Exif()
        exif[reading.ORIENTATION_TAG] = orientation
        photograph().save(tmp_path / "a.png", exif=exif)
        assert pixels(read_image(tmp_path / "a.png")) == pixels(photograph())

    def test_broken_metadata_warns_and_shows_the_picture(self, tmp_path):
        photograph().save(tmp_path / "a.png", exif=b"Exif\0\0not metadata at all")
        with pytest.warns(UserWarning, match=r"a\.png' has broken EXIF data .* taken to be upright"):
            result = read_image(tmp_path / "a.png")
        assert pixels(result) == pixels(photograph())


class TestPictures:
    def test_one_pixel(self, tmp_path):
        Image.new("RGB", (1, 1), BLUE).save(tmp_path / "a.png")
        assert pixels(read_image(tmp_path / "a.png")) == [[list(BLUE)]]

    def test_is_a_copy(self):
        source = Image.new("RGB", (2, 2), RED)
        read_image(source).putpixel((0, 0), BLUE)
        assert source.getpixel((0, 0)) == RED

    def test_carries_no_metadata(self, tmp_path):
        photograph().save(tmp_path / "a.jpg", dpi=(72, 72), comment=b"hello")
        assert read_image(tmp_path / "a.jpg").info == {}

    def test_without_pixels(self):
        assert "has no pixels (0 x 5)" in refusal(Image.new("RGB", (0, 5)))

    def test_closed_before_it_was_read(self, tmp_path):
        photograph().save(tmp_path / "a.png")
        opened = Image.open(tmp_path / "a.png")
        opened.close()
        assert "the image is damaged" in refusal(opened)


class TestArrays:
    def test_grey(self):
        grey = np.array([[0, 100], [200, 255]], dtype=np.uint8)
        expected = np.stack([grey] * 3, axis=2).tolist()
        assert pixels(read_image(grey)) == expected
        assert pixels(read_image(grey[:, :, None])) == expected

    def test_colour(self):
        assert pixels(read_image(np.array([[RED, BLUE]], dtype=np.uint8))) == [[list(RED), list(BLUE)]]

    def test_opacity(self):
        array = np.array([[[255, 0, 0, 51]]], dtype=np.uint8)
        assert pixels(read_image(array)) == [[[255, 204, 204]]]
        assert pixels(read_image(array / 255)) == [[[255, 204, 204]]]
        assert pixels(read_image(array.astype(np.uint16) * 257)) == [[[255, 204, 204]]]

    @pytest.mark.parametrize("kind", ["<u2", ">u2"])
    def test_sixteen_bits(self, kind):
        array = np.array([[0, 128, 257], [32896, 65407, 65535]], dtype=kind)
        assert np.asarray(read_image(array))[:, :, 0].tolist() == [[0, 0, 1], [128, 255, 255]]

    @pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
    def test_floats(self, kind):
        array = np.array([[0, 0.2, 1]], dtype=kind)
        assert np.asarray(read_image(array))[:, :, 0].tolist() == [[0, 51, 255]]

    def test_booleans(self):
        assert pixels(read_image(np.array([[True, False]]))) == [[list(WHITE), list(BLACK)]]

    def test_a_view_is_not_changed(self):
        array = np.arange(24, dtype=np.uint8).reshape(4, 6)
        assert np.asarray(read_image(array[::2, ::-1]))[:, :, 0].tolist() == array[::2, ::-1].tolist()
        assert array.flags.writeable
        assert array[0, 1] == 1

    @pytest.mark.parametrize(("low", "high"), [(0, 255), (-1, 1), (0, 1.001), (-2.1, 2.6)])
    def test_floats_beyond_one(self, low, high):
        message = refusal(np.array([[low, high]], dtype=np.float64))
        assert f"holds floats in {low:.4g}..{high:.4g}" in message
        assert "bring them to 0..1" in message

    @pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
    def test_no_numbers(self, wrong):
        assert "NaN or infinity" in refusal(np.array([[0.5, wrong]]))

    @pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint32, np.complex64, object])
    def test_types_that_could_mean_anything(self, kind):
        assert "convert it to uint8" in refusal(np.zeros((2, 2), dtype=kind))

    @pytest.mark.parametrize("shape", [(), (4,), (3, 4, 5), (4, 4, 2), (1, 4, 4, 3)])
    def test_shapes_that_are_no_picture(self, shape):
        assert "is not an image: pass [H, W]" in refusal(np.zeros(shape, dtype=np.uint8))

    @pytest.mark.parametrize("shape", [(0, 5), (5, 0, 3)])
    def test_no_pixels(self, shape):
        assert "has no pixels" in refusal(np.zeros(shape, dtype=np.uint8))

    @settings(deadline=None)
    @given(st.integers(0, 65535))
    def test_sixteen_bits_are_scaled_to_the_nearest(self, value):
        result = read_image(np.array([[value]], dtype=np.uint16)).getpixel((0, 0))[0]
        assert abs(result * 257 - value) <= 128


class TestTensors:
    def test_colour(self):
        tensor = torch.tensor([[[1.0, 0.0]], [[0.0, 0.0]], [[0.0, 1.0]]])
        assert pixels(read_image(tensor)) == [[list(RED), list(BLUE)]]

    @pytest.mark.parametrize("shape", [(1, 2), (1, 1, 2)])
    def test_grey(self, shape):
        tensor = torch.tensor([0, 51], dtype=torch.uint8).reshape(shape)
        assert pixels(read_image(tensor)) == [[[0] * 3, [51] * 3]]

    @pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
    def test_precisions(self, kind):
        assert read_image(torch.ones(3, 2, 2, dtype=kind)).getpixel((0, 0)) == WHITE

    def test_sixteen_bits(self):
        assert read_image(torch.full((1, 1, 1), 32896, dtype=torch.uint16)).getpixel((0, 0)) == (128,) * 3

    def test_with_a_gradient(self):
        assert read_image(torch.ones(3, 1, 1, requires_grad=True)).getpixel((0, 0)) == WHITE

    def test_batch(self):
        assert "is a batch: pass one image at a time" in refusal(torch.zeros(1, 3, 4, 4))

    @pytest.mark.parametrize("shape", [(4,), (2, 5, 5), (5, 5, 3)])
    def test_shapes_that_are_no_picture(self, shape):
        assert "pass [3, H, W] or [1, H, W]" in refusal(torch.zeros(shape))

    def test_normalised(self):
        assert "undoing any normalisation" in refusal(torch.tensor([[[-2.0, 2.0]]]))

    def test_no_pixels(self):
        assert "has no pixels" in refusal(torch.zeros(3, 0, 4))

    def test_no_numbers(self):
        assert "NaN" in refusal(torch.full((3, 2, 2), torch.nan))


class TestFindImages:
    @pytest.fixture
    def album(self, tmp_path, monkeypatch):
        for name in [
            "b.JPG",
            "a.png",
            "notes.txt",
            ".hidden.png",
            "in/c.tiff",
            "in/deep/d.webp",
            ".cache/e.png",
        ]:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def test_folder(self, album):
        expected = ["a.png", "b.JPG", "in/c.tiff", "in/deep/d.webp"]
        assert find_images([str(album)]) == [album / name for name in expected]
        assert find_images(["."]) == [Path(name) for name in expected]

    def test_file_of_any_name(self, album):
        assert find_images(["notes.txt", ".hidden.png"]) == [Path("notes.txt"), Path(".hidden.png")]

    def test_pattern(self, album):
        assert find_images(["*.png"]) == [Path("a.png")]
        assert find_images([f"{album}/*.[jJ]*"]) == [album / "b.JPG"]
        assert find_images(["**/*.webp"]) == [Path("in/deep/d.webp")]

    def test_pattern_that_matches_folders_and_other_files(self, album):
        assert find_images(["*"]) == [Path("a.png"), Path("b.JPG"), Path("in/c.tiff"), Path("in/deep/d.webp")]

    def test_name_that_looks_like_a_pattern(self, album):
        (album / "cat[1].png").touch()
        assert find_images(["cat[1].png"]) == [Path("cat[1].png")]

    def test_order_of_the_patterns_without_duplicates(self, album):
        (album / "z.png").symlink_to(album / "a.png")
        found = find_images(["in", "./a.png", "a.png", str(album / "a.png"), "z.png", "."])
        assert found == [Path("in/c.tiff"), Path("in/deep/d.webp"), Path("a.png"), Path("b.JPG")]

    def test_a_loop_of_links_ends(self, album):
        (album / "in" / "again").symlink_to(album)
        assert len(find_images(["in"])) == 2

    def test_a_single_name(self, album):
        assert find_images("a.png") == [Path("a.png")]
        assert find_images(Path("a.png")) == [Path("a.png")]

    @pytest.mark.parametrize("pattern", ["*.bmp", "missing.png", "none"])
    def test_nothing_found_names_the_pattern(self, album, pattern):
        (album / "none").mkdir()
        with pytest.raises(ImageError, match="no images found for '" + pattern.replace("*", r"\*")):
            find_images(["a.png", pattern])

    def test_nothing_asked(self):
        with pytest.raises(ImageError, match="no images were named"):
            find_images([])

    def test_folder_without_permission(self, public):
        (public / "in" / "deep").mkdir(parents=True)
        (public / "in" / "deep").chmod(0)
        with nobody(), pytest.raises(ImageError, match="deep' cannot be read: Permission denied"):
            find_images([str(public / "in")])
