"""Questions to an index: words to output units, photos by probability, and the evidence in the best of them."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import ConceptError, DataError
from excite.grounding.ground import unused_spans
from excite.grounding.phrase_maps import FAINTEST, PhraseSession, active_hints, apply_hints
from excite.images import read_image
from excite.methods import find_method
from excite.vocabulary import ColourWord, Concept, Labels, PlaceWord, Reading, read_phrase
from excite.vocabulary.phrases import Word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from PIL import Image

    from excite.grounding import PhraseMap
    from excite.jobs.loop import Progress
    from excite.search.photos import PhotoIndex

MINUS = re.compile(r"(?:^|(?<=\s))-\s*(\S+)")  # "dog -cat", "dog -traffic_light"
WEIGHED = 60  # of the most probable photos, so many at most are ranked again by words of colour and position
SIDE = 640  # pixels of the longer side of a photo whose evidence is looked for
METHOD = "c-mwp"


@dataclass(frozen=True)
class Question:
    """The words of a question."""

    text: str  # as it was asked
    reading: Reading  # what the photos show
    without: tuple[Concept, ...] = ()  # what they do not show
    hints_used: bool = True  # whether words of colour and position count

    @property
    def concepts(self) -> tuple[Concept, ...]:
        """What the photos show, each concept once."""
        return tuple(dict.fromkeys(word.concept for word in self.reading.words))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all concepts, the excluded ones last."""
        return tuple(concept.name for concept in (*self.concepts, *self.without))

    @property
    def hints(self) -> tuple[str, ...]:
        """The words of colour and position that rank the best photos again."""
        return tuple(word.text for word in self.active)

    @property
    def unused(self) -> tuple[str, ...]:
        """The words without effect."""
        return tuple(self.reading.text[start:end] for start, end in unused_spans(self.reading, self.active))

    @property
    def active(self) -> tuple[PlaceWord | ColourWord, ...]:
        """The words of `hints`, with their meaning."""
        return active_hints(self.reading) if self.hints_used else ()


@dataclass(frozen=True)
class Match:
    """A photo that was found."""

    number: int  # in the index
    path: Path
    probability: float  # that it shows all that was asked for, and nothing of what was excluded
    each: dict[str, float]  # the probability of each concept, the excluded ones last
    weight: float | None = None  # how well words of colour and position fit, 0 to 1; None where that was not looked at

    def to_dict(self) -> dict[str, Any]:
        """The photo as plain values."""
        about = {"number": self.number, "photo": str(self.path), "probability": self.probability}
        return {**about, "weight": self.weight, "concepts": self.each}


@dataclass(frozen=True)
class Answer:
    """The photos that were found, best first."""

    question: Question  # the words, as they were understood
    matches: tuple[Match, ...]
    photos: int  # how many the index has
    count: int  # how many are at least as probable as was asked for

    def summary(self) -> str:
        """The numbers, and what had no effect, in one line."""
        better = f"{self.count} of {self.photos} photos are that probable, the first {len(self.matches)} shown"
        every = f"the {len(self.matches)} most probable of {self.photos} photos"
        parts = [better if self.count < self.photos else every]
        if self.question.hints:
            parts.append(f"ranked again by {', '.join(self.question.hints)}")
        if self.question.unused:
            parts.append(f"words without effect: {', '.join(self.question.unused)}")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        asked = self.question
        return {
            "words": asked.text,
            "concepts": [concept.name for concept in asked.concepts],
            "without": [concept.name for concept in asked.without],
            "hints": list(asked.hints),
            "unused": list(asked.unused),
            "photos": self.photos,
            "count": self.count,
            "matches": [one.to_dict() for one in self.matches],
        }


def read_question(text: str, labels: Labels, *, hints: bool = True) -> Question:
    """The concepts of a question: a word of the classifier or a phrase, and behind minus signs what is excluded.

    A colour that the classifier knows too is no concept beside others: its units respond to scenes, not to surfaces.
    Without ``hints``, words of colour and position have no effect.

    Example:
        >>> from excite.vocabulary import Labels
        >>> question = read_question("a red car -dog", Labels(["car", "dog", "red"]))
        >>> question.names, question.hints
        (('car', 'dog'), ('red',))
    """
    without = tuple(dict.fromkeys(labels.find(word) for word in MINUS.findall(text)))
    wanted = " ".join(MINUS.sub(" ", text).split())
    if not wanted:
        raise ConceptError('say what to look for, such as "a dog on a sofa" or "dog -cat"')
    reading = _read(wanted, labels)
    both = {word.concept for word in reading.words} & set(without)
    if both:
        raise ConceptError(f"{min(one.name for one in both)!r} cannot be there and not be there: leave one out")
    coloured = {(colour.start, colour.end) for colour in reading.colours}
    things = tuple(word for word in reading.words if (word.start, word.end) not in coloured)
    reading = replace(reading, words=things) if things else replace(reading, colours=())
    return Question(text, reading, without, hints_used=hints)


