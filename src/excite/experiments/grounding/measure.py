"""The record of an image in grounding, with the rank of the right box for each phrase and method, and the scores."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from excite.datasets import Box
from excite.datasets.base import PhraseSample, Sample, union
from excite.errors import DataError, ProposalError
from excite.experiments.base import Measurement
from excite.experiments.report.tables import MethodRow, estimate_fields
from excite.grounding import PhraseMap, PhraseSession, Scorer
from excite.grounding.ground import GAMMA, phrase_point, region_scores
from excite.grounding.proposals import PROPOSERS, Proposals, Source
from excite.images import file_state, read_image
from excite.io.cache import fingerprint
from excite.jobs import Entry
from excite.methods import Method, find_method
from excite.metrics.boxes import MATCH, box_iou
from excite.metrics.ranking import class_precisions, first_match, is_small, phrase_class, recall_at
from excite.metrics.statistics import Estimate, interval, resampled_means
from excite.vocabulary import Labels, read_phrase

Matches = Mapping[str, NDArray[np.bool_]]

TRUTHS = ("union", "any")  # the box to match: the one around all that a phrase refers to, or any of its boxes
OWN = "proposals"  # the ranking by the proposals' own scores, independent of the phrase (the paper's MCG_base)
GAMMAS = tuple(step / 20 for step in range(21))  # tried; the best often lie between the paper's (docs/grounding.md)
PAPERS_GAMMAS = (0.0, 0.25, 0.5, 0.75, 1.0)
RANKS = (1, 5, 10)  # the paper's N of R@N
CURVE = range(1, 11)
GROUP_RANK = 5  # of the recall of each group
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
        picture, described = read_image(self.described.path), self.described
        Sample(described.name, described.path, (), described.size).check_size(picture.size)
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

    def __call__(self, task: PhraseTask) -> dict[str, Any]:
        """The record of an image."""
        picture, phrases = task.read(), task.described.phrases
        seconds = dict.fromkeys(STEPS, 0.0)
        with _timed(seconds, "proposals"):
            proposals, trouble = self.proposed(picture, task)
        readings = [read_phrase(phrase.text, self.labels) for phrase in phrases]
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
            "own_scores": _rounded(proposals.scores[own]),
            "phrases": facts,
        }

    def _ranked(
        self, gamma: float | None, found: PhraseMap, scorer: Scorer, matches: Matches, boxes: Sequence[Box]
    ) -> dict[str, Any]:
        """The rank of the right box with each gamma; or with the chosen one, the scores, and the maximum of the map."""
        if gamma is None:
            scores = [region_scores(scorer, found, gamma) for gamma in GAMMAS]
            return {"hits": [_hits(matches, scorer.chosen(each, MOST_CHOSEN_BY)[0]) for each in scores]}
        each = region_scores(scorer, found, gamma)
        (order, shares), point = scorer.chosen(each), phrase_point(scorer, found, each)
        return {
            "hits": _hits(matches, order),
            "scores": _rounded(shares),
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


@dataclass(frozen=True, eq=False)
class Mention:
    """A phrase of an image, and its result by one ranking of boxes."""

    picture: int  # the number of its image, from 0
    text: str
    groups: tuple[str, ...]  # the groups it counts for
    small: bool  # whether it refers to less than a quarter of the image
    hit: int | None  # the rank of the first box that matches, from 1; None where none does
    scores: Sequence[float]  # of the first boxes, best first
    pointed: bool | None  # whether the map's maximum lies in the object; None where there is no map


@dataclass(frozen=True)
class RankingScores:
    """The scores of a ranking over some phrases, in percent."""

    phrases: int  # their number
    # R@N for each N of `RANKS`: the share of phrases with a right box among the first N
    recalls: Mapping[int, Estimate]
    map_group: float | None  # the mean average precision over groups; None where the data have no groups
    map_phrase: float  # the mean average precision over different phrases
    pointing: Estimate | None  # the share of maps whose maximum lies in the object; None where there are no maps
    curve: tuple[float, ...]  # the recall at each number of boxes of `CURVE`


class RankingComparison:
    """Scores of several rankings of the same phrases, and their paired differences; the bootstrap draws images."""

    def __init__(self, mentions: Mapping[str, Sequence[Mention]]) -> None:
        self._mentions = mentions
        phrases = [[(one.picture, one.text) for one in each] for each in mentions.values()]
        if any(each != phrases[0] for each in phrases):
            raise DataError("these rankings are of different phrases: compare those of one experiment")
        _, pictures = np.unique([picture for picture, _ in phrases[0]], return_inverse=True)
        passed = {  # for each rank, and for pointing, which phrases
            name: [
                *([one.hit is not None and one.hit <= rank for one in each] for rank in RANKS),
                [bool(one.pointed) for one in each],
            ]
            for name, each in mentions.items()
        }
        tests = [np.bincount(pictures, weights=each) for tested in passed.values() for each in tested]
        hits = [counts.astype(np.int64)[:, None] for counts in tests]
        drawn = resampled_means(np.bincount(pictures)[:, None], hits).reshape(len(passed), len(RANKS) + 1, -1)
        self._shares = {name: [sum(each) / len(each) for each in tested] for name, tested in passed.items()}
        self._drawn = dict(zip(passed, drawn, strict=True))

    def scores(self, name: str) -> RankingScores:
        """The scores of one ranking."""
        mentions = self._mentions[name]
        estimates = [_estimate(*both) for both in zip(self._shares[name], self._drawn[name], strict=True)]
        points = all(mention.pointed is not None for mention in mentions)
        hits = [mention.hit for mention in mentions]
        return RankingScores(
            len(mentions),
            dict(zip(RANKS, estimates, strict=False)),
            _mean_precision(mentions, [mention.groups for mention in mentions]),
            _mean_precision(mentions, [(phrase_class(mention.text),) for mention in mentions]) or 0.0,
            estimates[-1] if points else None,
            tuple(100 * (recall_at(hits, rank) or 0.0) for rank in CURVE),
        )

    def lead(self, one: str, other: str) -> Estimate:
        """The R@1 of one ranking less that of another, in points."""
        return _estimate(self._shares[one][0] - self._shares[other][0], self._drawn[one][0] - self._drawn[other][0])


def _estimate(share: float, drawn: NDArray[np.float64]) -> Estimate:
    low, high = interval(drawn)
    return Estimate(100 * share, 100 * low, 100 * high)


def _mean_precision(mentions: Sequence[Mention], classes: Sequence[Sequence[str]]) -> float | None:
    """The mean average precision over classes, in percent; None without classes. Hits without a score do not matter."""
    scores: list[Any] = [mention.scores for mention in mentions]
    hits = [one.hit if one.hit is not None and one.hit <= len(one.scores) else None for one in mentions]
    found = class_precisions(classes, scores, hits)
    return 100 * sum(found.values()) / len(found) if found else None


@dataclass(frozen=True)
class ChosenGamma:
    """The gamma of a method."""

    gamma: float | None  # None where nothing is scored by area
    # for each of `GAMMAS` the mean of R@1, R@5 and R@10 on the held-out images, in percent; empty where gamma was given
    curve: tuple[float, ...] = ()


@dataclass(frozen=True)
class GroundingRow(MethodRow):
    """The scores of one ranking on the reported images; "proposals" or another system may be its method."""

    chosen: ChosenGamma  # its gamma
    all: RankingScores  # over all phrases
    small: RankingScores | None  # over those that refer to less than a quarter of the image; None where there are none
    groups: Mapping[str, float | None]  # recall at 5 of each group, in percent; None for one without phrases
    missing: int = 0  # number of phrases without a result (of another system's file): they count as missed

    @property
    def group_mean(self) -> float | None:
        """The mean over groups of their recall at 5."""
        there = [recall for recall in self.groups.values() if recall is not None]
        return sum(there) / len(there) if there else None

    @property
    def recalls(self) -> dict[str, float | None]:
        """Recall at 5 of each group, and their mean."""
        return {**self.groups, "mean": self.group_mean}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: percentages with two decimals."""
        return {
            **self.names,
            "gamma": self.chosen.gamma,
            **_plain(self.all, ""),
            **_plain(self.small, "_small"),
            "missing": self.missing,
        }


