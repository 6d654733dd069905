"""Noun phrases of captions, by rules."""

import pytest

from excite.datasets.captions import noun_phrases
from excite.vocabulary.labels import coco_categories


def found(caption):
    return {phrase.text: phrase.meaning for phrase in noun_phrases(caption, coco_categories()) if phrase.meaning}


@pytest.mark.parametrize(
    ("caption", "phrases"),
    [
        ("A man in a red shirt riding a wave on a surfboard", ["A man", "a surfboard"]),
        ("two dogs", ["two dogs"]),
        ("A child hugs a large brown teddy bear.", ["A child", "a large brown teddy bear"]),
        ("A bunch of bananas on the table", ["A bunch of bananas", "the table"]),
        ("A very large group of people and a bowl of oranges", ["A very large group of people", "a bowl", "oranges"]),
        ("A parking lot of cars", ["cars"]),
        ("a black and white cat, sleeping", ["a black and white cat"]),
        ("A little girl with a big, blue umbrella", ["A little girl", "a big, blue umbrella"]),
        ("an orange and white cat near an orange", ["an orange and white cat", "an orange"]),
        ("a man holding oranges", ["a man", "oranges"]),
        ("a sleeping cat and three parked cars", ["a sleeping cat", "three parked cars"]),
        ("A middle aged woman", ["A middle aged woman"]),
        ("People sit at a table", ["People", "a table"]),
        ("2 zebras standing", ["2 zebras"]),
        ("a man\N{RIGHT SINGLE QUOTATION MARK}s tie", ["a man\N{RIGHT SINGLE QUOTATION MARK}s tie"]),
        ("A DOG BARKS. THE CAT", ["THE CAT"]),
        ("There are all of the two birds", ["the two birds"]),
        ("a race car", ["a race car"]),
        ("", []),
        ("!?", []),
    ],
)
def test_what_is_found(caption, phrases):
    assert list(found(caption)) == phrases


NO_PHRASES = """the car door; a bus stop near a train station; the clock tower; a ski slope; a cake stand; an oven mitt;
a bear shaped balloon; a horse drawn carriage; a parking garage for a bicycle shop; a pizza box and a table cloth;
a statue of a horse; a toy car and a stuffed dog; wearing orange and black; the toilet bowl; the mp3 player;
about to bear; playing frisbee; the man's hand; a car-park"""


@pytest.mark.parametrize("caption", [one.strip() for one in NO_PHRASES.split(";")])
def test_what_is_none(caption):
    assert found(caption) == {}


@pytest.mark.parametrize("before", ["black and ", "group of ", "a "])
def test_endless_captions(before):
    (phrase,) = noun_phrases(f"{before * 3000}black cats", coco_categories())
    assert len(phrase.text) > len(before) * 2900


def test_plurals_that_are_no_plain_ones():
    meanings = [found(caption).popitem()[1] for caption in ("men", "children", "mice", "knives", "skis", "scissors")]
    assert meanings == ["person", "person", "mouse", "knife", "skis", "scissors"]
