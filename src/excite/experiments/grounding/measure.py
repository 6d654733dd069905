"""The record of an image in grounding: its proposals, and the rank of the right box for each phrase and method.

Records hold facts (ranks, scores, points, for both readings of the truth), so that tables can be counted again without
another forward pass.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from excite import __version__
from excite.datasets.base import union
from excite.errors import DataError, ModelError, ProposalError
from excite.experiments.base import digest
from excite.grounding import PhraseSession, Scorer
from excite.grounding.proposals import PROPOSERS, Proposals
from excite.images import file_state, read_image
from excite.methods import find_method
from excite.metrics.boxes import MATCH, box_iou
from excite.metrics.phrases import first_match, is_small
from excite.models import Preprocess
from excite.models.classifier import identity
from excite.vocabulary import read_phrase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray
    from PIL import Image

    from excite.datasets import Box
    from excite.datasets.base import Phrase, PhraseSample
    from excite.grounding import PhraseMap
    from excite.grounding.proposals import Source
    from excite.methods import Method
    from excite.models import Classifier
    from excite.vocabulary import Labels, Reading

    Matches = Mapping[str, NDArray[np.bool_]]

TRUTHS = ("union", "any")
"""The box to match: the one around all that a phrase refers to, or any of its boxes."""

OWN = "proposals"
"""The ranking by the proposals' own scores, independent of the phrase (the paper's MCG_base)."""

GAMMAS = tuple(step / 20 for step in range(21))
"""The values tried; one is chosen for each method. The best often lie between the paper's (docs/grounding.md)."""

PAPERS_GAMMAS = (0.0, 0.25, 0.5, 0.75, 1.0)

MOST_CHOSEN_BY = 10  # ranks: later ones make no difference to the choice
MOST_SCORES = 100  # kept of a phrase, for average precision
STEPS = ("proposals", "looking", "scoring")


@dataclass(frozen=True)
class PhraseTask:
    """An image and its phrases."""

    described: PhraseSample

    @property
    def name(self) -> str:
        """The image's name within its data set."""
        return self.described.name

    def key(self, question: str) -> str:
        """A digest of the image, its phrases and the question."""
        described = self.described
        phrases = [asdict(phrase) for phrase in described.phrases]
        return digest([question, *file_state(described.path), described.size, phrases])

    def read(self) -> Image.Image:
        """The image.

        Raises:
            DataError: it has another size than its annotation, so that the boxes would lie elsewhere.
        """
        picture = read_image(self.described.path)
        if self.described.size not in {None, picture.size}:
            annotated = " x ".join(map(str, self.described.size))
            raise DataError(
                f"{str(self.described.path)!r} is {picture.width} x {picture.height} pixels, but annotated for "
                f"{annotated}: its boxes lie elsewhere; annotate it again"
            )
        return picture


@dataclass(frozen=True, eq=False)
class GroundingSetup:
    """All that is the same for every image.

    Raises:
        ModelError: the classifier has no labels.
    """

    classifier: Classifier  # with labels
    layers: Mapping[str, tuple[str, ...]]  # for each method, by name, the layer at which it is read
    source: Source  # of the proposals
    proposals: str
    trust: float  # the weight of the proposals' own order, 0 to 1
    side: int  # the shorter side of the image as the classifier sees it
    hints: bool  # whether words for locations and colours weigh the maps
    question: str = field(init=False)  # all of that as text
    labels: Labels = field(init=False)  # the words of the classifier

    def __post_init__(self) -> None:
        labels = self.classifier.labels
        if labels is None:
            raise ModelError(f"{self.classifier.name} has no labels: give it words with excite.wrap(..., labels=...)")
        words = digest([labels.synonyms(unit) for unit in range(len(labels))])
        asked = [self.layers, _proposals_identity(self.proposals), self.trust, self.side, self.hints]
        facts = ["grounding", __version__, _code_digest(), *asked, identity(self.classifier), words]
        object.__setattr__(self, "question", json.dumps(facts))
        object.__setattr__(self, "labels", labels)

    def open_session(self, picture: Image.Image, methods: Sequence[str]) -> PhraseSession:
        """The forward passes of an image for these methods."""
        layers: dict[Method, Sequence[str]] = {find_method(name): self.layers[name] for name in methods}
        return PhraseSession(self.classifier, picture, list(layers), layer=layers, side=self.side)

    def proposed(self, picture: Image.Image, task: PhraseTask) -> tuple[Proposals, str]:
        """The proposals; without any, the reason. The phrases of such an image are missed, not left out."""
        try:
            return self.source.of(picture, task.name, task.described.path), ""
        except ProposalError as error:
            return Proposals(picture.size, np.zeros((0, 4), np.float32), np.zeros(0, np.float32)), str(error)


