"""Phrases to ranked regions, and what a phrase leads to, drawn; the last test has real phrases and images."""

import numpy as np
import pytest
import torch
from described import first_hit
from learning import TINY, trained
from PIL import Image

import excite
from excite.attention import AttentionMap
from excite.datasets.phrase_formats import open_phrases
from excite.errors import ConceptError, DataError, ExciteError
from excite.grounding import Grounded, GroundingSession, PhraseMap, Region
from excite.grounding.ground import as_map, span_of, unused_spans
from excite.grounding.phrase_maps import active_hints
from excite.grounding.proposals import Hierarchy, Proposals
from excite.metrics.boxes import box_iou
from excite.vocabulary import Labels, read_phrase

RED, BLUE = (5, 5, 20, 20), (35, 15, 55, 35)
BOXES = np.array([(0, 0, 60, 40), BLUE, RED, (6, 5, 20, 20), (50, 0, 60, 10)], np.float32)


@pytest.fixture
def classifier():
    """Its outputs see red and blue."""
    network, labels = trained(), ["tomato", "frog", "sea"]
    network.out.weight.data.zero_()
    network.out.bias.data.zero_()
    network.out.weight.data[0, 0] = network.out.weight.data[2, 2] = 1
    return excite.wrap(network, labels=labels, layer="relu", preprocess=TINY.preprocess, multilabel=True)


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
    """A session answers phrase by phrase as all at once; proposals are segments of the image where none are given."""
    phrases, how = ["a ripe tomato", "the sea"], {"method": "mwp", "side": 56}
    tomato, sea = excite.ground(classifier, picture, phrases, proposals=proposals, gamma=0.5, **how)
    assert tomato.regions[0].box in {RED, (6, 5, 20, 20)}
    assert sea.regions[0].box == BLUE
    assert tomato.map.reading.skipped == ("ripe",)
    scores, boxes = ([getattr(region, field) for region in tomato.regions] for field in ("score", "box"))
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] > 0
    assert (box_iou(boxes, boxes) - np.eye(len(scores)) <= 0.7).all(), "they do not repeat each other"
    session = GroundingSession(classifier, picture, proposals, **how)
    for phrase, expected in zip(phrases, (tomato, sea), strict=True):
        (found,) = session.ground([phrase], gamma=0.5)
        assert found.to_json() == expected.to_json()
        np.testing.assert_array_equal(found.map.plane, expected.map.plane)
    assert session.size > proposals.boxes.nbytes
    (found,) = excite.ground(classifier, picture, "the sea", **how)
    assert box_iou([found.regions[0].box], [BLUE])[0, 0] > 0.7


@pytest.mark.parametrize(
    ("phrase", "hints", "weighed", "skipped"),
    [
        ("second big gizmo from the left by the sea", True, "left", "second big gizmo"),
        ("second big gizmo from the left by the sea", False, "", "second big gizmo left"),
        ("gizmo", True, "", "gizmo"),
    ],
)
def test_of_each_word_it_is_told_what_became_of_it(classifier, picture, proposals, phrase, hints, weighed, skipped):
    (found,) = excite.ground(classifier, picture, phrase, proposals=proposals, method="mwp", side=56, hints=hints)
    told = found.to_json()
    assert (told["hints"], told["skipped"]) == (weighed.split(), skipped.split())
    assert bool(told["words"]) == ("sea" in phrase)
    assert bool(found.regions) == ("sea" in phrase)  # without a known word there is nothing to rank


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


# What is drawn, and which words had no say.

LABELS = Labels(["man", "person", "hat", "red", "traffic light", "hot dog"])


def grounded(phrase, picture=Image.new("RGB", (40, 30))):  # noqa: B008
    reading = read_phrase(phrase, LABELS)
    concepts = [word.concept for word in reading.words]
    maps = {
        concept: AttentionMap(torch.eye(3), concept.name, "l", "mwp", 0.5, (40, 30), 0.25, picture)
        for concept in concepts
    }
    anything = AttentionMap(torch.eye(3), "anything", "l", "mwp", 0.5, (40, 30), 0.25, picture)
    words = tuple(maps[concept] for concept in concepts) or (anything,)
    found = PhraseMap(reading, words, np.ones((30, 40)), active_hints(reading))
    return Grounded(phrase, (Region((0.0, 0.0, 9.0, 9.0), 1.0),), found)


