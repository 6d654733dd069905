"""What is done for each image of grounding: one look, its proposals, and where the right box is ranked.

What is written down are facts (ranks, scores, points, for both readings of the truth), so that tables can be counted
anew without another look.
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from excite import __version__
from excite.datasets.phrases import union
from excite.errors import DataError, ModelError, ProposalError
from excite.grounding import Gaze, Scorer
from excite.grounding.proposals import PROPOSERS, Proposals
from excite.images import file_state, read_image
from excite.methods import find_method
from excite.metrics.phrases import MATCH, is_small, overlaps
from excite.models import Preprocess
from excite.models.classifier import identity
from excite.vocabulary import read_phrase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray
    from PIL import Image

    from excite.datasets import Box
    from excite.datasets.phrases import Phrase, PhraseSample
    from excite.grounding import PhraseMap
    from excite.grounding.proposals import Source
    from excite.methods import Method
    from excite.models import Classifier
    from excite.vocabulary import Labels, Reading

    Numbers = NDArray[np.floating[Any]]
    Matches = Mapping[str, NDArray[np.bool_]]


# How grounding is measured: what is the same for all images.


@dataclass(frozen=True, eq=False)
class Protocol:
    """How phrases are asked.

    Attributes:
        classifier: who is asked; it has labels.
        layers: for each method, by name, the layer at which it is read.
        source: who proposes regions,
        proposals: and what that is called.
        trust: how much the proposals' own order counts, 0 to 1.
        side: the shorter side of the image as the classifier sees it.
        hints: let words for places and colours weigh the maps.
        question: all of that as text.
        labels: the words of the classifier.

    Raises:
        ModelError: the classifier has no labels.
    """

    classifier: Classifier
    layers: Mapping[str, tuple[str, ...]]
    source: Source
    proposals: str
    trust: float
    side: int
    hints: bool
    question: str = field(init=False)
    labels: Labels = field(init=False)

    def __post_init__(self) -> None:
        labels = self.classifier.labels
        if labels is None:
            raise ModelError(f"{self.classifier.name} has no labels: give it words with excite.wrap(..., labels=...)")
        asked = [self.layers, _proposals_identity(self.proposals), self.trust, self.side, self.hints]
        facts = ["grounding", __version__, _source(), *asked, identity(self.classifier), _words_identity(labels)]
        object.__setattr__(self, "question", json.dumps(facts))
        object.__setattr__(self, "labels", labels)

    def look(self, picture: Image.Image, methods: Sequence[str]) -> Gaze:
        """One look at an image, of which these methods can be asked."""
        layers: dict[Method, Sequence[str]] = {find_method(name): self.layers[name] for name in methods}
        return Gaze(self.classifier, picture, list(layers), layer=layers, side=self.side)

    def proposed(self, picture: Image.Image, task: Asked) -> tuple[Proposals, str]:
        """The candidates; without any, why there are none. The phrases of such an image are missed, not left out."""
        try:
            return self.source.of(picture, task.name, task.described.path), ""
        except ProposalError as error:
            return Proposals(picture.size, np.zeros((0, 4), np.float32), np.zeros(0, np.float32)), str(error)

    def scorer(self, proposals: Proposals) -> Scorer:
        """What scores the candidates of an image."""
        return Scorer(proposals, self.trust)


def enlarged(classifier: Classifier, side: int) -> Classifier:
    """The same classifier, to whom images are shown as large as in this experiment, if it can see them so.

    Where a method is best read may depend on that.

    Example:
        >>> enlarged(excite.load(), 300).preprocess.shorter_side
        300
    """
    prepare = classifier.preprocess
    if not isinstance(prepare, Preprocess) or prepare.square:
        return classifier
    return replace(classifier, preprocess=replace(prepare, shorter_side=side))


@cache
def _source() -> str:
    """Changes when what words mean, or how regions are scored, does: that is tuned more often than versions count."""
    parts = [files(f"excite.{part}") for part in ("grounding", "vocabulary")]
    texts = [
        file.read_bytes()
        for part in parts
        for file in sorted(part.iterdir(), key=str)
        if file.name.endswith((".py", ".txt"))  # the tables of words too
    ]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def _proposals_identity(name: str) -> list[Any]:
    """Changes when the proposals would: their maker and its settings, or the files that they are read from."""
    if name in PROPOSERS:
        maker = PROPOSERS[name]
        return [name, maker.version, repr(maker)]
    path = Path(name)
    return [file_state(file) for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]


def _words_identity(labels: Labels) -> str:
    words = [labels.synonyms(unit) for unit in range(len(labels))]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


# The facts about a phrase that records of grounding hold, for both readings of its truth.

TRUTHS = ("union", "any")
"""What has to be matched of what a phrase refers to: the box around all of it, or any of its boxes."""

OWN = "proposals"
"""The ranking by the proposals' own scores, which looks at no phrase (the paper's MCG_base)."""


@dataclass(frozen=True)
class Asked:
    """An image and the phrases that are asked of it."""

    described: PhraseSample

    @property
    def name(self) -> str:
        """The image's name within its data set."""
        return self.described.name

    def key(self, question: str) -> str:
        """Changes when the image, what was said about it or the question does."""
        described = self.described
        phrases = [asdict(phrase) for phrase in described.phrases]
        facts = [question, *file_state(described.path), described.size, phrases]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def checked_truth(truth: str) -> str:
    """The name of a truth that there is.

    Example:
        >>> checked_truth("any")
        'any'
    """
    if truth not in TRUTHS:
        raise DataError(f"there is no truth {truth!r}: choose {' or '.join(TRUTHS)}")
    return truth


