"""The labels of a classifier's output units, and how a word or an index finds its units."""

from __future__ import annotations

import json
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Self, SupportsIndex

from excite.errors import ConceptError
from excite.vocabulary.inflection import forms, noun_forms, singulars

Groups = Mapping[str, Iterable[SupportsIndex]]
Table = dict[str, tuple[int, ...]]
WORDNET_ID = re.compile(r"n\d{8}\s+")
BETWEEN_WORDS = re.compile(r"[\s_-]+")
NEGATIVE = re.compile(r"[\s_]*-[\s_-]*\d")
LETTER = re.compile(r"[^\s_-]")
MAX_LISTED = 8  # candidates named in an error
MAX_GUESSES, MIN_SIMILARITY = 5, 0.65  # of the words suggested for an unknown one
MAX_GUESSED = 200  # letters of an unknown word: a longer one is not compared with all others
MAX_QUOTED = 60  # letters of an unknown word that are quoted
MAX_DIGITS = 18  # of an index
PERSON = "person"


def rows(name: str) -> list[list[str]]:
    """The lines of a table, split at tabs, without its comments."""
    text = files("excite.vocabulary").joinpath(name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]


@cache
def coco_categories() -> Mapping[str, str]:
    """The COCO category of each word, by dev/make_coco_words.py; in lower case."""
    return {word: words[0] for words in rows("coco.txt") for word in words}


@cache
def person_words() -> frozenset[str]:
    """Words that mostly mean people, by WordNet and dev/make_wordnet_kinds.py."""
    return frozenset(word for (word,) in rows("persons.txt"))


@dataclass(frozen=True)
class Concept:
    """A named set of output units.

    The units have no weights here: the top-down signal weights them by the classifier's probabilities, so a unit that
    the image does not show costs nothing.
    """

    name: str
    units: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", tuple(map(operator.index, self.units)))
        if not self.units or len(set(self.units)) < len(self.units):
            raise ConceptError(
                f"The concept {self.name!r} has units {list(self.units)}: give at least one, each only once."
            )


