"""Phrases read as signals for a classifier."""

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from excite.errors import ConceptError, ExciteError
from excite.models.architectures import embedded_labels
from excite.vocabulary import Labels, Reading, imagenet_labels, read_phrase
from excite.vocabulary.inflection import forms

THINGS = Labels("person,traffic light,hot dog,dog,teddy bear,bear,stop sign,dining table,surfboard,orange".split(","))
TAGS = Labels("man shirt red sit walking orange old playing light top camera".split())


def said(text, labels=THINGS):
    return {word.text: word.concept.name for word in read_phrase(text, labels).words}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A kid, by two traffic lights 🐕", {"kid": "person", "traffic lights": "traffic light"}),
        ("two Traffic Lights", {"Traffic Lights": "traffic light"}),
        ("a hot-dog and a dog", {"hot-dog": "hot dog", "dog": "dog"}),
        ("HOT DOGS", {"HOT DOGS": "hot dog"}),
        ("the teddy's bear", {"teddy's bear": "teddy bear"}),
        ("surf boards", {"surf boards": "surfboard"}),
        ("hotdog", {"hotdog": "hot dog"}),
        ("stop. sign", {"sign": "stop sign"}),  # a last word, and no word goes over the end of a sentence
        ("the man\u2019s table", {"man\u2019s": "person", "table": "dining table"}),
        ("umpire", {"umpire": "person"}),
        ("a mantis", {}),
        ("perso 0 1", {}),  # nothing is completed, and no numbers of units
    ],
)
def test_words(text, expected):
    assert said(text) == expected


CORN = Labels(["acorn", "pickup"])


@pytest.mark.parametrize(
    ("labels", "text", "expected"),
    [
        (CORN, "a corn, they pick up", {}),  # a word of grammar makes no label
        (CORN, "the acorns", {"acorns": "acorn"}),
        (TAGS, "Men sits, older, played", {"Men": "man", "sits": "sit", "older": "old"}),  # any form of a tag
        (TAGS, "walking", {"walking": "walking"}),  # but as it is first
        (embedded_labels("everyday"), "he is brushing and dressed", {}),  # things are no verbs
        (imagenet_labels(), "ducking", {}),
        (TAGS, "light blue shirt", {"shirt": "shirt"}),  # a shade belongs to its colour
        (TAGS, "light on a shirt", {"light": "light", "shirt": "shirt"}),
        (TAGS, "man looking at the camera", {"man": "man"}),  # nobody looks for the one that took the image
        (TAGS, "man with a camera", {"man": "man", "camera": "camera"}),
        (TAGS, "top", {}),  # a place is no tag
    ],
)
def test_words_of_other_labels(labels, text, expected):
    assert said(text, labels) == expected


def test_unknown_words_are_listed():
    reading = read_phrase("an aardvark near the person, 22 犬", THINGS)
    assert reading.skipped == ("aardvark", "22", "犬")
    assert reading.stops == ("an", "near", "the")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("left person", ["left"]),
        ("2nd dog from right", ["second", "right"]),
        ("upper left corner", ["top", "left", "corner"]),
        ("closest bear in the foreground", ["front", "front"]),
        ("far dog", ["back"]),
        ("far left dog", ["left"]),
        ("the biggest bear", ["largest"]),
        ("tiny dog at the center", ["smallest", "middle"]),
        ("dog on the right-hand side", ["right"]),
        ("person in a green top", []),
        ("person on top", ["top"]),
    ],
)
def test_places(text, kinds):
    reading = read_phrase(text, THINGS)
    assert [place.kind for place in reading.places] == kinds
    assert reading.skipped == ()


def test_a_place_may_be_relative_and_is_in_no_longer_label():
    texts = {"dog left of the person": True, "dog on the left": False, "dog closest to the camera": False}
    assert {text: read_phrase(text, THINGS).places[0].related for text in texts} == texts
    reading = read_phrase("top hat at the top", Labels(["top hat", "bottle"]))
    assert [word.text for word in reading.words] == ["top hat"]
    assert [place.start for place in reading.places] == [15]


def test_colours():
    reading = read_phrase("gray and Red", TAGS)
    assert [(colour.text, colour.kind) for colour in reading.colours] == [("gray", "grey"), ("Red", "red")]
    assert [word.text for word in reading.words] == ["Red"]
    assert reading.skipped == ()
    for text, known in (("orange shirt", 0), ("an orange", 1), ("orange on a table", 1)):
        reading = read_phrase(text, Labels(["orange"]))
        assert (len(reading.words), len(reading.colours)) == (known, 1)


HEADS = """the *man* in a red shirt; red shirt *man* on the left; older *man* sits; in the *shirt*, a man;
the man's *shirt*; red *shirt*; *man* playing with a camera; on the left"""


@pytest.mark.parametrize("marked", [one.strip() for one in HEADS.split(";")])
def test_the_head(marked):
    found = read_phrase(marked.replace("*", ""), TAGS).head
    assert (found.text if found else None) == (marked.split("*")[1] if "*" in marked else None)


def test_nothing_to_read_and_too_much():
    for text in ("", " \n\t", "...", "🐕‍🦺", "\u0301", "_", "'"):
        assert read_phrase(text, THINGS) == Reading(text)
    assert len(read_phrase("dog " * 2500, THINGS).words) == 2500
    with pytest.raises(ConceptError, match="10001 letters: write at most 10000"):
        read_phrase("x" * 10_001, THINGS)


@settings(max_examples=60, deadline=None)
@given(st.text(st.one_of(st.characters(), st.sampled_from("dogs left red's \n-\u2019_")), max_size=60))
def test_every_letter_is_accounted_for(text):
    reading = read_phrase(text, THINGS)
    for piece in (*reading.words, *reading.places, *reading.colours):
        assert text[piece.start : piece.end] == piece.text
    starts = [word.start for word in reading.words]
    assert starts == sorted(starts)
    told = [*reading.skipped, *reading.stops, *(p.text for p in (*reading.words, *reading.places, *reading.colours))]
    assert sum(map(str.isalnum, text)) <= sum(sum(map(str.isalnum, one)) for one in told)


def test_the_phrases_people_wrote(shared_data):
    lines = (shared_data / "refcoco" / "val.jsonl").read_text(encoding="utf-8").splitlines()
    readings = [read_phrase(json.loads(line)["phrase"], embedded_labels("everyday")) for line in lines]
    assert sum(bool(reading.words) for reading in readings) / len(readings) > 0.85
    assert sum(bool(reading.places) for reading in readings) / len(readings) > 0.6
    assert all((reading.head is None) == (not reading.words) for reading in readings)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("leaves", ("leaves", "leaf", "leave")),  # the library alone says "leave"
        ("men", ("men", "man")),
        ("jeans", ("jeans", "jean")),  # rules for tags leave it alone
        ("tennis", ("tennis",)),
        ("skies", ("skies", "sky", "ski")),  # the library alone says "ski"
        ("biggest", ("biggest", "big")),
        ("hot dogs", ("hot dogs", "hot dog")),
        *((word, (word,)) for word in ("bus", "", "22", "犬")),
    ],
)
def test_the_word_itself_then_its_forms(word, expected):
    assert forms(word) == expected


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "simplemma", None)
    forms.cache_clear()
    with pytest.raises(ExciteError, match=r"pip install 'excite\[ground\]'"):
        read_phrase("somebody waltzes", Labels(["dance"]))
    assert Labels(["dog"]).find("dogs").units == (0,)  # who asks for a label needs no library
