"""What is done for each picture of grounding: one look, its proposals, and where the right box is ranked.

What is written down are facts (ranks, scores, points, for both readings of the truth), so that tables can be counted
anew without another look.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from excite.experiments.grounding.grounding_facts import (
    Asked,
    check_size,
    matches_of,
    phrase_facts,
    pointed,
    rank_of,
)
from excite.images import read_image
from excite.methods import find_method
from excite.vocabulary import read_phrase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    from excite.datasets.phrases import Phrase
    from excite.experiments.grounding.grounding_protocol import Protocol
    from excite.grounding import PhraseMap, Scorer
    from excite.vocabulary import Reading

    Numbers = NDArray[np.floating[Any]]
    Matches = Mapping[str, NDArray[np.bool_]]

__all__ = ["GAMMAS", "PAPERS_GAMMAS", "Choosing", "Ranking", "Work"]

GAMMAS = tuple(step / 20 for step in range(21))
"""All that are tried; one is chosen for each method. Between the paper's lie better ones (docs/grounding.md)."""

PAPERS_GAMMAS = (0.0, 0.25, 0.5, 0.75, 1.0)

MOST_CHOSEN_BY = 10  # ranks: what comes later makes no difference to the choice
MOST_SCORES = 100  # that are kept of a phrase, for average precision
STEPS = ("proposals", "looking", "scoring")


@dataclass(frozen=True, eq=False)
class _Truth:
    """A phrase, and which proposals match what it refers to."""

    phrase: Phrase
    right: Matches


@dataclass(frozen=True, eq=False)
class Work(ABC):
    """The work done for each picture: all but how the map of a phrase is judged."""

    protocol: Protocol

    @abstractmethod
    def key(self, task: Asked) -> str:
        """Changes when the picture, its annotation, the question or the program does."""

    @abstractmethod
    def _judged(self, method: str, found: PhraseMap, scorer: Scorer, truth: _Truth) -> dict[str, Any]:
        """What is to be known of the map of a phrase by one method."""

    def __call__(self, task: Asked) -> dict[str, Any]:
        """One look at the picture for all phrases, and what it is worth."""
        picture = read_image(task.described.path)
        check_size(task.described, picture.size)
        seconds = dict.fromkeys(STEPS, 0.0)
        with _timed(seconds, "proposals"):
            proposals, trouble = self.protocol.proposed(picture, task)
        phrases = task.described.phrases
        readings = [read_phrase(phrase.text, self.protocol.labels) for phrase in phrases]
        facts = [phrase_facts(*each, picture.size) for each in zip(phrases, readings, strict=True)]
        with _timed(seconds, "scoring"):
            scorer = self.protocol.scorer(proposals)
            own = scorer.ranked(proposals.scores)
            truths = [_Truth(phrase, matches_of(proposals.boxes, phrase.boxes)) for phrase in phrases]
            for fact, truth in zip(facts, truths, strict=True):
                fact["own_hits"] = _hits(own, truth)
        for method, maps in self._maps(picture, readings, seconds):
            with _timed(seconds, "scoring"):
                for fact, found, truth in zip(facts, maps, truths, strict=True):
                    fact["found"].append(self._judged(method, found, scorer, truth))
        return {
            "image": task.name,
            "size": list(picture.size),
            "proposals": len(proposals),
            "trouble": trouble,
            "seconds": {step: round(spent, 4) for step, spent in seconds.items()},
            "own_scores": _told(scorer.proposals.scores[own]),
            "phrases": facts,
        }

    def _maps(
        self, picture: Image.Image, readings: Sequence[Reading], seconds: dict[str, float]
    ) -> Iterator[tuple[str, list[PhraseMap]]]:
        """The maps of all phrases, one method after the other."""
        methods = list(self.protocol.layers)
        with _timed(seconds, "looking"):
            gaze = self.protocol.look(picture, methods)
        for method in methods:
            with _timed(seconds, "looking"):
                maps = gaze.maps(find_method(method), readings, hints=self.protocol.hints)
            yield method, maps


@dataclass(frozen=True, eq=False)
class Choosing(Work):
    """Where the right box is ranked with each gamma: what one is chosen by."""

    def key(self, task: Asked) -> str:
        """Changes when the picture, its annotation, the question or the program does."""
        return task.key(f"choosing {GAMMAS} {self.protocol.question}")

    def _judged(self, method: str, found: PhraseMap, scorer: Scorer, truth: _Truth) -> dict[str, Any]:
        sums = scorer.sums(found.plane)
        orders = [scorer.told(scorer.scores_of(sums, gamma), MOST_CHOSEN_BY) for gamma in GAMMAS]
        return {"method": method, "hits": [_hits(order, truth) for order in orders]}


@dataclass(frozen=True, eq=False)
class Ranking(Work):
    """How the boxes are ranked with the gamma of each method, and where the map points.

    Attributes:
        gammas: of each method, by name.
    """

    gammas: Mapping[str, float]

    def key(self, task: Asked) -> str:
        """Changes when the picture, its annotation, the question or the program does."""
        return task.key(f"ranking {json.dumps(self.gammas)} {self.protocol.question}")

    def _judged(self, method: str, found: PhraseMap, scorer: Scorer, truth: _Truth) -> dict[str, Any]:
        scores = scorer.scores(found.plane, self.gammas[method])
        order, point = scorer.told(scores), found.point
        return {
            "method": method,
            "hits": _hits(order, truth),
            "scores": _told(scores[order]),
            "point": point and list(point),
            "pointed": pointed(point, truth.phrase.boxes),
        }


def _hits(order: NDArray[np.intp], truth: _Truth) -> dict[str, int | None]:
    """The rank of the first right box, for both readings of the truth."""
    return {name: rank_of(matches[order]) for name, matches in truth.right.items()}


def _told(ranked: Numbers) -> list[float]:
    """The first scores: with five digits, which leave their order as it is."""
    return [float(f"{score:.5g}") for score in ranked[:MOST_SCORES]]


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    begun = time.perf_counter()
    try:
        yield
    finally:
        seconds[step] += time.perf_counter() - begun