def _read(wanted: str, labels: Labels) -> Reading:
    """A single concept, or the words of a phrase."""
    with suppress(ConceptError):
        word = Word(wanted, labels.find(wanted), 0, len(wanted))
        return Reading(wanted, (word,), head=word)
    reading = read_phrase(wanted, labels)
    if not reading.words:
        labels.find(next(iter(reading.skipped), wanted))  # the error names words that are near
        raise ConceptError(f"no word of {wanted!r} is known: `excite ls labels` lists those that are")
    return reading


def ask(index: PhotoIndex, question: Question, *, most: int, at_least: float, progress: Progress) -> Answer:
    """The best photos for a question, see `PhotoIndex.query`.

    The concepts are taken as independent: the probability of all is the product of theirs, and of 1 - p for each that
    is excluded. Equally probable photos come in the order of their numbers in the index.
    """
    if most < 1:
        raise DataError(f"at most {most} photos are none: ask for at least 1")
    if not 0 <= at_least <= 1:
        raise DataError(f"a probability is a number from 0 to 1, not {at_least}")
    numbers, concepts = index.file.numbers(), (*question.concepts, *question.without)
    if not len(numbers):
        raise DataError(f"the index {str(index.file.path)!r} has no photos: bring it up to date first")
    every = np.stack([each[numbers] for each in index.chances(concepts)])
    if np.isnan(every).any():
        raise index.file.damaged("photos without probabilities")
    wanted = len(question.concepts)
    chance = np.concatenate([every[:wanted], 1 - every[wanted:]]).prod(axis=0)
    order = _best(chance, max(most, WEIGHED) if question.active else most)
    order = order[chance[order] >= at_least]
    paths = index.paths(numbers[order].tolist())
    if len(paths) < len(order):
        raise index.file.damaged("photos are missing")
    matches = [
        Match(number, paths[number], float(chance[k]), dict(zip(question.names, every[:, k].tolist(), strict=True)))
        for k, number in zip(order, numbers[order].tolist(), strict=True)
    ]
    if question.active:
        likely = [one for one in matches[:WEIGHED] if one.probability >= FAINTEST * matches[0].probability]
        weighed = progress(_weighed(index, question, likely), len(likely), "photos")
        matches[: len(likely)] = sorted(weighed, key=lambda one: -one.probability * (one.weight or 0))
    return Answer(question, tuple(matches[:most]), len(numbers), int((chance >= at_least).sum()))


def _best(chance: NDArray[np.floating[Any]], most: int) -> NDArray[np.int64]:
    """The places of the largest values, largest first, and of equal ones the first first."""
    if most < len(chance):
        least = np.partition(chance, len(chance) - most)[len(chance) - most]
        among = np.flatnonzero(chance >= least)
        return among[np.argsort(-chance[among], kind="stable")[:most]]
    return np.argsort(-chance, kind="stable")


def _weighed(index: PhotoIndex, question: Question, matches: Sequence[Match]) -> Iterator[Match]:
    """Photos with the share of their evidence that lies where colour and position say."""
    for match in matches:
        picture, found = evidence(index, question, match.path)
        total, weighed = float(found.plane.sum()), apply_hints(found.plane, question.active, picture)
        yield replace(match, weight=float(weighed.sum()) / total if total > 0 else 0.0)


def evidence(
    index: PhotoIndex, question: Question, photo: Path, *, hints: bool = False
) -> tuple[Image.Image, PhraseMap]:
    """A photo, made smaller, and the map of the evidence for a question; with ``hints``, weighted by them."""
    picture = read_image(photo)
    picture.thumbnail((SIDE, SIDE))
    method = find_method(METHOD)
    session = PhraseSession(replace(index.classifier, labels=index.labels), picture, [method])
    found = session.phrase_maps(method, [replace(question.reading, places=(), colours=())])[0]
    return picture, replace(found, plane=apply_hints(found.plane, question.active, picture)) if hints else found
