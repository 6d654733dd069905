"""Words for the output units of a classifier, and how a user's word finds them."""

import json
import operator
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Self, SupportsIndex

from excite.errors import ConceptError

__all__ = ["Concept", "Labels"]

MOST_CANDIDATES = 8
MOST_GUESSES = 5
LEAST_LIKENESS = 0.65
BETWEEN_WORDS = re.compile(r"[\s_-]+")
WORDNET_NUMBER = re.compile(r"n\d{8}\s+")
PLURAL_ENDINGS = (("ies", "y"), ("ves", "f"), ("ves", "fe"), ("es", ""), ("s", ""))


@dataclass(frozen=True)
class Concept:
    """What is looked for: one output unit, or several that are looked for together.

    Several units need no weights here: whoever makes the top-down signal weighs them with the classifier's
    own probabilities, so a unit that the picture does not show costs nothing.
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
    themselves: another label that is called the same has to be named in another way.
    """

    def __init__(
        self,
        entries: Sequence[str | Sequence[str]],
        groups: Mapping[str, Iterable[SupportsIndex]] | None = None,
        preferred: Iterable[SupportsIndex] = (),
    ) -> None:
        if isinstance(entries, str):
            raise ConceptError(f"Labels are a sequence, but {entries!r} is one string: put it in a list.")
        self._entries = tuple(words_of(unit, entry) for unit, entry in enumerate(entries))
        if not self._entries:
            raise ConceptError("There are no labels: give one for each output unit, or use Labels.numbered(n).")
        self._groups = {
            fold(word): Concept(word, tuple(self._check(unit) for unit in units))
            for word, units in (groups or {}).items()
        }
        self._preferred = frozenset(self._check(unit) for unit in preferred)

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
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConceptError(f"Cannot read the labels in {str(path)!r}: {error}.") from None
        if "\0" in text:
            raise ConceptError(f"Cannot read the labels in {str(path)!r}: it is no text in UTF-8.")
        if text.lstrip().startswith(("[", "{")):
            return cls(_json_array(path, text))
        lines = [line.strip() for line in text.splitlines()]
        while lines and not lines[-1]:
            lines.pop()
        if all(WORDNET_NUMBER.match(line) for line in lines):
            lines = [WORDNET_NUMBER.sub("", line) for line in lines]
        return cls([[word.strip() for word in line.split(",")] for line in lines])

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return (synonyms[0] for synonyms in self._entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels):
            return NotImplemented
        same_words = self._entries == other._entries and self._groups == other._groups
        return same_words and self._preferred == other._preferred

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
           of them: the picture decides. Where one has it as its name and others only as a later synonym
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
        if wanted.isdecimal() and wanted not in self._synonyms:
            return self._concept(wanted, [self._check(int(wanted))])
        for form in (wanted, *singulars(wanted)):
            concept = self._named(form)
            if concept is not None:
                return concept
        return self._begun(query, wanted)

    def _named(self, word: str) -> Concept | None:
        """Steps 2 to 6 of ``find``."""
        for table in (self._preferred_words, self._names, self._synonyms):
            if word in table:
                return self._concept(word, table[word])
        if word in self._groups:
            return self._concept(word, self._groups[word].units)
        return self._concept(word, self._last_words[word]) if word in self._last_words else None

    def _begun(self, query: str, wanted: str) -> Concept:
        """Step 8 of ``find``, or the error that lists what is near."""
        words = [word for word in self._synonyms if word.startswith(wanted)]
        if not words:
            raise ConceptError(self._unknown(query, wanted))
        first = {unit: word for word in reversed(words) for unit in self._synonyms[word]}
        if len(words) > 1 and len(first) > 1:
            candidates = listed([repr(word) for word in dict.fromkeys(first[unit] for unit in sorted(first))])
            raise ConceptError(f"{query.strip()!r} could mean {candidates}: write more of it, or an index.")
        return self._concept(words[0], self._synonyms[words[0]])

    def _unknown(self, query: str, wanted: str) -> str:
        """What to tell a user whose word nothing begins with: every guess is a word that ``find`` knows."""
        known = dict.fromkeys([*self._synonyms, *self._groups, *self._last_words])
        near = get_close_matches(wanted, known, MOST_GUESSES, LEAST_LIKENESS)
        guess = f" Did you mean {listed([repr(word) for word in near])}?" if near else ""
        return f"No label is called {query.strip()!r}.{guess} `excite ls labels` lists all {len(self)}."

    def _concept(self, word: str, units: Sequence[int]) -> Concept:
        return Concept(self.name(units[0]) if len(units) == 1 else word, tuple(units))

    def _check(self, unit: SupportsIndex) -> int:
        try:
            index = operator.index(unit)
        except TypeError as error:
            raise ConceptError(f"{unit!r} is no concept: give a word, an index or a Concept.") from error
        if not 0 <= index < len(self):
            raise ConceptError(f"There is no output unit {index}: the units are 0 to {len(self) - 1}.")
        return index

    @cached_property
    def _names(self) -> dict[str, list[int]]:
        return units_by_word((unit, fold(words[0])) for unit, words in enumerate(self._entries))

    @cached_property
    def _synonyms(self) -> dict[str, list[int]]:
        return units_by_word((unit, fold(word)) for unit, words in enumerate(self._entries) for word in words)

    @cached_property
    def _preferred_words(self) -> dict[str, list[int]]:
        return units_by_word((unit, fold(word)) for unit in sorted(self._preferred) for word in self._entries[unit])

    @cached_property
    def _last_words(self) -> dict[str, list[int]]:
        others = ((unit, words) for unit, words in enumerate(self._entries) if unit not in self._preferred)
        return units_by_word((unit, fold(word).split()[-1]) for unit, words in others for word in words)


def _json_array(path: Path, text: str) -> list[str | Sequence[str]]:
    try:
        content = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConceptError(f"{path} is no JSON array of labels: {error}.") from None
    if not isinstance(content, list):
        raise ConceptError(
            f"{path} is no JSON array of labels, but an object: write [...] in the order of the outputs."
        )
    return content


def words_of(unit: int, entry: object) -> tuple[str, ...]:
    """The synonyms of a label, given as one word or as several."""
    words = tuple(entry) if isinstance(entry, Sequence) and not isinstance(entry, str) else (entry,)
    if not words or not all(isinstance(word, str) and fold(word) for word in words):
        raise ConceptError(f"Label {unit} is {entry!r}: give it one or several words, none of them blank.")
    return words


def fold(text: str) -> str:
    """One spelling for all that mean the same: "Tabby_cat" and " tabby-cat" are both "tabby cat"."""
    return BETWEEN_WORDS.sub(" ", text.casefold()).strip()


def singulars(word: str) -> list[str]:
    """What the word may be the plural of, likeliest first; some are no words, which harms nobody."""
    return [word.removesuffix(plural) + singular for plural, singular in PLURAL_ENDINGS if word.endswith(plural)]


def listed(things: Sequence[str]) -> str:
    """The things as a list in a sentence, not longer than one can read."""
    more = len(things) - MOST_CANDIDATES
    return ", ".join(things[:MOST_CANDIDATES]) + (f" and {more} more" if more > 0 else "")


def units_by_word(pairs: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    """For each word its units in order, each once."""
    table: defaultdict[str, dict[int, None]] = defaultdict(dict)
    for unit, word in pairs:
        table[word][unit] = None
    return {word: list(units) for word, units in table.items()}
