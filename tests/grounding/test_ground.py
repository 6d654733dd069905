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


def test_regions_are_ranked_and_do_not_repeat_each_other(classifier, picture, proposals):
    (found,) = excite.ground(classifier, picture, "tomato", proposals=proposals, method="mwp", gamma=0.5, side=56)
    scores = [region.score for region in found.regions]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    shared = box_iou([region.box for region in found.regions], [region.box for region in found.regions])
    assert (shared - np.eye(len(scores)) <= 0.7).all()


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


@pytest.mark.parametrize("phrases", ["", "  ", [], ["tomato", ""]])
def test_blank_phrases_are_refused(classifier, picture, proposals, phrases):
    with pytest.raises(ConceptError, match="blank"):
        excite.ground(classifier, picture, phrases, proposals=proposals)


@pytest.mark.parametrize(
    ("option", "value"),
    [("gamma", -1), ("gamma", np.nan), ("gamma", 1000), ("trust", 5), ("trust", np.nan), ("most", 0), ("side", 0)],
)
def test_numbers_that_mean_nothing_are_refused(classifier, picture, proposals, option, value):
    with pytest.raises(DataError, match=r"gamma is|trust .* is|regions are none|a side of 0"):
        excite.ground(classifier, picture, "sea", proposals=proposals, method="mwp", **{"side": 56, option: value})


def test_proposals_of_another_picture_are_refused(classifier, picture):
    wrong = Proposals((30, 20), BOXES, np.ones(len(BOXES), np.float32))
    with pytest.raises(excite.ExciteError, match="30 x 20"):
        excite.ground(classifier, picture, "sea", proposals=wrong)


def test_a_study_answers_phrase_by_phrase_as_all_at_once(classifier, picture, proposals):
    phrases = ["a ripe tomato", "the sea on the left"]
    together = excite.ground(classifier, picture, phrases, proposals=proposals, method="mwp", side=56, gamma=0.5)
    study = GroundingSession(classifier, picture, proposals, method="mwp", side=56)
    for phrase, expected in zip(phrases, together, strict=True):
        (found,) = study.ground([phrase], gamma=0.5)
        assert found.to_json() == expected.to_json()
        np.testing.assert_array_equal(found.map.plane, expected.map.plane)
    assert study.size > proposals.boxes.nbytes