@dataclass(frozen=True)
class Lead:
    """The difference of two rows in points of recall, paired over images."""

    model: str
    method: str
    over: str
    r1: Estimate
    r1_small: Estimate | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = {"model": self.model, "method": self.method, "over": self.over}
        return names | estimate_fields("r1", self.r1) | estimate_fields("r1_small", self.r1_small)


def _plain(scores: RankingScores | None, ending: str) -> dict[str, Any]:
    """The scores as plain values; None for missing ones."""
    line: dict[str, Any] = {f"phrases{ending}": 0 if scores is None else scores.phrases}
    for rank in RANKS:
        line |= estimate_fields(f"r{rank}{ending}", None if scores is None else scores.recalls[rank])
    line[f"map_group{ending}"] = None if scores is None or scores.map_group is None else round(scores.map_group, 2)
    line[f"map_phrase{ending}"] = None if scores is None else round(scores.map_phrase, 2)
    return line | estimate_fields(f"pointing{ending}", None if scores is None else scores.pointing)


class GroundingTable:
    """The rows of several rankings of the same phrases, of which there is at least one."""

    def __init__(self, mentions: Mapping[str, Sequence[Mention]], groups: Sequence[str]) -> None:
        if not all(mentions.values()):
            raise DataError("there are no phrases to count: give more images")
        small = {name: [one for one in each if one.small] for name, each in mentions.items()}
        self.mentions, self.groups = mentions, groups
        self.all = RankingComparison(mentions)
        self.small = RankingComparison(small) if all(small.values()) else None

    def row(
        self, method: str, chosen: ChosenGamma, *, model: str = "", layer: str = "", missing: int = 0
    ) -> GroundingRow:
        """The row of a ranking."""
        small = None if self.small is None else self.small.scores(method)
        recalls = {
            group: recall_at((one.hit for one in self.mentions[method] if group in one.groups), GROUP_RANK)
            for group in self.groups
        }
        groups = {group: None if recall is None else 100 * recall for group, recall in recalls.items()}
        return GroundingRow(model, method, layer, chosen, self.all.scores(method), small, groups, missing)

    def leads(self, model: str, main: str) -> list[Lead]:
        """The lead of the main method over each other ranking."""
        others = [other for other in self.mentions if other != main]
        small = {} if self.small is None else {other: self.small.lead(main, other) for other in others}
        return [Lead(model, main, other, self.all.lead(main, other), small.get(other)) for other in others]


