"""The attention map: what it refuses, what it answers, and that it survives a round trip."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from excite.attention import AttentionMap, _caption, compare
from excite.errors import ExciteError
from excite.readouts.box import DEFAULT_ALPHA, threshold_box
from excite.readouts.overlay import overlay, upsample
from excite.readouts.point import maximum_point


def spot(x=3, y=1, width=7, height=5):
    values = torch.zeros(height, width)
    values[y, x] = 0.75
    return values


def a_map(values=None, **changes):
    fields = {
        "values": spot() if values is None else values,
        "concept": "tabby cat",
        "layer": "features.4",
        "method": "c-mwp",
        "mass": 0.98,
        "image_size": (63, 45),
    }
    return AttentionMap(**{**fields, **changes})


def photograph(size=(63, 45), colour=(90, 120, 150)):
    return Image.new("RGB", size, colour)


class TestWhatIsRefused:
    @pytest.mark.parametrize("shape", [(3,), (1, 3, 3), (0, 3), ()])
    def test_no_plane(self, shape):
        with pytest.raises(ExciteError, match="must be a plane"):
            a_map(torch.zeros(shape))

    @pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
    def test_no_numbers(self, wrong):
        with pytest.raises(ExciteError, match="NaN or infinity"):
            a_map(torch.tensor([[1.0, wrong]]))

    def test_arrays(self):
        with pytest.raises(ExciteError, match="not ndarray"):
            a_map(np.zeros((2, 2)))

    def test_integers(self):
        with pytest.raises(ExciteError, match="floating-point numbers, not torch.int64".replace(".", r"\.")):
            a_map(torch.ones(2, 2, dtype=torch.int64))

    @pytest.mark.parametrize("size", [(0, 5), (5, -5), (5,), (5.5, 5), None])
    def test_size(self, size):
        with pytest.raises(ExciteError, match="size must be"):
            a_map(image_size=size)

    @pytest.mark.parametrize("mass", [float("nan"), float("inf")])
    def test_mass(self, mass):
        with pytest.raises(ExciteError, match="mass of a map must be a finite number"):
            a_map(mass=mass)

    @pytest.mark.parametrize("probability", [-0.1, 1.1, 17.3, float("nan")])
    def test_probability(self, probability):
        with pytest.raises(ExciteError, match="probability must be within"):
            a_map(probability=probability)

    def test_picture_of_another_size(self):
        with pytest.raises(ExciteError, match=r"the image has the size \(45, 63\), the map says \(63, 45\)"):
            a_map(image=photograph((45, 63)))

    def test_change(self):
        with pytest.raises(AttributeError):
            a_map().concept = "dog"

    def test_a_probability_may_be_off_by_rounding(self):
        assert a_map(probability=1.0000001).probability == 1.0000001


class TestReadouts:
    """Each method is the pure function on the map's own values and size."""

    noisy = a_map(torch.rand(6, 8, generator=torch.Generator().manual_seed(0)) ** 3, image_size=(40, 30))

    def test_point(self):
        assert a_map().point() == (31, 13)
        assert a_map().point("nearest") == (27, 9)
        assert self.noisy.point() == maximum_point(self.noisy.values, (40, 30))

    def test_box(self):
        assert a_map().box(mode="nearest") == (27, 9, 36, 18)
        assert self.noisy.box() == threshold_box(self.noisy.values, (40, 30), DEFAULT_ALPHA)
        assert self.noisy.box(1.0) == threshold_box(self.noisy.values, (40, 30), 1.0)
        assert self.noisy.box(1.0) != self.noisy.box(3.0)

    def test_upsample(self):
        assert torch.equal(self.noisy.upsample(), upsample(self.noisy.values, (40, 30)))
        assert torch.equal(self.noisy.upsample((9, 7), "nearest"), upsample(self.noisy.values, (9, 7), "nearest"))

    def test_overlay(self):
        picture = photograph()
        own = a_map(image=picture).overlay(point=True, box=True, opacity=0.3)
        pure = overlay(picture, spot(), opacity=0.3, point=(31, 13), box=a_map().box())
        assert own.tobytes() == pure.tobytes()
        assert a_map().overlay(picture).tobytes() == overlay(picture, spot()).tobytes()

    def test_overlay_on_a_picture_of_another_size(self):
        picture = photograph((126, 90))
        marked = a_map().overlay(picture, point=True, box=True, alpha=1.0)
        pure = overlay(
            picture,
            spot(),
            point=maximum_point(spot(), (126, 90)),
            box=threshold_box(spot(), (126, 90), 1.0),
        )
        assert marked.tobytes() == pure.tobytes()

    def test_overlay_of_a_map_without_evidence(self):
        empty = a_map(torch.zeros(7, 7), image=photograph())
        assert empty.overlay(point=True, box=True).tobytes() == empty.overlay().tobytes()

    def test_overlay_without_a_picture(self):
        with pytest.raises(ExciteError, match="'tabby cat' carries no image to draw on: pass image="):
            a_map().overlay()

    @pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
    def test_numpy(self, kind):
        array = a_map(spot().to(kind).requires_grad_()).numpy()
        assert isinstance(array, np.ndarray)
        assert array.tolist() == spot().tolist()


