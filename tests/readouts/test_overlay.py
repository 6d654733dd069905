"""A map at the size of its image and over it, marks on any ground, and colours that show order to every eye."""

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from excite.errors import ExciteError
from excite.readouts.box import maximum_point
from excite.readouts.overlay import TABLES, Style, lightness, overlay, signed_colours, upsample


def plain(colour=(120, 120, 120), size=(90, 60)):
    return Image.new("RGB", size, colour)


def spot(x=1, y=1, side=3, value=1.0):
    values = torch.zeros(side, side)
    values[y, x] = value
    return values


def array(image):
    return np.asarray(image).astype(int)


def test_the_strongest_evidence_is_a_mix_of_yellow_and_the_dimmed_picture():
    """Grey 120 dimmed by 0.8 is 96; covered by as much of the last colour as the opacity says, 0.6."""
    yellow = TABLES["evidence"]()[255]
    for options, cover in (({}, 0.6), ({"opacity": 0}, 0), ({"opacity": 1}, 1)):
        drawn = array(overlay(plain(), spot(), mode="nearest", **options))
        assert np.abs(drawn[30, 45] - (cover * yellow + (1 - cover) * 96)).max() <= (1 if cover == 0.6 else 0)
        assert drawn[5, 5].tolist() == [96] * 3


def test_an_empty_map_dims_the_picture_and_keeps_its_detail():
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))
    drawn = array(overlay(picture, torch.zeros(7, 7)))
    grey = array(picture.convert("L"))[:, :, None]
    expected = 0.8 * (0.4 * array(picture) + 0.6 * grey)
    assert np.abs(drawn - expected).max() <= 3


def test_signed_maps_are_drawn_by_sign():
    values = spot(x=0) - spot(x=2) * 0.5
    drawn = array(overlay(plain(), values, opacity=1, mode="nearest"))
    assert drawn[30, 15].tolist() == signed_colours()[255].tolist()
    quarter = signed_colours()[64].astype(float)  # -0.5 of the largest value
    cover = 0.5**0.6
    assert np.abs(drawn[30, 75] - (cover * quarter + (1 - cover) * 96)).max() <= 2
    assert drawn[30, 45].tolist() == [96] * 3


def test_rounding_errors_and_the_swing_of_the_cubic_stay_invisible_and_scale_does_not_count():
    values = spot()
    values[0, 0] = -1e-7
    assert np.abs(array(overlay(plain(), values)) - array(overlay(plain(), spot()))).max() <= 1
    small, large = (overlay(plain(), spot(value=value)) for value in (1e-30, 1e30))
    assert np.array_equal(array(small), array(large))
    drawn = array(overlay(plain(size=(50, 50)), spot(2, 2, side=5)))
    assert drawn[25, 36].tolist() == [96] * 3  # where the curve is below zero


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 255), st.integers(20, 400), st.integers(20, 400))
def test_marks_show_on_any_background(grey, width, height):
    picture, nothing = plain((grey,) * 3, (width, height)), torch.zeros(3, 3)
    bare = lightness(array(overlay(picture, nothing)))
    boxed = lightness(array(overlay(picture, nothing, boxes=[(2, 2, width - 2, height - 2)])))
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


def test_the_box_is_drawn_on_its_outermost_pixels_of_a_copy():
    picture = plain(size=(200, 200))
    marked = array(overlay(picture, torch.zeros(3, 3), boxes=[(50, 60, 80, 100)]))
    for edge in (marked[60:100, 50], marked[60:100, 79], marked[60, 50:80], marked[99, 50:80]):
        assert (edge == 255).all()
    for beside in (marked[62:98, 52:78], marked[:59], marked[101:]):
        assert (beside == 96).all()
    assert picture.getcolors() == [(40000, (120, 120, 120))]


@pytest.mark.parametrize("side", [1, 7, 224])
def test_marks_at_the_border_and_on_one_pixel(side):
    for size in ((90, 60), (1, 1)):
        for point in ((0, 0), (size[0] - 1, 0), (size[0] - 1, size[1] - 1)):
            assert overlay(plain(size=size), torch.ones(side, side), point=point, boxes=[(0, 0, *size)]).size == size


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"opacity": -0.1}, "opacity must be within"),
        ({"opacity": float("nan")}, "opacity must be within"),
        ({"point": (90, 0)}, r"point \(90, 0\) is outside the image of 90 x 60"),
        ({"boxes": [(5, 5, 5, 9)]}, "holds no pixel"),
        ({"style": "neon"}, "no style 'neon': use one of heat, spotlight, contours"),
    ],
)
def test_options_that_make_no_sense(options, said):
    with pytest.raises(ExciteError, match=said):
        overlay(plain(), spot().requires_grad_(), **options)


def test_a_dark_photograph_does_not_turn_black():
    noise = np.random.default_rng(0).integers(0, 40, (60, 90, 3), dtype=np.uint8)
    drawn = lightness(array(overlay(Image.fromarray(noise), torch.zeros(7, 7))))
    assert drawn.mean() > lightness(noise).mean() + 15
    light = Image.fromarray(noise + 150)
    assert lightness(array(overlay(light, torch.zeros(7, 7)))).mean() < lightness(array(light)).mean()


