"""Colours that show order to every eye."""

import numpy as np
import pytest

from excite.readouts.overlay import TABLES, lightness, signed_colours


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
    light = lightness(signed_colours())
    assert signed_colours().shape == (256, 3)
    assert np.diff(light[:128]).min() > 0
    assert np.diff(light[128:]).max() < 0
    assert np.abs(light - light[::-1]).max() < 2


def test_no_evidence_against_or_for_is_nearly_white():
    middle = signed_colours()[127:129].astype(int)
    assert middle.min() > 235
    assert np.ptp(middle, axis=1).max() < 8


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
    apart = np.linalg.norm(seen[16:] - seen[:-16], axis=1)
    assert apart.min() > 8


def test_the_two_signs_can_be_told_apart_without_red_and_green():
    seen = simulated_red_green_blindness(signed_colours())
    assert np.linalg.norm(seen[0] - seen[-1]) > 100


@pytest.mark.parametrize("table", [*TABLES.values(), signed_colours])
def test_tables_cannot_be_changed_by_accident(table):
    with pytest.raises(ValueError, match="read-only"):
        table()[0] = 0
