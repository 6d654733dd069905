"""The words of labels as tables, and what a word of a sentence says by them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from excite.vocabulary.caption_words import PERSON, coco_categories, person_words
from excite.vocabulary.lemmas import forms, noun_forms
from excite.vocabulary.spelling import fold, unblank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Tables"]

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
