"""Phrases read as signals: which of their words a classifier knows, and what the others say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.errors import ConceptError
from excite.vocabulary.caption_words import coco_categories, person_words
from excite.vocabulary.lemmas import noun_forms
from excite.vocabulary.looks import COLOURS, PLACES, THINGS_TOO
from excite.vocabulary.reading import ColourWord, PlaceWord, Reading, Word
from excite.vocabulary.sentences import (
    Token,
    begins_group,
    is_place,
    is_related,
    says_nothing,
    tokens_of,
    touch,
)
from excite.vocabulary.spelling import fold
from excite.vocabulary.stop_words import GRAMMAR, STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from excite.vocabulary.labels import Labels

__all__ = ["read_phrase"]

LONGEST = 10_000  # letters of a phrase; a caption has a hundred
MOST_TOGETHER = 4  # words that are read as one: "stove top oven" has three


@dataclass(frozen=True)
class Unknown:
    """A word that is no signal here: of no account anywhere, or of no account to this classifier."""

    text: str
    is_stop: bool


Piece = Word | PlaceWord | ColourWord | Unknown


def read_phrase(text: str, labels: Labels) -> Reading:
    """The words of an English phrase, by what a classifier of those labels can look for.

    Words that are known together are one word ("traffic light"). A blank phrase has no words.

    Args:
        text: Any text of at most 10000 letters.
        labels: Of the classifier.

    Raises:
        ConceptError: The phrase is too long.
        ExciteError: simplemma is not installed.

    Example:
        >>> from excite.vocabulary import Labels
        >>> labels = Labels(["person", "traffic light"])
        >>> reading = read_phrase("the left kid in a red hat by two traffic lights", labels)
        >>> [(word.text, word.concept.name) for word in reading.words]
        [('kid', 'person'), ('traffic lights', 'traffic light')]
        >>> [place.kind for place in reading.places], [colour.kind for colour in reading.colours], reading.skipped
        (['left'], ['red'], ('hat',))
    """
    if len(text) > LONGEST:
        raise ConceptError(f"The phrase has {len(text)} letters: write at most {LONGEST}.")
    tokens = tokens_of(text)
    pieces = list(_pieces(text, tokens, labels))
    words = tuple(piece for piece in pieces if isinstance(piece, Word))
    unknown = [piece for piece in pieces if isinstance(piece, Unknown)]
    return Reading(
        text=text,
        words=words,
        skipped=tuple(piece.text for piece in unknown if not piece.is_stop),
        stops=tuple(piece.text for piece in unknown if piece.is_stop),
        places=tuple(piece for piece in pieces if isinstance(piece, PlaceWord)),
        colours=tuple(piece for piece in pieces if isinstance(piece, ColourWord)),
        head=_head(text, tokens, words),
    )


def _pieces(text: str, tokens: Sequence[Token], labels: Labels) -> Iterator[Piece]:
    """What each word is, from the first to the last."""
    at = 0
    while at < len(tokens):
        together = _together(text, tokens[at : at + MOST_TOGETHER], labels)
        if together is None:
            yield from _alone(text, tokens, at, labels)
            at += 1
        else:
            word, count = together
            yield word
            at += count


def _together(text: str, tokens: Sequence[Token], labels: Labels) -> tuple[Word, int] | None:
    """The longest of the words that these begin with, if it is one of several pieces, and how many these are.

    None begins or ends with a word of grammar: "a corn" is no acorn. None is a place: a "back ground" is no tag.
    """
    for count in range(_touching(text, tokens), 1, -1):
        first, last = tokens[0], tokens[count - 1]
        keys = [token.key for token in tokens[:count]]
        if first.key in GRAMMAR or last.key in GRAMMAR or "".join(keys) in PLACES:
            continue
        concept = labels.word(" ".join(keys))
        if concept is not None:
            return Word(text[first.start : last.end], concept, first.start, last.end), count
    return None


def _touching(text: str, tokens: Sequence[Token]) -> int:
    """How many of these follow each other with nothing between."""
    return next((n for n in range(1, len(tokens)) if not touch(text, tokens[n - 1], tokens[n])), len(tokens))


def _alone(text: str, tokens: Sequence[Token], at: int, labels: Labels) -> Iterator[Piece]:
    """What a word is that stands for itself: a colour may be two things."""
    token = tokens[at]
    beside = tokens[at : at + 4]
    after = [one.key for one in beside[1 : _touching(text, beside)]]
    before = [one.key for one in tokens[max(at - 2, 0) : at]]
    if is_place(token.key, before, after):
        yield PlaceWord(token.text, token.start, token.end, PLACES[token.key], is_related(after))
    elif token.is_stop or says_nothing(token.key, before, after):
        yield Unknown(token.text, is_stop=True)
    else:
        if token.key in COLOURS:
            yield ColourWord(token.text, token.start, token.end, COLOURS[token.key])
        is_colour_only = token.key in THINGS_TOO and after and after[0] not in STOP_WORDS
        concept = None if is_colour_only else labels.word(token.key)
        if concept is not None:
            yield Word(token.text, concept, token.start, token.end)
        elif token.key not in COLOURS:
            yield Unknown(token.text, is_stop=False)


def _head(text: str, tokens: Sequence[Token], words: Sequence[Word]) -> Word | None:
    """The word that names what is meant, see `Reading`."""
    if not words:
        return None
    later = (token.start for token in tokens if token.start > words[0].start and begins_group(text, token))
    end = next(later, len(text))
    group = [word for word in words if word.start < end]
    return max(enumerate(group), key=lambda numbered: (_likeness_to_head(numbered[1]), numbered[0]))[1]


def _likeness_to_head(word: Word) -> int:
    """How much a word looks like what is meant: an object or a person most, an owner or a colour least."""
    key = fold(word.text)
    if key in COLOURS or key.endswith(("'s", "\N{RIGHT SINGLE QUOTATION MARK}s")):
        return 0
    return 2 if any(form in coco_categories() or form in person_words() for form in noun_forms(key)) else 1