def enlarged(classifier: Classifier, side: int) -> Classifier:
    """The same classifier with a preprocessing to that shorter side, if it takes it: the best layers depend on it.

    Example:
        >>> enlarged(excite.load(), 300).preprocess.shorter_side
        300
    """
    prepare = classifier.preprocess
    if not isinstance(prepare, Preprocess) or prepare.square:
        return classifier
    return replace(classifier, preprocess=replace(prepare, shorter_side=side))


@cache
def _code_digest() -> str:
    """A digest of the code and word tables of phrases and scores, which change more often than the version."""
    parts = [files(f"excite.{part}") for part in ("grounding", "vocabulary")]
    texts = [
        file.read_bytes()
        for part in parts
        for file in sorted(part.iterdir(), key=str)
        if file.name.endswith((".py", ".txt"))
    ]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def _proposals_identity(name: str) -> list[Any]:
    """The proposer and its settings, or the state of the files that proposals are read from."""
    if name in PROPOSERS:
        maker = PROPOSERS[name]
        return [name, maker.version, repr(maker)]
    path = Path(name)
    return [file_state(file) for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]


def checked_truth(truth: str) -> str:
    """The name of a truth, if there is one."""
    if truth not in TRUTHS:
        raise DataError(f"there is no truth {truth!r}: choose {' or '.join(TRUTHS)}")
    return truth


def matches_of(boxes: ArrayLike, truth: Sequence[Box]) -> Matches:
    """Which boxes match a phrase, for both truths.

    Example:
        >>> {truth: hits.tolist() for truth, hits in matches_of([(0, 0, 2, 2)], [(0, 0, 2, 2), (4, 0, 6, 2)]).items()}
        {'union': [False], 'any': [True]}
    """
    around = box_iou(boxes, [union(tuple(truth))])
    return {"union": around[:, 0] >= MATCH, "any": box_iou(boxes, truth).max(axis=1) >= MATCH}


def pointed(point: tuple[int, int] | None, boxes: Sequence[Box]) -> Mapping[str, bool]:
    """Whether the centre of a pixel lies in the boxes of a phrase, for both truths; None misses.

    Example:
        >>> pointed((3, 0), [(0, 0, 2, 2), (4, 0, 6, 2)])
        {'union': True, 'any': False}
    """
    if point is None:
        return dict.fromkeys(TRUTHS, False)
    x, y = point[0] + 0.5, point[1] + 0.5
    truths = {"union": [union(tuple(boxes))], "any": boxes}
    return {name: any(x0 <= x < x1 and y0 <= y < y1 for x0, y0, x1, y1 in each) for name, each in truths.items()}


