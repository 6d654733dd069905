"""The record of an image in grounding: its proposals, and the rank of the right box for each phrase and method.

Records are facts for both readings of the truth: tables can be counted again without another forward pass.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.datasets.phrases import union
from excite.errors import DataError, ProposalError
from excite.experiments.base import Measurement
from excite.grounding import PhraseSession, Scorer
from excite.grounding.proposals import PROPOSERS, Proposals
from excite.images import file_state, read_image
from excite.io.cache import fingerprint
from excite.methods import find_method
from excite.metrics.boxes import MATCH, box_iou
from excite.metrics.ranking import first_match, is_small
from excite.vocabulary import Labels, Reading, read_phrase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray
    from PIL import Image

    from excite.datasets import Box
    from excite.datasets.phrases import PhraseSample
    from excite.grounding import PhraseMap
    from excite.grounding.proposals import Source
    from excite.methods import Method

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
        phrases = [asdict(phrase) for phrase in self.described.phrases]
        return fingerprint([question, *file_state(self.described.path), self.described.size, phrases])

    def read(self) -> Image.Image:
        """The image; a `DataError` if it has another size than its annotation: the boxes would lie elsewhere."""
        picture, path, size = read_image(self.described.path), str(self.described.path), self.described.size
        if size not in {None, picture.size}:
            raise DataError(
                f"{path!r} is {picture.width} x {picture.height} pixels, but annotated for "
                f"{' x '.join(map(str, size))}: its boxes lie elsewhere; annotate it again"
            )
        return picture


@cache
def _code_digest() -> str:
    """A digest of the code and word tables of phrases and scores, which change more often than the version."""
    parts = [files(f"excite.{part}") for part in ("grounding", "vocabulary")]
    found = [file for part in parts for file in sorted(part.iterdir(), key=str) if file.name.endswith((".py", ".txt"))]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in found)).hexdigest()[:16]


def checked_truth(truth: str) -> str:
    """The name of a truth, if there is one."""
    if truth not in TRUTHS:
        raise DataError(f"there is no truth {truth!r}: choose {' or '.join(TRUTHS)}")
    return truth


def matches_of(boxes: ArrayLike, truth: Sequence[Box]) -> Matches:
    """Which boxes match a phrase, for both truths."""
    around = box_iou(boxes, [union(tuple(truth))])
    return {"union": around[:, 0] >= MATCH, "any": box_iou(boxes, truth).max(axis=1) >= MATCH}


def pointed(point: tuple[int, int] | None, boxes: Sequence[Box]) -> Mapping[str, bool]:
    """Whether the centre of a pixel lies in the boxes of a phrase, for both truths; None misses."""
    x, y = (np.nan, np.nan) if point is None else (point[0] + 0.5, point[1] + 0.5)
    truths = {"union": [union(tuple(boxes))], "any": boxes}
    return {name: any(x0 <= x < x1 and y0 <= y < y1 for x0, y0, x1, y1 in each) for name, each in truths.items()}


@dataclass(frozen=True, eq=False)
class PhraseMeasurement(Measurement):
    """Computes the record of an image: the ranks of the right boxes, and the maximum of each map."""

    source: Source  # of the proposals
    proposals: str  # the name of their proposer, or where they are read from
    trust: float  # the weight of the proposals' own order, 0 to 1
    side: int  # the shorter side of the image as the classifier sees it
    hints: bool  # whether words for locations and colours weigh the maps
    labels: Labels  # the words of the classifier
    gammas: Mapping[str, float] | None = None  # of each method, by name; None to rank with each of `GAMMAS`

    def facts(self) -> list[Any]:
        """The layers, the proposer or the state of its files, all settings, the words, and the code behind them."""
        maker, path = PROPOSERS.get(self.proposals), Path(self.proposals)
        if maker is not None:
            made: list[Any] = [self.proposals, maker.version, repr(maker)]
        else:
            made = [file_state(file) for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
        words = fingerprint([self.labels.synonyms(unit) for unit in range(len(self.labels))])
        asked = [self.layers, made, self.trust, self.side, self.hints, self.gammas or GAMMAS]
        return ["grounding", *asked, words, _code_digest()]

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

    def read(self, text: str) -> Reading:
        """A phrase in the words of the classifier."""
        return read_phrase(text, self.labels)

    def __call__(self, task: PhraseTask) -> dict[str, Any]:
        """The record of an image."""
        picture, phrases = task.read(), task.described.phrases
        seconds = dict.fromkeys(STEPS, 0.0)
        with _timed(seconds, "proposals"):
            proposals, trouble = self.proposed(picture, task)
        readings = [self.read(phrase.text) for phrase in phrases]
        with _timed(seconds, "scoring"):
            scorer = Scorer(proposals, self.trust)
            own = scorer.ranked(proposals.scores)
            matches = [matches_of(proposals.boxes, phrase.boxes) for phrase in phrases]
            facts: list[dict[str, Any]] = [
                {
                    "text": phrase.text,
                    "groups": list(phrase.groups),
                    "sentence": phrase.sentence,
                    "boxes": [list(box) for box in phrase.boxes],
                    "small": {truth: is_small(phrase.boxes, picture.size, any_box=truth == "any") for truth in TRUTHS},
                    "known": bool(reading.words),
                    "skipped": list(reading.skipped),
                    "found": [],
                    "own_hits": _hits(right, own),
                }
                for phrase, reading, right in zip(phrases, readings, matches, strict=True)
            ]
        with _timed(seconds, "looking"):
            session = self.open_session(picture, list(self.layers))
        for method in self.layers:
            gamma = None if self.gammas is None else self.gammas[method]
            with _timed(seconds, "looking"):
                maps = session.phrase_maps(find_method(method), readings, hints=self.hints)
            with _timed(seconds, "scoring"):
                for fact, found, right in zip(facts, maps, matches, strict=True):
                    ranked = self._ranked(gamma, found, scorer, right, fact["boxes"])
                    fact["found"].append({"method": method, **ranked})
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
        self, gamma: float | None, found: PhraseMap, scorer: Scorer, matches: Matches, boxes: Sequence[Box]
    ) -> dict[str, Any]:
        """The rank of the right box with each gamma; or with the chosen one, the scores, and the maximum of the map."""
        if gamma is None:
            sums = scorer.sums(found.plane)
            orders = [scorer.ranked_positive(scorer.scores_of(sums, gamma), MOST_CHOSEN_BY) for gamma in GAMMAS]
            return {"hits": [_hits(matches, order) for order in orders]}
        scores, point = scorer.scores(found.plane, gamma), found.point
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


def _rounded(ranked: NDArray[np.floating[Any]]) -> list[float]:
    """The first scores with five digits, which keeps their order."""
    return [float(f"{score:.5g}") for score in ranked[:MOST_SCORES]]


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    seconds[step] += time.perf_counter() - begun