class Labels:
    """The labels of a classifier's output units, in the order of the units; immutable.

    Args:
        entries: for each unit its word, or its synonyms with its name first.
        groups: words for kinds of labels ("dog" for every breed), with their units; or a function that gives them,
            called when they are first needed.
        preferred: units whose words mean them alone: another label with the same word needs another of its words.
        others: words of labels that in a sentence mostly mean something else ("ear", the ear of corn), or a function
            that gives them. ``find`` still knows them.

    Raises:
        ConceptError: there are no labels, or one is blank, or a unit does not exist.
    """

    is_open = False  # whether every phrase is a concept, see `excite.vocabulary.open`
    generation = 0  # of an open vocabulary: how many phrases were given a unit

    def __init__(
        self,
        entries: Sequence[str | Sequence[str]],
        groups: Groups | Callable[[], Groups] | None = None,
        preferred: Iterable[SupportsIndex] = (),
        others: Iterable[str] | Callable[[], Iterable[str]] = (),
    ) -> None:
        if isinstance(entries, str):
            raise ConceptError(f"Labels are a sequence, but {entries!r} is one string: put it in a list.")
        self._entries = tuple(_words(unit, entry) for unit, entry in enumerate(entries))
        if not self._entries:
            raise ConceptError("There are no labels: give one for each output unit, or use Labels.numbered(n).")
        self._preferred = frozenset(self._indices(preferred))
        self._given_groups = groups if callable(groups) else self._folded_groups(groups or {})
        self._given_others = others

    @classmethod
    def numbered(cls, number: int) -> Self:
        """Labels "0", "1", ... for a classifier whose output units have no words."""
        return cls([str(unit) for unit in range(number)])

    @classmethod
    def read(cls, path: Path) -> Self:
        """Labels from a file: a JSON array, or text with one label a line, its synonyms after commas.

        Lines that all begin with a WordNet ID, as in ImageNet's own lists, are read without it.

        Raises:
            ConceptError: The file cannot be read, or holds no labels.
        """
        entries = _read_entries(path)
        try:
            return cls(entries)
        except ConceptError as error:
            raise ConceptError(f"{path}: {error}") from None

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return (synonyms[0] for synonyms in self._entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels) or self._entries != other._entries:
            return False if isinstance(other, Labels) else NotImplemented
        return (self._preferred, self._groups, self._others) == (other._preferred, other._groups, other._others)

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        shown = ", ".join(repr(synonyms[0]) for synonyms in self._entries[:3])
        return f"Labels({len(self)}: {shown}{', ...' if len(self) > 3 else ''})"

    def name(self, unit: SupportsIndex) -> str:
        """The first word for an output unit."""
        return self.synonyms(unit)[0]

    def synonyms(self, unit: SupportsIndex) -> tuple[str, ...]:
        """All words for an output unit, its name first."""
        return self._entries[self._indices([unit])[0]]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The words of ``groups``, in small letters."""
        return tuple(self._groups)

    def written(self, concepts: Sequence[Concept]) -> int:  # noqa: ARG002 - those of an open vocabulary decide
        """The last generation in which one of these concepts was given its unit: 0, all are there from the start."""
        return 0

    def begin_with(self, others: Self) -> bool:
        """Whether the first units have the same words as those others."""
        return self._entries[: len(others)] == others._entries

    def search(self, text: str) -> list[int]:
        """Every unit with a synonym that contains the text; all units for a blank text."""
        wanted = fold(text)
        return [unit for unit, words in enumerate(self._entries) if any(wanted in fold(word) for word in words)]

    def listed(self, text: str = "") -> list[tuple[int, ...]]:
        """The units of every label with a synonym that contains the text; a name of several units is listed once.

        The first is one that the name means.

        Example:
            >>> Labels(["crane", "dog", ["Crane", "lift"]], preferred=[2]).listed()
            [(2, 0), (1,)]
        """
        found: dict[str, list[int]] = {}
        for unit in self.search(text):
            found.setdefault(fold(self.name(unit)), []).append(unit)
        for name, units in found.items():
            if len(units) > 1:
                meant = self.find(name).units
                units.sort(key=lambda unit: unit not in meant)
        return list(map(tuple, found.values()))

    def find(self, query: SupportsIndex | str | Concept) -> Concept:
        """The concept for a word or an index; a concept is returned as it is.

        Case, and whether words are separated by spaces, ``_`` or ``-``, make no difference. The first match decides:

        1. An index, as a number or in decimal digits, and never a negative one. (Digits that are themselves a label
           mean that label: "2019" in a classifier of years.)
        2. A word of a preferred label.
        3. The name of a label. Where several labels have that name ("crane", the bird and the machine), all
           of them. Where one has it as its name and others only as a later synonym ("missile"), the one: a later
           synonym is the rarer meaning.
        4. A later synonym, of one label or of several ("panther").
        5. A word of ``groups``.
        6. The last word of a synonym: "terrier" means every label that is some terrier.
        7. Steps 2 to 6 for the singular of an English plural.
        8. The beginning of one synonym, or of synonyms of one label only.

        A concept of one unit is named after its label, a concept of several with the word.

        Raises:
            ConceptError: No label matches, or several do; the message lists the nearest words.
        """
        if isinstance(query, Concept):
            self._indices(query.units)
            return query
        if not isinstance(query, str):
            return self._concept(str(query), self._indices([query]))
        wanted = fold(query)
        if not wanted:
            raise ConceptError("The concept is blank: name one, or see them all with `excite ls labels`.")
        number = wanted if wanted.startswith("-") else query.strip()
        if number.removeprefix("-").isdecimal() and wanted not in self._synonyms:
            if number.startswith("-") or len(number) > MAX_DIGITS:
                raise ConceptError(f"There is no output unit {wanted[:40]}: the units are 0 to {len(self) - 1}.")
            return self._concept(wanted, self._indices([int(number)]))
        if units := self._any(wanted):
            return self._concept(wanted, units)
        form = next(filter(self._any, singulars(wanted)), None)
        return self._completed(query, wanted) if form is None else self._concept(form, self._any(form))

    def word(self, text: str) -> Concept | None:
        """The concept for a word of a sentence, or for several words that belong together; None if it is unknown.

        Unlike ``find`` this takes no numbers and completes no beginnings ("man" is no mantis). The first match for the
        word, or else for its singular, decides:

        1. A word of a preferred label.
        2. The name or a synonym of a label, unless it is one of ``others``.
        3. A word for a kind, which is all of these together: the label of a COCO category that the word is known for
           ("taxi" is a car), the word of ``groups``, a preferred label whose last word it is. Labels without groups
           have last words for kinds. Where there is none of these, the COCO category as such a kind.
        4. Any of these but for the blanks: "surf board" is a surfboard.
        5. A word that means people ("umpire"): the label that is called person, also beside a label of its own ("guy").
        6. Only for labels without groups, which may be any tags: the name or a synonym that the word is a form of as
           a verb or an adjective ("sits"). Labels with groups are of things, and "brushing" is no brush.

        Raises:
            ExciteError: simplemma is not installed.

        Example:
            >>> labels = Labels(["car", "traffic light", "mantis", "sit"])
            >>> [labels.word(text) for text in ("Taxis", "man", "sits")]
            [Concept(name='car', units=(0,)), None, Concept(name='sit', units=(3,))]
        """
        wanted = fold(text)
        found = next(((form, units) for form, units in self._meanings(wanted) if units), None)
        if found is not None and any(form in person_words() for form in noun_forms(wanted)):
            person = self._called(PERSON)
            found = found if {*person} & {*found[1]} else (found[0], (*person, *found[1]))
        return None if found is None else self._concept(*found)

    def _meanings(self, wanted: str) -> Iterator[tuple[str, Sequence[int]]]:
        """The steps of ``word``: a form of the word and its units."""
        nouns = noun_forms(wanted)
        yield from ((form, self._preferred_words.get(form, ())) for form in nouns)
        yield from ((form, self._meant(form)) for form in nouns)
        spelled = (self._unblanked.get(form.replace(" ", "")) for form in nouns)
        yield from ((form, self._meant(form)) for form in spelled if form is not None)
        if any(form in person_words() for form in nouns):
            yield PERSON, self._called(PERSON)
        if not self._groups:
            yield from ((form, self._called(form)) for form in forms(wanted))

    def _meant(self, word: str) -> Sequence[int]:
        """Steps 2 and 3 of ``word``."""
        if word not in self._others and (named := self._called(word)):
            return named
        category = coco_categories().get(word, "")
        units = dict.fromkeys((*self._called(category), *self._kind(word)))
        return list(units or dict.fromkeys(self._kind(category)))

    def _kind(self, word: str) -> Iterator[int]:
        yield from self._groups.get(word, ())
        yield from self._preferred_last_words.get(word, ())
        if not self._groups:
            yield from self._last_words.get(word, ())

    def _called(self, word: str) -> Sequence[int]:
        """Steps 2 to 4 of ``find``."""
        return self._preferred_words.get(word) or self._names.get(word) or self._synonyms.get(word) or ()

    def _any(self, word: str) -> Sequence[int]:
        """Steps 2 to 6 of ``find``."""
        return self._called(word) or self._groups.get(word) or self._last_words.get(word) or ()

    def _completed(self, query: str, wanted: str) -> Concept:
        """Step 8 of ``find``, or the error that lists the nearest words, all of which ``find`` knows."""
        known = self._synonyms
        words = [word for word in known if word.startswith(wanted)]
        if not words:
            more = dict.fromkeys([*known, *self._groups, *self._last_words])
            near = get_close_matches(wanted, more, MAX_GUESSES, MIN_SIMILARITY) if len(wanted) <= MAX_GUESSED else []
            guess = f" Did you mean {listed([repr(word) for word in near])}?" if near else ""
            raise ConceptError(
                f"No label is called {query.strip()[:MAX_QUOTED]!r}.{guess} `excite ls labels` lists all {len(self)}."
            )
        first = {unit: word for word in reversed(words) for unit in known[word]}
        if len(words) > 1 and len(first) > 1:
            candidates = listed([repr(word) for word in dict.fromkeys(first[unit] for unit in sorted(first))])
            raise ConceptError(f"{query.strip()!r} could mean {candidates}: write more of it, or an index.")
        return self._concept(words[0], known[words[0]])

    def _concept(self, word: str, units: Sequence[int]) -> Concept:
        return Concept(self.name(units[0]) if len(units) == 1 else word, tuple(units))

    def _indices(self, units: Iterable[SupportsIndex]) -> list[int]:
        """The units as numbers, all of them existing ones."""
        indices = []
        for unit in units:
            try:
                index = operator.index(unit)
            except TypeError as error:
                raise ConceptError(f"{unit!r} is no concept: give a word, an index or a Concept.") from error
            if not 0 <= index < self._outputs:
                raise ConceptError(f"There is no output unit {index}: the units are 0 to {self._outputs - 1}.")
            indices.append(index)
        return indices

    @property
    def _outputs(self) -> int:
        return len(self._entries)

    def _folded_groups(self, groups: Groups) -> Table:
        return {fold(word): Concept(word, tuple(self._indices(units))).units for word, units in groups.items()}

    # Tables from a folded word to its units in order, each made when it is first needed.

    @cached_property
    def _groups(self) -> Table:
        given = self._given_groups
        return self._folded_groups(given()) if callable(given) else given

    @cached_property
    def _others(self) -> frozenset[str]:
        given = self._given_others
        return frozenset(map(fold, given() if callable(given) else given))

    @cached_property
    def _names(self) -> Table:
        return _table((unit, fold(words[0])) for unit, words in enumerate(self._entries))

    @cached_property
    def _synonyms(self) -> Table:
        return _table((unit, fold(word)) for unit, words in enumerate(self._entries) for word in words)

    @cached_property
    def _preferred_words(self) -> Table:
        return _table((unit, fold(word)) for unit in sorted(self._preferred) for word in self._entries[unit])

    @cached_property
    def _last_words(self) -> Table:
        """The last words of the labels that are not preferred."""
        others = ((unit, words) for unit, words in enumerate(self._entries) if unit not in self._preferred)
        return _table((unit, fold(word).split()[-1]) for unit, words in others for word in words)

    @cached_property
    def _preferred_last_words(self) -> Table:
        words = self._preferred_words.items()
        return _table((unit, word.split()[-1]) for word, units in words for unit in units)

    @cached_property
    def _unblanked(self) -> dict[str, str]:
        return {word.replace(" ", ""): word for word in (*coco_categories(), *self._groups, *self._synonyms)}


def _words(unit: int, entry: str | Sequence[str]) -> tuple[str, ...]:
    words = tuple(entry) if isinstance(entry, Sequence) and not isinstance(entry, str) else (entry,)
    if not words or not all(isinstance(word, str) and LETTER.search(word) for word in words):
        raise ConceptError(f"Label {unit} is {repr(entry)[:100]}: give it one or several words, none of them blank.")
    return words


def _table(pairs: Iterable[tuple[int, str]]) -> Table:
    table: defaultdict[str, dict[int, None]] = defaultdict(dict)
    for unit, word in pairs:
        table[word][unit] = None
    return {word: tuple(units) for word, units in table.items()}


def fold(text: str) -> str:
    """The spelling that words are compared by: "Tabby_cat" and " tabby-cat" are "tabby cat", but "-1" is not "1"."""
    folded = BETWEEN_WORDS.sub(" ", text.casefold()).strip()
    return f"-{folded}" if NEGATIVE.match(text) else folded


def listed(things: Sequence[str]) -> str:
    """The things as a list in a sentence, the first eight of them."""
    more = len(things) - MAX_LISTED
    return ", ".join(things[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def _read_entries(path: Path) -> Sequence[str | Sequence[str]]:
    """The labels of a file, each a word or several synonyms; `Labels.read` describes the formats."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConceptError(f"Cannot read the labels in {str(path)!r}: {error}.") from None
    if "\0" in text:
        raise ConceptError(f"Cannot read the labels in {str(path)!r}: it is no text in UTF-8.")
    if text.lstrip().startswith(("[", "{")):
        try:
            content: list[str | Sequence[str]] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConceptError(f"{path} is no JSON array of labels: {error}.") from None
        if isinstance(content, list):
            return content
        raise ConceptError(
            f"{path} is no JSON array of labels, but an object: write [...] in the order of the outputs."
        )
    lines = [line.strip() for line in text.rstrip().splitlines()]
    if all(WORDNET_ID.match(line) for line in lines):
        lines = [WORDNET_ID.sub("", line) for line in lines]
    return [[word.strip() for word in line.split(",")] for line in lines]
