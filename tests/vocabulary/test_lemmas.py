"""The forms of words."""

import sys

import pytest

from excite.errors import ExciteError
from excite.vocabulary import Labels, read_phrase
from excite.vocabulary.inflection import forms, noun_forms


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("leaves", ("leaves", "leaf", "leave")),  # the library alone says "leave"
        ("men", ("men", "man")),
        ("children", ("children", "child")),
        ("skies", ("skies", "sky", "ski")),  # the library alone says "ski"
        ("standing", ("standing", "stand")),
        ("biggest", ("biggest", "big")),
        ("hot dogs", ("hot dogs", "hot dog")),
        ("bus", ("bus",)),
        ("", ("",)),
        ("22", ("22",)),
        ("犬", ("犬",)),
    ],
)
def test_the_word_itself_then_its_forms(word, expected):
    assert forms(word) == expected


@pytest.mark.parametrize(("word", "one"), [("tvs", "tv"), ("jeans", "jean"), ("mans", "man"), ("suvs", "suv")])
def test_plurals_that_rules_for_tags_leave_alone(word, one):
    assert one in noun_forms(word)


@pytest.mark.parametrize("word", ["glass", "bus", "tennis", "sitting", "red", "s", ""])
def test_what_is_no_plural_stays(word):
    assert noun_forms(word) in ((word,), (word, ""))


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "simplemma", None)
    forms.cache_clear()
    with pytest.raises(ExciteError, match=r"pip install 'excite\[ground\]'"):
        read_phrase("somebody waltzes", Labels(["dance"]))
    assert Labels(["dog"]).find("dogs").units == (0,)  # who asks for a label needs no library
