"""The map over its image, marks on any ground, and colours that show order to every eye."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from excite.errors import ExciteError
from excite.readouts.overlay import TABLES, lightness, overlay, signed_colours


def plain(colour=(120, 120, 120), size=(90, 60)):
    return Image.new("RGB", size, colour)


def spot(x=1, y=1, side=3, value=1.0):
    values = torch.zeros(side, side)
    values[y, x] = value
    return values


def array(image):
    return np.asarray(image).astype(int)


def test_the_strongest_evidence_is_a_mix_of_yellow_and_the_dimmed_picture():
    """Grey 120 dimmed by 0.8 is 96; covered by 0.6 of the last colour."""
    drawn = overlay(plain(), spot(), mode="nearest")
    expected = 0.6 * TABLES["evidence"]()[255] + 0.4 * 96
    assert np.abs(array(drawn)[30, 45] - expected).max() <= 1


def test_an_empty_map_dims_the_picture_and_keeps_its_detail():
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))
    drawn = array(overlay(picture, torch.zeros(7, 7)))
    grey = array(picture.convert("L"))[:, :, None]
    expected = 0.8 * (0.15 * array(picture) + 0.85 * grey)
    assert np.abs(drawn - expected).max() <= 3


def test_opacity():
    values = spot()
    nothing, everything = (array(overlay(plain(), values, opacity=o, mode="nearest")) for o in (0, 1))
    assert (nothing == 96).all()
    assert everything[30, 45].tolist() == TABLES["evidence"]()[255].tolist()
    assert everything[5, 5].tolist() == [96] * 3


def test_signed_maps_are_drawn_by_sign():
    values = spot(x=0) - spot(x=2) * 0.5
    drawn = array(overlay(plain(), values, opacity=1, mode="nearest"))
    assert drawn[30, 15].tolist() == signed_colours()[255].tolist()
    quarter = signed_colours()[64].astype(float)  # -0.5 of the largest value
    cover = 0.5**0.6
    assert np.abs(drawn[30, 75] - (cover * quarter + (1 - cover) * 96)).max() <= 2
    assert drawn[30, 45].tolist() == [96] * 3


def test_rounding_errors_do_not_make_a_map_signed_and_its_scale_does_not_count():
    values = spot()
    values[0, 0] = -1e-7
    assert np.abs(array(overlay(plain(), values)) - array(overlay(plain(), spot()))).max() <= 1
    small, large = (overlay(plain(), spot(value=value)) for value in (1e-30, 1e30))
    assert np.array_equal(array(small), array(large))


def test_the_swing_of_the_cubic_below_zero_stays_invisible():
    values = torch.zeros(5, 5)
    values[2, 2] = 1
    drawn = array(overlay(plain(size=(50, 50)), values))
    assert drawn[25, 36].tolist() == [96] * 3  # where the curve is below zero


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 255), st.integers(20, 400), st.integers(20, 400))
def test_marks_show_on_any_background(grey, width, height):
    picture, nothing = plain((grey,) * 3, (width, height)), torch.zeros(3, 3)
    bare = lightness(array(overlay(picture, nothing)))
    boxed = lightness(array(overlay(picture, nothing, box=(2, 2, width - 2, height - 2))))
    assert np.abs(boxed - bare)[2:-2, 1:4].max(axis=1).min() > 45  # all along the left side
    x, y = width // 2, height // 2
    ringed = lightness(array(overlay(picture, nothing, point=(x, y))))
    changed = np.abs(ringed - bare)
    for direction in (changed[y, x:], changed[y, x::-1], changed[y:, x], changed[y::-1, x]):
        assert direction[:5].max() > 30  # the dot: light, with a dark edge
        assert direction[3 if min(width, height) < 100 else 5 : 25].max() > 30  # the ring


def test_the_ring_is_around_the_point():
    marked = array(overlay(plain(size=(250, 250)), torch.zeros(3, 3), point=(100, 60)))
    rows, columns = np.nonzero((marked != 96).any(axis=2))
    assert (rows.min() + rows.max()) / 2 == 60
    assert (columns.min() + columns.max()) / 2 == 100
    assert marked[60, 100].min() > 200
    assert 16 <= columns.max() - columns.min() <= 24


def test_the_box_is_drawn_on_its_outermost_pixels():
    marked = array(overlay(plain(size=(200, 200)), torch.zeros(3, 3), box=(50, 60, 80, 100)))
    assert (marked[60:100, 50] == 255).all()
    assert (marked[60:100, 79] == 255).all()
    assert (marked[60, 50:80] == 255).all()
    assert (marked[99, 50:80] == 255).all()
    assert (marked[62:98, 52:78] == 96).all()
    assert (marked[:59] == 96).all()
    assert (marked[101:] == 96).all()


@pytest.mark.parametrize("side", [1, 7, 224])
def test_marks_at_the_border_and_on_one_pixel(side):
    for size in ((90, 60), (1, 1)):
        for point in ((0, 0), (size[0] - 1, 0), (size[0] - 1, size[1] - 1)):
            assert overlay(plain(size=size), torch.ones(side, side), point=point, box=(0, 0, *size)).size == size


def test_the_picture_is_not_changed():
    picture = plain()
    overlay(picture, spot(), point=(3, 3), box=(1, 1, 9, 9))
    assert picture.getcolors() == [(5400, (120, 120, 120))]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"opacity": -0.1}, "opacity must be within"),
        ({"opacity": float("nan")}, "opacity must be within"),
        ({"point": (90, 0)}, r"point \(90, 0\) is outside the image of 90 x 60"),
        ({"box": (5, 5, 5, 9)}, "holds no pixel"),
    ],
)
def test_options_that_make_no_sense(options, said):
    with pytest.raises(ExciteError, match=said):
        overlay(plain(), spot().requires_grad_(), **options)


def test_lightness_of_known_colours():
    """From the definition of CIE L*: white 100, black 0, and sRGB red 53.24, green 87.73, blue 32.30."""
    known = np.array([[255, 255, 255], [0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255], [119, 119, 119]])
    np.testing.assert_allclose(lightness(known), [100, 0, 53.24, 87.73, 32.30, 50.03], atol=0.02)


@pytest.mark.parametrize("name", TABLES)
def test_more_evidence_is_always_lighter(name):
    table = TABLES[name]()
    assert table.shape == (256, 3)
    assert table.dtype == np.uint8
    steps = np.diff(lightness(table))
    assert steps.min() >= 0 if name == "grey" else steps.min() > 0  # eight bits hold no more greys than that
    assert steps.max() < 3 * steps.mean()  # no step stands out
    assert lightness(table)[-1] - lightness(table)[0] > 80


def test_signed_colours_are_lightest_in_the_middle_and_equally_dark_on_both_sides():
    table, light = signed_colours(), lightness(signed_colours())
    assert table.shape == (256, 3)
    assert np.diff(light[:128]).min() > 0
    assert np.diff(light[128:]).max() < 0
    assert np.abs(light - light[::-1]).max() < 2
    assert table[127:129].min() > 235
    assert np.ptp(table[127:129].astype(int), axis=1).max() < 8


def simulated_red_green_blindness(table):
    """Deuteranopia after Viénot, Brettel and Mollon (1999): red and green are seen as one."""
    linear = (table / 255.0) ** 2.2
    red, green, blue = linear.T
    both = 0.29275 * red + 0.70725 * green
    seen = np.stack([both, both, -0.02234 * red + 0.02234 * green + blue], axis=1)
    return 255 * seen.clip(0, 1) ** (1 / 2.2)


@pytest.mark.parametrize("table", [*TABLES.values(), signed_colours])
def test_steps_can_be_told_apart_without_red_and_green(table):
    seen = simulated_red_green_blindness(table())
    assert np.linalg.norm(seen[16:] - seen[:-16], axis=1).min() > 8
    if table is signed_colours:
        assert np.linalg.norm(seen[0] - seen[-1]) > 100
    with pytest.raises(ValueError, match="read-only"):
        table()[0] = 0
