"""Words for places and colours weigh a map, as they should."""

import numpy as np
import pytest
from PIL import Image

from excite.grounding.phrase_maps import COLOURS, FAINTEST, active_hints, apply_hints, colour_map
from excite.vocabulary import Labels, read_phrase
from excite.vocabulary.word_lists import COLOURS as COLOUR_WORDS

LABELS = Labels(["dog"])
PLAIN = {
    "red": (220, 20, 30),
    "orange": (255, 140, 0),
    "yellow": (240, 220, 20),
    "green": (30, 150, 40),
    "blue": (20, 60, 200),
    "purple": (130, 30, 170),
    "pink": (255, 120, 170),
    "brown": (110, 65, 30),
    "black": (12, 12, 14),
    "white": (250, 250, 248),
    "grey": (128, 128, 130),
}


def weighed(phrase, picture=None, shape=(30, 40)):
    picture = picture or Image.new("RGB", shape[::-1])
    return apply_hints(np.ones(shape), active_hints(read_phrase(phrase, LABELS)), picture)


def peak(plane):
    """The middle of the highest places, from 0 to 1."""
    ys, xs = np.nonzero(plane == plane.max())
    return (xs.mean() + 0.5) / plane.shape[1], (ys.mean() + 0.5) / plane.shape[0]


class TestPlaces:
    @pytest.mark.parametrize(
        ("phrase", "where"),
        [
            ("left dog", (0.1, None)),
            ("dog on the far right", (0.9, None)),
            ("top dog", (None, 0.1)),
            ("lower dog", (None, 0.9)),
            ("front dog", (None, 0.9)),
            ("dog in the background", (None, 0.1)),
            ("bottom left dog", (0.1, 0.9)),
        ],
    )
    def test_send_the_eye_there(self, phrase, where):
        for found, wanted in zip(peak(weighed(phrase)), where, strict=True):
            assert wanted is None or found == pytest.approx(wanted, abs=0.03)

    def test_how_they_fall_off(self):
        """The edge counts no more than what is beside it; the middle is neither left nor right; twice counts once."""
        across = weighed("left dog")[0]
        assert (across[:8] == 1).all()
        assert (np.diff(across[8:]) < 0).all()
        middle = weighed("middle dog").mean(axis=0)
        assert (middle[16:24] == middle.max()).all()
        np.testing.assert_allclose(middle, middle[::-1])
        np.testing.assert_array_equal(weighed("left dog on the left"), weighed("left dog"))

    @pytest.mark.parametrize("phrase", ["dog", "a dog left of the tree", "second dog", "big dog", ""])
    def test_words_that_name_no_side_change_nothing(self, phrase):
        assert (weighed(phrase) == 1).all()


class TestColours:
    def test_every_colour_that_can_be_read_can_be_seen(self):
        assert set(COLOUR_WORDS.values()) == set(COLOURS) == set(PLAIN)

    @pytest.mark.parametrize("colour", COLOURS)
    def test_a_surface_has_its_own_colour_most(self, colour):
        has = {other: colour_map(Image.new("RGB", (9, 9), PLAIN[colour]), other).mean() for other in COLOURS}
        assert max(has, key=has.get) == colour
        assert has[colour] > 0.4

    def test_lies_between_0_and_1_and_has_the_size_of_the_picture(self):
        noise = np.random.default_rng(0).integers(0, 256, (13, 70, 3), dtype=np.uint8)
        for colour in COLOURS:
            plane = colour_map(Image.fromarray(noise), colour)
            assert plane.shape == (13, 70)
            assert 0 <= plane.min() <= plane.max() <= 1

    def test_a_colour_weighs_the_map_but_rules_nothing_out(self):
        picture = Image.new("RGB", (80, 40), PLAIN["green"])
        picture.paste(PLAIN["red"], (40, 0, 80, 40))
        plane = weighed("red dog", picture, (40, 80))
        assert peak(plane)[0] > 0.5
        assert plane[20, 5] == pytest.approx(FAINTEST)
        assert plane[20, 75] > 0.85
