"""What a classifier can be asked about annotated pictures: nothing is left out in silence."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from excite.errors import ConceptError, DataError, ModelError
from excite.images import file_state
from excite.vocabulary.labels import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from excite.datasets import Box, Dataset, Sample, Target
    from excite.models import Classifier
    from excite.vocabulary import Concept

__all__ = ["Cue", "Experiment", "Task", "failures_of", "left_out_words"]


@dataclass(frozen=True)
class Cue:
    """Something to look for in a picture, and where it is."""

    concept: Concept
    target: Target

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Where it is."""
        return self.target.boxes


@dataclass(frozen=True)
class Task:
    """A picture and what to look for in it."""

    sample: Sample
    cues: tuple[Cue, ...]

    @property
    def name(self) -> str:
        """The picture's name within its data set."""
        return self.sample.name

    def key(self, question: str) -> str:
        """Changes when the picture, its annotation, what is looked for or the question does."""
        concepts = [asdict(cue.concept) for cue in self.cues]
        annotation = [self.sample.size, *(asdict(target) for target in self.sample.targets)]
        facts = [question, *file_state(self.sample.path), concepts, annotation]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


class Experiment:
    """A classifier and annotated pictures: which concepts are looked for where.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        dataset: from `excite.datasets.open_dataset`.
        skip: leave out so many pictures first,
        limit: and take so many of the rest; None for all.

    Attributes:
        tasks: the pictures with something to look for.
        concepts: what the classifier calls each category that occurred; None where it has no word.
        unknown: categories for which the classifier has no word, and how many targets were left out for it.
        difficult: how many targets were left out because all their objects are flagged as difficult.
        empty: how many pictures have nothing that could be looked for.
        failures: a line for each picture or annotation that cannot be read.

    Raises:
        ConceptError: the classifier knows no category of these pictures.
    """

    def __init__(self, classifier: Classifier, dataset: Dataset, *, skip: int = 0, limit: int | None = None) -> None:
        if skip < 0 or (limit is not None and limit < 1):
            raise DataError(f"skip {skip} and limit {limit} leave no pictures: give at least 0, and at least 1")
        if classifier.labels is None:
            raise ModelError(f"{classifier.name} has no labels: give it words with excite.wrap(..., labels=...)")
        self.classifier = classifier
        self.dataset = dataset
        self.names = dataset.names[skip:] if limit is None else dataset.names[skip : skip + limit]
        self._labels = classifier.labels
        self.concepts: dict[str, Concept | None] = {}
        self.unknown: Counter[str] = Counter()
        self.difficult = 0
        self.empty = 0
        self.failures: list[str] = []
        self.tasks = list(self._tasks())
        if not self.tasks:
            raise ConceptError(self._nothing())

    def about(self) -> dict[str, Any]:
        """What was measured, and what was left out and why, as plain values for JSON."""
        return {
            "model": self.classifier.name,
            "data": {"format": self.dataset.name, "folder": str(self.dataset.folder), "split": self.dataset.split},
            "pictures": len(self.names),
            "concepts": {category: concept.name for category, concept in self.concepts.items() if concept},
            "left_out": {"unknown": dict(self.unknown), "difficult": self.difficult, "empty": self.empty},
            "failures": self.failures,
        }

    def check_some_were_read(self, records: object) -> None:
        """Refuse to count nothing."""
        if not records and self.failures:
            raise DataError(f"none of the {len(self.names)} pictures could be read; the first: {self.failures[0]}")

    def _tasks(self) -> Iterator[Task]:
        """What to look for in each picture, and why not for the rest."""
        for name in self.names:
            try:
                sample = self.dataset.sample(name)
            except DataError as error:
                self.failures.append(str(error))
                continue
            cues = tuple(self._cues(sample))
            self.empty += not cues
            if cues:
                yield Task(sample, cues)

    def _cues(self, sample: Sample) -> Iterator[Cue]:
        for target in sample.targets:
            concept = self._concept(target.concept)
            if concept is None:
                self.unknown[target.concept] += 1
            elif target.difficult:
                self.difficult += 1
            else:
                yield Cue(concept, target)

    def _concept(self, category: str) -> Concept | None:
        if category not in self.concepts:
            try:
                self.concepts[category] = self.dataset.concept(category, self._labels)
            except ConceptError:
                self.concepts[category] = None
        return self.concepts[category]

    def _nothing(self) -> str:
        if self.unknown:
            return (
                f"{self.classifier.name} has no word for any category of these pictures: {listed(list(self.unknown))}"
            )
        reason = f": {self.failures[0]}" if self.failures else ""
        return f"none of these {len(self.names)} pictures has anything to look for{reason}"


def left_out_words(left_out: Mapping[str, Any]) -> list[str]:
    """What an experiment left out and why, for people to read.

    Example:
        >>> left_out_words({"unknown": {"sheep": 3}, "difficult": 0, "empty": 2})
        ['targets the classifier has no word for: sheep (3)', 'pictures with nothing to look for: 2']
    """
    unknown = Counter(left_out["unknown"]).most_common()
    said = {
        "targets the classifier has no word for": ", ".join(f"{category} ({count})" for category, count in unknown),
        "targets flagged as difficult": left_out["difficult"],
        "pictures with nothing to look for": left_out["empty"],
    }
    return [f"{reason}: {what}" for reason, what in said.items() if what]


def failures_of(abouts: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each picture or annotation that could not be read, whichever of several experiments needed it.

    Example:
        >>> failures_of([{"failures": ["a.jpg is empty"]}, {"failures": ["a.jpg is empty", "b.jpg is a folder"]}])
        ['a.jpg is empty', 'b.jpg is a folder']
    """
    return list(dict.fromkeys(failure for about in abouts for failure in about["failures"]))
