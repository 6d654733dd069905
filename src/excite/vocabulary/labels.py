"""Words for the output units of a classifier, and how a user's word finds them."""

from __future__ import annotations

import json
import operator
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Self, SupportsIndex

from excite.errors import ConceptError
from excite.vocabulary.inflection import forms, noun_forms
from excite.vocabulary.word_lists import PERSON, coco_categories, person_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


# Labels in files: as people and other programs write them.

WORDNET_NUMBER = re.compile(r"n\d{8}\s+")


def read_entries(path: Path) -> Sequence[str | Sequence[str]]:
    """The labels of a file, each a word or several synonyms; `Labels.read` says what the file looks like.

    Raises:
        ConceptError: The file cannot be read, or holds no labels.

    Example:
        >>> read_entries(Path("labels.txt"))                                # doctest: +SKIP
        [['cat', 'puss'], ['dog']]
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConceptError(f"Cannot read the labels in {str(path)!r}: {error}.") from None
    if "\0" in text:
        raise ConceptError(f"Cannot read the labels in {str(path)!r}: it is no text in UTF-8.")
    if text.lstrip().startswith(("[", "{")):
        return _json_array(path, text)
    lines = [line.strip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    if all(WORDNET_NUMBER.match(line) for line in lines):
        lines = [WORDNET_NUMBER.sub("", line) for line in lines]
    return [[word.strip() for word in line.split(",")] for line in lines]


def _json_array(path: Path, text: str) -> list[str | Sequence[str]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConceptError(f"{path} is no JSON array of labels: {error}.") from None
    if not isinstance(content, list):
        raise ConceptError(
            f"{path} is no JSON array of labels, but an object: write [...] in the order of the outputs."
        )
    return content


# How words are written: one spelling for all that mean the same, and words in a sentence.

MOST_CANDIDATES = 8
BETWEEN_WORDS = re.compile(r"[\s_-]+")
PLURAL_ENDINGS = (("ies", "y"), ("ves", "f"), ("ves", "fe"), ("es", ""), ("s", ""))


def fold(text: str) -> str:
    """One spelling for all that mean the same: "Tabby_cat" and " tabby-cat" are both "tabby cat"."""
    return BETWEEN_WORDS.sub(" ", text.casefold()).strip()


def unblank(word: str) -> str:
    """A folded word without its blanks."""
    return word.replace(" ", "")


def singulars(word: str) -> list[str]:
    """What the word may be the plural of, likeliest first; some are no words, which harms nobody."""
    return [word.removesuffix(plural) + singular for plural, singular in PLURAL_ENDINGS if word.endswith(plural)]


def listed(things: Sequence[str]) -> str:
    """The things as a list in a sentence, not longer than one can read."""
    more = len(things) - MOST_CANDIDATES
    return ", ".join(things[:MOST_CANDIDATES]) + (f" and {more} more" if more > 0 else "")


# The words of labels as tables, and what a word of a sentence says by them.

Units = dict[str, list[int]]


@dataclass(frozen=True)
class Tables:
    """What `Labels` is made of, each word with its units.

    Attributes:
        entries: For each unit its synonyms, its name first.
        groups: Words for kinds, folded.
        preferred: The units that have their words to themselves.
        others: Words of labels that in a sentence mostly mean something else, folded.
    """

    entries: tuple[tuple[str, ...], ...]
    groups: Mapping[str, tuple[int, ...]]
    preferred: frozenset[int]
    others: frozenset[str]

    @cached_property
    def names(self) -> Units:
        """The first word of each label."""
        return units_by_word((unit, fold(words[0])) for unit, words in enumerate(self.entries))

    @cached_property
    def synonyms(self) -> Units:
        """All words of all labels."""
        return units_by_word((unit, fold(word)) for unit, words in enumerate(self.entries) for word in words)

    @cached_property
    def preferred_words(self) -> Units:
        """All words of the preferred labels."""
        return units_by_word((unit, fold(word)) for unit in sorted(self.preferred) for word in self.entries[unit])

    @cached_property
    def last_words(self) -> Units:
        """The last words of the labels that are not preferred."""
        others = ((unit, words) for unit, words in enumerate(self.entries) if unit not in self.preferred)
        return units_by_word((unit, fold(word).split()[-1]) for unit, words in others for word in words)

    def called(self, word: str) -> Sequence[int]:
        """The units that are called so: preferred ones, those with that name, those with that synonym."""
        tables = (self.preferred_words, self.names, self.synonyms)
        return next((table[word] for table in tables if word in table), ())

    def said(self, text: str) -> tuple[str, Sequence[int]] | None:
        """The form of a word by which it is known in a sentence, and its units; `Labels.word` says how."""
        for form, units in self._sayings(fold(text)):
            if units:
                return form, units
        return None

    def _sayings(self, wanted: str) -> Iterator[tuple[str, Sequence[int]]]:
        """What a word may say, likeliest first."""
        nouns = noun_forms(wanted)
        yield from ((form, self.preferred_words.get(form, ())) for form in nouns)
        yield from ((form, self._meant(form)) for form in nouns)
        spelled = [self._unblanked[form] for form in map(unblank, nouns) if form in self._unblanked]
        yield from ((form, self._meant(form)) for form in spelled)
        if any(form in person_words() for form in nouns):
            yield PERSON, self.called(PERSON)
        if not self.groups:
            yield from ((form, self.called(form)) for form in forms(wanted))

    def _meant(self, word: str) -> Sequence[int]:
        """The units of a label, or of a kind, that a word means as it is written."""
        named = () if word in self.others else self.called(word)
        if named:
            return named
        category = coco_categories().get(word, "")
        units = dict.fromkeys((*self.called(category), *self._kind(word)))
        return list(units or dict.fromkeys(self._kind(category)))

    def _kind(self, word: str) -> Iterator[int]:
        yield from self.groups.get(word, ())
        yield from self._preferred_last_words.get(word, ())
        if not self.groups:
            yield from self.last_words.get(word, ())

    @cached_property
    def _preferred_last_words(self) -> Units:
        return units_by_word((unit, word.split()[-1]) for word, units in self.preferred_words.items() for unit in units)

    @cached_property
    def _unblanked(self) -> dict[str, str]:
        """Each word that can be said, by its spelling without blanks."""
        return {unblank(word): word for word in (*coco_categories(), *self.groups, *self.synonyms)}


def units_by_word(pairs: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    """For each word its units in order, each once."""
    table: defaultdict[str, dict[int, None]] = defaultdict(dict)
    for unit, word in pairs:
        table[word][unit] = None
    return {word: list(units) for word, units in table.items()}


# Words for the output units of a classifier, and how a user's word finds them.

MOST_GUESSES = 5
LEAST_LIKENESS = 0.65
LONGEST_LIKENESS = 200  # letters of an unknown word: a longer one is not compared with all others
LONGEST_SHOWN = 60  # letters of it that are told
MOST_DIGITS = 18  # no unit has so many


@dataclass(frozen=True)
class Concept:
    """What is looked for: one output unit, or several that are looked for together.

    Several units need no weights here: whoever makes the top-down signal weighs them with the classifier's
    own probabilities, so a unit that the image does not show costs nothing.
    """

    name: str
    units: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", tuple(operator.index(unit) for unit in self.units))
        if not self.units or len(set(self.units)) < len(self.units):
            raise ConceptError(
                f"The concept {self.name!r} has units {list(self.units)}: give at least one, each only once."
            )


class Labels:
    """The labels of a classifier's output units, in the order of the units; never changed once made.

    Each label is one or several synonyms, and the first is its name. ``groups`` adds everyday words for
    labels that do not carry the word themselves ("dog" for every breed). ``preferred`` units have their words to
    themselves: another label that is called the same has to be named in another way. ``others`` are words of labels
    that in a sentence mostly mean something else ("ear", the ear of corn); who asks for such a label still finds it.
    """

    def __init__(
        self,
        entries: Sequence[str | Sequence[str]],
        groups: Mapping[str, Iterable[SupportsIndex]] | None = None,
        preferred: Iterable[SupportsIndex] = (),
        others: Iterable[str] = (),
    ) -> None:
        if isinstance(entries, str):
            raise ConceptError(f"Labels are a sequence, but {entries!r} is one string: put it in a list.")
        self._entries = tuple(words_of(unit, entry) for unit, entry in enumerate(entries))
        if not self._entries:
            raise ConceptError("There are no labels: give one for each output unit, or use Labels.numbered(n).")
        self._tables = Tables(
            entries=self._entries,
            groups={fold(word): self._group(word, units) for word, units in (groups or {}).items()},
            preferred=frozenset(self._check(unit) for unit in preferred),
            others=frozenset(fold(word) for word in others),
        )

    @classmethod
    def numbered(cls, number: int) -> Self:
        """Labels "0", "1", ... for a classifier whose output units have no words."""
        return cls([str(unit) for unit in range(number)])

    @classmethod
    def read(cls, path: Path) -> Self:
        """Labels from a file: a JSON array, or text with one label a line, its synonyms after commas.

        Lines that all begin with a WordNet number, as in ImageNet's own lists, are read without it.

        Raises:
            ConceptError: The file cannot be read, or holds no labels.
        """
        entries = read_entries(path)
        try:
            return cls(entries)
        except ConceptError as error:
            raise ConceptError(f"{path}: {error}") from None

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return (synonyms[0] for synonyms in self._entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels):
            return NotImplemented
        return self._tables == other._tables

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        shown = ", ".join(repr(synonyms[0]) for synonyms in self._entries[:3])
        return f"Labels({len(self)}: {shown}{', ...' if len(self) > 3 else ''})"

    def name(self, unit: SupportsIndex) -> str:
        """The first word for an output unit."""
        return self._entries[self._check(unit)][0]

    def synonyms(self, unit: SupportsIndex) -> tuple[str, ...]:
        """All words for an output unit, its name first."""
        return self._entries[self._check(unit)]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The words of ``groups``, in small letters.

        Example:
            >>> Labels(["beagle", "pug"], groups={"Dog": [0, 1]}).kinds
            ('dog',)
        """
        return tuple(self._tables.groups)

    def begin_with(self, others: Self) -> bool:
        """Whether the first units have the words of those others.

        Example:
            >>> Labels(["cat", "dog", "cow"]).begin_with(Labels(["cat", "dog"]))
            True
        """
        return len(others) <= len(self) and all(
            self.synonyms(unit) == others.synonyms(unit) for unit in range(len(others))
        )

    def search(self, text: str) -> list[int]:
        """Every unit with a synonym that contains the text; all units for a blank text."""
        wanted = fold(text)
        return [unit for unit, words in enumerate(self._entries) if any(wanted in fold(word) for word in words)]

    def find(self, query: SupportsIndex | str | Concept) -> Concept:
        """The concept that a word, an index or a concept means here.

        Capitals, and whether words are parted by spaces, ``_`` or ``-``, make no difference. The first of
        these that holds decides:

        1. An index, as a number or in decimal digits. (Digits that are themselves a label mean that label:
           "2019" in a classifier of years.)
        2. A word of a preferred label.
        3. The name of a label. Where several labels have that name ("crane", the bird and the machine), all
           of them: the image decides. Where one has it as its name and others only as a later synonym
           ("missile"), the one: a later synonym is the rarer meaning.
        4. A later synonym, of one label or of several ("panther").
        5. A word of ``groups``.
        6. The last word of a synonym: "terrier" means every label that is some terrier.
        7. Steps 2 to 6 for the singular of an English plural.
        8. The beginning of one synonym, or of synonyms of one label only.

        A concept of one unit is named after its label, so that the answer tells what was understood; a
        concept of several is named with the word.

        Raises:
            ConceptError: Nothing, or more than one thing, was found; the message lists what is near.
        """
        if isinstance(query, Concept):
            for unit in query.units:
                self._check(unit)
            return query
        if not isinstance(query, str):
            return self._concept(str(query), [self._check(query)])
        wanted = fold(query)
        if not wanted:
            raise ConceptError("The concept is blank: name one, or see them all with `excite ls labels`.")
        if wanted.isdecimal() and wanted not in self._tables.synonyms:
            if len(wanted) > MOST_DIGITS:
                raise ConceptError(f"There is no output unit {wanted[:40]}: the units are 0 to {len(self) - 1}.")
            return self._concept(wanted, [self._check(int(wanted))])
        for form in (wanted, *singulars(wanted)):
            concept = self._named(form)
            if concept is not None:
                return concept
        return self._begun(query, wanted)

    def word(self, text: str) -> Concept | None:
        """What a word of a sentence says here, or several words that belong together; None if it is nothing known.

        Unlike ``find``, which answers somebody who asks, this takes no numbers and completes no beginnings ("man" is
        no mantis). The first of these that holds for the word, or else for its singular, decides:

        1. A word of a preferred label.
        2. The name or a synonym of a label, unless it is one of ``others``.
        3. A word for a kind, which is all of these together: the label of a COCO category that the word is known for
           ("taxi" is a car), the word of ``groups``, a preferred label whose last word it is. Labels without groups
           have last words for kinds. Where there is none of these, the COCO category as such a kind.
        4. Any of these but for the blanks: "surf board" is a surfboard.
        5. A word that means people ("umpire"): the label that is called person.
        6. Only for labels without groups, which may be any tags: the name or a synonym that the word is a form of as
           a verb or an adjective ("sits"). Labels with groups are of things, and "brushing" is no brush.

        Raises:
            ExciteError: simplemma is not installed.

        Example:
            >>> labels = Labels(["car", "traffic light", "mantis", "sit"])
            >>> [labels.word(text) for text in ("Taxis", "man", "sits")]
            [Concept(name='car', units=(0,)), None, Concept(name='sit', units=(3,))]
        """
        found = self._tables.said(text)
        return None if found is None else self._concept(*found)

    def _named(self, word: str) -> Concept | None:
        """Steps 2 to 6 of ``find``."""
        tables = self._tables
        for units in (tables.called(word), tables.groups.get(word, ()), tables.last_words.get(word, ())):
            if units:
                return self._concept(word, units)
        return None

    def _begun(self, query: str, wanted: str) -> Concept:
        """Step 8 of ``find``, or the error that lists what is near."""
        known = self._tables.synonyms
        words = [word for word in known if word.startswith(wanted)]
        if not words:
            raise ConceptError(self._unknown(query, wanted))
        first = {unit: word for word in reversed(words) for unit in known[word]}
        if len(words) > 1 and len(first) > 1:
            candidates = listed([repr(word) for word in dict.fromkeys(first[unit] for unit in sorted(first))])
            raise ConceptError(f"{query.strip()!r} could mean {candidates}: write more of it, or an index.")
        return self._concept(words[0], known[words[0]])

    def _unknown(self, query: str, wanted: str) -> str:
        """What to tell a user whose word nothing begins with: every guess is a word that ``find`` knows."""
        known = dict.fromkeys([*self._tables.synonyms, *self._tables.groups, *self._tables.last_words])
        near = get_close_matches(wanted, known, MOST_GUESSES, LEAST_LIKENESS) if len(wanted) <= LONGEST_LIKENESS else []
        guess = f" Did you mean {listed([repr(word) for word in near])}?" if near else ""
        return f"No label is called {query.strip()[:LONGEST_SHOWN]!r}.{guess} `excite ls labels` lists all {len(self)}."

    def _concept(self, word: str, units: Sequence[int]) -> Concept:
        return Concept(self.name(units[0]) if len(units) == 1 else word, tuple(units))

    def _group(self, word: str, units: Iterable[SupportsIndex]) -> tuple[int, ...]:
        return Concept(word, tuple(self._check(unit) for unit in units)).units

    def _check(self, unit: SupportsIndex) -> int:
        try:
            index = operator.index(unit)
        except TypeError as error:
            raise ConceptError(f"{unit!r} is no concept: give a word, an index or a Concept.") from error
        if not 0 <= index < len(self):
            raise ConceptError(f"There is no output unit {index}: the units are 0 to {len(self) - 1}.")
        return index


def words_of(unit: int, entry: object) -> tuple[str, ...]:
    """The synonyms of a label, given as one word or as several."""
    words = tuple(entry) if isinstance(entry, Sequence) and not isinstance(entry, str) else (entry,)
    if not words or not all(isinstance(word, str) and fold(word) for word in words):
        raise ConceptError(f"Label {unit} is {repr(entry)[:100]}: give it one or several words, none of them blank.")
    return words
