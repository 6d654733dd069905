"""Scores of grounding: gamma chosen on held-out images; recall, average precision and pointing on the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.experiments.grounding.measure import GAMMAS, OWN
from excite.experiments.report.tables import MethodRow, estimate_fields
from excite.grounding.ground import GAMMA
from excite.metrics.ranking import class_precisions, phrase_class, recall_at
from excite.metrics.statistics import Estimate, interval, resampled_means

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from excite.jobs import Entry


RANKS = (1, 5, 10)
"""The paper's N of R@N."""

CURVE = range(1, 11)
GROUP_RANK = 5  # of the recall of each group


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
    """Scores of several rankings of the same phrases, and their paired differences.

    Phrases of one image are not independent, so the bootstrap draws whole images. All rankings are resampled alike.
    """

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
