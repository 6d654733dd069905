"""Reading a phrase: the words that a classifier knows, words for places and colours, and the others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from unicodedata import normalize

from excite.errors import ConceptError
from excite.vocabulary.inflection import noun_forms
from excite.vocabulary.labels import Concept, Labels, coco_categories, fold, person_words
from excite.vocabulary.word_lists import COLOURS, GRAMMAR, PLACES, STOP_WORDS, THINGS_TOO, words_of


@dataclass(frozen=True)
class Word:
    """A word, or several together, that the classifier knows, at ``phrase[start:end]``."""

    text: str
    concept: Concept
    start: int
    end: int


@dataclass(frozen=True)
class PlaceWord:
    """A word for a place in the image, an order or a size, at ``phrase[start:end]``.

    ``kind`` is one name for each meaning ("front" for closest); ``related``: to an object ("left of the car").
    """

    text: str
    start: int
    end: int
    kind: str
    related: bool = False


@dataclass(frozen=True)
class ColourWord:
    """A word for a colour at ``phrase[start:end]``; ``kind`` is the name of the colour: "grey" for gray, silver."""

    text: str
    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Reading:
    """The words of a phrase by their use, each in the order of the phrase.

    Attributes:
        text: The phrase.
        words: Those that the classifier knows.
        skipped: Content words that it does not know.
        stops: Articles, prepositions and other stop words.
        places: Words for a place, an order or a size.
        colours: Words for a colour; one that the classifier knows is also among ``words``.
        head: The word that most likely names the object ("the *man* in a hat", "a white shirt *woman* on the left"):
            of ``words`` before the first preposition, verb in -ing or comma the last that is an object or a person, or
            else the last; None without words.
    """

    text: str
    words: tuple[Word, ...] = ()
    skipped: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    places: tuple[PlaceWord, ...] = ()
    colours: tuple[ColourWord, ...] = ()
    head: Word | None = None


TOKEN = re.compile(r"[^\W_][\u0300-\u036f]*(?:['\N{RIGHT SINGLE QUOTATION MARK}]?[^\W_][\u0300-\u036f]*)*")
BETWEEN = re.compile(r"[ \t\u00a0_-]+")  # between words that belong together
POSSESSIVE = re.compile(r"'s?\Z")
PAUSES = tuple(",;:.!?()")
LONGEST = 10_000  # letters of a phrase; a caption has a hundred
MOST_TOGETHER = 4  # tokens of one word: "stove top oven" has three
RELATING = frozenset({"of", "to", "from"})
TOWARDS = frozenset({"to", "at", "toward", "towards"})
CLOTHES = frozenset({"top", "bottom"})  # after a colour: a green top is worn
SHADES = frozenset("light dark bright pale deep".split())  # before a colour
VIEWERS = frozenset("us me you camera viewer photographer lens".split())  # the position of the camera
ARTICLES = frozenset("a an the this that these those such same another other his her its their my your our".split())
NOUNS_IN_ING = words_of("nouns in -ing")


@dataclass(frozen=True)
class Token:
    """A token of a sentence: its text, its span, and the key by which it is looked up."""

    text: str
    start: int
    end: int
    key: str

    @property
    def is_stop(self) -> bool:
        """Whether it is a stop word or a single letter."""
        return self.key in STOP_WORDS or (len(self.key) == 1 and self.key.isascii() and not self.key.isdecimal())


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, of letters or digits; their keys without the possessive 's."""
    return [Token(found.group(), found.start(), found.end(), _key(found.group())) for found in TOKEN.finditer(text)]


def _key(text: str) -> str:
    key = normalize("NFKC", text).casefold().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return key if key in STOP_WORDS else POSSESSIVE.sub("", key)


Piece = Word | PlaceWord | ColourWord | tuple[str, bool]  # an unknown word, and whether it is a stop word


