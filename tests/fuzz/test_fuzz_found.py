"""What the fuzzer found, each as small as it gets: once a crash, a hang or a traceback, now one clear line."""

import io
import json
import struct
import warnings
import zipfile
import zlib
from contextlib import suppress

import numpy as np
import pytest
from annotated import make_voc, picture, scenes
from PIL import Image
from scipy.io import savemat

from excite import images
from excite.datasets import open_dataset
from excite.errors import ConceptError, DataError, ImageError
from excite.grounding.proposals.files import ProposalFiles
from excite.vocabulary import Labels, imagenet_labels
from excite.vocabulary.inflection import singular

PICTURE = Image.new("RGB", (12, 8))


class TestMessages:
    def test_they_are_one_line_whatever_they_quote(self):
        assert str(DataError("a.xml:\n  no 'b\x1b[31m\0\u202e'")) == "a.xml: no 'b\\x1b[31m\\x00\\u202e'"
        assert str(DataError("a.csv: \ud800")) == "a.csv: \\ud800"

    def test_they_are_never_absurdly_long(self):
        assert len(str(DataError("a.csv: " + "x" * 10**6 + " is no box"))) < 400
        assert len(str(DataError("a.csv: " + "x " * 10**6))) < 1000

    def test_others_stay_as_they_are(self):
        assert (
            str(DataError("'two  blanks.jpg' is empty: copy it again")) == "'two  blanks.jpg' is empty: copy it again"
        )


class TestPictures:
    def test_pillows_own_warnings_do_not_escape(self, written):
        """Of an animation that is none."""
        file = io.BytesIO()
        Image.new("RGB", (4, 4)).save(file, "PNG")
        chunk = b"acTL" + struct.pack(">II", 0, 0)
        whole = file.getvalue()
        broken = whole[:33] + struct.pack(">I", 8) + chunk + struct.pack(">I", zlib.crc32(chunk)) + whole[33:]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert images.read_image(written(broken)).size == (4, 4)

    def test_formats_that_take_more_memory_have_their_own_limit(self, written, monkeypatch):
        monkeypatch.setitem(images.MOST_PIXELS, "WEBP", 100)
        file = io.BytesIO()
        Image.new("RGB", (11, 10)).save(file, "WEBP")
        with pytest.raises(ImageError, match="11 x 10 pixels, and decoding more than 100 as WEBP takes gigabytes"):
            images.read_image(written(file.getvalue(), "a.webp"))

    @pytest.mark.parametrize("mode", ["RGBA", "LA", "I;16", "I", "F"])
    def test_strips_show_what_the_whole_shows(self, mode, monkeypatch):
        """Large images are worked on in strips, so that they are in memory twice and not five times."""
        values = np.random.default_rng(0).integers(0, 255, (30, 7, 4), dtype=np.uint8)
        image = Image.fromarray(values)
        image = Image.fromarray(values[..., 0].astype(np.uint16) * 99) if mode == "I;16" else image.convert(mode)
        whole = images.read_image(image)
        monkeypatch.setattr("excite.images.STRIP", 20)
        assert images.read_image(image).tobytes() == whole.tobytes()