class TestDictionary:
    def test_plain_values(self):
        assert a_map(mass=1.0, probability=0.5).to_dict(mode="nearest") == {
            "concept": "tabby cat",
            "probability": 0.5,
            "point": [27, 9],
            "box": [27, 9, 36, 18],
            "mass": 1.0,
            "layer": "features.4",
            "method": "c-mwp",
        }

    def test_nothing(self):
        found = a_map(torch.zeros(3, 3), mass=0.0).to_dict()
        assert (found["point"], found["box"], found["probability"]) == (None, None, None)

    def test_numbers_of_numpy_become_plain(self):
        found = a_map(mass=np.float32(0.5), probability=np.float64(0.25), image_size=(np.int64(9), np.int64(9)))
        assert json.loads(json.dumps(found.to_dict()))["mass"] == 0.5
        assert type(found.to_dict()["probability"]) is float


def test_repr():
    assert repr(a_map(probability=0.8734)) == (
        "AttentionMap('tabby cat', layer 'features.4', c-mwp, 7 x 5 over 63 x 45, mass 0.980, probability 0.873)"
    )
    assert repr(a_map()).endswith("mass 0.980)")


class TestSave:
    def test_png(self, tmp_path):
        one = a_map(image=photograph())
        assert one.save(tmp_path / "new" / "a.PNG") == tmp_path / "new" / "a.PNG"
        with Image.open(tmp_path / "new" / "a.PNG") as saved:
            assert saved.tobytes() == one.overlay().tobytes()

    def test_npy(self, tmp_path):
        a_map().save(tmp_path / "a.npy")
        np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), spot().numpy())

    def test_json(self, tmp_path):
        one = a_map(units=(281, 282), probability=0.5)
        saved = json.loads(one.save(tmp_path / "a.json").read_text())
        assert saved == {
            **one.to_dict(),
            "units": [281, 282],
            "image_size": [63, 45],
            "dtype": "float32",
            "values": one.values.tolist(),
        }

    @pytest.mark.parametrize("name", ["a.jpg", "a", "a.", ".png"])
    def test_other_names(self, tmp_path, name):
        with pytest.raises(ExciteError, match=r"end the name in \.png, \.npy or \.json"):
            a_map(image=photograph()).save(tmp_path / name)
        assert list(tmp_path.iterdir()) == []

    def test_png_without_a_picture(self, tmp_path):
        with pytest.raises(ExciteError, match="no image"):
            a_map().save(tmp_path / "a.png")
        assert list(tmp_path.iterdir()) == []


class TestLoad:
    @settings(deadline=None, max_examples=40)
    @given(
        st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**31)),
        st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
        st.text(),
        st.none() | st.floats(0, 1),
        st.floats(-1, 2),
        st.lists(st.integers(0, 10**6)),
    )
    def test_round_trip(self, shape, kind, concept, probability, mass, units):
        height, width, seed = shape
        values = torch.randn(height, width, generator=torch.Generator().manual_seed(seed)).to(kind)
        one = a_map(values, concept=concept, probability=probability, mass=mass, units=tuple(units))
        with tempfile.TemporaryDirectory() as folder:
            again = AttentionMap.load(one.save(Path(folder) / "a.json"))
        assert torch.equal(again.values, one.values)
        assert again.values.dtype == kind
        for name in ("concept", "layer", "method", "mass", "image_size", "probability", "units"):
            assert getattr(again, name) == getattr(one, name), name
        assert again.to_dict() == one.to_dict()

    def test_missing(self, tmp_path):
        with pytest.raises(ExciteError, match=r"a\.json' cannot be read: No such file"):
            AttentionMap.load(tmp_path / "a.json")

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"not json"])
    def test_no_json(self, tmp_path, content):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(ExciteError, match="is not JSON"):
            AttentionMap.load(tmp_path / "a.json")

    @pytest.mark.parametrize(
        ("name", "value", "reason"),
        [
            ("values", [[1.0], [1.0, 2.0]], "is not a saved map"),
            ("values", [["a"]], "is not a saved map"),
            ("values", [1.0], "must be a plane"),
            ("values", [[float("nan")]], "NaN"),
            ("dtype", "int64", "floating-point"),
            ("dtype", "nothing", "is not a saved map"),
            ("dtype", "load", "is not a saved map"),
            ("dtype", 7, "is not a saved map"),
            ("mass", "much", "is not a saved map"),
            ("probability", "high", "is not a saved map"),
            ("image_size", [5], "size must be"),
            ("image_size", 5, "is not a saved map"),
            ("units", None, "is not a saved map"),
        ],
    )
    def test_damaged(self, tmp_path, name, value, reason):
        saved = json.loads(a_map().save(tmp_path / "a.json").read_text())
        (tmp_path / "a.json").write_text(json.dumps({**saved, name: value}))
        with pytest.raises(ExciteError, match=reason):
            AttentionMap.load(tmp_path / "a.json")

    @pytest.mark.parametrize("name", ["values", "dtype", "concept", "layer", "method", "mass", "image_size", "units"])
    def test_incomplete(self, tmp_path, name):
        saved = json.loads(a_map().save(tmp_path / "a.json").read_text())
        del saved[name]
        (tmp_path / "a.json").write_text(json.dumps(saved))
        with pytest.raises(ExciteError, match=f"is not a saved map .it lacks '{name}'"):
            AttentionMap.load(tmp_path / "a.json")

    @pytest.mark.parametrize("content", ["[]", "5", "null", '"text"'])
    def test_other_json(self, tmp_path, content):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(ExciteError, match="is not a saved map"):
            AttentionMap.load(tmp_path / "a.json")