def read_phrase(text: str, labels: Labels) -> Reading:
    """The words of an English phrase of at most 10000 letters, by the labels of a classifier.

    Tokens that are known together are one word ("traffic light"). A blank phrase has no words. In an open vocabulary
    the phrase as a whole is the one word; its words of position are read beside it: an embedding says little of sides.

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
    if labels.is_open:
        return _as_one(text, tokens, labels)
    pieces: list[Piece] = []
    at = 0
    while at < len(tokens):
        together = _together(text, tokens[at : at + MOST_TOGETHER], labels)
        pieces += _alone(text, tokens, at, labels) if together is None else together[:1]
        at += 1 if together is None else together[1]
    words = tuple(piece for piece in pieces if isinstance(piece, Word))
    unknown = [piece for piece in pieces if isinstance(piece, tuple)]
    return Reading(
        text=text,
        words=words,
        skipped=tuple(word for word, is_stop in unknown if not is_stop),
        stops=tuple(word for word, is_stop in unknown if is_stop),
        places=tuple(piece for piece in pieces if isinstance(piece, PlaceWord)),
        colours=tuple(piece for piece in pieces if isinstance(piece, ColourWord)),
        head=_head(text, tokens, words),
    )


def _as_one(text: str, tokens: list[Token], labels: Labels) -> Reading:
    """The whole phrase as one word."""
    if not text.strip():
        return Reading(text)
    word = Word(text, labels.find(text), 0, len(text))
    places = tuple(place for at in range(len(tokens)) if (place := _place(text, tokens, at)) is not None)
    return Reading(text, (word,), places=places, head=word)


def _together(text: str, tokens: list[Token], labels: Labels) -> tuple[Word, int] | None:
    """The longest known word of several tokens at the beginning, and their number."""
    for count in range(_touching(text, tokens), 1, -1):
        first, last = tokens[0], tokens[count - 1]
        keys = [token.key for token in tokens[:count]]
        if first.key in GRAMMAR or last.key in GRAMMAR or "".join(keys) in PLACES:
            continue  # "a corn" is no acorn, and a "back ground" no tag
        concept = labels.word(" ".join(keys))
        if concept is not None:
            return Word(text[first.start : last.end], concept, first.start, last.end), count
    return None


def _touching(text: str, tokens: list[Token]) -> int:
    """The number of tokens at the beginning with only blanks or hyphens between them."""
    gaps = ((n, BETWEEN.fullmatch(text, tokens[n - 1].end, tokens[n].start)) for n in range(1, len(tokens)))
    return next((n for n, gap in gaps if gap is None), len(tokens))


def _alone(text: str, tokens: list[Token], at: int, labels: Labels) -> list[Piece]:
    """A single token; a colour may also be a word of the classifier."""
    token = tokens[at]
    before, after = _context(text, tokens, at)
    if (place := _place(text, tokens, at)) is not None:
        return [place]
    if token.is_stop or _says_nothing(token.key, before, after):
        return [(token.text, True)]
    found: list[Piece] = []
    if token.key in COLOURS:
        found.append(ColourWord(token.text, token.start, token.end, COLOURS[token.key]))
    is_colour_only = token.key in THINGS_TOO and after and after[0] not in STOP_WORDS
    concept = None if is_colour_only else labels.word(token.key)
    if concept is not None:
        found.append(Word(token.text, concept, token.start, token.end))
    return found or [(token.text, False)]


def _context(text: str, tokens: list[Token], at: int) -> tuple[list[str], list[str]]:
    """The keys of the two tokens before one, and of those right after it."""
    beside = tokens[at : at + 4]
    after = [one.key for one in beside[1 : _touching(text, beside)]]
    return [one.key for one in tokens[max(at - 2, 0) : at]], after


def _place(text: str, tokens: list[Token], at: int) -> PlaceWord | None:
    """A token as a word for a place."""
    token = tokens[at]
    before, after = _context(text, tokens, at)
    if not _is_place(token.key, before, after):
        return None
    thing = next((key for key in after[1:] if key not in ARTICLES), "")
    related = bool(after) and after[0] in RELATING and thing not in VIEWERS
    return PlaceWord(token.text, token.start, token.end, PLACES[token.key], related)


def _is_place(key: str, before: list[str], after: list[str]) -> bool:
    """Whether a word means a place: in "far left" the second does, and a green top is none."""
    far = key == "far" and after and after[0] in PLACES
    worn = key in CLOTHES and before and before[-1] in COLOURS
    return key in PLACES and not far and not worn


def _says_nothing(key: str, before: list[str], after: list[str]) -> bool:
    """Whether a word has no content in its context: a *light* blue, towards the *camera*, on the left *hand* side."""
    if key in SHADES:
        return bool(after) and after[0] in COLOURS
    if key in VIEWERS:
        towards = [one for one in before if one not in ARTICLES]
        return bool(towards) and towards[-1] in TOWARDS
    if key == "hand":
        return bool(before and after) and before[-1] in {"left", "right"} and after[0] in {"side", "corner"}
    return key == "far"


def _head(text: str, tokens: list[Token], words: tuple[Word, ...]) -> Word | None:
    """The head word, see `Reading`."""
    later = (token.start for token in tokens if words and token.start > words[0].start and _begins_group(text, token))
    end = next(later, len(text))
    group = [word for word in reversed(words) if word.start < end]
    return max(group, key=_head_rank, default=None)  # of equals the last of the phrase


def _begins_group(text: str, token: Token) -> bool:
    """Whether another group of words begins here: a preposition, a verb in -ing, a word after a comma."""
    is_grammar = token.key in GRAMMAR and token.key not in ARTICLES
    is_doing = token.key.endswith("ing") and token.key not in NOUNS_IN_ING
    return is_grammar or is_doing or text[: token.start].rstrip().endswith(PAUSES)


def _head_rank(word: Word) -> int:
    """The rank of a word as head: 2 for an object or a person, 0 for an owner or a colour."""
    key = fold(word.text)
    if key in COLOURS or key.endswith(("'s", "\N{RIGHT SINGLE QUOTATION MARK}s")):
        return 0
    return 2 if any(form in coco_categories() or form in person_words() for form in noun_forms(key)) else 1
