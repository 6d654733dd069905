"""The attention map: what it refuses, what it answers, and that it survives a round trip."""

import json
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from excite.attention import AttentionMap, AttentionMaps, _caption, compare
from excite.errors import ExciteError
from excite.readouts.box import DEFAULT_ALPHA, maximum_point, threshold_box
from excite.readouts.overlay import overlay


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


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        *(({"values": torch.zeros(shape)}, "must be a plane") for shape in ((3,), (1, 3, 3), (0, 3), ())),
        *(({"values": torch.tensor([[1.0, wrong]])}, "NaN or infinity") for wrong in (torch.nan, torch.inf)),
        ({"values": np.zeros((2, 2))}, "not ndarray"),
        ({"values": torch.ones(2, 2, dtype=torch.int64)}, r"floating-point numbers, not torch\.int64"),
        *(({"image_size": size}, "size must be") for size in ((0, 5), (5, -5), (5,), (5.5, 5), None)),
        *(({"mass": mass}, "must be a finite number") for mass in (float("nan"), float("inf"))),
        *(({"probability": value}, "probability must be within") for value in (-0.1, 1.1, float("nan"))),
        ({"image": photograph((45, 63))}, r"the image has the size \(45, 63\), the map says \(63, 45\)"),
    ],
)
def test_what_is_refused(changes, reason):
    with pytest.raises(ExciteError, match=reason):
        a_map(**changes)


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

    def test_the_boxes_of_objects(self):
        """Made when they are first asked for, once; the box of the map itself is still to be had."""
        asked = []

        def extent():
            asked.append(1)
            two = torch.zeros(6, 8)
            two[1:4, 1:3], two[1:3, 6], two[5, 4] = 1.0, 1.5, 0.5  # two objects, and too little for a third
            return two

        one = a_map(objects=extent, image_size=(80, 60))
        assert (one.point(), one.box(alpha=1.0), asked) == (
            a_map(image_size=(80, 60)).point(),
            a_map(image_size=(80, 60)).box(),
            [],
        )
        main, other = one.boxes()
        assert main == pytest.approx((10, 10, 30, 40), abs=6)
        assert other == pytest.approx((60, 10, 70, 30), abs=6)
        assert (one.box(), one.to_dict()["boxes"], asked) == (main, [list(main), list(other)], [1])
        assert a_map(torch.zeros(2, 2), objects=extent).boxes() == []

    def test_boxes_survive_files_and_pickles(self, tmp_path):
        one = a_map(objects=lambda: torch.eye(5))  # which cannot be pickled itself
        assert pickle.loads(pickle.dumps(one)).boxes() == one.boxes() == [(0, 0, 63, 45)]  # noqa: S301
        assert AttentionMap.load(one.save(tmp_path / "a.json")).boxes() == one.boxes()
        old = {name: value for name, value in json.loads((tmp_path / "a.json").read_text()).items() if name != "boxes"}
        (tmp_path / "old.json").write_text(json.dumps(old))
        assert AttentionMap.load(tmp_path / "old.json").box() == a_map().box()

    def test_it_is_an_array_and_a_list_of_maps_shows_itself(self):
        one = a_map()
        assert np.asarray(one).tolist() == one.values.tolist()
        assert np.asarray(one, dtype=np.float64).dtype == np.float64
        assert (len(one), bool(a_map(torch.zeros(2, 3)))) == (5, True)
        maps = AttentionMaps([one, a_map(concept="<dog>")])
        assert isinstance(maps, list)
        assert maps._repr_html_().count("<img") == 2
        assert "&lt;dog&gt;" in maps._repr_html_()

    def test_overlay(self):
        picture = photograph()
        own = a_map(image=picture).overlay(point=True, box=True, opacity=0.3)
        pure = overlay(picture, spot(), opacity=0.3, point=(31, 13), boxes=a_map().boxes())
        assert own.tobytes() == pure.tobytes()
        assert a_map().overlay(picture).tobytes() == overlay(picture, spot()).tobytes()

    def test_overlay_on_a_picture_of_another_size(self):
        picture = photograph((126, 90))
        marked = a_map().overlay(picture, point=True, box=True, alpha=1.0)
        pure = overlay(
            picture, spot(), point=maximum_point(spot(), (126, 90)), boxes=[threshold_box(spot(), (126, 90), 1.0)]
        )
        assert marked.tobytes() == pure.tobytes()

    def test_overlay_without_a_picture(self):
        with pytest.raises(ExciteError, match="'tabby cat' carries no image to draw on: pass image="):
            a_map().overlay()


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
        assert one.to_dict(mode="nearest") == {
            "concept": "tabby cat",
            "probability": 0.5,
            "point": [27, 9],
            "box": [27, 9, 36, 18],
            "boxes": [[27, 9, 36, 18]],
            "mass": 0.98,
            "layer": "features.4",
            "method": "c-mwp",
        }
        saved = json.loads(one.save(tmp_path / "a.json").read_text())
        assert saved == {
            **one.to_dict(),
            "units": [281, 282],
            "image_size": [63, 45],
            "dtype": "float32",
            "values": one.values.tolist(),
        }

    @pytest.mark.parametrize(("name", "kind"), [("a.jpg", "JPEG"), ("a.JPEG", "JPEG"), ("a.webp", "WEBP")])
    def test_smaller_pictures(self, tmp_path, name, kind):
        one = a_map(image=photograph())
        with Image.open(one.save(tmp_path / name, style="contours")) as saved:
            assert (saved.format, saved.size) == (kind, (63, 45))

    @pytest.mark.parametrize("name", ["a.gif", "a", "a.", ".png"])
    def test_other_names(self, tmp_path, name):
        with pytest.raises(ExciteError, match=r"end the name in \.png, \.jpg, \.webp, \.npy or \.json"):
            a_map(image=photograph()).save(tmp_path / name)
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

    @pytest.mark.parametrize(
        ("name", "value", "reason"),
        [
            ("values", [[1.0], [1.0, 2.0]], "is not a saved map"),
            ("values", [1.0], "must be a plane"),
            ("values", [[float("nan")]], "NaN"),
            ("dtype", "int64", "floating-point"),
            ("dtype", "nothing", "is not a saved map"),
            ("mass", "much", "is not a saved map"),
            ("image_size", [5], "size must be"),
            ("image_size", 5, "is not a saved map"),
            ("units", None, "is not a saved map"),
            ("concept", ..., "is not a saved map .it lacks 'concept'"),
        ],
    )
    def test_damaged(self, tmp_path, name, value, reason):
        saved = json.loads(a_map().save(tmp_path / "a.json").read_text())
        changed = {key: entry for key, entry in {**saved, name: value}.items() if entry is not ...}
        (tmp_path / "a.json").write_text(json.dumps(changed))
        with pytest.raises(ExciteError, match=reason):
            AttentionMap.load(tmp_path / "a.json")


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff\xfe", b"[]", b"5", b'"text"'])
def test_files_that_are_no_maps(tmp_path, content):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ExciteError, match=r"cannot be read: No such file|is not JSON|is not a saved map"):
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

    def test_many_maps_are_wrapped(self):
        page = compare([self.one()] * 5, columns=2, cell_width=60)
        assert len(cells(page, 60, 6)) == 3
        single = compare([self.one()] * 2, cell_width=60)
        assert page.height == 6 + 3 * (single.height - 6)

    def test_rows_by_layer(self):
        maps = [self.one(layer=layer, concept=concept) for concept in ("cat", "dog") for layer in ("pool2", "pool3")]
        page = compare(maps, rows="layer", cell_width=60)
        assert len(cells(page, 60, 6)) == 3
        assert page.height == 6 + 2 * (compare(maps[:1], cell_width=60).height - 6)
        middle = cells(page, 60, 6)[0]
        assert self.is_photograph(page, middle, 40)
        assert page.getpixel((middle, page.height // 2 + 30)) == (255, 255, 255)  # the photograph is shown once

    def test_a_picture_given_for_all(self):
        maps = [self.one(image=None), self.one(image=None, concept="dog")]
        assert compare(maps, image=self.red).tobytes() == compare([self.one(), self.one(concept="dog")]).tobytes()

    @pytest.mark.parametrize(
        ("probability", "expected"), [(1.0, "100%"), (0.874, "87%"), (0.0234, "2.3%"), (0.0004, "<0.1%")]
    )
    def test_percentages(self, probability, expected):
        assert _caption(self.one(probability=probability)) == f"tabby cat\n{expected} · features.4 · c-mwp"
        assert _caption(self.one(values=torch.zeros(3, 3))) == "tabby cat\nfeatures.4 · c-mwp · no evidence"

    def test_what_cannot_be_compared(self):
        for maps, options, reason in (
            ([], {}, "nothing to compare"),
            ([self.one(image=None)], {}, "carries no image"),
            ([self.one()], {"rows": "mass"}, "rows cannot be told apart by 'mass'"),
            ([self.one()], {"columns": 0}, "at least one map"),
        ):
            with pytest.raises(ExciteError, match=reason):
                compare(maps, **options)
