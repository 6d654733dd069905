"""``excite attend`` on real photographs with the embedded classifier."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

import excite as library

EXIF_ORIENTATION = 0x0112


class TestJson:
    @pytest.mark.parametrize(
        ("words", "asked"),
        [
            ("cat 285", {"concepts": ["cat", 285]}),
            ("cat --against dog --against lynx", {"concepts": "cat", "against": ["dog", "lynx"]}),
            ("cat --no-contrast --layer head", {"concepts": "cat", "method": "mwp", "layer": "head"}),
        ],
    )
    def test_it_says_what_the_library_says(self, excite, cat, words, asked):
        ended = excite("attend", cat, *words.split(), "--json")
        assert (ended.code, ended.err, ended.out.count("\n")) == (0, "", 1)
        for said, found in zip(ended.answers[0]["maps"], library.attend(library.load(), cat, **asked), strict=True):
            assert (said["point"], said["box"]) == (list(found.point()), list(found.box()))
            assert said["probability"] == pytest.approx(found.probability, abs=1e-6)
            assert said["mass"] == pytest.approx(found.mass, abs=1e-6)
            assert (said["concept"], said["layer"], said["method"]) == (found.concept, found.layer, found.method)
            assert Path(said["overlay"]).is_file()

    def test_in_pixels_of_the_upright_original(self, excite, here):
        """A large image of another shape, stored on its side: the answer is that of the upright image."""
        upright = Image.fromarray(data.chelsea()).resize((1353, 600))
        upright.save("upright.png")
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = 6
        upright.transpose(Image.Transpose.ROTATE_90).save("turned.png", exif=exif)
        answers = [
            excite("attend", name, "Egyptian cat", "plastic bag", "--json").answers[0]
            for name in ("upright.png", "turned.png")
        ]
        for one, other in zip(*(answer["maps"] for answer in answers), strict=True):
            assert {**one, "overlay": None} == {**other, "overlay": None}
            x, y = one["point"]
            x0, y0, x1, y1 = one["box"]
            assert 0 <= x0 <= x < x1 <= 1353
            assert 0 <= y0 <= y < y1 <= 600
        assert answers[0]["maps"][0]["point"][0] > 224  # not in pixels of what the network saw
        with Image.open(answers[1]["maps"][0]["overlay"]) as overlay:
            assert overlay.size == (1353, 600)

    def test_files_folders_and_patterns(self, excite, cat, here):
        Image.fromarray(data.coffee()).save("coffee.png")
        for arguments in (["cat.png", "coffee.png"], ["."], ["*.png"], ["./*.png"]):
            ended = excite("attend", *arguments, "cup", "--size", 96, "--json", "--no-overlays")
            assert [Path(answer["image"]).name for answer in ended.answers] == ["cat.png", "coffee.png"]
            assert ended.err == ""


class TestOddPictures:
    """Pictures that are unusual and work all the same."""

    def test_other_modes_and_moving_pictures(self, excite, here):
        """Of a moving picture the first frame counts."""
        chelsea, coffee = Image.fromarray(data.chelsea()), Image.fromarray(data.coffee()).resize((451, 300))
        chelsea.save("cat.gif", save_all=True, append_images=[coffee])
        coffee.save("cup.gif", save_all=True, append_images=[chelsea])
        chelsea.convert("CMYK").save("cmyk.jpg")
        chelsea.convert("CMYK").save("cmyk.tif")
        chelsea.convert("RGBA").save("rgba.webp")
        Image.fromarray(np.asarray(chelsea.convert("L")).astype(np.uint16) * 257).save("sixteen.png")
        ended = excite("attend", ".", "cat", "--size", 128, "--json", "--no-overlays")
        assert (ended.code, ended.err) == (0, "")
        chances = {Path(answer["image"]).name: answer["maps"][0]["probability"] for answer in ended.answers}
        assert chances.pop("cup.gif") < 0.05
        assert len(chances) == 5
        assert min(chances.values()) > 0.3

    def test_extreme_shapes_and_names(self, excite, cat, here):
        Image.new("RGB", (1, 1), "white").save("dot.png")
        Image.fromarray(data.chelsea()).resize((2000, 20)).save("strip.png")
        Path("caf\udce9.png").write_bytes(Path(cat).read_bytes())
        ended = excite("attend", "dot.png", "strip.png", "caf\udce9.png", "--json", "--no-overlays")
        assert ended.code == 0
        dot, strip, named = ended.answers
        assert all(found["point"] in ([0, 0], None) for found in dot["maps"])
        assert [len(answer["maps"]) for answer in (dot, strip, named)] == [5, 5, 5]
        assert named["image"] == "caf\udce9.png"


class TestFolder:
    """Several images are a report: a line each, small overlays, and a page."""

    @pytest.fixture
    def photos(self, here):
        Path("photos").mkdir()
        for name, pixels in (("a cat", data.chelsea()), ("b cup", data.coffee()), ("c brick", data.brick())):
            size = (1640, 1230) if name == "a cat" else (400, 300)  # one is larger than its overlay
            Image.fromarray(pixels).resize(size).save(f"photos/{name}.png", compress_level=1)

    def overlays(self, suffix="jpg"):
        return {path.name for path in Path("excite-out").glob(f"*.{suffix}")}

    def test_a_line_for_each_image(self, excite, photos):
        ended = excite("attend", "photos")
        assert (ended.code, ended.err) == (0, "")
        cat, cup, _, written = ended.out.splitlines()
        assert cat.startswith("photos/a cat.png  cat ")
        assert cup.startswith("photos/b cup.png  ")
        assert written == "written: excite-out/index.html"
        assert len(self.overlays()) == ended.out.count(".png  ") - ended.out.count(
            "nothing at least 50% probable; most: "
        )
        with Image.open("excite-out/a-cat.cat.jpg") as overlay:
            assert overlay.size == (1600, 1200)
        files = [path.stat().st_size for path in Path("excite-out").iterdir()]
        assert sum(files) < 2e6

    def test_concepts_that_are_asked_for_above_a_threshold(self, excite, photos):
        ended = excite("attend", "photos", "cat", "cup")
        cat, cup, brick, _ = ended.out.splitlines()
        assert (cat.count("%"), cup.count("%")) == (1, 1)
        assert "nothing at least 50% probable; most: " in brick
        assert self.overlays() == {"a-cat.cat.jpg", "b-cup.cup.jpg"}
        excite("attend", "photos", "cat", "cup", "--at-least", 0, "--format", "png", "--full-size", "--most", 1)
        assert len(self.overlays("png")) == 3
        with Image.open("excite-out/a-cat.cat.png") as overlay:
            assert overlay.size == (1640, 1230)
        assert len(self.overlays()) == 2, "what was drawn in another form stays"
