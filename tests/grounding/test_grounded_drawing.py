"""What a phrase leads to, drawn: which words have maps, which weigh, which had no say."""

from importlib import import_module

import numpy as np
import pytest
import torch
from PIL import Image

from excite.attention import AttentionMap
from excite.errors import ExciteError
from excite.grounding import Grounded, PhraseMap, Region
from excite.grounding.ground import as_map, span_of, unused_spans
from excite.grounding.phrase_maps import active_hints
from excite.vocabulary import Labels, read_phrase

LABELS = Labels(["man", "person", "hat", "red", "traffic light", "hot dog"])
PICTURE = Image.new("RGB", (40, 30))


def grounded(phrase, picture=PICTURE):
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

    monkeypatch.setattr(import_module("excite.readouts.figure"), "grounded_figure", remember)
    return seen


def texts(phrase, spans):
    return [phrase[start:end] for start, end in spans]


class TestUnusedSpans:
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
    def test_each_word_once(self, phrase, weigh, without):
        reading = read_phrase(phrase, LABELS)
        found = active_hints(reading)
        assert texts(phrase, map(span_of, found)) == weigh
        assert texts(phrase, unused_spans(reading, found)) == without

    def test_a_part_of_a_known_word_is_not_taken_for_one_that_was_skipped(self):
        reading = read_phrase("a hot dog by a hot oven", LABELS)
        assert reading.skipped == ("hot", "oven")
        assert unused_spans(reading, ()) == ((15, 18), (19, 23))

    def test_without_hints_they_have_no_say_unless_they_are_looked_for(self):
        phrase = "the left man in a red hat with a blue tie"
        reading = read_phrase(phrase, LABELS)
        assert texts(phrase, unused_spans(reading, ())) == ["left", "blue", "tie"]  # red is a word of the classifier


class TestDrawing:
    def test_words_with_the_same_meaning_share_a_map(self, drawn):
        phrase = "a man and two men in a red hat"
        grounded(phrase).figure(true_boxes=[(1, 2, 3, 4)], width=500)
        assert [(word.title, word.note) for word in drawn["words"]] == [("man", "25%"), ("red", "25%"), ("hat", "25%")]
        assert [texts(phrase, word.spans) for word in drawn["words"]] == [["man", "men"], ["red"], ["hat"]]
        assert texts(phrase, drawn["told"].hints) == ["red"]
        assert (drawn["boxes"], drawn["true_boxes"], drawn["width"]) == ([(0, 0, 9, 9)], [(1, 2, 3, 4)], 500)
        assert drawn["plane"].shape == (30, 40)

    def test_what_a_word_means_is_told_where_it_is_another(self, drawn):
        grounded("two Men in Hats and a Red hat").figure()
        notes = [(word.title, word.note) for word in drawn["words"]]
        assert notes == [("Men", "man 25%"), ("Hats", "25%"), ("Red", "25%")]

    def test_without_known_words(self, drawn):
        grounded("shiny zebra").figure()
        assert [(word.title, word.spans) for word in drawn["words"]] == [("anything", ())]
        assert drawn["told"].skipped == ((0, 5), (6, 11))

    def test_no_picture_to_draw_on(self):
        with pytest.raises(ExciteError, match="no image"):
            grounded("a man", picture=None).figure()

    def test_the_map_of_a_phrase_is_a_map(self):
        found = as_map(grounded("a man in a hat"))
        assert (found.concept, found.mass, found.probability) == ("a man in a hat", 0.5, None)
        assert found.values.shape == (30, 40)