def test_three_styles():
    picture, values = Image.fromarray(np.full((60, 90, 3), (200, 90, 60), np.uint8)), spot()
    heat, spotlight, contours = (array(overlay(picture, values, style=style)) for style in get_args(Style))
    x, y = maximum_point(values, picture.size)
    before = array(picture)
    assert np.abs(spotlight[y, x] - before[y, x]).max() <= 2  # the image itself where the evidence is
    assert lightness(spotlight)[0, 0] < lightness(before)[0, 0] - 20
    changed = (np.abs(contours - before).max(axis=2) > 3).mean()
    assert 0.02 < changed < 0.5  # lines alone
    assert np.abs(heat - before).max(axis=2).min() > 3  # all of it is dimmer or covered
    spread = heat[0, 0].max() - heat[0, 0].min()
    assert spread > 0.25 * (before[0, 0].max() - before[0, 0].min())  # and keeps some colour


def test_marks_can_be_seen_on_a_telephone():
    picture = Image.new("RGB", (1600, 1200), (90, 120, 150))
    drawn = overlay(picture, torch.zeros(3, 3), boxes=[(300, 300, 1200, 900)]).resize((390, 292), Image.Resampling.BOX)
    row = lightness(array(drawn))[146]
    assert (row > 70).sum() >= 3  # bright pixels, on either side


def test_lightness_of_known_colours():
    """From the definition of CIE L*: white 100, black 0, and sRGB red 53.24, green 87.73, blue 32.30."""
    known = np.array([[255, 255, 255], [0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255], [119, 119, 119]])
    np.testing.assert_allclose(lightness(known), [100, 0, 53.24, 87.73, 32.30, 50.03], atol=0.02)


@pytest.mark.parametrize("name", TABLES)
def test_more_evidence_is_always_lighter(name):
    table = TABLES[name]()
    assert (table.shape, table.dtype) == ((256, 3), np.uint8)
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


# A map at the size of its image.

MODES = ["bicubic", "bilinear", "nearest"]
sides = st.integers(1, 12)
sizes = st.tuples(st.integers(1, 40), st.integers(1, 40))


def weights(distance):
    """The cubic of Keys with the parameter -0.75, written from its definition."""
    t, a = abs(distance), -0.75
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def slow_cubic(row, width):
    """Each new pixel from the four old ones around its middle; beyond the border the last one goes on."""
    result = []
    for x in range(width):
        middle = (x + 0.5) * len(row) / width - 0.5
        near = range(int(np.floor(middle)) - 1, int(np.floor(middle)) + 3)
        result.append(sum(row[min(max(i, 0), len(row) - 1)] * weights(middle - i) for i in near))
    return result


def test_cubic_equals_the_slow_twin():
    values = torch.rand(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wide = np.array([slow_cubic(row, 30) for row in values.tolist()])
    slow = np.array([slow_cubic(column, 23) for column in wide.T]).T
    np.testing.assert_allclose(upsample(values, (30, 23)).numpy(), slow, atol=1e-12)


def test_nearest_by_hand():
    assert upsample(torch.tensor([[1.0, 2.0, 3.0]]), (5, 1), "nearest").tolist() == [[1, 1, 2, 3, 3]]
    values = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    for mode in MODES:
        assert torch.equal(upsample(values, (4, 6), mode), values)


@settings(deadline=None, max_examples=50)
@given(sides, sides, sizes, st.sampled_from(MODES), st.floats(-100, 100, width=32))
def test_constants_stay_and_flipping_the_map_flips_the_result(height, width, size, mode, constant):
    result = upsample(torch.full((height, width), constant), size, mode)
    torch.testing.assert_close(result, torch.full(size[::-1], constant), rtol=1e-5, atol=1e-5)
    values = torch.rand(height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    if mode != "nearest" or not (size[0] % width or size[1] % height):  # of two equally near pixels one is taken
        flipped = upsample(values.flip(0, 1), size, mode).flip(0, 1)
        torch.testing.assert_close(flipped, upsample(values, size, mode))


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_shrinking_averages_and_loses_no_evidence(mode):
    assert upsample(torch.arange(16.0).reshape(4, 4), (2, 1), mode).tolist() == [[6.5, 8.5]]
    for spot in torch.eye(49).reshape(49, 7, 7):
        assert upsample(spot, (2, 2), mode).max() > 0


PLANE = torch.zeros(2, 2)
NO_SIZES = [(0, 4), (4, -1), (4,), (4, 4, 3), (4.5, 4), None, "ab", (float("inf"), 4)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *(((torch.tensor([[0.0, wrong]]), (4, 4)), "NaN or inf") for wrong in (torch.nan, torch.inf, -torch.inf)),
        *(((torch.zeros(shape), (4, 4)), "must be a plane") for shape in ((), (3,), (1, 2, 2), (0, 3), (3, 0))),
        ((np.zeros((2, 2)), (4, 4)), "not ndarray: use"),
        ((torch.zeros(2, 2, dtype=torch.complex64), (4, 4)), "real numbers"),
        *(((PLANE, size), "size must be") for size in NO_SIZES),
        ((PLANE, (4, 4), "area"), "no interpolation 'area': use one of bicubic, bilinear, nearest"),
    ],
)
def test_no_map_no_size_and_no_interpolation(arguments, said):
    with pytest.raises(ExciteError, match=said):
        upsample(*arguments)
    for kind in (torch.float16, torch.bfloat16, torch.int64, torch.bool):
        assert upsample(torch.ones(2, 2).to(kind), (4, 4)).dtype == torch.float32