def choose(records: Sequence[Entry], truth: str, among: Sequence[float] = GAMMAS) -> dict[str, ChosenGamma]:
    """The gamma of each method with the best mean recall, of some of `GAMMAS`; of equals the nearest to the default."""
    ranks: dict[str, list[Sequence[int | None]]] = {}  # of first hits: [phrases][gammas]
    for phrase in phrases_of(records):
        for found in phrase["found"]:
            ranks.setdefault(found["method"], []).append([hit[truth] for hit in found["hits"]])
    chosen = {}
    for method, of_method in ranks.items():
        curve = {}
        for k, gamma in enumerate(GAMMAS):
            recalls = [recall_at((each[k] for each in of_method), rank) or 0.0 for rank in RANKS]
            curve[gamma] = 100 * sum(recalls) / len(recalls)
        best = max(among, key=lambda gamma: (curve[gamma], -abs(gamma - GAMMA)))
        chosen[method] = ChosenGamma(best, tuple(curve.values()))
    return chosen


def mentions_of(records: Sequence[Entry], method: str, truth: str) -> list[Mention]:
    """All phrases of the records with their results by a method, or by the proposals' own scores."""
    mentions = []
    for number, record in enumerate(records):
        own = {"scores": record["own_scores"], "pointed": {truth: None}}
        for phrase in record["phrases"]:
            found = {one["method"]: one for one in phrase["found"]} | {OWN: own | {"hits": phrase["own_hits"]}}
            if method not in found:
                raise DataError(f"these records have nothing of {method}: count those of one experiment at a time")
            facts = (number, phrase["text"], tuple(phrase["groups"]), phrase["small"][truth])
            its = found[method]
            mentions.append(Mention(*facts, its["hits"][truth], its["scores"], its["pointed"][truth]))
    return mentions


def phrases_of(records: Iterable[Entry]) -> list[Entry]:
    """The phrases of all images."""
    return [phrase for record in records for phrase in record["phrases"]]