def cells(page, cell_width, gap):
    """The middle colours of the grid's cells, row by row, of a figure of square images without captions."""
    count = (page.width - gap) // (cell_width + gap)
    return [gap + column * (cell_width + gap) + cell_width // 2 for column in range(count)]


class TestCompare:
    red = photograph((60, 60), (200, 40, 40))

    def one(self, **changes):
        return a_map(**{"image_size": (60, 60), "image": self.red, **changes})

    def is_photograph(self, page, x, y):
        return page.getpixel((x, y)) == (200, 40, 40)

    def test_the_photograph_comes_first(self):
        page = compare([self.one(), self.one()], cell_width=60)
        first, second, third = cells(page, 60, 6)
        assert self.is_photograph(page, first, 40)
        assert not self.is_photograph(page, second, 40)
        assert not self.is_photograph(page, third, 40)

    def test_many_maps_are_wrapped(self):
        page = compare([self.one()] * 5, columns=2, cell_width=60)
        assert len(cells(page, 60, 6)) == 3
        single = compare([self.one()] * 2, cell_width=60)
        assert page.height == 6 + 3 * (single.height - 6)

    def test_rows_are_of_one_length_as_far_as_possible(self):
        page = compare([self.one()] * 5, columns=4, cell_width=60)
        assert len(cells(page, 60, 6)) == 4  # the photograph and three maps; two below them

    def test_equal_pictures_are_one(self):
        """Each call of `attend` reads the image anew."""
        page = compare([self.one(), self.one(image=self.red.copy())], cell_width=60)
        assert page.tobytes() == compare([self.one(), self.one()], cell_width=60).tobytes()

    def test_rows_by_layer(self):
        maps = [self.one(layer=layer, concept=concept) for concept in ("cat", "dog") for layer in ("pool2", "pool3")]
        page = compare(maps, rows="layer", cell_width=60)
        assert len(cells(page, 60, 6)) == 3
        assert page.height == 6 + 2 * (compare(maps[:1], cell_width=60).height - 6)
        middle = cells(page, 60, 6)[0]
        assert self.is_photograph(page, middle, 40)
        assert page.getpixel((middle, page.height // 2 + 30)) == (255, 255, 255)  # the photograph is shown once

    def test_several_pictures(self):
        blue = Image.new("RGB", (60, 60), (40, 40, 200))
        page = compare([self.one(), self.one(image=blue)], cell_width=60)
        colours = [colour for _, colour in page.getcolors(10**6)]
        assert (200, 40, 40) in colours
        assert (40, 40, 200) in colours
        assert len(cells(page, 60, 6)) == 2

    def test_a_picture_given_for_all(self):
        maps = [self.one(image=None), self.one(image=None, concept="dog")]
        assert compare(maps, image=self.red).tobytes() == compare([self.one(), self.one(concept="dog")]).tobytes()

    def test_marks(self):
        bare, marked = (compare([self.one()], point=mark, box=mark) for mark in (False, True))
        assert bare.tobytes() != marked.tobytes()

    def test_captions_differ(self):
        pages = {
            compare([one]).tobytes()
            for one in (
                self.one(),
                self.one(concept="dog"),
                self.one(layer="pool5"),
                self.one(method="mwp"),
                self.one(probability=0.87),
                self.one(probability=0.0874),
                self.one(probability=0.0001),
            )
        }
        assert len(pages) == 7

    @pytest.mark.parametrize(
        ("probability", "expected"), [(1.0, "100%"), (0.874, "87%"), (0.0234, "2.3%"), (0.0004, "<0.1%"), (0, "<0.1%")]
    )
    def test_percentages(self, probability, expected):
        assert _caption(self.one(probability=probability)) == f"tabby cat\n{expected} · features.4 · c-mwp"

    def test_a_map_without_evidence_says_so(self):
        assert _caption(self.one(values=torch.zeros(3, 3))) == "tabby cat\nfeatures.4 · c-mwp · no evidence"

    def test_nothing(self):
        with pytest.raises(ExciteError, match="nothing to compare"):
            compare([])

    def test_without_a_picture(self):
        with pytest.raises(ExciteError, match="carries no image"):
            compare([self.one(image=None)])

    def test_unknown_rows(self):
        with pytest.raises(ExciteError, match="rows cannot be told apart by 'mass'"):
            compare([self.one()], rows="mass")

    def test_no_columns(self):
        with pytest.raises(ExciteError, match="at least one map"):
            compare([self.one()], columns=0)
