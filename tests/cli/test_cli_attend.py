"""``excite attend`` on real photographs with the embedded classifier."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

import excite as library

FIELDS = ["concept", "probability", "point", "box", "mass", "layer", "method", "overlay"]
EXIF_ORIENTATION = 0x0112


class TestJson:
    def test_one_object_and_nothing_else(self, excite, cat):
        ended = excite("attend", cat, "cat", "plastic bag", "--json")
        assert ended.code == 0
        assert ended.err == ""
        assert ended.out.count("\n") == 1
        answer = json.loads(ended.out)
        assert list(answer) == ["image", "maps"]
        assert answer["image"] == "cat.png"
        assert [list(found) for found in answer["maps"]] == [FIELDS, FIELDS]

    def test_it_says_what_the_library_says(self, excite, cat):
        (answer,) = excite("attend", cat, "cat", "285", "--json").answers
        maps = library.attend(library.load(), cat, ["cat", 285])
        for said, found in zip(answer["maps"], maps, strict=True):
            x, y = found.point()
            assert said["point"] == [x, y]
            assert said["box"] == list(found.box())
            assert said["probability"] == pytest.approx(found.probability, abs=1e-6)
            assert said["mass"] == pytest.approx(found.mass, abs=1e-6)
            assert (said["concept"], said["layer"], said["method"]) == (found.concept, "blocks.14", "c-mwp")
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

    def test_one_line_for_each_picture(self, excite, cat, here):
        Image.fromarray(data.coffee()).save("coffee.png")
        ended = excite("attend", "cat.png", "coffee.png", "cup", "--json")
        assert [answer["image"] for answer in ended.answers] == ["cat.png", "coffee.png"]
        assert ended.err == ""

    @pytest.mark.parametrize("argument", [".", "*.png", "./*.png"])
    def test_folders_and_patterns(self, excite, cat, here, argument):
        Image.fromarray(data.coffee()).save("coffee.png")
        answers = excite("attend", argument, "cup", "--json").answers
        assert [Path(answer["image"]).name for answer in answers] == ["cat.png", "coffee.png"]


class TestOptions:
    def test_five_findings_without_a_concept(self, excite, cat):
        (answer,) = excite("attend", cat, "--json", "--model", "efficientnet-lite0").answers
        assert [found["concept"] for found in answer["maps"]][:3] == ["Egyptian cat", "tiger cat", "tabby"]
        assert len(answer["maps"]) == 5
        likelihood = [found["probability"] for found in answer["maps"]]
        assert likelihood == sorted(likelihood, reverse=True)

    @pytest.mark.parametrize(
        ("options", "method"),
        [
            ([], "c-mwp"),
            (["--contrast"], "c-mwp"),
            (["--no-contrast"], "mwp"),
            (["--method", "mwp"], "mwp"),
            (["--method", "c-mwp"], "c-mwp"),
        ],
    )
    def test_contrast(self, excite, cat, options, method):
        (answer,) = excite("attend", cat, "tabby", "--json", "--no-overlays", *options).answers
        (found,) = library.attend(library.load(), cat, "tabby", method=method)
        assert answer["maps"][0]["method"] == method
        assert answer["maps"][0]["mass"] == pytest.approx(found.mass, abs=1e-6)

    def test_everyday_objects_beside_the_labels_of_imagenet(self, excite, cat):
        (answer,) = excite("attend", cat, "cat", "person", "dining table", "tabby", "--json", "--no-overlays").answers
        chances = {found["concept"]: found["probability"] for found in answer["maps"]}
        assert list(chances) == ["cat", "person", "dining table", "tabby"]
        assert chances["cat"] > 0.9
        assert max(chances["person"], chances["dining table"]) < 0.5

    def test_against(self, excite, cat):
        (answer,) = excite(
            "attend", cat, "cat", "--against", "dog", "--against", "lynx", "--json", "--no-overlays"
        ).answers
        (found,) = library.attend(library.load(), cat, "cat", against=["dog", "lynx"])
        assert answer["maps"][0]["concept"] == "cat, not dog, not lynx"
        assert answer["maps"][0]["mass"] == pytest.approx(found.mass, abs=1e-6)
        assert answer["maps"][0]["point"] == list(found.point())

    def test_several_layers(self, excite, cat):
        (answer,) = excite("attend", cat, "cat", "lynx", "--layer", "head", "--layer", "blocks.10", "--json").answers
        assert [(found["concept"], found["layer"]) for found in answer["maps"]] == [
            ("cat", "head"),
            ("cat", "blocks.10"),
            ("lynx", "head"),
            ("lynx", "blocks.10"),
        ]
        assert len({found["overlay"] for found in answer["maps"]}) == 4

    def test_where_files_go(self, excite, cat):
        excite("attend", cat, "cat", "--out", "maps/of cats", "--arrays")
        assert {path.name for path in Path("maps/of cats").iterdir()} == {
            "answers.jsonl",
            "cat-maps.png",
            "cat.cat.npy",
            "cat.cat.png",
        }
        values = np.load("maps/of cats/cat.cat.npy")
        assert values.shape == (7, 11)
        assert not Path("excite-out").exists()
        with Image.open("maps/of cats/cat.cat.png") as overlay:
            assert overlay.size == (451, 300)

    def test_no_overlays(self, excite, cat):
        (answer,) = excite("attend", cat, "cat", "--no-overlays", "--json").answers
        assert answer["maps"][0]["overlay"] is None
        assert [path.name for path in Path("excite-out").iterdir()] == ["answers.jsonl"]

    def test_a_table_for_people(self, excite, cat):
        ended = excite("attend", cat, "cat", "plastic bag", "volcano", "--model", "efficientnet-lite0")
        assert ended.code == 0
        assert ended.err == ""
        name, header, first, _, last = ended.out.splitlines()
        assert name == "cat.png"
        assert header.split() == FIELDS
        assert first.split() == [
            *("cat", "74.9%", "109,", "141", "19,", "0,", "368,", "226", "0.061", "blocks.14", "c-mwp"),
            "excite-out/cat.cat.png",
        ]
        assert "<0.1%" in last

    def test_the_overlay_shows_the_picture_and_the_map(self, excite, cat):
        excite("attend", cat, "cat")
        with Image.open("excite-out/cat.cat.png") as file:
            drawn = np.asarray(file.convert("RGB")).astype(int)
        y, x = np.indices(drawn.shape[:2])
        ring = np.abs(np.hypot(x - 109, y - 141) - 19) < 5  # around the mark at the point
        red, green, blue = drawn[ring].mean(axis=0)
        assert min(red, green) > blue + 20  # the strongest evidence is yellow
        far = drawn[250:290, 380:440]  # no evidence here: grey
        assert np.abs(far - far.mean(axis=2, keepdims=True)).max() < 30


class TestOddPictures:
    """Pictures that are unusual and work all the same."""

    def probability(self, excite, name):
        ended = excite("attend", name, "cat", "--json", "--no-overlays")
        assert ended.code == 0
        assert ended.err == ""
        return ended.answers[0]["maps"][0]["probability"]

    def test_animated(self, excite, here):
        frames = [Image.fromarray(data.chelsea()), Image.fromarray(data.coffee()).resize((451, 300))]
        frames[0].save("cat.gif", save_all=True, append_images=frames[1:])
        frames[1].save("cup.gif", save_all=True, append_images=frames[:1])
        assert self.probability(excite, "cat.gif") > 0.3
        assert self.probability(excite, "cup.gif") < 0.05

    @pytest.mark.parametrize(("mode", "name"), [("CMYK", "cat.jpg"), ("CMYK", "cat.tif"), ("RGBA", "cat.webp")])
    def test_other_modes(self, excite, here, mode, name):
        Image.fromarray(data.chelsea()).convert(mode).save(name)
        assert self.probability(excite, name) > 0.5

    def test_sixteen_bits(self, excite, here):
        grey = np.asarray(Image.fromarray(data.chelsea()).convert("L")).astype(np.uint16) * 257
        Image.fromarray(grey).save("cat.png")
        assert self.probability(excite, "cat.png") > 0.3

    def test_one_pixel(self, excite, here):
        Image.new("RGB", (1, 1), "white").save("dot.png")
        ended = excite("attend", "dot.png", "--json")
        assert ended.code == 0
        assert all(found["point"] in ([0, 0], None) for found in ended.answers[0]["maps"])
        assert len(ended.answers[0]["maps"]) == 5

    def test_a_long_strip(self, excite, here):
        Image.fromarray(data.chelsea()).resize((2000, 20)).save("strip.png")
        ended = excite("attend", "strip.png", "--json")
        assert ended.code == 0

    def test_a_name_that_is_not_unicode(self, excite, cat, here):
        Path("caf\udce9.png").write_bytes(Path(cat).read_bytes())
        ended = excite("attend", "caf\udce9.png", "cat", "--json")
        assert ended.code == 0
        assert ended.answers[0]["image"] == "caf\udce9.png"