@pytest.fixture
def drawn(monkeypatch):
    """The arguments of `grounded_figure`."""
    seen = {}

    def remember(picture, told, plane, words, boxes, *, true_boxes, width):
        seen.update(told=told, plane=plane, words=words, boxes=boxes, true_boxes=true_boxes, width=width)
        return picture

    monkeypatch.setattr("excite.readouts.figure.grounded_figure", remember)
    return seen


def texts(phrase, spans):
    return [phrase[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("phrase", "weigh", "without"),
    [
        ("a man", [], []),
        ("the left man in a red hat", ["left", "red"], []),
        ("second blue hat from the right", ["blue", "right"], ["second"]),
        ("the man left of the hat", [], ["left"]),
        ("a shy man, a SHY hat; shyness", [], ["shy", "SHY", "shyness"]),
        ("that at hat", [], []),
        ("jalapeño by the traffic light", [], ["jalapeño"]),
    ],
)
def test_unused_words_each_once(phrase, weigh, without):
    reading = read_phrase(phrase, LABELS)
    found = active_hints(reading)
    assert texts(phrase, map(span_of, found)) == weigh
    assert texts(phrase, unused_spans(reading, found)) == without


@pytest.mark.parametrize(
    ("phrase", "spans"),
    [
        ("a hot dog by a hot oven", [(15, 18), (19, 23)]),  # a part of a known word is not taken for one skipped
        ("the left man in a red hat with a blue tie", [(4, 8), (33, 37), (38, 41)]),  # red is the classifier's word
    ],
)
def test_unused_words_without_hints(phrase, spans):
    assert list(unused_spans(read_phrase(phrase, LABELS), ())) == spans


class TestDrawing:
    def test_words_with_the_same_meaning_share_a_map(self, drawn):
        phrase = "a man and two men in a red hat"
        grounded(phrase).figure(true_boxes=[(1, 2, 3, 4)], width=500)
        assert [(word.title, word.note) for word in drawn["words"]] == [("man", "25%"), ("red", "25%"), ("hat", "25%")]
        assert [texts(phrase, word.spans) for word in drawn["words"]] == [["man", "men"], ["red"], ["hat"]]
        assert texts(phrase, drawn["told"].hints) == ["red"]
        assert (drawn["boxes"], drawn["true_boxes"], drawn["width"]) == ([(0, 0, 9, 9)], [(1, 2, 3, 4)], 500)
        assert drawn["plane"].shape == (30, 40)
        grounded("two Men in Hats and a Red hat").figure()  # what a word means is told where it is another
        notes = [(word.title, word.note) for word in drawn["words"]]
        assert notes == [("Men", "man 25%"), ("Hats", "25%"), ("Red", "25%")]

    def test_without_known_words_and_without_a_picture(self, drawn):
        grounded("shiny zebra").figure()
        assert [(word.title, word.spans) for word in drawn["words"]] == [("anything", ())]
        assert drawn["told"].skipped == ((0, 5), (6, 11))
        with pytest.raises(ExciteError, match="no image"):
            grounded("a man", picture=None).figure()

    def test_the_map_of_a_phrase_is_a_map(self):
        found = as_map(grounded("a man in a hat"))
        assert (found.concept, found.mass, found.probability) == ("a man in a hat", 0.5, None)
        assert found.values.shape == (30, 40)


def test_real_phrases_for_real_pictures(shared_data):
    """Most things described are proposed, most points lie in the right box, nearly all phrases have a known word."""
    classifier, dataset = excite.load("words"), open_phrases(shared_data / "refcoco")
    proposed, inside, right, known = [], [], [], []
    for one in map(dataset.sample, dataset.names[100 : 100 + 5]):
        proposals = Hierarchy()(Image.open(one.path))
        texts = [phrase.text for phrase in one.phrases]
        found = excite.ground(classifier, one.path, texts, proposals=proposals, method="c-mwp")
        for phrase, answer in zip(one.phrases, found, strict=True):
            ((x0, y0, x1, y1),) = phrase.boxes
            x, y = answer.map.point
            proposed.append(box_iou(phrase.boxes, proposals.boxes).max() >= 0.5)
            inside.append(x0 <= x + 0.5 < x1 and y0 <= y + 0.5 < y1)
            right.append(first_hit([region.box for region in answer.regions[:5]], phrase.boxes) is not None)
            known.append(answer.map.known)
    assert len(known) > 20
    for rates, least in ((proposed, 0.8), (inside, 0.45), (right, 0.35), (known, 0.8)):
        assert np.mean(rates) > least