class TestAnnotations:
    def test_names_that_no_system_takes(self, tmp_path):
        folder = make_voc(tmp_path / "voc", scenes(2))
        for name in ("a" * 300, "b/" * 600 + "c"):
            (folder / "ImageSets/Main/val.txt").write_text(name)
            with pytest.raises(DataError, match="is no name of an image"):
                open_dataset(folder, "val").sample(name)

    def test_a_long_name_in_a_table(self, tmp_path):
        picture(tmp_path / "a.jpg", [])
        (tmp_path / "boxes.csv").write_text(f"image,concept,x0,y0,x1,y1\n{'a' * 300},red,0,0,1,1\n")
        with pytest.raises(DataError, match=r"boxes\.csv: 'a+' is no name of an image"):
            list(open_dataset(tmp_path, "all"))

    def test_half_a_character(self, tmp_path):
        picture(tmp_path / "a.jpg", [])
        image = {"id": 1, "file_name": "\ud800.jpg"}
        (tmp_path / "mine.json").write_text(json.dumps({"categories": [], "images": [image], "annotations": []}))
        with pytest.raises(DataError, match="is no name of an image"):
            list(open_dataset(tmp_path, "mine"))

    def test_a_mask_of_a_thousand_million_pixels(self, tmp_path):
        picture(tmp_path / "a.jpg", [])
        side = 31_000
        content = {
            "categories": [{"id": 1, "name": "red"}],
            "images": [{"id": 1, "file_name": "a.jpg", "width": side, "height": side}],
            "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}],
        }
        content["annotations"][0]["segmentation"] = {"size": [side, side], "counts": [0, side * side]}
        (tmp_path / "mine.json").write_text(json.dumps(content))
        with pytest.raises(DataError, match="31000 x 31000 is no size of an image"):
            list(open_dataset(tmp_path, "mine"))


class TestProposals:
    def mat(self, **variables):
        file = io.BytesIO()
        savemat(file, variables)
        return bytearray(file.getvalue())

    def of(self, path):
        return ProposalFiles(path).of(PICTURE, "a.jpg")

    def test_a_matrix_that_lacks_its_second_half(self, written):
        """It says that it is complex: scipy's compiled reader ended the process (SIGSEGV)."""
        content = self.mat(bboxes=np.array([[1, 1, 4, 5.0]]), bboxes_scores=np.array([0.5]))
        content[145] |= 0x08
        with pytest.raises(DataError, match=r"a\.mat' cannot be used: there are no 'superpixels'"):
            self.of(written(bytes(content), "a.mat"))

    @pytest.mark.parametrize("place", range(128, 200, 3))
    def test_every_byte_of_a_matlab_file_may_be_wrong(self, place, written):
        content = self.mat(bboxes=np.array([[1, 1, 4, 5.0]]), bboxes_scores=np.array([0.5]))
        for value in (0, 0x7F, 0xFF):
            changed = bytes(content[:place] + bytes([value]) + content[place + 1 :])
            with suppress(DataError):  # the process has to live on, that is all
                self.of(written(changed, "a.mat"))

    def test_few_bytes_that_stand_for_many_masks(self, written):
        runs = {"size": [8, 12], "counts": [0, 96]}
        entries = [{"image_id": "a.jpg", "segmentation": runs}] * 10_001
        with pytest.raises(DataError, match="keep its best 10000 at most"):
            self.of(written(json.dumps(entries), "a.json"))

    def test_arrays_that_hold_more_than_they_say(self, written):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            array = io.BytesIO()
            np.save(array, np.array([[0, 0, 3, 4.0]]))
            archive.writestr("boxes.npy", array.getvalue() + b"more")
        with pytest.raises(DataError, match="holds more than its array"):
            self.of(written(file.getvalue(), "a.npz"))


class TestWords:
    def test_a_word_of_a_megabyte_takes_no_time(self):
        assert singular("a" * 10**6 + "-s") == "a" * 10**6 + "-s"

    def test_an_index_of_thousands_of_digits(self):
        with pytest.raises(ConceptError, match=r"There is no output unit 9+: the units are 0 to 999"):
            imagenet_labels().find("9" * 5_000)

    def test_a_long_unknown_word_is_not_compared_with_all_others(self):
        with pytest.raises(ConceptError, match=r"No label is called 'xyzxyz.*'\. `excite ls labels`"):
            imagenet_labels().find("xyz" * 3_000)

    def test_labels_that_are_none_name_their_file(self, written):
        with pytest.raises(ConceptError, match=r"labels\.txt: Label 1 is"):
            Labels.read(written("cat\n\ndog\n", "labels.txt"))
