"""How well a classifier tells what is in pictures that it was not trained on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from excite.errors import DataError
from excite.images import read_image
from excite.metrics.ranking import average_precision
from excite.models.identity import identity
from excite.training.features import state_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from excite.jobs.ledger_init import Entry
    from excite.models import Classifier
    from excite.training.examples import Example, Examples

__all__ = ["Scoring", "precisions"]


@dataclass(frozen=True, eq=False)
class Scoring:
    """The work done for each picture: how probable the classifier finds each category, seeing the whole picture."""

    classifier: Classifier
    question: str = field(init=False)

    def __post_init__(self) -> None:
        facts = identity(self.classifier)
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Example) -> str:
        """Changes when the picture or the classifier does."""
        facts = [self.question, task.name, state_of(task.path)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def __call__(self, task: Example) -> dict[str, Any]:
        """The probability of each output."""
        picture = self.classifier.preprocess(read_image(task.path))[None]
        with torch.no_grad():
            found = self.classifier.probabilities(self.classifier.module(picture))[0]
        return {"picture": task.name, "scores": found.tolist()}


def precisions(examples: Examples, entries: Iterable[Entry]) -> dict[str, float | None]:
    """The average precision of each category, from what `Scoring` found; None for one that is nowhere.

    A picture in which nobody is sure of a category says nothing about it.
    """
    scores = {entry["picture"]: entry["scores"] for entry in entries}
    pictures = [picture for picture in examples.pictures if picture.name in scores]
    if not pictures:
        raise DataError("no picture was scored: there is nothing to measure")
    answer = {}
    for place, category in enumerate(examples.categories):
        sure = [picture for picture in pictures if category not in picture.unsure]
        truth = [category in picture.present for picture in sure]
        answer[category] = average_precision([scores[picture.name][place] for picture in sure], truth)
    return answer