def check_size(described: PhraseSample, size: tuple[int, int]) -> None:
    """Raise a `DataError` if the image has another size than its annotation says: its boxes would lie elsewhere.

    Example:
        >>> from pathlib import Path
        >>> from excite.datasets.phrases import PhraseSample
        >>> check_size(PhraseSample("a", Path("a.jpg"), (), size=(6, 4)), (6, 4))
    """
    if described.size not in {None, size}:
        told = " x ".join(map(str, described.size))
        raise DataError(
            f"{str(described.path)!r} is {size[0]} x {size[1]} pixels, but annotated for {told}: "
            "its boxes lie elsewhere; annotate it again"
        )


def phrase_facts(phrase: Phrase, reading: Reading, size: tuple[int, int]) -> dict[str, Any]:
    """What was said, what it refers to, and which of its words the classifier knows."""
    return {
        "text": phrase.text,
        "groups": list(phrase.groups),
        "sentence": phrase.sentence,
        "boxes": [list(box) for box in phrase.boxes],
        "small": {truth: is_small(phrase.boxes, size, any_box=truth == "any") for truth in TRUTHS},
        "known": bool(reading.words),
        "skipped": list(reading.skipped),
        "found": [],
    }


def matches_of(boxes: ArrayLike, truth: Sequence[Box]) -> Mapping[str, NDArray[np.bool_]]:
    """Which boxes match what a phrase refers to, for both truths: for all rankings of them at once.

    Example:
        >>> {truth: hits.tolist() for truth, hits in matches_of([(0, 0, 2, 2)], [(0, 0, 2, 2), (4, 0, 6, 2)]).items()}
        {'union': [False], 'any': [True]}
    """
    around = overlaps(boxes, [union(tuple(truth))])
    return {"union": around[:, 0] >= MATCH, "any": overlaps(boxes, truth).max(axis=1) >= MATCH}


def rank_of(matches: NDArray[np.bool_]) -> int | None:
    """The rank, counted from 1, of the first of ranked boxes that matches; None where none does.

    Example:
        >>> import numpy as np
        >>> rank_of(np.array([False, True, True])), rank_of(np.array([], bool))
        (2, None)
    """
    return int(matches.argmax()) + 1 if matches.any() else None


def pointed(point: tuple[int, int] | None, boxes: Sequence[Box]) -> Mapping[str, bool]:
    """Whether the centre of a pixel lies in what a phrase refers to; one that points nowhere misses.

    Example:
        >>> pointed((3, 0), [(0, 0, 2, 2), (4, 0, 6, 2)])
        {'union': True, 'any': False}
    """
    return {"union": _point_within(point, [union(tuple(boxes))]), "any": _point_within(point, boxes)}


def _point_within(point: tuple[int, int] | None, boxes: Sequence[Box]) -> bool:
    if point is None:
        return False
    x, y = point[0] + 0.5, point[1] + 0.5
    return any(x0 <= x < x1 and y0 <= y < y1 for x0, y0, x1, y1 in boxes)


# What is done for each image of grounding: one look, its proposals, and where the right box is ranked.
#
# What is written down are facts (ranks, scores, points, for both readings of the truth), so that tables can be
# counted anew without another look.

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
    """The work done for each image: all but how the map of a phrase is judged."""

    protocol: Protocol

    @abstractmethod
    def key(self, task: Asked) -> str:
        """Changes when the image, its annotation, the question or the program does."""

    @abstractmethod
    def _judged(self, method: str, found: PhraseMap, scorer: Scorer, truth: _Truth) -> dict[str, Any]:
        """What is to be known of the map of a phrase by one method."""

    def __call__(self, task: Asked) -> dict[str, Any]:
        """One look at the image for all phrases, and what it is worth."""
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
        """Changes when the image, its annotation, the question or the program does."""
        return task.key(f"choosing {GAMMAS} {self.protocol.question}")

    def _judged(self, method: str, found: PhraseMap, scorer: Scorer, truth: _Truth) -> dict[str, Any]:
        sums = scorer.sums(found.plane)
        orders = [scorer.ranked_positive(scorer.scores_of(sums, gamma), MOST_CHOSEN_BY) for gamma in GAMMAS]
        return {"method": method, "hits": [_hits(order, truth) for order in orders]}


@dataclass(frozen=True, eq=False)
class Ranking(Work):
    """How the boxes are ranked with the gamma of each method, and where the map points.

    Attributes:
        gammas: of each method, by name.
    """

    gammas: Mapping[str, float]

    def key(self, task: Asked) -> str:
        """Changes when the image, its annotation, the question or the program does."""
        return task.key(f"ranking {json.dumps(self.gammas)} {self.protocol.question}")

    def _judged(self, method: str, found: PhraseMap, scorer: Scorer, truth: _Truth) -> dict[str, Any]:
        scores = scorer.scores(found.plane, self.gammas[method])
        order, point = scorer.ranked_positive(scores), found.point
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
