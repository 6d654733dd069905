"""What the words of a phrase are to a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from excite.vocabulary.labels import Concept

__all__ = ["ColourWord", "PlaceWord", "Reading", "Word"]


@dataclass(frozen=True)
class Word:
    """A word, or several together, that the classifier knows.

    Attributes:
        text: As it was written.
        concept: What it means to the classifier.
        start: Where it begins in the phrase.
        end: Where it ends, the first letter after it.
    """

    text: str
    concept: Concept
    start: int
    end: int


@dataclass(frozen=True)
class PlaceWord:
    """A word for a place in the picture, an order or a size.

    Attributes:
        text: As it was written.
        start: Where it begins in the phrase.
        end: Where it ends, the first letter after it.
        kind: One name for all words that say the same: "front" for closest, "second" for 2nd, "largest" for big.
        related: Whether it says where to look from something else ("left of the car"), not where in the picture.
    """

    text: str
    start: int
    end: int
    kind: str
    related: bool = False


@dataclass(frozen=True)
class ColourWord:
    """A word for a colour.

    Attributes:
        text: As it was written.
        start: Where it begins in the phrase.
        end: Where it ends, the first letter after it.
        kind: One name for all words that say the same: "grey" for gray and silver.
    """

    text: str
    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Reading:
    """What the words of a phrase are to a classifier, each in the order in which they were written.

    Attributes:
        text: The phrase.
        words: Those that the classifier knows.
        skipped: Those that say something, but nothing that the classifier knows.
        stops: Articles, prepositions and other words that are nobody's signal.
        places: Those that say where, which one or how large.
        colours: Those that say which colour; a colour that the classifier knows is also among its words.
        head: The one of the words that most likely names what is meant ("the *man* in a hat", "a white shirt *woman* on
            the left"): of those before the first preposition, verb in -ing or comma the last that is an object or a
            person, or else the last; None without words.
    """

    text: str
    words: tuple[Word, ...] = ()
    skipped: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    places: tuple[PlaceWord, ...] = ()
    colours: tuple[ColourWord, ...] = ()
    head: Word | None = None
