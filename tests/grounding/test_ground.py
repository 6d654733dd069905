"""Phrases to ranked regions."""

import numpy as np
import pytest
from learning import TINY, trained
from PIL import Image

import excite
from excite.errors import ConceptError, DataError
from excite.grounding.ground import GroundingSession
from excite.grounding.proposals import Proposals
from excite.metrics.boxes import box_iou

RED, BLUE = (5, 5, 20, 20), (35, 15, 55, 35)
BOXES = np.array([(0, 0, 60, 40), BLUE, RED, (6, 5, 20, 20), (50, 0, 60, 10)], np.float32)


@pytest.fixture
def classifier():
    """Its outputs see red and blue."""
    network = trained()
    network.out.weight.data.zero_()
    network.out.bias.data.zero_()
    network.out.weight.data[0, 0] = network.out.weight.data[2, 2] = 1
    return excite.wrap(
        network, labels=["tomato", "frog", "sea"], layer="relu", preprocess=TINY.preprocess, multilabel=True
    )


@pytest.fixture
def picture():
    picture = Image.new("RGB", (60, 40), "black")
    picture.paste("red", RED)
    picture.paste("blue", BLUE)
    return picture


@pytest.fixture
def proposals():
    return Proposals((60, 40), BOXES, np.ones(len(BOXES), np.float32))


def test_each_phrase_finds_its_region(classifier, picture, proposals):
    tomato, sea = excite.ground(
        classifier, picture, ["a ripe tomato", "the sea"], proposals=proposals, method="mwp", gamma=0.5, side=56
    )
    assert tomato.regions[0].box in {RED, (6, 5, 20, 20)}
    assert sea.regions[0].box == BLUE
    assert tomato.map.reading.skipped == ("ripe",)
    scores, boxes = ([getattr(region, field) for region in tomato.regions] for field in ("score", "box"))
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] > 0
    assert (box_iou(boxes, boxes) - np.eye(len(scores)) <= 0.7).all(), "they do not repeat each other"


def test_with_segments_of_the_picture_itself(classifier, picture):
    (found,) = excite.ground(classifier, picture, "the sea", method="mwp", side=56)
    assert box_iou([found.regions[0].box], [BLUE])[0, 0] > 0.7


@pytest.mark.parametrize(("hints", "weighed"), [(True, ["left"]), (False, [])])
def test_of_each_word_it_is_told_what_became_of_it(classifier, picture, proposals, hints, weighed):
    phrase = "second big gizmo from the left by the sea"
    (found,) = excite.ground(classifier, picture, phrase, proposals=proposals, method="mwp", side=56, hints=hints)
    told = found.to_json()
    assert told["hints"] == weighed
    assert told["skipped"] == ["second", "big", "gizmo", *([] if hints else ["left"])]


def test_a_phrase_that_nobody_knows_is_told_as_such(classifier, picture, proposals):
    (found,) = excite.ground(classifier, picture, "gizmo", proposals=proposals, side=56, method="mwp")
    told = found.to_json()
    assert told["words"] == []
    assert told["skipped"] == ["gizmo"]
    assert found.regions


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *(({"phrases": phrases}, "blank") for phrases in ("", "  ", [], ["tomato", ""])),
        *(({"gamma": gamma}, "gamma is a number") for gamma in (-1, np.nan, 1000)),
        *(({"trust": trust}, "trust .* is a number") for trust in (5, np.nan)),
        ({"most": 0}, "regions are none"),
        ({"side": 0}, "a side of 0"),
        ({"proposals": Proposals((30, 20), BOXES, np.ones(len(BOXES), np.float32))}, "30 x 20"),
    ],
)
def test_what_means_nothing_is_refused(classifier, picture, proposals, change, said):
    options = {"phrases": "sea", "proposals": proposals, "method": "mwp", "side": 56, **change}
    with pytest.raises((ConceptError, DataError), match=said):
        excite.ground(classifier, picture, **options)


def test_a_study_answers_phrase_by_phrase_as_all_at_once(classifier, picture, proposals):
    phrases = ["a ripe tomato", "the sea on the left"]
    together = excite.ground(classifier, picture, phrases, proposals=proposals, method="mwp", side=56, gamma=0.5)
    study = GroundingSession(classifier, picture, proposals, method="mwp", side=56)
    for phrase, expected in zip(phrases, together, strict=True):
        (found,) = study.ground([phrase], gamma=0.5)
        assert found.to_json() == expected.to_json()
        np.testing.assert_array_equal(found.map.plane, expected.map.plane)
    assert study.size > proposals.boxes.nbytes
