"""Noun phrases of captions whose noun is known, found by rules: no tagger is needed, and doubtful ones are dropped.

A phrase goes from its determiner, over what describes it, to its noun: "a large brown teddy bear", "two dogs". Words
that say how many are part of it: "a bunch of bananas", "a group of people". The noun has to be the last of its phrase:
a car door is no car. Without a tagger that is known only where the next word cannot be a noun, so all others are left
out: these rules are to be right, not to find all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.datasets.caption_grammar import (
    BARE_VERBS,
    COLOURS,
    DETERMINERS,
    FOLLOWERS,
    GROUP_WORDS,
    LIKENESSES,
    MISLEADING,
    NOUNS_LIKE_VERBS,
    QUALITIES,
)
from excite.vocabulary.inflection import singular

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NounPhrase", "noun_phrases"]

TOKEN = re.compile(r"[^\W_]+(?:['\N{RIGHT SINGLE QUOTATION MARK}-][^\W_]+)*|[^\w\s]")
LONGEST_NAME = 3  # words: "stove top oven"
MOST_WORDS = 6  # that describe a thing
NO_THING_AFTER = frozenset(("to", "play", "plays", "playing"))  # "to bear", "playing ball"


@dataclass(frozen=True)
class NounPhrase:
    """Words that refer to a thing, and the meaning of the last of them.

    Attributes:
        text: As it was written.
        meaning: What the table says about its noun; blank where the noun is part of something else ("car door").
    """

    text: str
    meaning: str


def noun_phrases(caption: str, meanings: Mapping[str, str]) -> list[NounPhrase]:
    """The phrases of a caption whose noun is known, in order; also those whose noun is not the last, without a meaning.

    Args:
        caption: a sentence.
        meanings: what each noun means, in the singular and in small letters.

    Example:
        >>> table = {"man": "person", "surfboard": "surfboard", "car": "car", "banana": "banana"}
        >>> [phrase.text for phrase in noun_phrases("A man in a red shirt riding a wave on a big surfboard", table)]
        ['A man', 'a big surfboard']
        >>> noun_phrases("A bunch of bananas by the car door", table)
        [NounPhrase(text='A bunch of bananas', meaning='banana'), NounPhrase(text='the car', meaning='')]
    """
    tokens = list(TOKEN.finditer(caption))
    words = [token.group().lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'") for token in tokens]
    found, place = [], 0
    while place < len(words):
        length, name = _known(words, place, meanings)
        if name:
            start, end = _start(words, place), place + length
            text = caption[tokens[start].start() : tokens[end - 1].end()]
            found.append(NounPhrase(text, meanings[name] if _refers(words, start, place, end, name) else ""))
        place += max(length, 1)
    return found


def _known(words: Sequence[str], place: int, meanings: Mapping[str, str]) -> tuple[int, str]:
    """How many words from here on are the longest known name, and that name."""
    for length in range(min(LONGEST_NAME, len(words) - place), 0, -1):
        name = " ".join(words[place : place + length])
        known = name if name in meanings else singular(name)
        if known in meanings:
            return length, known
    return 0, ""


def _refers(words: Sequence[str], start: int, place: int, end: int, name: str) -> bool:
    """Whether a known name is the noun of its phrase and means what it says."""
    last = singular(" ".join(words[max(place - 1, start) : end]))
    if last in MISLEADING or LIKENESSES & set(words[start:place]) or _is_likeness(words, start):
        return False
    if "stuffed" in words[start:place] and name not in {"teddy bear", "teddybear"}:
        return False
    if name == "orange" and not _is_fruit(words, start, place, end):
        return False
    bare = start == place and start > 0
    return not (bare and words[start - 1] in NO_THING_AFTER) and _ends(words, end)


def _ends(words: Sequence[str], end: int) -> bool:
    """Whether a noun phrase ends before this word, as far as can be told from the word."""
    if end == len(words):
        return True
    after = words[end]
    if not after[0].isalpha():
        return not after[0].isdigit() and after not in {"-", "/", "&"}
    if after in NOUNS_LIKE_VERBS:
        return False
    plural = singular(words[end - 1]) != words[end - 1] or words[end - 1] in {"people", "sheep", "cattle"}
    return after in FOLLOWERS or after.endswith(("ing", "ed")) or (plural and after in BARE_VERBS)


def _start(words: Sequence[str], place: int) -> int:
    """Where the phrase of the noun at this place begins."""
    start, goes_on = _group(words, place)
    while goes_on:
        start, goes_on = _group(words, start - 2)
    return start


def _group(words: Sequence[str], place: int) -> tuple[int, bool]:
    """Where the words begin that belong to the one at this place, and whether the phrase has more two words before."""
    start = place
    while start > 0 and place - start < MOST_WORDS and _describes(words, start - 1):
        start -= 1
    if start > 1 and words[start - 1] in {"and", ","} and {words[start], words[start - 2]} <= QUALITIES:
        return start, True  # "a black and white cat"
    while start > 0 and (words[start - 1] in DETERMINERS or words[start - 1].isdigit()):
        start -= 1
    return start, _after_group_word(words, start)


def _after_group_word(words: Sequence[str], start: int) -> bool:
    """Whether "a bunch of" or the like comes before; a parking lot of cars is none."""
    of_group = start > 1 and words[start - 1] == "of" and words[start - 2] in GROUP_WORDS
    return of_group and words[start - 3 : start - 2] != ["parking"]


def _describes(words: Sequence[str], place: int) -> bool:
    """Whether a word describes the noun that comes soon after it."""
    word, before = words[place], words[max(place - 2, 0) : place]
    if not word[0].isalpha() or word in FOLLOWERS:
        return False
    if word in NOUNS_LIKE_VERBS:
        return True
    described = bool(before) and before[-1] in DETERMINERS | QUALITIES
    if word in BARE_VERBS or word.endswith("ing"):  # "a race car", "a sleeping cat"; but "a man holding oranges"
        return described
    if word.endswith("ed"):  # also "a middle aged woman": captions have hardly any past tense
        return described or not before or not DETERMINERS.isdisjoint(before)
    return True


def _is_likeness(words: Sequence[str], start: int) -> bool:
    """Whether the phrase is what a statue, or the like, is of."""
    return start > 1 and words[start - 1] == "of" and words[start - 2] in LIKENESSES


def _is_fruit(words: Sequence[str], start: int, place: int, end: int) -> bool:
    """Whether "orange" is no colour: it is counted, or there are several, and no second colour follows."""
    counted = words[end - 1] == "oranges" or bool({"a", "an", "the", "one", "single"} & set(words[start:place]))
    and_colour = end + 1 < len(words) and words[end] in {"and", ",", "or"} and words[end + 1] in COLOURS
    return counted and not and_colour
