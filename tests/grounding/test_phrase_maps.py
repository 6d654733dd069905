"""Maps of phrases: means of the maps of their words, from one look, weighed by words for places and colours."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from learning import TINY, trained
from PIL import Image

import excite
from excite.errors import ConceptError
from excite.grounding import phrase_maps
from excite.grounding.phrase_maps import COLOURS, PhraseSession, colour_map, map_phrases
from excite.methods import find_method
from excite.models import Preprocess
from excite.readouts.overlay import upsample
from excite.vocabulary import Labels, read_phrase
from excite.vocabulary.word_lists import COLOURS as COLOUR_WORDS

C_MWP = find_method("c-mwp")


HOW = {"labels": ["cat", "dog", "horse"], "layer": "relu", "multilabel": True}


@pytest.fixture
def classifier():
    return excite.wrap(trained(), preprocess=TINY.preprocess, name="tiny", **HOW)


@pytest.fixture
def picture():
    picture = Image.new("RGB", (60, 40), "white")
    picture.paste("red", (5, 5, 20, 20))
    picture.paste("blue", (35, 15, 55, 35))
    return picture


def word_map(classifier, picture, word, side=300):
    """The same map by the library's main road."""
    preprocess = classifier.preprocess.scaled(side / classifier.preprocess.shorter_side)
    (found,) = excite.attend(excite.wrap(classifier.module, preprocess=preprocess, **HOW), picture, word)
    return found.values


@pytest.mark.parametrize("hints", [False, True])
def test_a_phrase_is_the_mean_of_its_words_and_its_head_counts_more(classifier, picture, hints):
    (found,) = map_phrases(classifier, picture, ["a cat on two horses"], side=56, hints=hints)
    cat, horse = (word_map(classifier, picture, word, 56) for word in ("cat", "horse"))
    weight = phrase_maps.HEAD if hints else 1
    expected = upsample((weight * cat + horse) / (weight + 1), picture.size).clamp(min=0)
    np.testing.assert_allclose(found.plane, expected.numpy(), rtol=1e-5, atol=1e-8)
    assert [word.concept for word in found.words] == ["cat", "horse"]
    (large,) = map_phrases(classifier, picture, ["cat"])
    assert large.words[0].values.shape == word_map(classifier, picture, "cat", 300).shape == (149, 224)


def test_all_phrases_come_from_one_forward_pass_and_each_word_from_one_signal(classifier, picture, monkeypatch):
    passes, asked, classifier = [], [], replace(classifier, verified=None, trial=False)
    session = PhraseSession(classifier, picture, [C_MWP], side=56)
    session.grids(["conv"])  # one run to know which layers are maps, for each classifier
    classifier.module.conv.register_forward_hook(lambda *_: passes.append(1))
    answer = session.attend

    def spy(method, cues, pictures):
        asked.extend(cues[0])
        return answer(method, cues, pictures)

    monkeypatch.setattr(session, "attend", spy)
    session.phrase_maps(C_MWP, [read_phrase(text, session.labels) for text in ("cat", "cats and a dog", "dog")])
    assert [concept.name for concept in asked] == ["cat", "dog"]
    assert len(passes) == 1


def test_without_a_known_word_the_findings_stand_for_it(classifier, picture):
    unknown, empty = map_phrases(classifier, picture, ["left gizmo", "the"], side=56)
    assert (unknown.known, empty.known) == (False, False)
    assert unknown.reading.skipped == ("gizmo",)
    (found,) = unknown.words
    assert set(found.units) == {0, 1, 2}  # all that there are, being fewer than usually taken
    assert phrase_maps.FINDINGS > 3


def test_hints_weigh_the_map(classifier, picture):
    (left,), (plain,) = (
        map_phrases(classifier, picture, ["left cat"], side=56, hints=hints) for hints in (True, False)
    )
    assert [word.text for word in left.hints] == ["left"]
    assert plain.hints == ()
    weights = np.minimum((1 - (np.arange(60) + 0.5) / 60) / 0.8, 1) ** 6
    np.testing.assert_allclose(left.plane, plain.plane * weights, rtol=1e-5, atol=1e-9)


def test_without_evidence_labels_or_another_size(classifier, picture):
    square = excite.wrap(classifier.module, labels=list("abc"), preprocess=Preprocess(28, square=True))
    own = excite.wrap(classifier.module, labels=list("abc"), preprocess=lambda picture: torch.zeros(3, 28, 28))
    assert [phrase_maps.enlargement(one, 56) for one in (classifier, square, own)] == [2, 1, 1]
    with pytest.raises(ConceptError, match="no labels"):
        map_phrases(excite.wrap(classifier.module, layer="relu"), picture, ["cat"])
    with torch.no_grad():
        classifier.module.conv.weight.zero_()
    (found,) = map_phrases(classifier, picture, ["cat"], side=56)
    assert found.point is None


SHADES = "red dc141e orange ff8c00 yellow f0dc14 green 1e9628 blue 143cc8 purple 821eaa pink ff78aa brown 6e411e"
SHADES = f"{SHADES} black 0c0c0e white fafaf8 grey 808082".split()
PLAIN = {name: f"#{shade}" for name, shade in zip(SHADES[::2], SHADES[1::2], strict=True)}


def weighed(phrase, picture=None, shape=(30, 40)):
    picture = picture or Image.new("RGB", shape[::-1])
    return phrase_maps.apply_hints(
        np.ones(shape), phrase_maps.active_hints(read_phrase(phrase, Labels(["dog"]))), picture
    )


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
        noise = np.random.default_rng(0).integers(0, 256, (13, 70, 3), dtype=np.uint8)
        plane = colour_map(Image.fromarray(noise), colour)
        assert plane.shape == (13, 70)
        assert 0 <= plane.min() <= plane.max() <= 1

    def test_a_colour_weighs_the_map_but_rules_nothing_out(self):
        picture = Image.new("RGB", (80, 40), PLAIN["green"])
        picture.paste(PLAIN["red"], (40, 0, 80, 40))
        plane = weighed("red dog", picture, (40, 80))
        assert peak(plane)[0] > 0.5
        assert plane[20, 5] == pytest.approx(phrase_maps.FAINTEST)
        assert plane[20, 75] > 0.85
