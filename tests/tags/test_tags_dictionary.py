import re
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from excite.tags.dictionary import (
    CASE,
    EMPTY,
    PLURAL,
    SPACES,
    TOO_LONG,
    UNICODE,
    TagNormaliser,
    are_normalised,
    normalise_lists,
)
from excite.vocabulary import inflection as plurals
from excite.vocabulary.inflection import singular

ANYTHING = st.text(st.characters(exclude_categories=()), max_size=30)  # halves of characters too
NASTY = st.text(
    st.sampled_from("sSeniaxvm'# \t\u00a0\u200d\u0301\u00a8\u0130\u00df\u1e9e\ufdfa\ud800\uff03\u2160\x00"), max_size=12
)


CHANGED = {
    0: ["cat", "new york", "c#", "rock & roll", "dogs", "\u732b", "x" * 100],
    CASE: ["Cat:cat", "Stra\u00dfe:strasse"],
    SPACES: ["  cat\t dog\n:cat dog", "#cat:cat", " " * 1_000_000 + "cat:cat"],
    SPACES | CASE: ["## Cat:cat"],
    UNICODE | CASE | SPACES: ["\uff03\uff23at:cat"],
    UNICODE: ["cafe\u0301:caf\u00e9", "\ufb01sh:fish", "c\u200da\x00t:cat", "a\u200d\u0301:\u00e1", "\ud800cat:cat"],
    EMPTY: [":", " # :", "\u200d:"],
    TOO_LONG: ["x" * 101 + ":", "x" * 1_000_000 + ":", "\ufdfa" * 100 + ":"],  # the last, eighteen letters each
}


@pytest.mark.parametrize("changed", CHANGED)
def test_a_tag_and_what_was_changed(changed):
    for tag, colon, wanted in (text.partition(":") for text in CHANGED[changed]):
        assert TagNormaliser()(tag) == (wanted if colon else tag, changed)


def test_plurals_are_changed_only_on_demand():
    assert TagNormaliser(plurals=True)(" Red DOGS") == ("red dog", CASE | SPACES | PLURAL)
    assert TagNormaliser(plurals=True)("dogs") == ("dog", PLURAL)
    assert TagNormaliser(plurals=True)("dog") == ("dog", 0)
    assert TagNormaliser(plurals=True, longest=3)("dogs") == ("dog", PLURAL)
    assert TagNormaliser(plurals=False, longest=3)("dogs") == ("", TOO_LONG)


@pytest.mark.parametrize("plural_folding", [False, True])
@settings(max_examples=150, deadline=None)
@given(tag=ANYTHING | NASTY)
def test_done_twice_it_changes_nothing_more(plural_folding, tag):
    normalise = TagNormaliser(plural_folding, longest=20)
    once, changed = normalise(tag)
    assert normalise(once) == (once, 0 if once else EMPTY)
    assert bool(once) == (changed & (EMPTY | TOO_LONG) == 0)
    assert (changed == 0) == (once == tag and tag != "")
    assert once.encode().decode() == once
    assert len(once) <= 20
    assert once == " ".join(once.split()).lstrip("#")
    assert unicodedata.is_normalized("NFKC", once)
    assert once == once.casefold() or unicodedata.normalize("NFKC", once.casefold()) == once


PAIRS = """
women:woman men:man firemen:fireman cities:city glasses:glass leaves:leaf dogs:dog boxes:box churches:church
bushes:bush buses:bus houses:house causes:cause horses:horse roses:rose shelves:shelf bookshelves:bookshelf
werewolves:werewolf housewives:housewife knives:knife gloves:glove olives:olive sleeves:sleeve heroes:hero
tomatoes:tomato shoes:shoe canoes:canoe ties:tie cookies:cookie skies:sky days:day photos:photo zebras:zebra
children:child feet:foot teeth:tooth mice:mouse geese:goose cacti:cactus lenses:lens gases:gas quizzes:quiz
waltzes:waltz prizes:prize womens:woman childrens:child headaches:headache beaches:beach
skis:ski menus:menu walruses:walrus knees:knee
""".split()
STAY = """
glass bus tennis series species gas lens iris chess christmas news dress virus cactus paris this canvas jeans scissors
sunglasses people sheep women's dog's ads tvs ups ox 1980s specimen ramen menu caf\u00e9s
""".split()


def test_plurals_become_singular_and_what_is_none_stays():
    for plural, one in (pair.split(":") for pair in PAIRS):
        assert singular(plural) == singular(one) == one
        assert singular(f"two wild-{plural}") == f"two wild-{one}"
    for word in (*STAY, "", "cats'", "dogs running"):  # only the last word is looked at
        assert singular(word) == word
        assert singular(f"my {word}") == f"my {word}"
    assert all(re.fullmatch("[a-z]{3,}", word) for word in plurals.IRREGULAR.values())


@settings(max_examples=150, deadline=None)
@given(st.text("seiouahxzcvmntlw' -", max_size=10))
def test_singular_done_twice_is_the_same_and_leaves_three_letters(tag):
    once = singular(tag)
    assert singular(once) == once
    word = re.search("[a-z]*$", once).group()
    assert once == tag or len(word) >= 3


@settings(deadline=None, max_examples=30)
@given(st.lists(st.text(max_size=12)), st.integers(1, 10))
def test_what_is_seen_to_be_in_order_needs_nothing(tags, longest):
    normalise = TagNormaliser(longest=longest)
    for tag, fine in zip(tags, are_normalised(pa.array(tags, pa.string()), normalise), strict=True):
        assert not fine or normalise(tag) == (tag, 0)


def test_most_tags_are_seen_to_be_in_order():
    tags = ["cat", "golden retriever", "3d", "rock'n'roll", "c++"]
    tags += ["Cat", " cat", "cat ", "a  b", "#cat", "café", "", "a\n"]
    assert are_normalised(pa.array(tags), TagNormaliser()).tolist() == [True] * 5 + [False] * 8
    assert not are_normalised(pa.array(["cat"]), TagNormaliser(plurals=True)).any()
    assert not are_normalised(pa.array(["c" * 101]), TagNormaliser()).any()
    lists, changes = normalise_lists(pa.array([["Sea", " ", "sky"], None]), TagNormaliser())
    assert (lists.to_pylist(), changes) == ([["sea", "sky"], []], {"case": 1, "empty": 1})