@dataclass(frozen=True, eq=False)
class PhraseMeasurement:
    """Computes the record of an image: the ranks of the right boxes, and the maximum of each map."""

    setup: GroundingSetup  # all that is the same for every image
    gammas: Mapping[str, float] | None  # of each method, by name; None to rank with each of `GAMMAS`, for their choice

    def key(self, task: PhraseTask) -> str:
        """A digest of the image, its phrases, the question and the version."""
        asked = f"choosing {GAMMAS}" if self.gammas is None else f"ranking {json.dumps(self.gammas)}"
        return task.key(f"{asked} {self.setup.question}")

    def __call__(self, task: PhraseTask) -> dict[str, Any]:
        """The record of an image."""
        picture = task.read()
        seconds = dict.fromkeys(STEPS, 0.0)
        with _timed(seconds, "proposals"):
            proposals, trouble = self.setup.proposed(picture, task)
        phrases = task.described.phrases
        readings = [read_phrase(phrase.text, self.setup.labels) for phrase in phrases]
        with _timed(seconds, "scoring"):
            scorer = Scorer(proposals, self.setup.trust)
            own = scorer.ranked(proposals.scores)
            matches = [matches_of(proposals.boxes, phrase.boxes) for phrase in phrases]
            facts = [_phrase_facts(*each, picture.size, own) for each in zip(phrases, readings, matches, strict=True)]
        methods = list(self.setup.layers)
        with _timed(seconds, "looking"):
            session = self.setup.open_session(picture, methods)
        for method in methods:
            with _timed(seconds, "looking"):
                maps = session.phrase_maps(find_method(method), readings, hints=self.setup.hints)
            with _timed(seconds, "scoring"):
                for fact, found, match in zip(facts, maps, matches, strict=True):
                    fact["found"].append(
                        {"method": method, **self._ranked(method, found, scorer, match, fact["boxes"])}
                    )
        return {
            "image": task.name,
            "size": list(picture.size),
            "proposals": len(proposals),
            "trouble": trouble,
            "seconds": {step: round(spent, 4) for step, spent in seconds.items()},
            "own_scores": _rounded(scorer.proposals.scores[own]),
            "phrases": facts,
        }

    def _ranked(
        self, method: str, found: PhraseMap, scorer: Scorer, matches: Matches, boxes: Sequence[Box]
    ) -> dict[str, Any]:
        """The rank of the right box with each gamma; or with the chosen one, the scores, and the maximum of the map."""
        if self.gammas is None:
            sums = scorer.sums(found.plane)
            orders = [scorer.ranked_positive(scorer.scores_of(sums, gamma), MOST_CHOSEN_BY) for gamma in GAMMAS]
            return {"hits": [_hits(matches, order) for order in orders]}
        scores, point = scorer.scores(found.plane, self.gammas[method]), found.point
        order = scorer.ranked_positive(scores)
        return {
            "hits": _hits(matches, order),
            "scores": _rounded(scores[order]),
            "point": point and list(point),
            "pointed": pointed(point, boxes),
        }


def _hits(matches: Matches, order: NDArray[np.intp]) -> dict[str, int | None]:
    """The rank of the first right box in that order, for both truths."""
    return {name: first_match(right[order]) for name, right in matches.items()}


def _phrase_facts(
    phrase: Phrase, reading: Reading, matches: Matches, size: tuple[int, int], own: NDArray[np.intp]
) -> dict[str, Any]:
    """The record of a phrase, without the results of methods; ``own`` is the proposals' own order."""
    return {
        "text": phrase.text,
        "groups": list(phrase.groups),
        "sentence": phrase.sentence,
        "boxes": [list(box) for box in phrase.boxes],
        "small": {truth: is_small(phrase.boxes, size, any_box=truth == "any") for truth in TRUTHS},
        "known": bool(reading.words),
        "skipped": list(reading.skipped),
        "found": [],
        "own_hits": _hits(matches, own),
    }


def _rounded(ranked: NDArray[np.floating[Any]]) -> list[float]:
    """The first scores with five digits, which keeps their order."""
    return [float(f"{score:.5g}") for score in ranked[:MOST_SCORES]]


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    begun = time.perf_counter()
    try:
        yield
    finally:
        seconds[step] += time.perf_counter() - begun
