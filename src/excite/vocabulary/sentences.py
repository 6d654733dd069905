"""The pieces of a sentence, and what a piece says only because of those beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import normalize

from excite.vocabulary.looks import COLOURS, PLACES
from excite.vocabulary.stop_words import GRAMMAR, STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Token", "begins_group", "is_place", "is_related", "says_nothing", "tokens_of", "touch"]

TOKEN = re.compile(r"[^\W_][\u0300-\u036f]*(?:['\N{RIGHT SINGLE QUOTATION MARK}]?[^\W_][\u0300-\u036f]*)*")
BETWEEN = re.compile(r"[ \t\u00a0_-]+")  # what may stand between words that belong together
POSSESSIVE = re.compile(r"'s?\Z")
PAUSES = tuple(",;:.!?()")
RELATING = frozenset({"of", "to", "from"})
TOWARDS = frozenset({"to", "at", "toward", "towards"})
CLOTHES = frozenset({"top", "bottom"})  # after a colour: a green top is worn
SHADES = frozenset("light dark bright pale deep".split())  # before a colour: nobody's lamp is a light blue
VIEWERS = frozenset("us me you camera viewer photographer lens".split())  # where the picture was taken from
ARTICLES = frozenset("a an the this that these those such same another other his her its their my your our".split())
NOUNS_IN_ING = frozenset(
    "awning building ceiling clothing earring frosting icing king painting railing ring string topping wing".split()
)


@dataclass(frozen=True)
class Token:
    """A piece of a sentence: as written, its place, and as it is looked up."""

    text: str
    start: int
    end: int
    key: str

    @property
    def is_stop(self) -> bool:
        """Whether it is nobody's signal; a single letter says nothing either."""
        return self.key in STOP_WORDS or (len(self.key) == 1 and self.key.isascii() and not self.key.isdecimal())


def tokens_of(text: str) -> list[Token]:
    """The pieces of a text that are letters or digits, without the possessive 's in what is looked up.

    Example:
        >>> [(token.text, token.key) for token in tokens_of("The man's T-shirt: No. 22")]
        [('The', 'the'), ("man's", 'man'), ('T', 't'), ('shirt', 'shirt'), ('No', 'no'), ('22', '22')]
    """
    return [Token(found.group(), found.start(), found.end(), _key(found.group())) for found in TOKEN.finditer(text)]


def _key(text: str) -> str:
    key = normalize("NFKC", text).casefold().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return key if key in STOP_WORDS else POSSESSIVE.sub("", key)


def touch(text: str, token: Token, following: Token) -> bool:
    """Whether nothing but blanks or hyphens stand between two pieces of a text."""
    return BETWEEN.fullmatch(text, token.end, following.start) is not None


def is_place(key: str, before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether a word is one for a place where it stands: the far left is no back, and a green top no top.

    Args:
        key: the word.
        before: those before it, the nearest last.
        after: those after it with nothing between.

    Example:
        >>> is_place("top", ["a", "green"], []), is_place("top", ["at", "the"], [])
        (False, True)
    """
    if key == "far" and after and after[0] in PLACES:
        return False
    return key in PLACES and not (key in CLOTHES and before and before[-1] in COLOURS)


def is_related(after: Sequence[str]) -> bool:
    """Whether a place is told from something in the picture, by the words after it.

    Example:
        >>> is_related(["of", "the", "car"]), is_related(["to", "us"]), is_related(["car"])
        (True, False, False)
    """
    thing = next((key for key in after[1:] if key not in ARTICLES), "")
    return bool(after) and after[0] in RELATING and thing not in VIEWERS


def says_nothing(key: str, before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether a word says nothing only where it stands.

    Example:
        >>> says_nothing("light", [], ["blue"]), says_nothing("camera", ["at", "the"], [])
        (True, True)
        >>> says_nothing("hand", ["the", "left"], ["side"]), says_nothing("far", ["the"], ["left"])
        (True, True)
    """
    if key in SHADES:
        return bool(after) and after[0] in COLOURS
    if key in VIEWERS:
        towards = [one for one in before if one not in ARTICLES]
        return bool(towards) and towards[-1] in TOWARDS
    if key == "hand":
        return bool(before and after) and before[-1] in {"left", "right"} and after[0] in {"side", "corner"}
    return key == "far"


def begins_group(text: str, token: Token) -> bool:
    """Whether another group of words begins with this one: a preposition, a verb in -ing, what follows a comma.

    Example:
        >>> text = "a tall building, standing in the city"
        >>> [token.text for token in tokens_of(text) if begins_group(text, token)]
        ['standing', 'in']
    """
    is_grammar = token.key in GRAMMAR and token.key not in ARTICLES
    is_doing = token.key.endswith("ing") and token.key not in NOUNS_IN_ING
    return is_grammar or is_doing or text[: token.start].rstrip().endswith(PAUSES)
